from datetime import datetime, timedelta
from typing import Any

from builders import at, catalogue, facts
from hypothesis import assume, given
from hypothesis import strategies as st
from reaping_worlds import (
    CONTROL_PLANE,
    HOUR,
    MASTER,
    OURS_OFF,
    Cluster,
    Deletion,
    Fault,
    Leader,
    agents,
    ago,
    dead_fleet,
    lease,
    odd_fleets,
    ready_fleet,
)
from strategies import nodes as any_nodes
from strategies import vandalised

from clusterconform.contract.asks import ReadLedger, ReadNode, ReadNodeLease, Trouble
from clusterconform.contract.facts import UnreadableNodeError
from clusterconform.contract.memory import EMPTY
from clusterconform.contract.names import BACKEND_LABEL, HOST_LABEL, KEEP_ANNOTATION, RUNTIME_LABEL
from clusterconform.contract.times import parse_time
from clusterconform.decisions.planning import decide
from clusterconform.decisions.staleness import Outcome, is_eligible, judge

Json = dict[str, Any]

_settings: st.SearchStrategy[Json] = st.fixed_dictionaries(
    {
        "selfHost": st.sampled_from(["", "plane", "pi"]),
        "grace": st.sampled_from(["1h", "24h"]),
        "maxDeletes": st.sampled_from([3, 100]),
        "maxStalePercent": st.sampled_from([50, 100]),
        "minUptime": st.just("0s"),
        "settle": st.just("0s"),
    }
) | st.just(OURS_OFF | {"maxStalePercent": 100, "maxDeletes": 100})
_leases = st.dictionaries(
    st.integers(0, 7).map(lambda number: f"pi-{number:02}"),
    st.sampled_from([0.0, 0.9, 2.0, 23.0, 25.0, 500.0]).map(lease) | st.sampled_from([{}, {"spec": None}]),
    max_size=4,
)
_dead = st.sampled_from(dead_fleet(48.0))


def grace_of(settings: Json) -> timedelta:
    return timedelta(hours=1 if settings.get("grace") == "1h" else 24)


def objections(gone: Deletion, settings: Json, own_node: str) -> list[str]:
    """Why the node should have stayed, said without our predicate."""
    metadata, labels = gone.raw["metadata"], gone.raw["metadata"]["labels"]
    host = labels.get(HOST_LABEL)
    ready = next(seen for seen in gone.raw["status"]["conditions"] if seen["type"] == "Ready")
    since = parse_time(ready["lastTransitionTime"])
    said = {
        "runtime": labels.get(RUNTIME_LABEL) != "agent",
        "backend": labels.get(BACKEND_LABEL) != "k3s",
        "host": not host,
        "name": not gone.name.startswith(f"{host}-"),
        "role": CONTROL_PLANE in labels or MASTER in labels,
        "self host": host == settings.get("selfHost"),
        "own node": gone.name == own_node,
        "kept": KEEP_ANNOTATION in metadata["annotations"],
        "terminating": metadata.get("deletionTimestamp") is not None,
        "virtual": labels.get("type") == "virtual-kubelet",
        "status": ready["status"] not in {"False", "Unknown"},
        "time": since is None or gone.wall - since <= grace_of(settings),
        "impossible time": since is not None and since.year in {1, 1970},
        "born later": _after(metadata.get("creationTimestamp"), since),
        "born just now": _within(metadata.get("creationTimestamp"), gone.wall, grace_of(settings)),
    }
    return [word for word, wrong in said.items() if wrong]


def _after(text: Any, since: datetime | None) -> bool:
    at_ = parse_time(text)
    return at_ is not None and since is not None and at_ > since


def _within(text: Any, now: datetime, grace: timedelta) -> bool:
    at_ = parse_time(text)
    return at_ is not None and now - at_ <= grace


class TestSomeNodesAreNeverDeleted:
    """Only an agent with all four identity facts, dead by all witnesses, ever goes."""

    @given(
        fleet=odd_fleets(),
        settings=_settings,
        own_node=st.sampled_from(["", "pi-00", "pi-01"]),
        leases=_leases,
        waits=st.lists(st.sampled_from([60.0, HOUR, 25 * HOUR]), max_size=3),
    )
    def test_whoever_went_had_no_objection_to_it(
        self, fleet: list[Json], settings: Json, own_node: str, leases: dict[str, Json], waits: list[float]
    ) -> None:
        cluster = Cluster(fleet, leases=leases)
        leader = Leader(cluster, own_node=own_node, **settings)
        for wait in [0.0, *waits]:
            cluster.wait(wait)
            leader.run()
        for gone in cluster.deletions:
            assert objections(gone, settings, own_node) == []

    @given(fleet=odd_fleets(), leases=_leases)
    def test_whoever_renews_its_lease_stays(self, fleet: list[Json], leases: dict[str, Json]) -> None:
        cluster = Cluster(fleet, leases=leases)
        Leader(cluster, maxDeletes=100, maxStalePercent=100).run()
        for gone in cluster.deletions:
            renewed = (leases.get(gone.name, {}).get("spec") or {}).get("renewTime", ago(1000))
            assert not _within(renewed, gone.wall, timedelta(hours=24))


class TestUndeterminedNeverDeletes:
    """What cannot be told is no answer, and no answer deletes nothing."""

    @given(
        fleet=odd_fleets(),
        fault=st.sampled_from([Trouble.UNKNOWN, Trouble.FORBIDDEN, Trouble.REFUSED, Trouble.CHANGED]),
        kind=st.sampled_from([ReadNode, ReadNodeLease, ReadLedger]),
    )
    def test_a_read_that_fails_deletes_nothing(self, fleet: list[Json], fault: Trouble, kind: type[Any]) -> None:
        cluster = Cluster(fleet)
        Leader(cluster, maxDeletes=100, maxStalePercent=100).run(faults={kind: Fault(fault)})
        assert cluster.deleted == []

    @given(fleet=odd_fleets(), settings=_settings)
    def test_only_stale_nodes_go(self, fleet: list[Json], settings: Json) -> None:
        cluster = Cluster(fleet)
        report = Leader(cluster, **settings).run()
        for name in cluster.deleted:
            assert report.survey.answers[name].outcome is Outcome.STALE
            assert report.survey.answers[name].since is not None

    @given(fleet=odd_fleets())
    def test_incomplete_evidence_deletes_nothing(self, fleet: list[Json]) -> None:
        cluster = Cluster(fleet)
        leader = Leader(cluster, **OURS_OFF, maxDeletes=100, maxStalePercent=100)
        leader.complete = False
        leader.run()
        assert cluster.deleted == []

    @given(raw=vandalised(_dead) | vandalised(any_nodes))
    def test_any_node_that_can_be_read_is_judged(self, raw: Json) -> None:
        try:
            node = facts(raw)
        except (UnreadableNodeError, AttributeError):
            assume(False)
        answer = judge(node, decide(node, catalogue(), EMPTY, at(0)).verdict, agents(), at(0).wall)
        if answer.outcome is Outcome.STALE:
            assert is_eligible(node, agents())
            assert node.ready is not None
            assert node.ready.status in {"False", "Unknown"}
            assert answer.since is not None
            assert at(0).wall - answer.since > timedelta(hours=24)


class TestAGhostIsNotThereForEver:
    """One dead node among living ones goes in the end, whatever happened before."""

    @given(
        text=st.lists(
            st.sampled_from(
                [
                    "rubbish",
                    "{}",
                    '{"at":"2026-08-01T11:30:00Z","event":"deleted","node":"x","uid":"u"}',
                    '{"at":"2026-08-01T11:30:00Z","event":"intended","node":"pi-dead-00","uid":"uid-pi-dead-00"}',
                    '{"at":"2026-08-01T11:30:00Z","event":"refused_mass_stale"}',
                ]
            ),
            max_size=4,
        ).map("\n".join),
        trust=st.sampled_from([None, "", "rubbish", '{"seconds":5,"cause":"ClockSkew"}', '{"seconds":1}']),
        crashes=st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=3),
        jump=st.sampled_from([0.0, 49 * HOUR, -HOUR]),
        most=st.integers(1, 3),
    )
    def test_it_goes_within_two_days_of_quiet(
        self, text: str, trust: str | None, crashes: list[tuple[int, bool]], jump: float, most: int
    ) -> None:
        cluster = Cluster([*dead_fleet(48.0), *ready_fleet(3)], text=text, trust=trust)
        for ends, applied in crashes:
            running = Leader(cluster, maxDeletes=most).begin()
            for _ in range(ends):
                running.step()
            running.crash(applied=applied)
        leader = Leader(cluster, uptime=0.0, maxDeletes=most)
        leader.run()
        cluster.jump(jump)
        for _ in range(50):
            leader.run()
            cluster.wait(HOUR + 60)
        assert "pi-dead-00" not in cluster.nodes

    @given(restarts=st.lists(st.integers(2, 30), max_size=4))
    def test_restarts_do_not_take_what_was_earned(self, restarts: list[int]) -> None:
        trust = '{"seconds":0,"cause":"ClockSkew"}'
        cluster = Cluster([*dead_fleet(48.0), *ready_fleet(3)], trust=trust)
        leader = Leader(cluster, uptime=0.0)
        for hours in [*restarts, 30]:
            for _ in range(hours):
                leader.run()
                cluster.wait(HOUR)
            leader.run()
            leader = Leader(cluster, uptime=0.0)
        (gone,) = cluster.deletions
        assert 24 * HOUR <= gone.seconds <= (26 + len(restarts)) * HOUR
