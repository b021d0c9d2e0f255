"""Ten faults on a real control plane, each found by somebody who has only ``status``, ``explain`` and ``doctor``.

One control plane with the operator at work; the dead are made first, since it takes more than a minute until they
count as such.
"""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from click.testing import CliRunner
from operators import NODES, PROFILES, ROOT, OperatorProcess, World, install, operator
from reaping_stage import Stage, now

from clusterconform.cli.demo.shipped import apply_file
from clusterconform.cli.main import main
from clusterconform.contract.times import format_time, parse_time
from clusterconform.sandbox.builder import Builder
from clusterconform.sandbox.command_lines import NodeLifecycle
from clusterconform.sandbox.control_plane import ControlPlane
from clusterconform.sandbox.fleet import Fleet
from clusterconform.sandbox.kwok import kept_alive
from clusterconform.sandbox.nodes import agent_name, agent_node, virtual_node
from clusterconform.sandbox.tunnel import Tunnel

CLUSTER_ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/clusterconform"
BROKEN = agent_name("rowan", 0)
LIVING = ("medlar", "quince", "sorb")  # hosts of no other fleet of this machine, whose endpoints they would take
SAME_PORT = ("worker-17", "worker-408")  # contract V5


@dataclass
class Scene:
    """The cluster, the operator on it, and our commands."""

    stage: Stage
    process: OperatorProcess

    @property
    def world(self) -> World:
        return self.stage.world

    def said(self, *arguments: str) -> str:
        """What a command prints."""
        config = ["--kubeconfig", str(self.stage.plane.kubeconfig)]
        done = CliRunner(env={"COLUMNS": "300"}).invoke(main, [*arguments, *config])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        assert done.exit_code in {0, 1}, done.output
        return done.stdout

    def value(self, *arguments: str) -> Any:
        """The same as JSON."""
        return json.loads(self.said(*arguments, "-o", "json"))

    def troubles(self, check: str) -> list[str]:
        """What doctor finds in one check."""
        found = next(row for row in self.value("doctor")["checks"] if row["check"] == check)
        assert all(trouble["advice"] for trouble in found["findings"])
        return [trouble["message"] for trouble in found["findings"]]

    def finds(self, check: str, *words: str, seconds: float = 30) -> None:
        """Wait until doctor says all of ``words`` in one finding of a check."""
        self.world.until(
            lambda: any(all(word in message for word in words) for message in self.troubles(check)),
            f"doctor finds {words} in {check}",
            seconds=seconds,
        )


@pytest.fixture(scope="module")
def scene(builder: Builder) -> Iterator[Scene]:
    with ControlPlane(builder, audit=True) as plane:
        plane.start_controller_manager(NodeLifecycle(monitor_period=1, monitor_grace_period=20))
        plane.start_scheduler()  # for the probe, a DaemonSet of the operator's
        world = install(plane)
        for name in ("rbac.yaml", "admission.yaml"):
            apply_file(plane.admin, ROOT / "deploy" / "base" / name)
        fleet = Fleet(plane)
        fleet.start_kwok(broken=[BROKEN])
        account = plane.service_account_kubeconfig("clusterconform-system", "clusterconform")
        stage = Stage(plane=plane, world=world, fleet=fleet, account=account)
        for index in range(6):
            stage.dead("ash", index=index)
        stage.alive(*LIVING)
        with operator(account, "--bound", "enforce") as process:
            stage.settings()
            yield Scene(stage, process)


def test_1_a_wrong_label_that_another_writer_restores(scene: Scene) -> None:
    world = scene.world
    name = world.admin.create(NODES, virtual_node("oak", "vk-podman", now=now()))["metadata"]["name"]
    world.until_condition(name, "True", "Conforms")
    label = "outpost.dhnt.io/runtime"
    change = {"metadata": {"labels": {label: "agent"}}}
    for _ in range(4):
        world.until(lambda: world.labels(name)["runtime"] == "virtual", "the label is put right")
        path = f"{NODES}/{name}?fieldManager=label-bot"
        world.admin.request("PATCH", path, change, content_type="application/merge-patch+json")
    world.until_condition(name, "False", "Contested")
    row = scene.value("explain", name)
    assert [finding["reason"] for finding in row["findings"]] == ["Contested"]
    assert row["findings"][0]["lastWriter"]["name"] == "label-bot"
    assert row["wouldWrite"] == []
    scene.finds("contested", name, label, "label-bot")
    world.until(
        lambda: any(profile["nodes"]["contested"] for profile in scene.value("status")["profiles"]),
        "status counts it",
    )


def test_status_tells_when_the_leader_last_listed_everything_and_heard_of_nodes(scene: Scene) -> None:
    def ages(value: Any) -> list[float]:
        """How old both are, in seconds."""
        moments = [parse_time(value[name]) for name in ("now", "lastResync", "lastHeard")]
        told = [at for at in moments if at is not None]
        return [(told[0] - at).total_seconds() for at in told[1:]]

    scene.world.until(lambda: len(ages(scene.value("status"))) == 2, "both are told in the Lease")
    assert all(-5 < age < 600 for age in ages(scene.value("status")))
    assert scene.troubles("stream") == []


def test_2_a_missing_rbac_verb(scene: Scene) -> None:
    admin = scene.stage.plane.admin
    role = admin.get(CLUSTER_ROLE)
    rules = [rule for rule in role["rules"] if "nodes/status" not in rule["resources"]]
    admin.patch(CLUSTER_ROLE, {"rules": rules})
    try:
        scene.finds("permissions", "may not", "patch nodes/status")
    finally:
        admin.patch(CLUSTER_ROLE, {"rules": role["rules"]})
    scene.world.until(lambda: scene.troubles("permissions") == [], "all rights are there again")


@contextmanager
def tunnelled(scene: Scene) -> Iterator[tuple[str, Tunnel]]:
    """An agent with a tunnel at its endpoint; one whose endpoint no other program of this machine has."""
    port = scene.stage.fleet.kwok_port
    assert port is not None
    tunnel = Tunnel(port)
    try:
        for host in LIVING:
            told = scene.value("explain", agent_name(host, 0))["endpoint"]
            with suppress(OSError):
                tunnel.open(told["address"], told["port"])
                yield agent_name(host, 0), tunnel
                return
        pytest.fail("every endpoint is taken by another program")
    finally:
        tunnel.close()


def test_3_a_dead_tunnel(scene: Scene) -> None:
    def path(name: str) -> str:
        seen = scene.value("explain", name)["kubeletPath"]
        return str(seen and seen["reason"])

    with tunnelled(scene) as (name, tunnel):
        scene.world.until(lambda: path(name) == "StreamingVerified", "the way is proven", seconds=60)
        proven = {row["name"]: row["verified"] for row in scene.value("explain", name)["capabilities"]}
        assert proven["kubelet-log-stream"] is True
        tunnel.close()  # with the connection that the API server keeps open through it
        scene.world.until(lambda: path(name) == "ConnectionRefused", "the tunnel is found dead", seconds=60)
        scene.finds("paths", name, "ConnectionRefused")


def test_4_a_port_collision(scene: Scene) -> None:
    nodes = [kept_alive(agent_node(host, now=now())) for host in SAME_PORT]
    scene.stage.fleet.create_nodes(nodes)
    scene.finds("ports", "worker-", "23886")
    # The dead share a host and with it a port; what is looked at here are the two of different hosts.
    (message,) = [message for message in scene.troubles("ports") if message.startswith("worker-")]
    younger = message.partition(":")[0]
    assert younger in {agent_name(host, 0) for host in SAME_PORT}
    assert scene.value("explain", younger)["endpoint"]["reason"] == "PortCollision"
    for host in SAME_PORT:
        scene.world.delete(f"{NODES}/{agent_name(host, 0)}")


def test_5_a_profile_that_is_not_accepted(scene: Scene) -> None:
    spec = {**scene.world.profile("k3s")["spec"], "backend": "k0s"}
    manifest = {
        "apiVersion": "outpost.dhnt.io/v1alpha1",
        "kind": "RuntimeProfile",
        "metadata": {"name": "k0s"},
        "spec": spec,
    }
    scene.world.admin.create(PROFILES, manifest)
    try:
        scene.finds("profiles", "RuntimeProfile k0s is not accepted", "k3s is the older")
        scene.world.until(
            lambda: "AnotherAgentProfile" in scene.said("status"), "status tells why it is not Ready"
        )
    finally:
        scene.world.delete(f"{PROFILES}/k0s")


def test_6_a_held_mass_outage(scene: Scene) -> None:
    scene.world.until(lambda: scene.stage.allowed() == ("False", "MassStale"), "the breaker holds", seconds=150)
    status = scene.value("status")["reaping"]
    assert (status["allowed"], status["reason"]) == ("False", "MassStale")
    assert status["held"]
    name = status["held"][0]["name"]
    reaping = scene.value("explain", name)["reaping"]
    assert reaping["candidate"] is True
    assert reaping["held"]["reason"] == reaping["guard"]["reason"] == "MassStale"
    assert f"{name}: MassStale" in scene.said("status")
    scene.finds("reaping", "MassStale", "held: ")


def test_7_a_virtual_node_that_claims_a_kubelet_port(scene: Scene) -> None:
    raw = virtual_node("yew", "vk-native", now=now())
    raw["status"]["daemonEndpoints"] = {"kubeletEndpoint": {"Port": 10250}}
    name = scene.world.admin.create(NODES, raw)["metadata"]["name"]
    assert [row["reason"] for row in scene.value("explain", name)["findings"]] == ["KubeletEndpointAdvertised"]
    scene.finds("nodes", "KubeletEndpointAdvertised", name, "10250")
    scene.world.until(lambda: "KubeletEndpointAdvertised" in scene.said("status"), "status names the reason")


def test_8_a_skewed_node_clock(scene: Scene) -> None:
    name = agent_name("elder", 0)
    scene.stage.plane.admin.create(NODES, agent_node("elder", now=now()))
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}
    ready |= {
        "lastTransitionTime": format_time(now()),
        "lastHeartbeatTime": format_time(now() + timedelta(hours=1)),
    }
    scene.world.admin.request(
        "PATCH",
        f"{NODES}/{name}/status?fieldManager=k3s",
        {"status": {"conditions": [ready]}},
        content_type="application/strategic-merge-patch+json",
    )
    scene.finds("node-clocks", f"the clock of {name} is ", "ahead of the API server's")
    scene.world.delete(f"{NODES}/{name}")


def test_9_a_broken_sandbox(scene: Scene) -> None:
    scene.world.admin.patch(f"{PROFILES}/k3s", {"spec": {"runtimeProbe": {"grace": "1s"}}})
    scene.stage.fleet.create_nodes([kept_alive(agent_node("rowan", now=now()))])
    scene.stage.fleet.await_ready([BROKEN])
    scene.finds("runtimes", f"the container runtime of {BROKEN} does not run a pod", seconds=60)
    row = scene.value("explain", BROKEN)
    assert row["probe"]["verdict"] == "unavailable"
    assert {seen["name"]: seen["verified"] for seen in row["capabilities"]}["pod-lifecycle"] is False


def test_explain_tells_what_the_operator_then_does(scene: Scene) -> None:
    """Asked while the operator stands still, so that there is something left to be done."""
    world = scene.world
    name = world.create("plum-vk-ollama", labels={"outpost.dhnt.io/backend": "vk-ollama"})["metadata"]["name"]
    world.until_condition(name, "True", "Conforms")
    rows = {row["node"]: row for row in scene.value("explain", "--all")}
    assert (rows[name]["wouldWrite"], rows[name]["conformant"]) == ([], True)
    before = len(world.writes_to(name))
    scene.process.kill(signal.SIGSTOP)
    try:
        world.label(name, runtime="agent")
        row = scene.value("explain", name)
    finally:
        scene.process.kill(signal.SIGCONT)
    assert row["wouldWrite"] == ["marks: outpost.dhnt.io/runtime is agent, not virtual"]
    world.until(lambda: world.labels(name)["runtime"] == "virtual", "what was told is done", seconds=60)
    writes = [entry["objectRef"].get("subresource") for entry in world.writes_to(name)[before:]]
    assert writes == [None]


def test_10_a_paused_leader(scene: Scene) -> None:
    """The last one: after it another term begins."""
    scene.process.kill(signal.SIGSTOP)
    try:
        scene.world.until(
            lambda: "does not answer: its Lease was renewed" in scene.said("status"),
            "status misses it",
            seconds=40,
        )
        scene.finds("leader", "has not renewed its Lease for ")
    finally:
        scene.process.kill(signal.SIGCONT)
    scene.world.until(lambda: scene.troubles("leader") == [], "a leader is there again", seconds=60)
