"""A cluster in memory with its ledger, leaders that run passes on it ask by ask, and random fleets.

A pass can be stopped at any ask, its requests can fail with or without effect, two leaders can take turns, and
the wall clock can run away from the true one. What was really deleted, and when, the cluster writes down.
"""

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from builders import START, agent, catalogue, ready, virtual
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from clusterconform.contract.asks import (
    Answer,
    Ask,
    DeleteNode,
    Failed,
    LedgerText,
    ReadClock,
    ReadLedger,
    ReadNode,
    ReadNodeLease,
    SwapLedger,
    Trouble,
)
from clusterconform.contract.memory import EMPTY
from clusterconform.contract.names import BACKEND_LABEL, HOST_LABEL, KEEP_ANNOTATION, RUNTIME_LABEL
from clusterconform.contract.reaping import Agents, Fleet, Mode, ReapingMemory
from clusterconform.contract.times import Moment, format_time
from clusterconform.contract.verdicts import Catalogue
from clusterconform.contract.witness import read_fresh_node, read_lease
from clusterconform.decisions.planning import decide
from clusterconform.decisions.reaping import reap
from clusterconform.decisions.rehearsal import agents_of
from clusterconform.decisions.report import PassReport

Json = dict[str, Any]

HOUR = 3600.0
OURS_OFF: Json = {
    "maxReapedPercentPerDay": 100,
    "reearnTrust": False,
    "leaseWitness": False,
    "requireFence": False,
}
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
MASTER = "node-role.kubernetes.io/master"


# --- objects -----------------------------------------------------------------------------------------------


def ago(hours: float) -> str:
    """The timestamp ``hours`` before the start of a test's story."""
    return format_time(START - timedelta(hours=hours))


def dead(name: str = "pi-abc123", hours: float = 25.0, status: str = "False", **changes: Any) -> Json:
    """A raw agent that has not been Ready for ``hours``."""
    raw = agent(name, **{"uid": f"uid-{name}", **changes})
    raw["status"]["conditions"] = [ready(status, lastTransitionTime=ago(hours))]
    return raw


def living(name: str, **changes: Any) -> Json:
    """A raw agent that is Ready."""
    return agent(name, **{"uid": f"uid-{name}", **changes})


def ready_fleet(count: int) -> list[Json]:
    """So many living agents."""
    return [living(f"pi-ready-{number:02}") for number in range(count)]


def dead_fleet(*hours: float) -> list[Json]:
    """An agent for each of ``hours``, dead for so long."""
    return [dead(f"pi-dead-{number:02}", age) for number, age in enumerate(hours)]


def revived(raw: Json) -> Json:
    """``raw`` as it is when its kubelet reports again."""
    again = copy.deepcopy(raw)
    again["metadata"]["resourceVersion"] = str(int(raw["metadata"]["resourceVersion"]) + 1)
    again["status"]["conditions"] = [ready()]
    return again


def lease(hours: float, **fields: Any) -> Json:
    """A raw Lease that was last renewed before ``hours``, by its own word and by the API server's stamp."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"managedFields": [{"manager": "k3s", "time": ago(hours)}]},
        "spec": {"renewTime": ago(hours)},
        **fields,
    }


@lru_cache(maxsize=512)
def _profiles(settings: tuple[tuple[str, Any], ...]) -> Catalogue:
    return catalogue(k3s={"nodeGC": dict(settings)})


def profiles(**settings: Any) -> Catalogue:
    """The built-in profiles, the agent's reaping set to ``settings`` (wire names)."""
    return _profiles(tuple(sorted(settings.items())))


def agents(own_node: str = "", **settings: Any) -> Agents:
    """Who may be reaped under ``settings``."""
    found = agents_of(profiles(**settings))
    assert found is not None
    return Agents(backend=found.backend, policy=found.policy, own_node=own_node)


# --- the cluster -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """A node that really went.

    Attributes:
        name: Its name.
        seconds: True time, in seconds since the story's start.
        wall: What the clock on the wall said.
        raw: The node as it was.
    """

    name: str
    seconds: float
    wall: datetime
    raw: Json


class Cluster:
    """What the API server holds, and the two clocks."""

    def __init__(
        self,
        nodes: Iterable[Json],
        *,
        leases: Mapping[str, Json] | None = None,
        text: str = "",
        trust: str | None = None,
        created_at: datetime | None = None,
    ) -> None:
        self.nodes = {raw["metadata"]["name"]: raw for raw in nodes}
        self.leases = dict(leases or {})
        self.text, self.trust, self.created_at, self.version = text, trust, created_at, 1
        self.seconds, self.ahead = 0.0, 0.0
        self.fenced = True
        self.deletions: list[Deletion] = []

    @property
    def wall(self) -> datetime:
        """The clock on the wall."""
        return START + timedelta(seconds=self.seconds + self.ahead)

    @property
    def deleted(self) -> list[str]:
        """Names of the nodes that went, in order."""
        return [gone.name for gone in self.deletions]

    def wait(self, seconds: float) -> None:
        """Let time go by."""
        self.seconds += seconds

    def jump(self, seconds: float) -> None:
        """Set the wall clock ahead, or back."""
        self.ahead += seconds

    def revive(self, name: str) -> None:
        """Let a node report again."""
        if name in self.nodes:
            self.nodes[name] = revived(self.nodes[name])

    def delete(self, ask: DeleteNode) -> Failed | None:
        """What the API server does on a DELETE with preconditions; an empty one is none."""
        raw = self.nodes.get(ask.name)
        if raw is None:
            return Failed(Trouble.GONE, "not found")
        metadata = raw["metadata"]
        seen = (ask.uid or metadata["uid"], ask.resource_version or metadata["resourceVersion"])
        if seen != (metadata["uid"], metadata["resourceVersion"]):
            return Failed(Trouble.CHANGED, "the precondition does not hold")
        del self.nodes[ask.name]
        self.deletions.append(Deletion(name=ask.name, seconds=self.seconds, wall=self.wall, raw=raw))
        return None


@dataclass(frozen=True, slots=True)
class Fault:
    """An answer that was lost or refused.

    Attributes:
        trouble: What is answered instead.
        applied: Whether the request had its effect all the same.
    """

    trouble: Trouble
    applied: bool = False


class Leader:
    """One process that leads, or believes so."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        uptime: float = 2 * HOUR,
        mode: Mode = Mode.LIVE,
        own_node: str = "",
        **settings: Any,
    ) -> None:
        self.cluster, self.mode, self.own_node = cluster, mode, own_node
        self.settings = settings
        self.memory = ReapingMemory()
        self.complete = True
        self.approved: tuple[str, str] | None = None
        self.latency = 0.0
        self._began = cluster.seconds - uptime
        self._counted = cluster.seconds

    def moment(self) -> Moment:
        """What its clocks say."""
        return Moment(wall=self.cluster.wall, uptime=self.cluster.seconds - self._began)

    def begin(self) -> "Running":
        """List the nodes and begin a pass."""
        known, now = profiles(**self.settings), self.moment()
        listed = [read_fresh_node(raw).facts for raw in self.cluster.nodes.values()]
        fleet = Fleet(
            nodes=[(node, decide(node, known, EMPTY, now).verdict) for node in listed],
            agents=agents(self.own_node, **self.settings),
            mode=self.mode,
            complete=self.complete,
            trusted_seconds=self.cluster.seconds - self._counted,
            approved=self.approved,
        )
        self._counted = self.cluster.seconds
        return Running(self, fleet)

    def run(
        self,
        fresh: Mapping[str, Json | None] | None = None,
        faults: Mapping[type[Any], Fault] | None = None,
    ) -> PassReport:
        """Run a pass; before its first ask, what ``fresh`` names changes; asks of a kind in ``faults`` fail."""
        running = self.begin()
        for name, raw in (fresh or {}).items():
            if raw is None:
                self.cluster.nodes.pop(name, None)
            else:
                self.cluster.nodes[name] = raw
        while running.step((faults or {}).get(type(running.ask))):
            pass
        assert running.report is not None
        return running.report


class Running:
    """A pass at one of its asks."""

    def __init__(self, leader: Leader, fleet: Fleet) -> None:
        self.leader = leader
        self.asks: list[Ask] = []
        self.report: PassReport | None = None
        self._version = 0
        self._steps = reap(fleet, leader.memory)
        self.ask: Ask | None = None
        self._send(None)

    def step(self, fault: Fault | None = None) -> bool:
        """Answer the ask at hand; False when the pass has ended."""
        if self.ask is not None:
            self._send(self._answer(self.ask, fault))
        return self.ask is not None

    def until(self, kind: type[Any]) -> "Running":
        """Go on to the next ask of ``kind``; it must come."""
        while not isinstance(self.ask, kind):
            assert self.step(), f"the pass ended without {kind.__name__}"
        return self

    def finish(self) -> PassReport:
        """Go on to the end."""
        while self.step():
            pass
        assert self.report is not None
        return self.report

    def crash(self, *, applied: bool) -> None:
        """End the process at the ask at hand, before or after that had its effect."""
        if self.ask is not None and applied:
            self._answer(self.ask, None)
        self.ask = None
        self._steps.close()

    def _send(self, answer: Answer) -> None:
        try:
            self.ask = self._steps.send(answer)
            self.asks.append(self.ask)
        except StopIteration as end:
            report: PassReport = end.value
            self.ask, self.report, self.leader.memory = None, report, report.memory

    def _answer(self, ask: Ask, fault: Fault | None) -> Answer:
        cluster = self.leader.cluster
        if isinstance(ask, ReadClock):
            return self.leader.moment()
        cluster.wait(self.leader.latency)
        answer = None if fault is not None and not fault.applied else self._carry_out(ask)
        cluster.wait(self.leader.latency)
        return answer if fault is None else Failed(fault.trouble, "as told by the test")

    def _carry_out(self, ask: Ask) -> Answer:
        cluster = self.leader.cluster
        answer: Answer
        match ask:
            case ReadLedger():
                self._version = cluster.version
                answer = LedgerText(text=cluster.text, trust=cluster.trust, created_at=cluster.created_at)
            case SwapLedger():
                answer = self._swap(ask)
            case ReadNode():
                raw = cluster.nodes.get(ask.name)
                answer = Failed(Trouble.GONE) if raw is None else read_fresh_node(raw)
            case ReadNodeLease():
                found = cluster.leases.get(ask.name)
                answer = Failed(Trouble.GONE) if found is None else read_lease(found)
            case DeleteNode():
                answer = cluster.delete(ask)
            case _:
                answer = cluster.fenced
        return answer

    def _swap(self, ask: SwapLedger) -> Failed | None:
        cluster = self.leader.cluster
        if self._version != cluster.version:
            return Failed(Trouble.CHANGED, "somebody else wrote it")
        cluster.text, cluster.trust, cluster.version = ask.text, ask.trust, cluster.version + 1
        self._version = cluster.version
        return None


# --- random fleets -----------------------------------------------------------------------------------------

_HOURS = [0.0, 0.5, 1.0, 2.0, 23.0, 24.0, 24.5, 25.0, 30.0, 48.0, 100.0, 100.0, 400.0]

# Transition times as real and as broken writers send them.
ODD_TIMES: list[object] = [
    None,
    "",
    "garbage",
    "0001-01-01T00:00:00Z",
    "1970-01-01T00:00:00Z",
    "2026-07-20T12:00:00",
    "2026-07-20 12:00:00Z",
    "2026-07-20T12:00:00.123456789Z",
    "2026-07-20T14:00:00+02:00",
    "2026-08-01T12:04:00Z",
    "2026-06-01T00:00:00Z",
]
FUTURE_TIMES: list[object] = ["2026-08-01T13:00:00Z", "9999-12-31T23:59:59Z"]

_states = st.tuples(st.sampled_from(["False", "Unknown", "Unknown", "True"]), st.sampled_from(_HOURS))


@st.composite
def plain_fleets(draw: st.DrawFn, most: int = 12) -> list[Json]:
    """Agents in order, some of them dead for a while."""
    drawn = draw(st.lists(_states, min_size=1, max_size=most))
    return [dead(f"pi-{number:02}", hours, status) for number, (status, hours) in enumerate(drawn)]


@st.composite
def graves(draw: st.DrawFn, most: int = 8) -> list[Json]:
    """Agents that have been dead for long, and at least as many that live."""
    count = draw(st.integers(1, most))
    hours = draw(st.lists(st.sampled_from([25.0, 48.0, 100.0]), min_size=count, max_size=count))
    return [*dead_fleet(*hours), *ready_fleet(count + draw(st.integers(0, 4)))]


def _odd_labels() -> SearchStrategy[Json]:
    return st.fixed_dictionaries(
        {},
        optional={
            RUNTIME_LABEL: st.sampled_from([None, "", "virtual", "Agent"]),
            BACKEND_LABEL: st.sampled_from([None, "", "k0s", "vk-podman"]),
            HOST_LABEL: st.sampled_from([None, "", "laptop", "plane", "pi-x"]),
            CONTROL_PLANE: st.sampled_from(["", "true", "false"]),
            MASTER: st.sampled_from(["", "true"]),
            "type": st.sampled_from(["virtual-kubelet", "other"]),
        },
    )


@st.composite
def odd_nodes(draw: st.DrawFn, number: int) -> Json:
    """A node of which anything may be odd: labels, conditions, times, annotations, host."""
    host = draw(st.sampled_from(["pi", "pi", "plane", "laptop"]))
    raw = dead(
        draw(st.sampled_from([f"{host}-{number:02}", f"{host}-{number:02}", f"pizza-{number:02}"])),
        draw(st.sampled_from(_HOURS)),
        draw(st.sampled_from(["False", "Unknown", "Unknown", "True", "", "false"])),
        host=host,
        labels=draw(st.just({}) | st.just({}) | _odd_labels()),
        annotations=draw(st.sampled_from([{}, {}, {}, {KEEP_ANNOTATION: ""}])),
        deleted=draw(st.sampled_from([None, None, None, ago(1.0)])),
    )
    if draw(st.booleans()):
        # Seldom in the future: one of those refuses the whole pass.
        times = draw(st.sampled_from([*[ODD_TIMES] * 9, FUTURE_TIMES]))
        raw["status"]["conditions"][0]["lastTransitionTime"] = draw(st.sampled_from(times))
    if draw(st.integers(0, 5)) == 0:
        raw["status"]["conditions"] = draw(st.sampled_from([[], [{"type": "MemoryPressure", "status": "False"}]]))
    if draw(st.integers(0, 5)) == 0:
        raw["metadata"]["creationTimestamp"] = draw(st.sampled_from([None, ago(1.0), ago(30.0)]))
    return raw


@st.composite
def odd_fleets(draw: st.DrawFn, most: int = 8) -> list[Json]:
    """Odd nodes among agents in order, two of them dead, and a virtual one."""
    count = draw(st.integers(1, most))
    odd = [draw(odd_nodes(number)) for number in range(count)]
    return [*odd, *dead_fleet(48.0, 30.0), *ready_fleet(count), virtual()]
