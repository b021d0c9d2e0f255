"""Two replicas on a real API server: a standby that is cold and ready, takeovers, and both struck by faults.

Each fault is enumerated: what happens (kill, pause, cut), to which of the two, before or after which of its
requests; some come in sequences. After each: both live again, a drift that was made meanwhile is put right,
nothing was done for reaping by one who did not hold the Lease, the budget holds, nobody is gone who should live.
"""

import signal
import time
from collections.abc import Iterator

import pytest
from operators import World
from proxy import When
from reaping_crashes import Scene, crashing, now
from replicas import REQUESTS, Fault, Kind, Pair, Role, check_holders

from clusterconform.contract.lease import LEASE_PATH
from clusterconform.sandbox.builder import Builder
from clusterconform.sandbox.nodes import virtual_node

BEFORE, AFTER = When
KILL, PAUSE, CUT = Kind
LEADER, STANDBY = Role
REPAIR_SECONDS = 90

Plan = tuple[Fault, ...]


def fault(kind: Kind, role: Role, when: When, request: str) -> Fault:
    assert request in REQUESTS
    return Fault(kind, role, when, request)


# Faults in who leads; those of the short suite cost little more than the time until the dead count as such.
OF_LEADERSHIP: list[Plan] = [
    *((fault(kind, LEADER, when, "renewal"),) for kind in Kind for when in When),
    (fault(KILL, STANDBY, BEFORE, "look"),),
    (fault(PAUSE, STANDBY, AFTER, "look"),),
    (fault(CUT, STANDBY, BEFORE, "look"),),
    *((fault(KILL, LEADER, AFTER, "renewal"), fault(kind, STANDBY, AFTER, "renewal")) for kind in Kind),
    *((fault(KILL, LEADER, BEFORE, "renewal"), fault(kind, STANDBY, BEFORE, "claim")) for kind in Kind),
    (fault(PAUSE, LEADER, BEFORE, "renewal"), fault(KILL, STANDBY, AFTER, "claim")),
    (fault(PAUSE, LEADER, AFTER, "renewal"), fault(CUT, STANDBY, AFTER, "claim")),
    (fault(KILL, STANDBY, BEFORE, "look"), fault(KILL, LEADER, BEFORE, "renewal")),
    (fault(PAUSE, STANDBY, BEFORE, "look"), fault(PAUSE, LEADER, AFTER, "renewal")),
    (fault(CUT, STANDBY, AFTER, "look"), fault(CUT, LEADER, AFTER, "renewal")),
]

# Faults in the middle of a pass of reaping.
OF_A_PASS: list[Plan] = [
    *((fault(kind, LEADER, AFTER, "node"),) for kind in Kind),
    *(
        (fault(kind, LEADER, when, request),)
        for kind in Kind
        for request in ("witness", "intention", "deletion", "result")
        for when in When
    ),
    (fault(KILL, LEADER, AFTER, "intention"), fault(KILL, STANDBY, AFTER, "deletion")),
    (fault(PAUSE, LEADER, BEFORE, "result"), fault(CUT, STANDBY, AFTER, "intention")),
    (fault(CUT, LEADER, AFTER, "deletion"), fault(KILL, LEADER, AFTER, "node")),
]

# One more than may go for each.
CANDIDATES = sum(len(plan) + 1 for plan in OF_A_PASS)

SHORT: list[Plan] = [
    (fault(PAUSE, LEADER, AFTER, "renewal"),),
    (fault(KILL, LEADER, AFTER, "renewal"), fault(CUT, STANDBY, AFTER, "renewal")),
    (fault(KILL, LEADER, BEFORE, "renewal"), fault(KILL, STANDBY, BEFORE, "claim")),
    (fault(KILL, LEADER, AFTER, "deletion"),),
    (fault(PAUSE, LEADER, AFTER, "intention"),),
]


def cases(plans: list[Plan]) -> list[object]:
    """The parameters of a test: all plans, of which the short suite takes its five."""
    return [
        pytest.param(plan, id=" and ".join(map(str, plan)), marks=[] if plan in SHORT else [pytest.mark.long])
        for plan in plans
    ]


@pytest.fixture(scope="module")
def scene(builder: Builder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with crashing(builder, tmp_path_factory.mktemp("replicas"), candidates=CANDIDATES) as scene:
        yield scene


@pytest.fixture(scope="module")
def ripe(scene: Scene) -> Scene:
    scene.ripen()
    return scene


@pytest.fixture(scope="module")
def both(scene: Scene) -> Iterator[Pair]:
    pair = Pair(scene)
    yield pair
    pair.close()


@pytest.fixture
def pair(both: Pair) -> Pair:
    """Both, one of them leading."""
    both.whole()
    return both


class Oak:
    """A virtual node that conforms, until somebody takes one of its labels away."""

    def __init__(self, scene: Scene) -> None:
        self._world: World = scene.world
        raw = virtual_node(f"oak-{len(scene.uids)}", "vk-podman", now=now())
        self._name = scene.make(raw)
        scene.survivors.add(self._name)

    def drift(self) -> None:
        self._world.label(self._name, runtime=None)

    def until_right(self, seconds: float = REPAIR_SECONDS) -> None:
        right = lambda: self._world.labels(self._name).get("runtime") == "virtual"  # noqa: E731
        self._world.until(right, "the label is back", seconds=seconds)


@pytest.fixture
def oak(scene: Scene) -> Oak:
    return Oak(scene)


def test_the_faults_are_as_many_as_was_said() -> None:
    plans = [*OF_LEADERSHIP, *OF_A_PASS]
    assert len(plans) == len(set(plans)) == 50
    assert len(SHORT) == len([plan for plan in plans if plan in SHORT]) == 5


# --- the standby, and its taking over ----------------------------------------------------------------------


def test_a_standby_is_ready_and_asks_for_nothing_but_the_lease(pair: Pair) -> None:
    standby = pair.one(STANDBY)
    proxy, begun, watches = standby.proxy, len(standby.proxy.exchanges), len(standby.proxy.watched)
    pair.scene.world.until(lambda: len(proxy.exchanges) > begun + 3, "it has looked some times")
    assert {(seen.method, seen.path) for seen in proxy.exchanges[begun:]} == {("GET", LEASE_PATH)}
    assert len(proxy.watched) == watches
    assert standby.process.get("/readyz")[0] == 200
    assert standby.process.metric("clusterconform_leader") == 0


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL], ids=["stops", "is killed"])
def test_the_standby_takes_over_from_a_leader_that(pair: Pair, oak: Oak, ending: signal.Signals) -> None:
    leader, standby = pair.one(LEADER), pair.one(STANDBY)
    leader.end(ending)
    assert leader.process.wait() == (0 if ending is signal.SIGTERM else -ending)
    oak.drift()
    pair.scene.world.until(lambda: standby.leads, "the standby leads", seconds=60)
    oak.until_right()
    assert standby.process.get("/readyz")[0] == 200
    check_holders(pair.scene)


# --- faults ------------------------------------------------------------------------------------------------


def strike(pair: Pair, oak: Oak, plan: Plan, names: int = 0) -> list[str]:
    """Strike both with ``plan``, and see that a drift made meanwhile is put right; the candidates made for it."""
    with pair.struck(plan) as await_all:
        candidates = pair.scene.take(names)
        await_all()
        oak.drift()
    last = time.monotonic()
    pair.whole()
    oak.until_right(REPAIR_SECONDS - (time.monotonic() - last))
    return candidates


@pytest.mark.parametrize("plan", cases(OF_LEADERSHIP))
def test_in_who_leads(pair: Pair, oak: Oak, plan: Plan) -> None:
    strike(pair, oak, plan)
    pair.scene.check()
    check_holders(pair.scene)


@pytest.mark.parametrize("plan", cases(OF_A_PASS))
def test_in_the_middle_of_a_pass(ripe: Scene, pair: Pair, oak: Oak, plan: Plan) -> None:
    """One more is dead than may go."""
    ripe.allow(len(plan))
    most = ripe.world.profile("k3s")["spec"]["nodeGC"]["maxDeletes"]
    names = strike(pair, oak, plan, len(plan) + 1)
    pair.until_passed()
    assert len(ripe.left(names)) >= 1
    assert ripe.spent() <= most
    ripe.leave(names)
    ripe.check()
    check_holders(ripe)
