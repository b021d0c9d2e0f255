"""Endpoints on a real API server, against a real kubelet that puts its own list back."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from operators import NODES, PROFILES, ROOT, OperatorProcess, World, operator

from clusterconform.contract.times import parse_time
from clusterconform.sandbox.fleet import Fleet
from clusterconform.sandbox.nodes import agent_node

KUBELET = "oak-1a2b3c4d"
OAK = {"runtime": "agent", "backend": "k3s", "host": "oak"}
PIN = "outpost.dhnt.io/kubelet-endpoint"
POLICY = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies/clusterconform-pin-endpoint"
BINDING = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings/clusterconform-pin-endpoint"
Kubectl = Callable[..., Any]


def fnv1a(text: str) -> int:
    value = 2166136261
    for octet in text.encode():
        value = (value ^ octet) * 16777619 % 2**32
    return value


def derived(base: str) -> tuple[str, int]:
    """By the contract's formula, written once more."""
    slot = 256 + fnv1a(base) % 65280
    return f"127.0.{slot // 256}.{slot % 256}", 21000 + fnv1a(f"kubelet:{base}") % 9000


@pytest.fixture(scope="module")
def running(account: Path) -> Iterator[OperatorProcess]:
    with operator(account, "--bound", "enforce") as process:
        yield process


@pytest.fixture(scope="module")
def kubelet(running: OperatorProcess, fleet: Fleet) -> Iterator[str]:
    """A real kubelet that looks like a k3s agent; its node."""
    program = fleet.start_hollow_kubelet(
        KUBELET,
        labels={
            "outpost.dhnt.io/runtime": "agent",
            "outpost.dhnt.io/backend": "k3s",
            "outpost.dhnt.io/host": "oak",
        },
        annotations={"k3s.io/node-args": '["agent","--node-name","oak","--with-node-id"]'},
    )
    yield KUBELET
    program.stop()
    World(fleet.plane).delete(f"{NODES}/{KUBELET}")


@pytest.fixture
def mode(world: World, running: OperatorProcess) -> Iterator[Callable[[str], None]]:
    """Sets the mode of the agent profile; Status again afterwards."""

    def to(word: str) -> None:
        world.admin.patch(f"{PROFILES}/k3s", {"spec": {"addressReconcile": {"mode": word}}})

    yield to
    to("Status")


@pytest.fixture
def pinning(kubectl: Kubectl, world: World) -> Iterator[Kubectl]:
    """The shipped policy, in force for one test; gives kubectl."""
    done = kubectl("apply", "-f", str(ROOT / "deploy" / "overlays" / "pinned-addresses" / "pinning.yaml"))
    if not world.plane.builder.kubernetes.pins_addresses:
        assert 'no matches for kind "MutatingAdmissionPolicy"' in done.stderr
        pytest.skip("no MutatingAdmissionPolicy v1 before Kubernetes 1.36; what becomes of Pinned is tried apart")
    assert done.returncode == 0, done.stderr
    yield kubectl
    for path in (BINDING, POLICY):
        world.delete(path)


def endpoint(node: dict[str, Any]) -> tuple[str, int]:
    status = node["status"]
    external = [seen["address"] for seen in status.get("addresses") or [] if seen["type"] == "ExternalIP"]
    return (external or [""])[0], status["daemonEndpoints"]["kubeletEndpoint"]["Port"]


def published(world: World, name: str) -> bool:
    return endpoint(world.node(name)) == derived("oak")


def kubelet_writes(world: World) -> list[Any]:
    return [
        entry
        for entry in world.requests(f"system:node:{KUBELET}")
        if entry["objectRef"].get("resource") == "nodes" and entry["objectRef"].get("subresource") == "status"
    ]


def watched(world: World, name: str, seconds: float) -> list[tuple[float, bool]]:
    """Whether the node showed its endpoint, looked at every 10 ms, with the time."""
    seen, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        seen.append((time.monotonic(), published(world, name)))
        time.sleep(0.01)
    return seen


def test_in_status_mode_the_address_comes_back_within_a_second_of_each_kubelet_write(
    kubelet: str, world: World
) -> None:
    world.until(lambda: published(world, kubelet), "the endpoint is published")
    before = len(kubelet_writes(world))
    seen = watched(world, kubelet, 25)
    gaps, since = [], None
    for at, shown in seen:
        if not shown and since is None:
            since = at
        if shown and since is not None:
            gaps.append(at - since)
            since = None
    assert len(kubelet_writes(world)) > before
    assert gaps, "the kubelet never took it away"
    assert max(gaps) < 1.0


def test_everything_else_in_the_list_stays_as_the_kubelet_wrote_it(kubelet: str, world: World) -> None:
    world.until(lambda: published(world, kubelet), "the endpoint is published")
    addresses = world.node(kubelet)["status"]["addresses"]
    assert [seen["type"] for seen in addresses] == ["InternalIP", "Hostname", "ExternalIP"]


@pytest.mark.parametrize("seconds", [20, pytest.param(60, marks=pytest.mark.long)])
def test_in_pinned_mode_the_address_is_never_absent(
    kubelet: str, mode: Callable[[str], None], pinning: Kubectl, world: World, seconds: int
) -> None:
    mode("Pinned")
    world.until(lambda: PIN in world.node(kubelet)["metadata"]["annotations"], "the endpoint is recorded")
    # The policy takes a moment to be in force: from the first kubelet write that leaves the address alone on.
    before = len(kubelet_writes(world))
    world.until(
        lambda: len(kubelet_writes(world)) > before + 1 and published(world, kubelet), "the kubelet has written"
    )
    ours, theirs = len(world.writes_to(kubelet)), len(kubelet_writes(world))
    seen = watched(world, kubelet, seconds)
    assert all(shown for _, shown in seen)
    assert len(seen) > seconds * 20
    assert len(kubelet_writes(world)) > theirs
    assert len(world.writes_to(kubelet)) == ours
    assert not admission_errors(pinning)


def admission_errors(kubectl: Kubectl) -> list[str]:
    name = "apiserver_mutating_admission_policy_check_total"
    lines = kubectl("get", "--raw", "/metrics").stdout.splitlines()
    return [line for line in lines if line.startswith(name) and 'error_type="no_error"' not in line]


def test_where_the_policy_is_missing_pinned_goes_on_as_status_and_says_what_it_needs(
    kubelet: str, world: World, mode: Callable[[str], None]
) -> None:
    assert world.gone(POLICY)
    mode("Pinned")
    world.until(lambda: PIN in world.node(kubelet)["metadata"]["annotations"], "the endpoint is recorded")
    before = len(kubelet_writes(world))
    world.until(
        lambda: len(kubelet_writes(world)) > before + 1 and published(world, kubelet),
        "it is back after the kubelet's writes",
    )
    world.until(
        lambda: world.profile_condition("k3s", "AddressesPublished") == ("False", "PinningPolicyMissing"),
        "the condition says that it is missing",
        60,
    )
    (said,) = [
        seen["message"]
        for seen in world.profile("k3s")["status"]["conditions"]
        if seen["type"] == "AddressesPublished"
    ]
    assert said.startswith("mode Pinned goes on as Status; its policy needs Kubernetes 1.36 or newer: ")


def test_a_policy_that_is_removed_while_running_is_said_and_the_address_comes_back(
    kubelet: str, world: World, mode: Callable[[str], None], pinning: Kubectl
) -> None:
    mode("Pinned")
    world.until(
        lambda: world.profile_condition("k3s", "AddressesPublished")[1] != "PinningPolicyMissing",
        "the policy is found",
    )
    for path in (BINDING, POLICY):
        world.delete(path)
    what = "the condition says that it is missing"
    world.until(
        lambda: world.profile_condition("k3s", "AddressesPublished") == ("False", "PinningPolicyMissing"), what, 60
    )
    world.until(lambda: published(world, kubelet), "the address is back")


def test_off_takes_the_pin_away_and_leaves_the_rest_to_the_kubelet(
    kubelet: str, world: World, mode: Callable[[str], None]
) -> None:
    mode("Pinned")
    world.until(lambda: PIN in world.node(kubelet)["metadata"]["annotations"], "the endpoint is recorded")
    mode("Off")
    world.until(lambda: PIN not in world.node(kubelet)["metadata"]["annotations"], "the pin is gone")
    world.until(lambda: endpoint(world.node(kubelet))[0] == "", "the kubelet has put its own list back")


def test_annotation_mode_writes_what_the_cloud_controller_of_k3s_reads(
    kubelet: str, world: World, mode: Callable[[str], None]
) -> None:
    mode("Annotation")
    address, _ = derived("oak")

    def written() -> bool:
        value: str = world.node(kubelet)["metadata"]["annotations"].get("k3s.io/external-ip", "")
        return value == address

    world.until(written, "the annotation is there")
    mode("Off")
    world.until(
        lambda: "k3s.io/external-ip" not in world.node(kubelet)["metadata"]["annotations"], "it is taken back"
    )


def test_agents_whose_names_collide_may_join_and_leave_in_any_order(
    running: OperatorProcess, world: World
) -> None:
    """V5: both derive port 23886."""

    def join(base: str) -> str:
        raw = agent_node(base, index=1, now=datetime.now(UTC))  # noqa: TID251 - the programs live in real time
        name: str = world.admin.create(NODES, raw)["metadata"]["name"]
        return name

    def shown(name: str) -> str:
        return endpoint(world.node(name))[0]

    def a_second_after(name: str) -> None:
        """Ages are whole seconds, as the API server stores them; within one the uid decides."""
        born = parse_time(world.node(name)["metadata"]["creationTimestamp"])
        assert born is not None
        later = born + timedelta(seconds=1.1)
        world.until(lambda: datetime.now(UTC) > later, "a second has passed")  # noqa: TID251

    def withheld(name: str) -> int:
        return len(running.said("agent reported", node=name, reason="PortCollision"))

    first = join("worker-17")
    world.until(lambda: shown(first) == derived("worker-17")[0], "the first is published")
    a_second_after(first)
    second = join("worker-408")
    world.until(lambda: withheld(second) == 1, "the second is reported")
    assert shown(second) == ""
    world.delete(f"{NODES}/{first}")
    world.until(lambda: shown(second) == derived("worker-408")[0], "the second has taken over")
    a_second_after(second)
    assert join("worker-17") == first
    world.until(lambda: withheld(first) == 1, "the one that came back is reported")
    assert (shown(first), shown(second)) == ("", derived("worker-408")[0])


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seconds", [70, pytest.param(310, marks=pytest.mark.long)])
def test_beside_a_stock_virtual_kubelet_neither_changes_what_the_other_writes(
    running: OperatorProcess, world: World, fleet: Fleet, seconds: int
) -> None:
    """One that knows nothing of us is not written at all; one that we label keeps our marks through its writes."""
    plain, labelled = f"stock-{seconds}", f"stock-{seconds}-vk-podman"
    programs = [fleet.start_virtual_kubelet(name) for name in (plain, labelled)]
    try:
        world.label(labelled, backend="vk-podman")
        world.until_condition(labelled, "False", "KubeletEndpointAdvertised")
        before = {name: theirs(world.node(name)) for name in (plain, labelled)}
        marks, ours = marked(world, labelled), len(world.writes_to(labelled))
        beats = {name: beat(world.node(name)) for name in (plain, labelled)}
        end = time.monotonic() + seconds
        world.until(
            lambda: all(beat(world.node(name)) != beats[name] for name in beats) and time.monotonic() > end,
            "both have written their nodes for that long",
            seconds=seconds + 120,
        )
        assert {name: theirs(world.node(name)) for name in (plain, labelled)} == before
        assert marked(world, labelled) == marks
        assert not world.writes_to(plain)
        assert len(world.writes_to(labelled)) == ours
    finally:
        for program in programs:
            program.stop()
        for name in (plain, labelled):
            world.delete(f"{NODES}/{name}")


def marked(world: World, name: str) -> Any:
    """What we wrote on a node."""
    return world.labels(name), [taint for taint in world.taints(name) if taint[0] == "virtual-kubelet.io/provider"]


def theirs(node: dict[str, Any]) -> Any:
    """What a virtual-kubelet writes of its node, without times."""
    status = node["status"]
    conditions = [(seen["type"], seen["status"]) for seen in status["conditions"]]
    return status["addresses"], status["daemonEndpoints"], status["capacity"], conditions


def beat(node: dict[str, Any]) -> str:
    return max(
        seen.get("lastHeartbeatTime") or "" for seen in node["status"]["conditions"] if seen["type"] == "Ready"
    )
