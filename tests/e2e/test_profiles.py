"""Profiles seeded, edited, deleted, doubled and added: what their nodes see of it."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from operators import NODES, PROFILES, OperatorProcess, World, operator

from clusterconform.sandbox.nodes import agent_node, virtual_node

NOW = datetime.now(UTC)  # noqa: TID251 - the programs live in real time
CONFORMS = ("True", "Conforms")
NOT_ENFORCED = ("Unknown", "NotEnforced")
FIVE_LINES = ["pod-lifecycle", "termination-log-tail", "transient-app-route"]


@pytest.fixture(scope="module")
def running(account: Path) -> Iterator[OperatorProcess]:
    """The operator, enforcing."""
    with operator(account, "--bound", "enforce") as process:
        yield process


@pytest.fixture
def wasm(running: OperatorProcess, world: World) -> str:
    """A fourth virtual backend of five lines, and one node of it that conforms."""
    world.admin.create(PROFILES, _profile("vk-wasm"))
    world.create("oak-vk-wasm", labels={"outpost.dhnt.io/backend": "vk-wasm"})
    world.until_condition("oak-vk-wasm", *CONFORMS)
    return "oak-vk-wasm"


def _profile(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "outpost.dhnt.io/v1alpha1",
        "kind": "RuntimeProfile",
        "metadata": {"name": name},
        "spec": {"backend": name, "class": "virtual", "capabilities": FIVE_LINES, **spec},
    }


def test_a_fourth_virtual_backend_of_five_lines_works_at_once(wasm: str, world: World) -> None:
    assert world.labels(wasm) == {"backend": "vk-wasm", "runtime": "virtual", "host": "oak"}
    assert ("virtual-kubelet.io/provider", "outpost", "NoSchedule") in world.taints(wasm)
    world.until(lambda: world.profile_condition("vk-wasm", "Ready") == CONFORMS, "the profile is Ready")
    nodes = world.profile("vk-wasm")["status"]["nodes"]
    assert (nodes["total"], nodes["conformant"], nodes["drifted"]) == (1, 1, 0)


def test_an_edited_taint_value_reaches_the_nodes_and_the_old_one_goes(wasm: str, world: World) -> None:
    world.admin.patch(f"{PROFILES}/vk-wasm", {"spec": {"providerTaintValue": "wasm"}})
    world.until(
        lambda: (
            [taint for taint in world.taints(wasm) if taint[0].startswith("virtual-kubelet.io")]
            == [("virtual-kubelet.io/provider", "wasm", "NoSchedule")]
        ),
        "the new value has replaced the old one",
    )


def test_a_profile_that_only_observes_says_so_once_on_its_nodes_and_repairs_nothing(
    wasm: str, world: World
) -> None:
    world.admin.patch(f"{PROFILES}/vk-wasm", {"spec": {"enforcement": "Observe"}})
    world.until_condition(wasm, *NOT_ENFORCED)
    writes = len(world.writes_to(wasm))
    world.label(wasm, runtime="agent")
    world.until(lambda: world.profile("vk-wasm")["status"]["nodes"]["drifted"] == 1, "the drift is counted")
    assert world.profile_condition("vk-wasm", "Conformant") == ("False", "NodesNotConformant")
    assert world.labels(wasm)["runtime"] == "agent"
    assert len(world.writes_to(wasm)) == writes
    world.admin.patch(f"{PROFILES}/vk-wasm", {"spec": {"enforcement": "Enforce"}})
    world.until(lambda: world.labels(wasm)["runtime"] == "virtual", "enforced again, it is repaired")


def test_a_deleted_profile_leaves_the_marks_and_turns_the_condition_unknown_once_b24(
    running: OperatorProcess, wasm: str, world: World
) -> None:
    marks = (world.labels(wasm), world.taints(wasm))
    world.delete(f"{PROFILES}/vk-wasm")
    world.until_condition(wasm, *NOT_ENFORCED)
    writes = len(world.writes_to(wasm))
    world.patch(wasm, {"metadata": {"labels": {"outpost.dhnt.io/host": "other"}}})
    world.create("later-vk-podman", labels={"outpost.dhnt.io/backend": "vk-podman"})
    world.until(lambda: bool(world.writes_to("later-vk-podman")), "the operator has gone on")
    assert len(world.writes_to(wasm)) == writes
    assert (world.labels(wasm), world.taints(wasm)) == ({**marks[0], "host": "other"}, marks[1])


def test_a_profile_deleted_on_purpose_is_not_seeded_again(account: Path, world: World) -> None:
    """Needs an operator of its own, started after the deletion."""
    with operator(account):
        pass
    spec = world.profile("vk-native")["spec"]
    world.delete(f"{PROFILES}/vk-native")
    try:
        with operator(account) as process:
            assert world.gone(f"{PROFILES}/vk-native")
            assert not process.said("seeded a profile")
    finally:
        manifest = {**_profile("vk-native"), "spec": spec}
        world.admin.create(PROFILES, manifest)


def test_of_two_agent_profiles_the_younger_is_not_accepted_and_acts_on_nothing_b22(
    running: OperatorProcess, world: World
) -> None:
    spec = {**world.profile("k3s")["spec"], "backend": "k0s"}
    world.admin.create(PROFILES, {**_profile("k0s"), "spec": spec})
    world.until(
        lambda: world.profile_condition("k0s", "Accepted") == ("False", "AnotherAgentProfile"),
        "the younger is refused",
    )
    assert world.profile_condition("k0s", "Ready") == ("False", "AnotherAgentProfile")
    agent = agent_node("hazel", index=3, now=NOW)
    agent["metadata"]["labels"] |= {"outpost.dhnt.io/backend": "k0s", "outpost.dhnt.io/runtime": "wrong"}
    name = world.admin.create(NODES, agent)["metadata"]["name"]
    own = world.admin.create(NODES, agent_node("larch", index=4, now=NOW))["metadata"]["name"]
    world.until_condition(own, *CONFORMS)
    assert not world.writes_to(name)
    assert world.profile_condition("k3s", "Accepted") == ("True", "Accepted")


def test_a_status_stays_small_and_is_written_at_most_every_five_seconds(
    running: OperatorProcess, world: World
) -> None:
    for index in range(30):
        world.create(f"beech{index}-vk-ollama", labels={"outpost.dhnt.io/backend": "vk-ollama"})
    world.until(lambda: world.profile("vk-ollama")["status"]["nodes"]["conformant"] == 30, "all 30 are counted")
    writes = [
        datetime.fromisoformat(entry["requestReceivedTimestamp"])
        for entry in world.requests()
        if entry.get("objectRef", {}).get("resource") == "runtimeprofiles"
        and entry["objectRef"].get("name") == "vk-ollama"
        and entry["objectRef"].get("subresource") == "status"
        and entry["verb"] == "patch"
    ]
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(writes)]
    # Another operator of this session may have written just before: its last write is no business of ours.
    ours = [gap for gap in gaps[-3:] if gap < 60]
    assert all(gap >= 4.9 for gap in ours), gaps


def test_what_a_person_sees_first_tells_the_truth(
    running: OperatorProcess, world: World, kubectl: Callable[..., Any]
) -> None:
    node = virtual_node("yew", "vk-native", now=NOW)
    node["status"]["daemonEndpoints"] = {"kubeletEndpoint": {"Port": 10250}}
    name = world.admin.create(NODES, node)["metadata"]["name"]
    world.until_condition(name, "False", "KubeletEndpointAdvertised")
    world.until(
        lambda: world.profile_condition("vk-native", "Ready") == ("False", "NodesNotConformant"),
        "the profile tells of it",
    )
    row = next(line for line in kubectl("get", "rtp").stdout.splitlines() if line.startswith("vk-native"))
    assert row.split()[:6] == ["vk-native", "virtual", "1", "0", "1", "False"]
    assert world.profile("vk-native")["status"]["samples"][0]["name"] == name
