"""Reaping on a real control plane: real kubelets, kwok agents, the node lifecycle controller, the shipped rights.

A minute is the shortest grace that the API server accepts, so the long stories share one control plane each and
play several deaths at once.
"""

import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from operators import NODES, PROFILES, PROGRAM, ROOT, World, install, operator

from clusterconform.cli.demo.shipped import apply_file
from clusterconform.contract.names import APPROVE_ANNOTATION, KEEP_ANNOTATION
from clusterconform.contract.times import parse_time
from clusterconform.effects.clock import Clock
from clusterconform.sandbox.builder import Builder
from clusterconform.sandbox.command_lines import NodeLifecycle
from clusterconform.sandbox.control_plane import ControlPlane
from clusterconform.sandbox.fleet import Fleet
from clusterconform.sandbox.kwok import kept_alive
from clusterconform.sandbox.nodes import agent_name, agent_node, virtual_node

LEDGER = "/api/v1/namespaces/clusterconform-system/configmaps/clusterconform-ledger"
GRACE = timedelta(minutes=1)
SHORT = {
    "grace": "1m",
    "interval": "10s",
    "settle": "0s",
    "minUptime": "0s",
    "maxDeletes": 100,
    "maxReapedPercentPerDay": 100,
}
HOSTS = ("alder", "birch", "cedar", "elm", "hazel", "larch")


def now() -> datetime:
    return Clock().moment().wall


@dataclass
class Stage:
    """A control plane with everything that is shipped, and a fleet."""

    plane: ControlPlane
    world: World
    fleet: Fleet
    account: Path

    def settings(self, **changes: Any) -> None:
        """Edit the agent profile as an operator would."""
        self.world.until(lambda: not self.world.gone(f"{PROFILES}/k3s"), "the profiles are seeded")
        self.plane.admin.patch(f"{PROFILES}/k3s", {"spec": {"nodeGC": {**SHORT, **changes}}})

    def dead(self, host: str, *, index: int = 0, **metadata: Any) -> str:
        """An agent that is missed from its first second on; its name."""
        at = now()
        raw = agent_node(host, index=index, now=at, silent_since=at + timedelta(seconds=2))
        for key, value in metadata.items():
            raw["metadata"][key] = {**raw["metadata"].get(key, {}), **value}
        name: str = self.plane.admin.create(NODES, raw)["metadata"]["name"]
        return name

    def alive(self, *hosts: str) -> list[str]:
        """Agents that kwok keeps alive; their names."""
        self.fleet.create_nodes(kept_alive(agent_node(host, now=now())) for host in hosts)
        names = [agent_name(host, 0) for host in hosts]
        self.fleet.await_ready(names)
        return names

    def names(self) -> set[str]:
        return {item["metadata"]["name"] for item in self.plane.admin.get(NODES)["items"]}

    def lines(self, event: str = "") -> list[Mapping[str, Any]]:
        """The ledger, or its lines of one event."""
        if self.world.gone(LEDGER):
            return []
        text = self.plane.admin.get(LEDGER)["data"]["ledger.jsonl"]
        lines = [msgspec.json.decode(line) for line in text.splitlines()]
        return [line for line in lines if event in {"", line["event"]}]

    def reap(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """What ``clusterconform reap`` does for the administrator."""
        return subprocess.run(
            [PROGRAM, "reap", "--kubeconfig", str(self.plane.kubeconfig), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

    def reaping(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.world.profile("k3s").get("status", {}).get("nodeGC", {})
        return found

    def held(self) -> dict[str, str]:
        return {entry["name"]: entry["reason"] for entry in self.reaping().get("held", [])}

    def allowed(self) -> tuple[str, str]:
        return self.world.profile_condition("k3s", "ReapingAllowed")

    def deletions(self) -> list[str]:
        """The nodes that our account asked to delete for good, from the audit log."""
        return [
            entry["objectRef"]["name"]
            for entry in self.world.requests()
            if entry["verb"] == "delete"
            and entry["objectRef"]["resource"] == "nodes"
            and entry["responseStatus"]["code"] < 300
        ]


@pytest.fixture
def stage(builder: Builder) -> Iterator[Stage]:
    with ControlPlane(builder, audit=True) as plane:
        plane.start_controller_manager(NodeLifecycle(monitor_period=1, monitor_grace_period=20))
        world = install(plane)
        for name in ("rbac.yaml", "admission.yaml"):
            apply_file(plane.admin, ROOT / "deploy" / name)
        fleet = Fleet(plane)
        fleet.start_kwok()
        account = plane.service_account_kubeconfig("clusterconform-system", "clusterconform")
        yield Stage(plane=plane, world=world, fleet=fleet, account=account)


@pytest.mark.timeout(900)
def test_the_dead_go_the_living_stay_and_an_outage_is_refused_until_trust_is_earned_again(stage: Stage) -> None:
    world, fleet = stage.world, stage.fleet
    living = stage.alive(*HOSTS)
    oak, ash, elder = agent_name("oak", 0), agent_name("ash", 0), agent_name("elder", 0)
    hollow = {}
    for host, name in (("oak", oak), ("ash", ash), ("elder", elder)):
        model = agent_node(host, now=now())["metadata"]
        own = {key: value for key, value in model["labels"].items() if key.startswith("outpost.dhnt.io/")}
        hollow[name] = fleet.start_hollow_kubelet(name, labels=own, annotations=model["annotations"])
    fleet.await_ready([*living, *hollow])
    at = now()
    twin = virtual_node("oak", "vk-podman", now=at, silent_since=at + timedelta(seconds=2))
    twin_name = stage.plane.admin.create(NODES, twin)["metadata"]["name"]
    kept = stage.dead("maple", annotations={KEEP_ANNOTATION: "being repaired"})
    master = stage.dead("rowan", labels={"node-role.kubernetes.io/control-plane": "anything"})
    stranger = stage.dead("pi-zero", labels={"outpost.dhnt.io/host": "pi"})

    with operator(stage.account, "--bound", "enforce") as running:
        stage.settings()
        # A real kubelet's process ends; the node lifecycle controller misses it after its 20 seconds.
        hollow[oak].kill()
        world.until(lambda: world.gone(f"{NODES}/{oak}"), f"{oak} is reaped", seconds=150)
        assert stage.deletions() == [oak]
        assert [line["event"] for line in stage.lines()] == ["intended", "deleted"]
        assert "kube-system/" in stage.lines("deleted")[0]["detail"]
        world.until(lambda: stage.held().get(kept) == "Kept", "the kept one is named")
        assert stage.held()[stranger] == "IdentityConflict"
        assert {twin_name, kept, master, stranger} < stage.names()
        world.until(lambda: _events(stage, "Reaped") == [oak], "an Event of the profile tells of it")

        # All of kwok's agents and two real kubelets fall silent at once: more than half of the fleet.
        fleet.silence(living)
        hollow[ash].kill()
        hollow[elder].kill()
        world.until(lambda: stage.allowed() == ("False", "MassStale"), "the outage is refused", seconds=150)
        refusal = stage.lines("refused_mass_stale")[0]
        assert refusal["stale"] * 2 > refusal["scope"]
        world.until(lambda: {ash, elder} <= {*stage.held()}, "both are held", seconds=60)
        assert stage.deletions() == [oak]

        # One of them was thrown away, and a person says so.
        for arguments, code, words in (
            ((elder,), 2, "say --yes"),
            ((twin_name, "--yes"), 1, "NotAnAgent"),
            ((kept, "--yes"), 1, "Kept"),
            ((elder, "--yes"), 0, f"{elder} was reaped."),
        ):
            done = stage.reap(*arguments)
            assert done.returncode == code, done.stdout + done.stderr
            assert words in done.stdout + done.stderr
        assert stage.deletions() == [oak, elder]
        annotations = world.profile("k3s")["metadata"].get("annotations") or {}
        assert APPROVE_ANNOTATION not in annotations
        assert stage.allowed() == ("False", "MassStale")

        # The outage ends; what stays dead must have been dead for a grace in which nothing was doubtful.
        fleet.revive(living)
        fleet.await_ready(living)
        ended = now()
        world.until(lambda: stage.allowed() == ("False", "Untrusted"), "trust is being earned", seconds=60)
        assert stage.held()[ash] == "Untrusted"
        world.until(lambda: world.gone(f"{NODES}/{ash}"), f"{ash} is reaped", seconds=180)
        assert _at(stage.lines("deleted")[-1]) - ended > GRACE - timedelta(seconds=15)
        assert stage.deletions() == [oak, elder, ash]
        assert running.metric("clusterconform_reaped_nodes_total") == 3
    assert stage.names() >= {*living, twin_name, kept, master, stranger}


@pytest.mark.timeout(600)
def test_what_holds_a_stale_agent_is_said_and_a_person_can_approve_one(stage: Stage) -> None:
    """The fence, a clock that is slow, an edit in the middle of a window, and ``reap``."""
    world = stage.world
    living = stage.alive(*HOSTS[:3])
    slow = agent_node("linden", now=now() - timedelta(days=1))
    doomed = [stage.dead("willow", index=index) for index in range(5)]
    stage.plane.admin.create(NODES, slow)
    with operator(stage.account, "--bound", "enforce"):
        stage.settings(maxStalePercent=100, maxDeletes=2)
        world.until(lambda: len(stage.deletions()) == 2, "the budget of a window is spent", seconds=150)
        world.until(lambda: "BudgetSpent" in stage.held().values(), "the others are held")
        assert stage.reaping()["budgetLeft"] == 0
        # A shorter interval is no shorter window, and what went is not forgotten by an edit.
        stage.settings(maxStalePercent=100, maxDeletes=2, interval="11s")
        passed = stage.reaping()["lastPass"]
        world.until(lambda: stage.reaping()["lastPass"] > passed, "another pass", seconds=30)
        assert len(stage.deletions()) == 2
        stage.settings(maxStalePercent=100, maxDeletes=3)
        world.until(lambda: len(stage.deletions()) == 3, "one more is allowed", seconds=60)
        # Without the admission policy nothing goes, whatever the budget.
        fence = (
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/clusterconform-fence-delete"
        )
        stage.plane.admin.delete(fence)
        stage.settings(maxStalePercent=100, maxDeletes=4)
        world.until(lambda: stage.allowed() == ("False", "NotFenced"), "the missing fence is noticed", seconds=60)
        assert len(stage.deletions()) == 3
        stage.settings(maxStalePercent=100, maxDeletes=4, requireFence=False)
        world.until(lambda: len(stage.deletions()) == 4, "as the profile wants it", seconds=60)
    assert len(stage.names() & set(doomed)) == 1
    assert stage.names() >= {*living, slow["metadata"]["name"]}


def _events(stage: Stage, reason: str) -> list[str]:
    events = stage.plane.admin.get("/api/v1/namespaces/default/events")["items"]
    told = [
        seen for seen in events if seen["reason"] == reason and seen["involvedObject"]["kind"] == "RuntimeProfile"
    ]
    return [seen["message"].split(":")[0].removeprefix("node ") for seen in told]


def _at(line: Mapping[str, Any]) -> datetime:
    at = parse_time(line["at"])
    assert at is not None
    return at
