import copy
from typing import Any

import pytest
from builders import (
    AGENT_SPEC,
    TAINT,
    VIRTUAL_SPEC,
    address,
    agent,
    at,
    bare,
    catalogue,
    conformant,
    facts,
    manifest,
    marks,
    probe_pod,
    virtual,
)
from server import FakeServer

from clusterconform.contract.matrix import MATRIX
from clusterconform.contract.memory import EMPTY
from clusterconform.contract.names import BACKEND_LABEL, RUNTIME_LABEL
from clusterconform.contract.plan import PROVIDER_TAINT_MARK
from clusterconform.contract.request import APPLY_PATCH, JSON_PATCH
from clusterconform.decisions.planning import decide
from clusterconform.decisions.requests import requests_of
from clusterconform.decisions.simulation import LostTestError, UnusableWorldError, apply, read_world, simulate

Json = dict[str, Any]

NODE_LIST: Json = {"kind": "List", "apiVersion": "v1", "items": [agent(), virtual()]}


def simulated(*documents: Any) -> Json:
    return dict(simulate(read_world(documents), at(0)))


def node_of(raw: Json, *more: Json) -> Json:
    answer: Json = simulated(raw, *more)["nodes"][0]
    return answer


# --- the world ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "documents",
    [
        pytest.param([agent(), virtual()], id="documents"),
        pytest.param([NODE_LIST], id="list"),
        pytest.param([{**NODE_LIST, "kind": "NodeList"}], id="typed list"),
        pytest.param(
            [
                {
                    "kind": "NodeList",
                    "apiVersion": "v1",
                    "items": [
                        {key: value for key, value in raw.items() if key not in {"kind", "apiVersion"}}
                        for raw in (agent(), virtual())
                    ],
                }
            ],
            id="typed list of items without kind",
        ),
        pytest.param([{"items": [agent(), virtual()]}], id="items alone"),
        pytest.param([None, agent(), None, virtual(), {"kind": "Pod", "apiVersion": "v1"}], id="among others"),
    ],
)
def test_a_world_is_objects_and_lists_of_objects(documents: list[Any]) -> None:
    world = read_world(documents)
    assert [raw["metadata"]["name"] for raw in world.nodes] == ["pi-4c7adeb6", "laptop-vk-podman"]


def test_a_world_without_profiles_is_judged_by_the_built_in_ones() -> None:
    assert [seen.name for seen in read_world([agent()]).profiles] == list(MATRIX)


def test_a_world_with_profiles_is_judged_by_those_alone() -> None:
    world = read_world([manifest("vk-wasm", VIRTUAL_SPEC)])
    assert [seen.name for seen in world.profiles] == ["vk-wasm"]


@pytest.mark.parametrize(
    "stranger",
    [
        {"kind": "Node", "apiVersion": "metal3.io/v1", "metadata": {"name": "n"}},
        {"kind": "RuntimeProfile", "apiVersion": "example.com/v1", "metadata": {"name": "n"}},
        {"kind": "RuntimeProfile", "apiVersion": "example.com/v1"},
        {"kind": "RuntimeBudget", "apiVersion": "outpost.dhnt.io/v1alpha1"},
        {"kind": "Lease", "apiVersion": "coordination.k8s.io/v1"},
        {"kind": "Shelf", "apiVersion": "v1", "items": [5]},
        {},
    ],
    ids=repr,
)
def test_an_object_of_another_kind_or_group_is_passed_over(stranger: Json) -> None:
    world = read_world([stranger])
    assert world.nodes == []
    assert [seen.name for seen in world.profiles] == list(MATRIX)


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ("text", "document 1: must be a Kubernetes object, not str"),
        ([agent()], "document 1: must be a Kubernetes object, not list"),
        ({"kind": "List", "items": [5]}, "document 1, items[0]: must be a Kubernetes object"),
        ({"kind": "Node", "apiVersion": "v1"}, "document 1: metadata.name must be a name"),
        (
            {"kind": "Node", "apiVersion": "v1", "metadata": {"name": 5}},
            "document 1: metadata.name must be a name",
        ),
        (bare(""), "document 1: metadata.name must be a name"),
        (manifest("", VIRTUAL_SPEC), "document 1: metadata.name: must be a name"),
    ],
)
def test_what_is_no_world_says_which_object_and_why(document: Any, says: str) -> None:
    with pytest.raises(UnusableWorldError) as unusable:
        read_world([document])
    assert str(unusable.value) == says


@pytest.mark.parametrize("items", [5, True, 1.5, "text", {"a": 1}], ids=repr)
def test_a_list_whose_items_are_no_list_is_no_world(items: object) -> None:
    with pytest.raises(UnusableWorldError, match="document 1"):
        read_world([{"kind": "List", "apiVersion": "v1", "items": items}])


def test_a_node_that_no_api_server_would_accept_says_which_and_where() -> None:
    raw = {**agent(), "spec": {"taints": [{"key": 5}]}}
    with pytest.raises(UnusableWorldError, match=r"node pi-4c7adeb6: .*\$\.spec\.taints\[0\]\.key"):
        simulated(raw)


# --- what would be sent ------------------------------------------------------------------------------------


def test_a_node_in_order_would_get_its_condition_and_nothing_else() -> None:
    answer = node_of(virtual())
    assert (answer["name"], answer["profile"], answer["identity"]) == (
        "laptop-vk-podman",
        "vk-podman",
        "managed",
    )
    assert (answer["conformant"], answer["reasons"]) == (True, [])
    (request,) = answer["requests"]
    assert (request["method"], request["contentType"]) == ("PATCH", APPLY_PATCH)
    assert request["body"]["status"]["conditions"][0]["status"] == "True"
    assert request["body"]["status"]["conditions"][0]["lastTransitionTime"] == "2026-08-01T12:00:10Z"


def test_a_drifted_node_would_get_one_patch_and_then_its_condition() -> None:
    answer = node_of(virtual(labels={RUNTIME_LABEL: None}, taints=None))
    assert answer["reasons"] == ["RuntimeLabelDrifted", "ProviderTaintDrifted"]
    assert [request["contentType"] for request in answer["requests"]] == [JSON_PATCH, APPLY_PATCH]


def test_a_node_that_is_at_rest_would_get_nothing() -> None:
    message = "carries the labels and the taint of RuntimeProfile vk-podman"
    assert node_of(virtual(conditions=[conformant(message=message)]))["requests"] == []


@pytest.mark.parametrize(
    ("raw", "identity"),
    [
        (bare("n"), "unidentified"),
        (virtual("vk-docker"), "unknown-backend"),
        (agent(labels={BACKEND_LABEL: None}), "unidentified"),
    ],
    ids=["bare", "unknown", "unlabelled"],
)
def test_a_node_of_no_profile_would_get_nothing(raw: Json, identity: str) -> None:
    answer = node_of(raw, manifest("k3s", {**AGENT_SPEC, "addressReconcile": {"includeUnidentified": False}}))
    assert (answer["identity"], answer["profile"], answer["requests"]) == (identity, None, [])


@pytest.mark.parametrize(
    "written",
    [
        {"labels": {BACKEND_LABEL: "vk-podman", "type": None}, "annotations": None},
        {"labels": {BACKEND_LABEL: "vk-podman"}, "annotations": {}},
    ],
    ids=["null", "empty"],
)
@pytest.mark.parametrize(
    "spec",
    [
        None,
        {},
        {"taints": None},
        {"taints": []},
        {"taints": [None, {"key": "a", "value": "", "effect": "NoSchedule", "timeAdded": None}]},
    ],
    ids=repr,
)
def test_a_node_as_written_by_hand_is_taken_as_the_api_server_would_store_it(
    written: Json, spec: Json | None
) -> None:
    raw = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "x-vk-podman", **written}, "spec": spec}
    answer = node_of(raw)
    assert answer["profile"] == "vk-podman"
    assert [request["contentType"] for request in answer["requests"]] == [JSON_PATCH, APPLY_PATCH]


@pytest.mark.parametrize(
    "raw",
    [
        virtual(labels={RUNTIME_LABEL: None}, taints=None),
        virtual(port=1, conditions=[{"type": "DiskPressure", "status": "False"}, conformant(), {"type": "Other"}]),
        agent(taints=[TAINT], annotations=marks(PROVIDER_TAINT_MARK)),
    ],
    ids=["patch", "condition", "taken back"],
)
def test_a_request_is_applied_as_the_api_server_applies_it(raw: Json) -> None:
    server, seen, simulated_node = FakeServer(raw), facts(raw), copy.deepcopy(raw)
    plan = decide(seen, catalogue(), EMPTY, at(0)).plan
    assert plan
    server.carry_out(seen, plan)
    for request in requests_of(seen, plan):
        apply(simulated_node, request)
    assert simulated_node == server.raw


def test_a_request_for_a_node_that_has_changed_since_is_lost_and_no_success() -> None:
    raw = virtual(labels={RUNTIME_LABEL: "old"})
    plan = decide(facts(raw), catalogue(), EMPTY, at(0)).plan
    (request,) = requests_of(facts(raw), plan)
    with pytest.raises(LostTestError):
        apply(virtual(labels={RUNTIME_LABEL: "newer"}), request)


def test_simulating_changes_nothing_in_the_world() -> None:
    raw = virtual(labels={RUNTIME_LABEL: None}, taints=[])
    before = copy.deepcopy(raw)
    simulated(raw)
    assert raw == before


def test_simulating_twice_gives_the_same_answer() -> None:
    raw = virtual(labels={RUNTIME_LABEL: None}, taints=[])
    assert simulated(raw, agent()) == simulated(raw, agent())


def test_the_profiles_are_shown_with_what_was_judged_of_them() -> None:
    shown = simulated(
        manifest("vk-wasm", VIRTUAL_SPEC),
        manifest("vk-bad", {**VIRTUAL_SPEC, "providerTaint": False}),
        manifest("vk-odd", {**VIRTUAL_SPEC, "capabilities": ["flying"]}),
    )
    assert shown["profiles"] == [
        {"name": "vk-wasm", "accepted": True, "reason": "Accepted"},
        {"name": "vk-bad", "accepted": False, "reason": "Invalid"},
        {"name": "vk-odd", "accepted": False, "reason": "Invalid"},
    ]


def test_an_empty_world_is_a_world() -> None:
    answer = simulated()
    assert (answer["now"], answer["nodes"]) == ("2026-08-01T12:00:00Z", [])
    assert [seen["name"] for seen in answer["profiles"]] == list(MATRIX)


# --- endpoints and probes ----------------------------------------------------------------------------------


def test_the_endpoint_of_an_agent_is_published_by_one_request_to_its_status() -> None:
    answer = node_of(agent(addresses=[address("InternalIP", "10.0.0.1")]))
    assert answer["endpoint"] == {
        "routingName": "pi",
        "address": "127.0.226.242",
        "port": 23058,
        "publish": True,
        "reason": "EndpointMissing",
        "realExternalIPs": [],
    }
    (request,) = [one for one in answer["requests"] if one["path"].endswith("/status")]
    assert request["contentType"] == JSON_PATCH
    assert [op["value"] for op in request["body"] if op["path"] == "/status/addresses"] == [
        [address("InternalIP", "10.0.0.1")],
        [address("InternalIP", "10.0.0.1"), address("ExternalIP", "127.0.226.242")],
    ]


def test_a_drifted_agent_gets_its_marks_then_its_endpoint_then_its_condition() -> None:
    answer = node_of(agent(labels={RUNTIME_LABEL: None}))
    assert [request["contentType"] for request in answer["requests"]] == [JSON_PATCH, JSON_PATCH, APPLY_PATCH]
    assert ["/status" in request["path"] for request in answer["requests"]] == [False, True, True]


def test_null_addresses_and_missing_endpoints_are_read_as_absent() -> None:
    raw = agent(addresses=[None], port=None)
    raw["status"]["daemonEndpoints"] = None
    answer = node_of(raw)
    assert any(one["path"].endswith("/status") for one in answer["requests"])


def test_V5_of_two_agents_on_one_port_the_younger_is_withheld() -> None:
    nodes = [agent("worker-408", annotations={"k3s.io/node-args": None}, uid="b")]
    nodes.append(agent("worker-17", annotations={"k3s.io/node-args": None}, uid="a"))
    answer = simulated(*nodes)
    told = {node["name"]: (node["endpoint"]["publish"], node["endpoint"]["reason"]) for node in answer["nodes"]}
    assert told == {"worker-17": (True, "EndpointMissing"), "worker-408": (False, "PortCollision")}
    assert [row["node_name"] for row in answer["diagnostics"]] == ["worker-17", "worker-408"]


def test_the_diagnostics_leave_virtual_nodes_out() -> None:
    assert [row["node_name"] for row in simulated(virtual(), agent())["diagnostics"]] == ["pi-4c7adeb6"]


def test_a_probe_pod_in_the_input_gives_a_verdict_and_its_marks() -> None:
    answer = node_of(agent(), probe_pod())
    assert answer["probe"] == {"verdict": "ready", "cause": "RuntimeReady", "held": False}
    ops = [op for request in answer["requests"] for op in request["body"] if isinstance(op, dict)]
    assert {"op": "add", "path": "/metadata/labels/outpost.dhnt.io~1runtime-ready", "value": "true"} in ops


def test_without_a_probe_pod_there_is_no_verdict_and_no_mark() -> None:
    answer = node_of(agent())
    assert answer["probe"] == {"verdict": "none", "cause": "NoProbe", "held": False}
    assert "runtime-ready" not in str(answer["requests"])


def test_a_virtual_node_is_not_probed_whatever_runs_on_it() -> None:
    answer = node_of(virtual(), probe_pod("laptop-vk-podman"))
    assert answer["probe"] == {"verdict": "none", "cause": "VirtualNode", "held": False}


def test_all_probes_are_judged_before_it_is_asked_whether_they_are_too_many() -> None:
    created = "2026-08-01T11:00:00Z"
    nodes = [agent(f"pi-{index}", uid=str(index)) for index in range(3)]
    pods = [probe_pod(f"pi-{index}", ready_status="False", created=created) for index in range(3)]
    answer = simulated(*nodes, *pods)
    assert [node["probe"]["cause"] for node in answer["nodes"]] == ["MassUnavailable"] * 3
    assert "runtime-unavailable" not in str([node["requests"] for node in answer["nodes"]])


def test_a_probe_pod_that_is_none_is_said() -> None:
    with pytest.raises(UnusableWorldError, match="document 1"):
        read_world([{**probe_pod(), "spec": {"nodeName": 5}}])


def test_a_node_that_becomes_an_agent_by_its_marks_gets_its_endpoint_too() -> None:
    answer = node_of(agent(labels={RUNTIME_LABEL: "virtual"}))
    assert answer["endpoint"]["reason"] == "VirtualNode"
    assert ["/status" in request["path"] for request in answer["requests"]] == [False, True, True]
