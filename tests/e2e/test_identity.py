"""Nodes are brought to the contract of their backend and kept there, on a real API server."""

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from operators import NODES, PROFILES, STATE, OperatorProcess, World, operator

from clusterconform.sandbox.admin import RequestRefused
from clusterconform.sandbox.control_plane import ControlPlane
from clusterconform.sandbox.fleet import Fleet
from clusterconform.sandbox.nodes import agent_node, virtual_node

NOW = datetime.now(UTC)  # noqa: TID251 - the programs live in real time
PROVIDER = ("virtual-kubelet.io/provider", "outpost", "NoSchedule")
MARKS = "outpost.dhnt.io/managed-marks"
CONFORMS = ("True", "Conforms")


@pytest.fixture(scope="module")
def running(account: Path) -> Iterator[OperatorProcess]:
    """The operator, enforcing."""
    with operator(account, "--bound", "enforce") as process:
        yield process


@pytest.fixture(scope="module")
def pool(running: OperatorProcess, plane: ControlPlane) -> Iterator[list[str]]:
    """Conforming virtual nodes, one for each test that asks; made together, for the condition takes 10 s."""
    world = World(plane)
    names = [
        world.admin.create(NODES, virtual_node(f"elm{index}", "vk-podman", now=NOW))["metadata"]["name"]
        for index in range(10)
    ]
    for name in names:
        world.until_condition(name, *CONFORMS)
    yield list(names)
    for name in names:
        world.delete(f"{NODES}/{name}")


@pytest.fixture
def virtual(pool: list[str]) -> str:
    """A conforming virtual node that no other test has."""
    return pool.pop()


def test_the_four_profiles_are_seeded_once_and_the_memory_of_it_is_kept(
    running: OperatorProcess, world: World
) -> None:
    names = {item["metadata"]["name"] for item in world.admin.get(PROFILES)["items"]}
    assert names >= {"k3s", "vk-podman", "vk-native", "vk-ollama"}
    assert world.admin.get(STATE)["data"]["seeded"] == "k3s,vk-native,vk-ollama,vk-podman"


def test_a_bare_virtual_node_gets_every_mark_in_one_patch(running: OperatorProcess, world: World) -> None:
    world.create("oak-vk-native", labels={"outpost.dhnt.io/backend": "vk-native"})
    world.until_condition("oak-vk-native", *CONFORMS)
    assert world.labels("oak-vk-native") == {"backend": "vk-native", "runtime": "virtual", "host": "oak"}
    assert PROVIDER in world.taints("oak-vk-native")
    listed = world.node("oak-vk-native")["metadata"]["annotations"][MARKS]
    assert set(listed.split(",")) == {
        "label:outpost.dhnt.io/host",
        "label:outpost.dhnt.io/runtime",
        "taint:virtual-kubelet.io/provider",
    }
    # A patch that meets the node lifecycle controller's taints is lost and built anew; what is stored is one.
    stored = [entry for entry in world.writes_to("oak-vk-native") if entry["responseStatus"]["code"] == 200]
    verbs = [(entry["verb"], entry["objectRef"].get("subresource")) for entry in stored]
    assert verbs == [("patch", None), ("patch", "status")]


def test_a_node_that_conforms_from_birth_gets_the_condition_and_nothing_else(virtual: str, world: World) -> None:
    assert MARKS not in world.node(virtual)["metadata"]["annotations"]
    assert [entry["objectRef"].get("subresource") for entry in world.writes_to(virtual)] == ["status"]


def test_a_removed_provider_taint_is_put_back_b72(virtual: str, world: World) -> None:
    world.patch(virtual, {"spec": {"taints": None}})
    world.until(lambda: PROVIDER in world.taints(virtual), "the taint is back")


def test_a_wrong_taint_value_is_corrected_in_place_b71(virtual: str, world: World) -> None:
    other = {"key": "example.com/other", "effect": "NoExecute", "timeAdded": "2026-07-01T00:00:00Z"}
    wrong = {"key": PROVIDER[0], "value": "old", "effect": "NoSchedule"}
    world.patch(virtual, {"spec": {"taints": [wrong, other]}})
    world.until(lambda: PROVIDER in world.taints(virtual), "the value is right")
    assert world.node(virtual)["spec"]["taints"] == [{**wrong, "value": "outpost"}, other]


def test_a_runtime_label_that_lies_is_put_right_and_the_lie_leaves_a_trace(virtual: str, world: World) -> None:
    world.label(virtual, runtime="agent")
    world.until(lambda: world.labels(virtual)["runtime"] == "virtual", "the label is right")
    world.until(
        lambda: any(
            event["reason"] == "DriftRepaired" and event["involvedObject"]["name"] == virtual
            for event in world.admin.get("/api/v1/namespaces/default/events")["items"]
        ),
        "an Event tells of it",
    )


def test_an_event_about_a_node_shows_in_describe_b89(
    virtual: str, world: World, kubectl: Callable[..., Any]
) -> None:
    world.label(virtual, runtime="agent")
    world.until(lambda: "DriftRepaired" in kubectl("describe", "node", virtual).stdout, "describe shows the Event")
    assert "RuntimeConformant" in kubectl("describe", "node", virtual).stdout


def test_a_managed_node_that_lost_its_backend_label_gets_it_back(virtual: str, world: World) -> None:
    world.label(virtual, backend=None)
    world.until(lambda: world.labels(virtual).get("backend") == "vk-podman", "the backend label is back")


def test_an_unlabelled_node_that_was_never_ours_stays_as_it_is(
    running: OperatorProcess, virtual: str, world: World
) -> None:
    world.create("stranger", labels={"type": "virtual-kubelet"})
    world.create("ash-vk-podman", labels={"outpost.dhnt.io/backend": "vk-podman"})
    world.until_condition("ash-vk-podman", *CONFORMS)  # made later and done: the stranger had its turn
    assert world.labels("stranger") == {}
    assert world.condition("stranger") == ("", "")
    assert not world.writes_to("stranger")


def test_a_backend_that_nobody_knows_is_reported_and_the_node_left_alone(
    running: OperatorProcess, world: World
) -> None:
    world.create("fir-vk-wasm", labels={"outpost.dhnt.io/backend": "vk-wasm"})
    world.until(lambda: bool(running.said("node reported", node="fir-vk-wasm")), "it is reported")
    assert running.said("node reported", node="fir-vk-wasm")[0]["reason"] == "UnknownBackend"
    assert not world.writes_to("fir-vk-wasm")


def test_a_claim_that_the_evidence_contradicts_gets_its_condition_and_nothing_else(
    running: OperatorProcess, world: World
) -> None:
    world.create(
        "liar",
        labels={"outpost.dhnt.io/backend": "vk-podman"},
        annotations={"k3s.io/node-args": '["agent","--node-name","liar"]'},
    )
    world.until_condition("liar", "False", "IdentityConflict")
    assert world.labels("liar") == {"backend": "vk-podman"}
    assert {entry["objectRef"].get("subresource") for entry in world.writes_to("liar")} == {"status"}


def test_an_agent_gets_its_host_from_its_own_node_label_flag_never_from_its_name(
    running: OperatorProcess, world: World
) -> None:
    node = agent_node("birch", index=7, now=NOW)
    name = node["metadata"]["name"]
    del node["metadata"]["labels"]["outpost.dhnt.io/host"]
    node["metadata"]["annotations"]["k3s.io/node-args"] = (
        '["agent","--node-name","other","--node-label","outpost.dhnt.io/host=birch"]'
    )
    world.admin.create(NODES, node)
    world.until(lambda: world.labels(name).get("host") == "birch", "the host label is there")


def test_a_virtual_node_that_advertises_a_kubelet_port_does_not_conform(
    running: OperatorProcess, world: World
) -> None:
    node = virtual_node("yew", "vk-ollama", now=NOW)
    node["status"]["daemonEndpoints"] = {"kubeletEndpoint": {"Port": 10250}}
    name = world.admin.create(NODES, node)["metadata"]["name"]
    world.until_condition(name, "False", "KubeletEndpointAdvertised")


def test_odd_but_valid_nodes_are_handled(running: OperatorProcess, world: World) -> None:
    world.create(
        "odd-vk-podman",
        labels={"outpost.dhnt.io/backend": "vk-podman", **{f"example.com/l{i}": "x" for i in range(110)}},
        annotations={"example.com/blob": "x" * 250_000},
        status={
            "conditions": [
                {"type": "MCEHardwareErrors", "status": "True"},
                {"type": "NetworkUnavailable", "status": "True"},
            ],
            "images": [{"names": None, "sizeBytes": 1}],
        },
    )
    world.until_condition("odd-vk-podman", *CONFORMS)
    kinds = [seen["type"] for seen in world.node("odd-vk-podman")["status"]["conditions"]]
    assert kinds[:2] == ["MCEHardwareErrors", "NetworkUnavailable"]


def test_a_foreign_writer_adding_taints_meanwhile_loses_none_of_them_b19(virtual: str, world: World) -> None:
    added = [f"example.com/t{index}" for index in range(20)]

    def add() -> None:
        for key in added:
            while True:
                node = world.node(virtual)
                taints = [*(node["spec"].get("taints") or []), {"key": key, "effect": "PreferNoSchedule"}]
                kept = [taint for taint in taints if taint["key"] != PROVIDER[0]]
                version = node["metadata"]["resourceVersion"]
                try:
                    world.patch(virtual, {"metadata": {"resourceVersion": version}, "spec": {"taints": kept}})
                except RequestRefused:  # somebody else was quicker
                    continue
                break

    writer = threading.Thread(target=add)
    writer.start()
    writer.join()
    present = {key for key, _, _ in world.taints(virtual)}
    assert present >= set(added)


def test_a_writer_that_keeps_putting_a_wrong_label_back_is_left_alone_after_three_rounds_b59_b74(
    running: OperatorProcess, virtual: str, world: World
) -> None:
    for _ in range(3):
        world.label(virtual, runtime="agent")
        world.until(lambda: world.labels(virtual)["runtime"] == "virtual", "it is put right")
    before = len(world.writes_to(virtual))
    world.label(virtual, runtime="agent")
    world.until_condition(virtual, "False", "Contested")
    assert world.labels(virtual)["runtime"] == "agent"
    assert len(world.writes_to(virtual)) == before + 1  # the condition
    world.until(
        lambda: world.profile("vk-podman")["status"]["nodes"]["contested"] == 1,
        "the profile's status says so",
    )


def test_a_real_virtual_kubelet_and_the_operator_leave_each_other_in_peace(
    running: OperatorProcess, world: World, fleet: Fleet
) -> None:
    process = fleet.start_virtual_kubelet("pine-vk-podman")
    try:
        world.label("pine-vk-podman", backend="vk-podman")
        # It advertises a kubelet port, which a virtual node must not: the truth, and not ours to repair.
        world.until_condition("pine-vk-podman", "False", "KubeletEndpointAdvertised")
        assert world.labels("pine-vk-podman") == {
            "backend": "vk-podman",
            "runtime": "virtual",
            "host": "pine",
        }
        assert [taint for taint in world.taints("pine-vk-podman") if taint[0] == PROVIDER[0]] == [PROVIDER]
    finally:
        process.stop()


def test_a_real_kubelet_keeps_our_marks_and_our_condition(
    running: OperatorProcess, world: World, fleet: Fleet
) -> None:
    process = fleet.start_hollow_kubelet(
        "maple-1a2b3c4d",
        labels={"outpost.dhnt.io/backend": "k3s", "outpost.dhnt.io/host": "maple"},
        annotations={"k3s.io/node-args": '["agent","--node-name","maple"]'},
    )
    try:
        world.until_condition("maple-1a2b3c4d", *CONFORMS)
        assert world.labels("maple-1a2b3c4d")["runtime"] == "agent"
        # The kubelet's next own write leaves both in place.
        world.patch("maple-1a2b3c4d", {"metadata": {"labels": {"kubernetes.io/os": None}}})
        world.until(
            lambda: "kubernetes.io/os" in world.node("maple-1a2b3c4d")["metadata"]["labels"],
            "the kubelet has written its node",
        )
        assert world.condition("maple-1a2b3c4d") == CONFORMS
    finally:
        process.stop()


def test_nothing_of_kopf_lies_on_any_object(virtual: str, world: World, plane: ControlPlane) -> None:
    text = str(world.admin.get(NODES)) + str(world.admin.get(PROFILES))
    assert "kopf" not in text
    assert "finalizers" not in text
    agents = {entry.get("userAgent", "") for entry in world.requests() if entry["verb"] not in {"get", "list"}}
    assert all(not agent.startswith("kopf") for agent in agents)
