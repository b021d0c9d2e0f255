"""Ours beside a line-by-line model of the contract, pass by pass."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from reaping_model import BROKEN, CONFLICT, GONE, Collector, Limits
from reaping_worlds import HOUR, OURS_OFF, Cluster, Fault, Leader, dead, odd_fleets, plain_fleets, revived

from clusterconform.contract.asks import DeleteNode, ReadLedger, ReadNode, Trouble
from clusterconform.decisions.ledger import read_ledger

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One pass, and what happens around it.

    Attributes:
        wait: True seconds before it.
        jump: How far the wall clock is set ahead before it.
        restart: Whether the process was started anew.
        fault: Which kind of request fails in it, if any.
        dies: Name of a node that died a day and a minute ago.
        lost: By name, what happens between list and read: True for back, False for gone.
    """

    wait: float = HOUR
    jump: float = 0.0
    restart: bool = False
    fault: str = ""
    dies: str = ""
    lost: dict[str, bool] = field(default_factory=dict)


_names = st.integers(0, 11).map(lambda number: f"pi-{number:02}")
_waits = st.sampled_from([0.0, 60.0, 1800.0, 3599.0, HOUR, 3601.0, 2 * HOUR, 25 * HOUR])


def steps(*, recoveries: bool = True, jumps: bool = True) -> st.SearchStrategy[list[Step]]:
    """Passes; without ``recoveries`` the dead stay dead, without ``jumps`` the clock is only ever set back.

    A clock that ran ahead refills the contract's budget and not ours.
    """
    return st.lists(
        st.builds(
            Step,
            wait=_waits,
            jump=st.sampled_from([0.0, 0.0, 0.0, 300.0, 600.0, 601.0, 49 * HOUR, -HOUR])
            if jumps
            else st.sampled_from([0.0, 0.0, 0.0, -HOUR]),
            restart=st.sampled_from([False, False, False, True]),
            fault=st.sampled_from(["", "", "", "ledger", "get", "delete"]),
            dies=st.just("") | _names,
            lost=st.dictionaries(_names, st.booleans(), max_size=2) if recoveries else st.just({}),
        ),
        min_size=1,
        max_size=8,
    )


_settings: st.SearchStrategy[Json] = st.fixed_dictionaries(
    {
        "maxDeletes": st.integers(1, 4),
        "interval": st.sampled_from(["1h", "2h"]),
        "maxStalePercent": st.sampled_from([1, 33, 50, 58, 99, 100]),
        "minUptime": st.sampled_from(["0s", "1h"]),
        "selfHost": st.sampled_from(["", "pi", "plane"]),
        "settle": st.just("0s"),
        "grace": st.sampled_from(["2h", "24h"]),
    }
)


def limits_of(settings: Json) -> Limits:
    hours = {text: timedelta(hours=float(text[:-1])) for text in ("1h", "2h", "24h")}
    return Limits(
        grace=hours[settings["grace"]],
        max_deletes=settings["maxDeletes"],
        interval=hours[settings["interval"]],
        min_uptime=3600.0 if settings["minUptime"] == "1h" else 0.0,
        percent=settings["maxStalePercent"],
        self_host=settings["selfHost"],
    )


class Beside:
    """The model in a cluster of its own."""

    def __init__(self, nodes: list[Json], settings: Json) -> None:
        self.nodes = {raw["metadata"]["name"]: raw for raw in nodes}
        self.collector = Collector(limits=limits_of(settings))
        self.deleted: list[str] = []

    def restart(self) -> None:
        self.collector = Collector(limits=self.collector.limits, ledger=self.collector.ledger)

    def run(self, leader: Leader, step: Step, changes: dict[str, Json | None]) -> list[str]:
        """One pass at the leader's moment."""
        listed = list(self.nodes.values())
        apply(self.nodes, changes)

        def get(name: str) -> Json | str:
            return BROKEN if step.fault == "get" else self.nodes.get(name, GONE)

        def delete(name: str, uid: str) -> str | None:
            if step.fault == "delete":
                return BROKEN
            if self.nodes[name]["metadata"]["uid"] != uid:
                return CONFLICT
            del self.nodes[name]
            return None

        now = leader.moment()
        gone = self.collector.once(
            listed, now.wall, now.uptime, get=get, delete=delete, readable=step.fault != "ledger"
        )
        self.deleted += gone
        return gone


def apply(nodes: dict[str, Json], changes: dict[str, Json | None]) -> None:
    for name, raw in changes.items():
        if raw is None:
            nodes.pop(name, None)
        elif name in nodes:
            nodes[name] = raw


def faults_of(step: Step) -> dict[type[Any], Fault]:
    kinds: dict[str, type[Any]] = {"ledger": ReadLedger, "get": ReadNode, "delete": DeleteNode}
    return {kinds[step.fault]: Fault(Trouble.UNKNOWN)} if step.fault else {}


def changes_of(step: Step, nodes: dict[str, Json]) -> dict[str, Json | None]:
    return {name: revived(nodes[name]) if back else None for name, back in step.lost.items() if name in nodes}


def die(cluster: Cluster, name: str) -> Json | None:
    """The node ``name`` dead for a day and a minute by the wall clock; None where it is dead already."""
    raw = cluster.nodes.get(name)
    if raw is None or raw["status"]["conditions"][0]["status"] != "True":
        return None
    hours = 24 + 1 / 60 - (cluster.seconds + cluster.ahead) / HOUR
    return dead(name, hours)


def before(step: Step, cluster: Cluster, leader: Leader, settings: Json) -> Leader:
    cluster.wait(step.wait)
    cluster.jump(step.jump)
    return Leader(cluster, uptime=0.0, **settings) if step.restart else leader


class TestWithOurGuardsOffItIsTheContract:
    """With our own guards switched off the same nodes go in the same passes."""

    @given(nodes=plain_fleets(), settings=_settings, played=steps(jumps=False))
    def test_the_same_nodes_go_in_the_same_order(
        self, nodes: list[Json], settings: Json, played: list[Step]
    ) -> None:
        settings = settings | OURS_OFF
        cluster, model = Cluster(nodes), Beside(nodes, settings)
        leader = Leader(cluster, **settings)
        for step in played:
            leader = before(step, cluster, leader, settings)
            if step.restart:
                model.restart()
            raw = die(cluster, step.dies)
            if raw is not None:
                cluster.nodes[step.dies] = model.nodes[step.dies] = raw
            # A DELETE without an answer stays spent with us, on purpose; the model forgets it.
            told = step if step.fault != "delete" else Step(wait=0)
            changes = changes_of(told, cluster.nodes)
            expected = model.run(leader, told, changes)
            assert list(leader.run(fresh=changes, faults=faults_of(told)).deleted) == expected
        assert cluster.deleted == model.deleted
        assert cluster.nodes == model.nodes

    @given(nodes=plain_fleets(), settings=_settings, played=steps(jumps=False))
    def test_the_same_refusals_are_written(self, nodes: list[Json], settings: Json, played: list[Step]) -> None:
        settings = settings | OURS_OFF
        cluster, model = Cluster(nodes), Beside(nodes, settings)
        leader = Leader(cluster, **settings)
        for step in played:
            leader = before(step, cluster, leader, settings)
            if step.restart:
                model.restart()
            expected = model.run(leader, Step(), {})
            report = leader.run()
            assert list(report.deleted) == expected
            if not (report.refused or "").startswith(("ClockSkew", "MassStale")):
                model.collector.refusal = ""  # D8: a good pass clears it
        told = [entry.line.event for entry in read_ledger(cluster.text) if entry.line is not None]
        written = [line["event"] for line in model.collector.ledger]
        assert [event for event in told if event != "intended"] == written


class TestNeverMoreThanTheContract:
    """Whatever the fleet and the settings, ours deletes fewer or later, never more."""

    @given(
        nodes=plain_fleets(),
        settings=_settings,
        played=steps(recoveries=False),
        ours=st.fixed_dictionaries(
            {},
            optional={
                "maxReapedPercentPerDay": st.sampled_from([1, 25, 100]),
                "reearnTrust": st.booleans(),
                "leaseWitness": st.booleans(),
            },
        ),
    )
    def test_at_any_time_what_went_with_us_went_with_the_contract_before(
        self, nodes: list[Json], settings: Json, played: list[Step], ours: Json
    ) -> None:
        settings = settings | ours
        cluster, model = Cluster(nodes), Beside(nodes, settings)
        leader = Leader(cluster, **settings)
        for step in played:
            leader = before(step, cluster, leader, settings)
            if step.restart:
                model.restart()
            raw = die(cluster, step.dies)
            if raw is not None and step.dies in model.nodes:
                cluster.nodes[step.dies] = model.nodes[step.dies] = raw
            model.run(leader, step, {})
            leader.run(faults=faults_of(step))
            assert set(cluster.deleted) <= set(model.deleted)

    @given(nodes=odd_fleets(), settings=_settings, uptime=st.sampled_from([0.0, 1800.0, HOUR, 100 * HOUR]))
    def test_on_any_fleet_a_pass_deletes_none_that_the_contract_would_not(
        self, nodes: list[Json], settings: Json, uptime: float
    ) -> None:
        cluster, model = Cluster(nodes), Beside(nodes, settings)
        leader = Leader(cluster, uptime=uptime, **settings)
        # Of several that it may not delete the contract deletes first; so a budget without end.
        model.collector.limits = Limits(
            **{
                name: getattr(model.collector.limits, name)
                for name in ("grace", "interval", "percent", "self_host")
            },
            min_uptime=model.collector.limits.min_uptime,
            max_deletes=1000,
        )
        expected = model.run(leader, Step(), {})
        assert set(leader.run().deleted) <= set(expected)
