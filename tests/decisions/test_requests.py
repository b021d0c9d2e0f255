from datetime import UTC, datetime
from typing import Any

import pytest
from builders import BORN, START, TAINT, agent, bare, facts, marks, node, virtual
from server import FakeServer, LostTestError

from clusterconform.contract.facts import Taint
from clusterconform.contract.names import BACKEND_LABEL, HOST_LABEL, MARKS_ANNOTATION, RUNTIME_LABEL
from clusterconform.contract.plan import (
    BACKEND_MARK,
    PROVIDER_TAINT_MARK,
    RUNTIME_MARK,
    ConditionWrite,
    MarksPatch,
    Plan,
)
from clusterconform.contract.request import APPLY_PATCH, JSON_PATCH, Request
from clusterconform.decisions.requests import condition_request, marks_request, requests_of

Json = dict[str, Any]

OURS = Taint("virtual-kubelet.io/provider", "outpost", "NoSchedule")
LABELS = "/metadata/labels"
RUNTIME = f"{LABELS}/outpost.dhnt.io~1runtime"
BACKEND = f"{LABELS}/outpost.dhnt.io~1backend"
HOST = f"{LABELS}/outpost.dhnt.io~1host"
LISTING = "/metadata/annotations/outpost.dhnt.io~1managed-marks"
UID: Json = {"op": "test", "path": "/metadata/uid", "value": "uid-1"}

RELABEL = MarksPatch(labels={RUNTIME_LABEL: "agent"}, listed=(RUNTIME_MARK,), marks=(RUNTIME_MARK,))
TAINTED = MarksPatch(taints=(OURS,), listed=(PROVIDER_TAINT_MARK,), marks=(PROVIDER_TAINT_MARK,))
UNTAINTED = MarksPatch(taints=(), listed=(), marks=(PROVIDER_TAINT_MARK,))


def holds(path: str, value: Any) -> Json:
    return {"op": "test", "path": path, "value": value}


def add(path: str, value: Any) -> Json:
    return {"op": "add", "path": path, "value": value}


def remove(path: str) -> Json:
    return {"op": "remove", "path": path}


def ops(raw: Json, patch: MarksPatch) -> list[Json]:
    body: list[Json] = marks_request(facts(raw), patch).body
    return body


def test_a_marks_patch_is_a_json_patch_of_the_node_itself() -> None:
    request = marks_request(facts(agent("pi-4c7adeb6")), RELABEL)
    assert (request.method, request.path, request.content_type) == (
        "PATCH",
        "/api/v1/nodes/pi-4c7adeb6",
        "application/json-patch+json",
    )


def test_a_label_is_set_only_where_uid_claim_and_old_value_are_as_seen() -> None:
    assert ops(agent(labels={RUNTIME_LABEL: "virtual"}), RELABEL) == [
        UID,
        holds(BACKEND, "k3s"),
        holds(RUNTIME, "virtual"),
        add(RUNTIME, "agent"),
        add(LISTING, RUNTIME_MARK),
    ]


def test_an_absent_label_is_tested_as_null() -> None:
    patch = MarksPatch(
        labels={RUNTIME_LABEL: "agent", BACKEND_LABEL: "k3s"},
        listed=(BACKEND_MARK, RUNTIME_MARK),
        marks=(BACKEND_MARK, RUNTIME_MARK),
    )
    assert ops(agent(labels={RUNTIME_LABEL: None, BACKEND_LABEL: None}), patch) == [
        UID,
        holds(BACKEND, None),
        holds(RUNTIME, None),
        add(BACKEND, "k3s"),
        add(RUNTIME, "agent"),
        add(LISTING, f"{BACKEND_MARK},{RUNTIME_MARK}"),
    ]


def test_an_empty_label_is_tested_as_empty() -> None:
    assert holds(RUNTIME, "") in ops(agent(labels={RUNTIME_LABEL: ""}), RELABEL)


def test_absent_maps_are_tested_for_absence_before_they_are_made() -> None:
    assert ops(node("n"), RELABEL) == [
        UID,
        holds(LABELS, None),
        add(LABELS, {}),
        add(RUNTIME, "agent"),
        holds("/metadata/annotations", None),
        add("/metadata/annotations", {}),
        add(LISTING, RUNTIME_MARK),
    ]


def test_maps_without_a_key_of_ours_are_not_made_anew() -> None:
    paths = [op["path"] for op in ops(node("n", labels={"a": "b"}, annotations={"c": "d"}), RELABEL)]
    assert LABELS not in paths
    assert "/metadata/annotations" not in paths


def test_the_claim_is_tested_even_when_only_the_taint_changes() -> None:
    assert ops(virtual(taints=[]), TAINTED) == [
        UID,
        holds(BACKEND, "vk-podman"),
        holds("/spec/taints", []),
        add("/spec/taints", [TAINT]),
        add(LISTING, PROVIDER_TAINT_MARK),
    ]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param(
            bare("n", taints=None),
            [holds("/spec/taints", None), add("/spec/taints", [TAINT])],
            id="absent list",
        ),
        pytest.param(
            bare("n", taints=[]), [holds("/spec/taints", []), add("/spec/taints", [TAINT])], id="empty list"
        ),
    ],
)
def test_the_taint_list_is_tested_as_it_was_seen(raw: Json, expected: list[Json]) -> None:
    assert [op for op in ops(raw, TAINTED) if op["path"].startswith("/spec")] == expected


def test_B71_every_taint_goes_back_as_the_api_server_wrote_it() -> None:
    seen = [
        {"key": "a", "effect": "NoSchedule"},
        {"key": "b", "value": "c", "effect": "NoExecute", "timeAdded": BORN},
        {"key": "d", "value": "", "effect": "NoSchedule", "timeAdded": None},
    ]
    wire = [*seen[:2], {"key": "d", "effect": "NoSchedule"}]
    patch = MarksPatch(taints=(*(facts(bare("n", taints=seen)).taints or ()), OURS), listed=(), marks=())
    body = ops(bare("n", taints=seen), patch)
    assert holds("/spec/taints", wire) in body
    assert add("/spec/taints", [*wire, TAINT]) in body


def test_the_last_taint_takes_the_list_and_the_last_mark_the_annotation_with_it() -> None:
    assert ops(agent(taints=[TAINT], annotations=marks(PROVIDER_TAINT_MARK)), UNTAINTED) == [
        UID,
        holds(BACKEND, "k3s"),
        holds("/spec/taints", [TAINT]),
        remove("/spec/taints"),
        remove(LISTING),
    ]


def test_labels_alone_neither_test_nor_touch_the_taints() -> None:
    assert not [op for op in ops(agent(taints=[TAINT]), RELABEL) if op["path"].startswith("/spec")]


@pytest.mark.parametrize("text", [f"{RUNTIME_MARK}", None])
def test_a_listing_that_reads_so_already_is_left_alone(text: str | None) -> None:
    patch = MarksPatch(
        labels={RUNTIME_LABEL: "agent"}, listed=(RUNTIME_MARK,) if text else (), marks=(RUNTIME_MARK,)
    )
    paths = [op["path"] for op in ops(agent(annotations={MARKS_ANNOTATION: text}), patch)]
    assert LISTING not in paths


def test_a_node_without_a_uid_as_in_a_file_is_not_tested_for_one() -> None:
    raw = agent()
    del raw["metadata"]["uid"]
    assert [op["path"] for op in ops(raw, RELABEL)] == [BACKEND, RUNTIME, RUNTIME, LISTING]


def test_slashes_and_tildes_in_keys_are_escaped() -> None:
    patch = MarksPatch(labels={"a/b~c": "d"}, listed=(), marks=())
    assert add("/metadata/labels/a~1b~0c", "d") in ops(agent(), patch)


def test_B17_a_marks_patch_never_names_the_status() -> None:
    patch = MarksPatch(
        labels={RUNTIME_LABEL: "agent", HOST_LABEL: "pi"}, taints=(OURS,), listed=(RUNTIME_MARK,), marks=()
    )
    for raw in (agent(), node("n"), bare("n"), virtual()):
        assert {op["path"].split("/")[1] for op in ops(raw, patch)} <= {"metadata", "spec"}


# --- what the server makes of it ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [
        node("n"),
        bare("n"),
        bare("n", taints=[]),
        agent(labels={RUNTIME_LABEL: "x"}, taints=[{"key": "a", "effect": "NoExecute"}]),
    ],
    ids=["absent maps", "empty maps", "empty list", "agent"],
)
def test_a_marks_patch_applies_to_the_object_that_it_was_made_for(raw: Json) -> None:
    patch = MarksPatch(
        labels={RUNTIME_LABEL: "agent", HOST_LABEL: "pi"},
        taints=(*(facts(raw).taints or ()), OURS),
        listed=(PROVIDER_TAINT_MARK, RUNTIME_MARK),
        marks=(),
    )
    server = FakeServer(raw)
    server.send(marks_request(facts(raw), patch))
    after = facts(server.raw)
    assert after.taints == patch.taints
    assert (after.labels[RUNTIME_LABEL], after.labels[HOST_LABEL]) == ("agent", "pi")
    assert after.annotations[MARKS_ANNOTATION] == f"{PROVIDER_TAINT_MARK},{RUNTIME_MARK}"


BOTH = MarksPatch(labels={RUNTIME_LABEL: "agent"}, taints=(OURS,), listed=(RUNTIME_MARK,), marks=())


@pytest.mark.parametrize(
    ("path", "key", "value"),
    [
        (("metadata",), "uid", "uid-2"),
        (("metadata", "labels"), BACKEND_LABEL, "vk-podman"),
        (("metadata", "labels"), BACKEND_LABEL, None),
        (("metadata", "labels"), RUNTIME_LABEL, "another"),
        (("metadata", "labels"), RUNTIME_LABEL, "agent"),
        (("spec",), "taints", [{"key": "new", "effect": "NoSchedule"}]),
        (("spec",), "taints", None),
    ],
    ids=["successor", "claim", "no claim", "label", "label already right", "new taint", "no taints"],
)
def test_B19_a_patch_whose_ground_has_moved_changes_nothing(path: tuple[str, ...], key: str, value: Any) -> None:
    raw = agent(labels={RUNTIME_LABEL: "old"}, taints=[{"key": "a", "effect": "NoSchedule"}])
    request = marks_request(facts(raw), BOTH)
    server = FakeServer(raw)
    target = server.raw
    for part in path:
        target = target[part]
    if value is None:
        del target[key]
    else:
        target[key] = value
    before = repr(server.raw)
    with pytest.raises(LostTestError):
        server.send(request)
    assert repr(server.raw) == before


def test_a_patch_survives_a_kubelet_s_heartbeat_and_foreign_labels() -> None:
    raw = agent(labels={RUNTIME_LABEL: "old"}, taints=[])
    request = marks_request(facts(raw), BOTH)
    server = FakeServer(raw)
    server.raw["metadata"]["resourceVersion"] = "8"
    server.raw["metadata"]["labels"]["example.com/zone"] = "b"
    server.raw["metadata"]["annotations"]["example.com/state"] = "c"
    server.raw["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-08-01T12:00:10Z"
    server.send(request)
    assert server.raw["metadata"]["labels"]["example.com/zone"] == "b"
    assert server.raw["metadata"]["labels"][RUNTIME_LABEL] == "agent"


# --- the condition -----------------------------------------------------------------------------------------

CONDITION = ConditionWrite(
    status="False",
    reason="HostUnknown",
    message="why",
    transition=datetime(2026, 7, 2, 10, tzinfo=UTC),
    heartbeat=START,
)


def test_the_condition_is_applied_to_the_status_under_our_name_and_against_a_successor() -> None:
    assert condition_request(facts(agent("pi-1")), CONDITION) == Request(
        method="PATCH",
        path="/api/v1/nodes/pi-1/status?fieldManager=clusterconform&force=true",
        content_type="application/apply-patch+yaml",
        body={
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "pi-1", "uid": "uid-1"},
            "status": {
                "conditions": [
                    {
                        "type": "RuntimeConformant",
                        "status": "False",
                        "reason": "HostUnknown",
                        "message": "why",
                        "lastTransitionTime": "2026-07-02T10:00:00Z",
                        "lastHeartbeatTime": "2026-08-01T12:00:00Z",
                    }
                ]
            },
        },
    )


def test_the_condition_of_a_node_without_a_uid_names_none() -> None:
    raw = agent("pi-1")
    del raw["metadata"]["uid"]
    assert condition_request(facts(raw), CONDITION).body["metadata"] == {"name": "pi-1"}


def test_B37_the_condition_leaves_every_other_condition_as_it_is() -> None:
    others = [
        {"type": "MCEHardwareErrors", "status": "False"},
        {"type": "InterlinkConnectivity", "status": "x"},
    ]
    raw = agent(conditions=others)
    server = FakeServer(raw)
    server.send(condition_request(facts(raw), CONDITION))
    server.send(condition_request(facts(raw), CONDITION))
    assert server.raw["status"]["conditions"][:-1] == raw["status"]["conditions"]
    assert server.raw["status"]["conditions"][-1]["type"] == "RuntimeConformant"


def test_a_condition_never_lands_on_a_successor_of_the_same_name() -> None:
    server = FakeServer(agent(uid="uid-2"))
    with pytest.raises(LostTestError):
        server.send(condition_request(facts(agent()), CONDITION))


# --- the plan ----------------------------------------------------------------------------------------------


def test_an_empty_plan_is_no_request() -> None:
    assert requests_of(facts(agent()), Plan()) == []


def test_marks_are_sent_before_the_condition_that_tells_of_them() -> None:
    requests = requests_of(facts(agent()), Plan(marks=RELABEL, condition=CONDITION))
    assert [request.content_type for request in requests] == [JSON_PATCH, APPLY_PATCH]


def test_a_plan_of_one_part_is_one_request() -> None:
    node_facts = facts(agent())
    assert requests_of(node_facts, Plan(marks=RELABEL)) == [marks_request(node_facts, RELABEL)]
    assert requests_of(node_facts, Plan(condition=CONDITION)) == [condition_request(node_facts, CONDITION)]
