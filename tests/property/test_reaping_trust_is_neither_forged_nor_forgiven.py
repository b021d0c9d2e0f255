from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from reaping_worlds import HOUR, Cluster, Fault, Leader, dead_fleet, ready_fleet, revived

from clusterconform.contract.asks import ReadLedger, SwapLedger, Trouble
from clusterconform.contract.verdicts import Reason
from clusterconform.decisions.trust import read_trust

Json = dict[str, Any]

GRACE = 6 * HOUR
SETTINGS: Json = {"grace": "6h", "minUptime": "0s", "settle": "0s", "maxReapedPercentPerDay": 100}
DOUBTS = {Reason.CLOCK_SKEW, Reason.MASS_STALE}

# What happens before a pass: the hours that go by, the clock, the machines, the process, the ledger.
_play = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.5, 1.0, 3.0, 6.0, 7.0]),
        st.sampled_from([0.0, 0.0, 0.0, 0.0, 2 * HOUR, 49 * HOUR, -HOUR]),
        st.sampled_from(["", "", "", "outage", "end of it"]),
        st.booleans(),
        st.sampled_from([None, None, None, SwapLedger, ReadLedger]),
    ),
    min_size=1,
    max_size=12,
)


def outage(cluster: Cluster) -> None:
    """All agents have been dead for two days."""
    for raw in dead_fleet(*[48.0] * 6):
        if raw["metadata"]["name"] in cluster.nodes:
            cluster.nodes[raw["metadata"]["name"]] = raw
    for name in list(cluster.nodes):
        if "ready" in name:
            del cluster.nodes[name]


def end_of_outage(cluster: Cluster) -> None:
    """All are back but one."""
    for name, raw in list(cluster.nodes.items()):
        if "dead" in name and name != "pi-dead-00":
            cluster.nodes[name] = revived(raw)
    cluster.nodes |= {raw["metadata"]["name"]: raw for raw in ready_fleet(3)}


class TestTrustIsNeitherForgedNorForgiven:
    """After a doubt a full grace of leadership passes before a node goes; a restart changes nothing of that."""

    @given(played=_play)
    def test_no_node_goes_before_a_grace_has_passed_since_the_last_doubt(
        self, played: list[tuple[float, float, str, bool, type[Any] | None]]
    ) -> None:
        cluster = Cluster([*dead_fleet(*[48.0] * 6), *ready_fleet(8)])
        leader, doubted_at, is_written = Leader(cluster, **SETTINGS), -GRACE, True
        for hours, jump, event, restart, fault in played:
            cluster.wait(hours * HOUR)
            cluster.jump(jump)
            {"outage": outage, "end of it": end_of_outage}.get(event, lambda _: None)(cluster)
            if restart:
                leader = Leader(cluster, uptime=0.0, **SETTINGS)
                if not is_written:
                    doubted_at = -GRACE  # nobody is left who knows of it
            before = len(cluster.deletions)
            report = leader.run(faults={fault: Fault(Trouble.UNKNOWN)} if fault else {})
            assert len(cluster.deletions) == before or cluster.seconds - doubted_at >= GRACE
            if report.refused in DOUBTS:
                doubted_at, is_written = cluster.seconds, fault is None

    @given(played=_play)
    def test_what_is_written_down_never_exceeds_the_time_since_the_doubt(
        self, played: list[tuple[float, float, str, bool, type[Any] | None]]
    ) -> None:
        cluster = Cluster([*dead_fleet(48.0), *ready_fleet(8)])
        leader, doubted_at = Leader(cluster, **SETTINGS), 0.0
        for hours, jump, event, restart, _ in played:
            cluster.wait(hours * HOUR)
            cluster.jump(jump)
            {"outage": outage, "end of it": end_of_outage}.get(event, lambda _: None)(cluster)
            if restart:
                leader = Leader(cluster, uptime=0.0, **SETTINGS)
            if leader.run().refused in DOUBTS:
                doubted_at = cluster.seconds
            assert read_trust(cluster.trust).seconds <= cluster.seconds - doubted_at + 1
