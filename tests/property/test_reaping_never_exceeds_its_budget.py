"""Leaders that crash, restart and take turns on one ledger, with clocks that jump."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from reaping_worlds import (
    HOUR,
    OURS_OFF,
    Cluster,
    Deletion,
    Fault,
    Leader,
    Running,
    dead_fleet,
    ready_fleet,
    revived,
)

from clusterconform.contract.asks import DeleteNode, ReadClock, SwapLedger, Trouble

Json = dict[str, Any]

LEASE = 15.0


@dataclass(frozen=True, slots=True)
class Act:
    """What happens next: a word, for which leader, and how much of it."""

    what: str
    who: int = 0
    amount: float = 0.0
    applied: bool = False


_who = st.integers(0, 1)
_waits = st.sampled_from([1.0, 60.0, 1799.0, 3590.0, HOUR, HOUR + 1, 2 * HOUR])
_play = st.one_of(
    st.builds(Act, st.just("pass"), _who),
    st.builds(Act, st.just("wait"), st.just(0), _waits),
    st.builds(Act, st.just("steps"), _who, st.integers(1, 12).map(float)),
    st.builds(Act, st.just("fault"), _who, st.integers(0, 20).map(float), st.booleans()),
    st.builds(Act, st.just("crash"), _who, st.integers(0, 20).map(float), st.booleans()),
    st.builds(Act, st.just("restart"), _who),
    st.builds(Act, st.just("slow"), _who, st.sampled_from([0.0, 5.0])),
)
_back = st.builds(Act, st.just("jump"), st.just(0), st.sampled_from([-60.0, -HOUR, -25 * HOUR]))
_ahead = st.builds(Act, st.just("jump"), st.just(0), st.sampled_from([599.0, 601.0, HOUR, 49 * HOUR]))
_settings: st.SearchStrategy[Json] = st.fixed_dictionaries(
    {
        "maxDeletes": st.integers(1, 3),
        "interval": st.sampled_from(["10s", "1h", "2h"]),
        "minUptime": st.just("0s"),
        "settle": st.just("0s"),
    }
).map(lambda drawn: OURS_OFF | drawn)


def hours_of(settings: Json) -> float:
    return 2.0 if settings["interval"] == "2h" else 1.0


class Stage:
    """Two leaders on one cluster of many dead nodes."""

    def __init__(self, settings: Json, latency: float) -> None:
        self.cluster = Cluster([*dead_fleet(*[48.0] * 8), *ready_fleet(8)])
        self.settings, self.latency = settings, latency
        self.leaders = [self._new(), self._new()]
        self.running: list[Running | None] = [None, None]
        self.seen = [0.0, 0.0]

    def _new(self) -> Leader:
        leader = Leader(self.cluster, uptime=0.0, **self.settings)
        leader.latency = self.latency
        return leader

    def play(self, acts: Sequence[Act]) -> list[Deletion]:
        for act in acts:
            if act.what == "wait":
                self.cluster.wait(act.amount)
            elif act.what == "jump":
                self.cluster.jump(act.amount)
            elif act.what == "slow":
                self.leaders[act.who].latency = act.amount if self.latency else 0.0
            elif act.what == "restart":
                self.leaders[act.who], self.running[act.who] = self._new(), None
            else:
                self._go_on(act)
        return self.cluster.deletions

    def _go_on(self, act: Act) -> None:
        running = self.running[act.who]
        if running is None or running.ask is None:
            running = self.running[act.who] = self.leaders[act.who].begin()
        elif self.cluster.seconds - self.seen[act.who] > LEASE and isinstance(
            running.ask, DeleteNode | SwapLedger
        ):
            # It slept longer than its Lease lasts: the fence of its API client lets no write out.
            running.step(Fault(Trouble.UNKNOWN))
        steps = int(act.amount) if act.what != "pass" else 1000
        while steps and running.step():
            steps -= 1
        if act.what == "fault":
            running.step(Fault(Trouble.UNKNOWN, applied=act.applied))
        elif act.what == "crash":
            running.crash(applied=act.applied)
            self.leaders[act.who], self.running[act.who] = self._new(), None
        self.seen[act.who] = self.cluster.seconds


def most_within(times: Sequence[float], window: float) -> int:
    """The most of ``times`` in any half-open stretch of ``window``."""
    return max((sum(end - window < at <= end for at in times) for end in times), default=0)


def walls(deletions: Sequence[Deletion]) -> list[float]:
    return [gone.wall.timestamp() for gone in deletions]


def seconds(deletions: Sequence[Deletion]) -> list[float]:
    return [gone.seconds for gone in deletions]


class TestDeletionsPerWindowNeverExceedTheBudget:
    """In no stretch of max(interval, 1h) do more than maxDeletes nodes go."""

    @given(settings=_settings, acts=st.lists(_play, max_size=16))
    def test_by_the_clock_on_the_wall(self, settings: Json, acts: list[Act]) -> None:
        deletions = Stage(settings, latency=0.0).play(acts)
        assert most_within(walls(deletions), hours_of(settings) * HOUR) <= settings["maxDeletes"]

    @given(settings=_settings, acts=st.lists(_play | _back | _ahead, max_size=16))
    def test_by_the_clock_on_the_wall_wherever_it_jumps(self, settings: Json, acts: list[Act]) -> None:
        deletions = Stage(settings, latency=0.0).play(acts)
        assert most_within(walls(deletions), hours_of(settings) * HOUR) <= settings["maxDeletes"]

    @given(settings=_settings, acts=st.lists(_play | _back, max_size=16))
    def test_in_true_time_when_the_clock_is_set_back(self, settings: Json, acts: list[Act]) -> None:
        deletions = Stage(settings, latency=0.0).play(acts)
        assert most_within(seconds(deletions), hours_of(settings) * HOUR) <= settings["maxDeletes"]

    @given(settings=_settings, acts=st.lists(_play, max_size=16), latency=st.sampled_from([0.1, 5.0]))
    def test_in_true_time_when_requests_take_theirs(self, settings: Json, acts: list[Act], latency: float) -> None:
        deletions = Stage(settings, latency).play(acts)
        assert most_within(seconds(deletions), hours_of(settings) * HOUR) <= settings["maxDeletes"]

    @given(
        settings=_settings, waits=st.lists(st.tuples(_waits, st.sampled_from([0.0, 599.0, 2 * HOUR])), max_size=8)
    )
    def test_in_true_time_by_one_process_although_its_clock_runs_ahead(
        self, settings: Json, waits: list[tuple[float, float]]
    ) -> None:
        stage = Stage(settings, latency=0.0)
        acts = [
            act
            for wait, jump in waits
            for act in (Act("wait", 0, wait), Act("jump", 0, jump), Act("pass"), Act("pass"))
        ]
        assert most_within(seconds(stage.play(acts)), hours_of(settings) * HOUR) <= settings["maxDeletes"]


class TestNoDeletionWithoutItsIntention:
    """Wherever a process ends, the ledger knows of every node that went."""

    @given(settings=_settings, acts=st.lists(_play, max_size=16))
    def test_whatever_happens_the_ledger_names_what_went(self, settings: Json, acts: list[Act]) -> None:
        stage = Stage(settings, latency=0.0)
        for gone in stage.play(acts):
            assert f'"uid":"uid-{gone.name}"' in stage.cluster.text

    @given(settings=_settings, ends=st.integers(0, 40), applied=st.booleans())
    def test_a_crash_at_any_ask_costs_at_most_the_budget(self, settings: Json, ends: int, applied: bool) -> None:
        stage = Stage(settings, latency=0.0)
        stage.play([Act("crash", 0, float(ends), applied), Act("pass", 0), Act("pass", 1), Act("pass", 0)])
        assert len(stage.cluster.deletions) <= settings["maxDeletes"]


class TestARecoveryAlwaysWins:
    """A node that is Ready when the API server handles the DELETE is not deleted."""

    @given(settings=_settings, when=st.integers(0, 40), names=st.sets(st.integers(0, 4), min_size=1))
    def test_a_node_that_comes_back_at_any_ask_stays_from_then_on(
        self, settings: Json, when: int, names: set[int]
    ) -> None:
        cluster = Cluster([*dead_fleet(*[48.0] * 5), *ready_fleet(8)])
        running = Leader(cluster, **settings).begin()
        for _ in range(when):
            running.step()
        back = {f"pi-dead-{number:02}" for number in names} & cluster.nodes.keys()
        for name in back:
            cluster.nodes[name] = revived(cluster.nodes[name])
        running.finish()
        assert back <= cluster.nodes.keys()
        assert all(gone.raw["status"]["conditions"][0]["status"] != "True" for gone in cluster.deletions)

    @given(settings=_settings, when=st.integers(0, 40))
    def test_another_life_of_the_name_stays(self, settings: Json, when: int) -> None:
        cluster = Cluster([*dead_fleet(*[48.0] * 3), *ready_fleet(8)])
        running = Leader(cluster, **settings).begin()
        for _ in range(when):
            running.step()
        (reborn,) = dead_fleet(30.0)
        reborn["metadata"]["uid"] = "uid-of-another-life"
        cluster.nodes[reborn["metadata"]["name"]] = reborn
        running.finish()
        assert reborn["metadata"]["name"] in cluster.nodes

    @given(settings=_settings)
    def test_every_delete_names_uid_and_version_and_comes_right_after_a_swap(self, settings: Json) -> None:
        running = Leader(Cluster([*dead_fleet(*[48.0] * 5), *ready_fleet(8)]), **settings).begin()
        running.finish()
        for before, ask in zip(running.asks, running.asks[1:], strict=False):
            if isinstance(ask, DeleteNode):
                assert ask.uid
                assert ask.resource_version
                assert isinstance(before, SwapLedger)
        assert isinstance(running.asks[0], ReadClock)
