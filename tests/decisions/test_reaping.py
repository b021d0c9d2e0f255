from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest
from builders import START, virtual
from reaping_worlds import (
    CONTROL_PLANE,
    HOUR,
    MASTER,
    OURS_OFF,
    Cluster,
    Fault,
    Leader,
    agents,
    ago,
    dead,
    dead_fleet,
    lease,
    living,
    ready_fleet,
    revived,
)

from clusterconform.contract.asks import (
    DeleteNode,
    ReadLedger,
    ReadNode,
    ReadNodeLease,
    SwapLedger,
    Trouble,
)
from clusterconform.contract.names import KEEP_ANNOTATION
from clusterconform.contract.reaping import Mode
from clusterconform.contract.times import parse_time
from clusterconform.contract.verdicts import Reason
from clusterconform.decisions.ledger import LedgerEvent, LedgerLine, line_at, read_ledger, write_line
from clusterconform.decisions.reaping import window_of
from clusterconform.decisions.report import PassReport
from clusterconform.decisions.trust import doubted, read_trust, write_trust

Json = dict[str, Any]

UNKNOWN, GONE, CHANGED = Fault(Trouble.UNKNOWN), Fault(Trouble.GONE), Fault(Trouble.CHANGED)
REFUSED, FORBIDDEN = Fault(Trouble.REFUSED), Fault(Trouble.FORBIDDEN)


def lines_of(cluster: Cluster) -> list[LedgerLine]:
    return [entry.line for entry in read_ledger(cluster.text) if entry.line is not None]


def events(cluster: Cluster) -> list[str]:
    return [line.event for line in lines_of(cluster)]


def reasons(report: PassReport) -> dict[str, Reason]:
    return {held.name: held.reason for held in report.held}


def asked(report_of: Leader, **what: Any) -> list[str]:
    """The kinds of asks of one pass, in order."""
    running = report_of.begin()
    while running.step(**what):
        pass
    return [type(ask).__name__ for ask in running.asks]


def passes(leader: Leader, seconds: Iterable[float]) -> None:
    """A pass now and one after each of ``seconds``."""
    leader.run()
    for wait in seconds:
        leader.cluster.wait(wait)
        leader.run()


# --- the contract's rows -----------------------------------------------------------------------------------


def test_o1_the_three_oldest_go_in_order() -> None:
    ages = {"pi-newest": 25, "pi-oldest": 100, "pi-mid": 50, "pi-fourth": 30}
    foreign = dead("laptop-foreign", 99, labels=dict.fromkeys(living("pi-1")["metadata"]["labels"]))
    cluster = Cluster([*ready_fleet(6), *(dead(name, hours) for name, hours in ages.items()), foreign])
    report = Leader(cluster).run()
    assert cluster.deleted == list(report.deleted) == ["pi-oldest", "pi-mid", "pi-fourth"]
    assert reasons(report) == {"pi-newest": Reason.BUDGET_SPENT}
    assert {"pi-ready-00", "laptop-foreign"} <= cluster.nodes.keys()


def test_o2_of_the_same_age_the_first_names_go() -> None:
    names = ["pi-delta", "pi-bravo", "pi-alpha", "pi-charlie"]
    cluster = Cluster([*ready_fleet(5), *(dead(name, 48) for name in names)])
    Leader(cluster).run()
    assert cluster.deleted == ["pi-alpha", "pi-bravo", "pi-charlie"]


def test_o3_d6_the_delete_carries_the_uid_and_the_version_of_the_fresh_read() -> None:
    cluster = Cluster([dead(uid="uid-original")])
    newer = dead(uid="uid-original")
    newer["metadata"]["resourceVersion"] = "8"
    running = Leader(cluster).begin()
    cluster.nodes["pi-abc123"] = newer
    running.finish()
    assert DeleteNode("pi-abc123", "uid-original", "8") in running.asks
    assert cluster.deleted == ["pi-abc123"]


def test_o4_a_node_that_came_back_before_the_read_stays() -> None:
    cluster = Cluster([dead()])
    report = Leader(cluster).run(fresh={"pi-abc123": revived(dead())})
    assert (cluster.deleted, reasons(report)) == ([], {"pi-abc123": Reason.NODE_READY})
    assert events(cluster) == []


def test_o5_another_life_of_the_name_stays_b06() -> None:
    cluster = Cluster([dead(uid="uid-old")])
    report = Leader(cluster).run(fresh={"pi-abc123": dead(uid="uid-new")})
    assert (cluster.deleted, report.error, events(cluster)) == ([], None, [])


def test_o7_a_read_that_fails_ends_the_pass() -> None:
    cluster = Cluster([*ready_fleet(3), *dead_fleet(100, 50)])
    report = Leader(cluster).run(faults={ReadNode: UNKNOWN})
    assert report.error is not None
    assert "pi-dead-00" in report.error
    assert (cluster.deleted, cluster.text) == ([], "")
    assert set(reasons(report).values()) == {Reason.ENDED_EARLY}


def test_o8_a_delete_that_fails_ends_the_pass_after_one_attempt() -> None:
    cluster = Cluster([*ready_fleet(3), *dead_fleet(100, 50)])
    running = Leader(cluster).begin()
    while running.step(UNKNOWN if isinstance(running.ask, DeleteNode) else None):
        pass
    assert [ask.name for ask in running.asks if isinstance(ask, DeleteNode)] == ["pi-dead-00"]
    assert running.report is not None
    assert running.report.error is not None
    assert events(cluster) == ["intended"]


def test_o10_a_budget_of_one_takes_the_oldest() -> None:
    cluster = Cluster([*ready_fleet(4), *dead_fleet(1.5, 2, 3)])
    Leader(cluster, grace="1h", maxDeletes=1).run()
    assert cluster.deleted == ["pi-dead-02"]


def test_o11_a_fleet_that_dies_at_once_is_left_alone_and_that_is_written_once() -> None:
    cluster = Cluster([dead(f"pi-{number}", 30, "Unknown") for number in range(8)])
    passes(Leader(cluster), [HOUR])
    assert (cluster.deleted, events(cluster)) == ([], ["refused_mass_stale"])
    (line,) = lines_of(cluster)
    assert (line.stale, line.scope) == (8, 8)


def test_o15_the_budget_outlives_the_process() -> None:
    cluster = Cluster([*ready_fleet(6), *dead_fleet(100, 90, 80, 70, 60)])
    Leader(cluster, **OURS_OFF).run()
    assert len(cluster.deleted) == 3
    Leader(cluster, **OURS_OFF).run()
    assert len(cluster.deleted) == 3
    cluster.wait(2 * HOUR)
    Leader(cluster, **OURS_OFF).run()
    assert len(cluster.deleted) == 5


def test_o15_with_our_daily_limit_the_rest_waits_for_a_day() -> None:
    cluster = Cluster([*ready_fleet(6), *dead_fleet(100, 90, 80, 70, 60)])
    leader = Leader(cluster)
    passes(leader, [2 * HOUR])
    assert len(cluster.deleted) == 3
    passes(leader, [22 * HOUR + 1])
    assert len(cluster.deleted) == 5


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("trouble", [Trouble.GONE, Trouble.UNKNOWN, Trouble.FORBIDDEN])
def test_o16_o28_o38_without_a_ledger_nothing_goes_and_nothing_is_written(trouble: Trouble, mode: Mode) -> None:
    cluster = Cluster([*ready_fleet(6), *dead_fleet(100, 90)])
    for _ in range(3):
        leader = Leader(cluster, mode=mode)
        report = leader.run(faults={ReadLedger: Fault(trouble)})
        assert report.error is not None
        assert report.refused is Reason.LEDGER_UNREADABLE
    assert (cluster.deleted, cluster.version) == ([], 1)


def test_o18_one_node_of_the_future_stops_all_b29() -> None:
    cluster = Cluster([dead(), dead("pi-ahead", -1, "True"), *ready_fleet(2)])
    report = Leader(cluster).run()
    assert (cluster.deleted, events(cluster)) == ([], ["refused_clock_skew"])
    assert report.survey.future == 1


def test_o19_a_clock_two_minutes_ahead_stops_nothing() -> None:
    cluster = Cluster([dead(), dead("pi-ahead", -2 / 60, "True")])
    Leader(cluster).run()
    assert cluster.deleted == ["pi-abc123"]


def test_o20_a_young_operator_only_looks_and_grows_up() -> None:
    cluster = Cluster([dead()])
    leader = Leader(cluster, uptime=120, settle="0s")
    report = leader.run()
    assert (report.refused, cluster.deleted, events(cluster)) == (Reason.MIN_UPTIME, [], [])
    cluster.wait(HOUR - 60)
    leader.run()
    assert cluster.deleted == ["pi-abc123"]


def test_o21_a_rehearsal_writes_what_it_would_do_and_costs_nothing() -> None:
    cluster = Cluster([*ready_fleet(5), *dead_fleet(50, 40)])
    report = Leader(cluster, mode=Mode.DRY_RUN).run()
    assert report.deleted == ("pi-dead-00", "pi-dead-01")
    assert (cluster.deleted, events(cluster)) == ([], ["dry_run_deleted"] * 2)
    Leader(cluster).run()
    assert cluster.deleted == ["pi-dead-00", "pi-dead-01"]


def test_o22_a_deletion_is_told_by_two_lines() -> None:
    cluster = Cluster([dead()])
    Leader(cluster).run()
    intended, deleted = lines_of(cluster)
    assert (intended.event, deleted.event) == ("intended", "deleted")
    assert (deleted.node, deleted.uid, deleted.at) == ("pi-abc123", "uid-pi-abc123", "2026-08-01T12:00:00.000000Z")
    assert deleted.not_ready_since == ago(25)


def test_o23_the_control_planes_own_host_stays() -> None:
    cluster = Cluster([dead("plane-abc123", 200, host="plane"), dead("worker-def456", 48, host="worker")])
    Leader(cluster, selfHost="plane").run()
    assert cluster.deleted == ["worker-def456"]


@pytest.mark.parametrize("role", [CONTROL_PLANE, MASTER])
def test_o24_a_control_plane_node_stays(role: str) -> None:
    cluster = Cluster([dead("pi-plane", 200, labels={role: "true"}), dead("pi-worker", 48)])
    Leader(cluster).run()
    assert cluster.deleted == ["pi-worker"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"labels": {CONTROL_PLANE: ""}}, Reason.CONTROL_PLANE),
        ({"annotations": {KEEP_ANNOTATION: ""}}, Reason.KEPT),
        ({"deleted": ago(0)}, Reason.TERMINATING),
    ],
    ids=["role", "kept", "terminating"],
)
def test_o25_what_the_fresh_read_shows_counts(changes: Json, reason: Reason) -> None:
    cluster = Cluster([dead()])
    report = Leader(cluster).run(fresh={"pi-abc123": dead(**changes)})
    assert (cluster.deleted, reasons(report)) == ([], {"pi-abc123": reason})


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": {"type": "virtual-kubelet"}},
        {"annotations": {"virtual-kubelet.io/last-applied-node-status": "{}"}},
        {"taints": [{"key": "virtual-kubelet.io/provider", "value": "azure", "effect": "NoSchedule"}]},
    ],
    ids=["type", "annotation", "taint"],
)
def test_o25_evidence_against_the_labels_that_only_the_fresh_read_shows_counts_d1(changes: Json) -> None:
    cluster = Cluster([dead()])
    report = Leader(cluster).run(fresh={"pi-abc123": dead(**changes)})
    assert (cluster.deleted, list(reasons(report))) == ([], ["pi-abc123"])


def test_o26_the_control_planes_nodes_do_not_dilute_the_breaker() -> None:
    plane = [dead(f"plane-{number}", 200, host="plane") for number in range(3)]
    cluster = Cluster([*plane, *dead_fleet(48, 48)])
    Leader(cluster, selfHost="plane").run()
    assert (cluster.deleted, events(cluster)) == ([], ["refused_mass_stale"])


def test_o27_a_clock_that_jumps_by_two_days_kills_nothing() -> None:
    cluster = Cluster([*ready_fleet(9), dead(hours=5 / 60)])
    leader = Leader(cluster)
    leader.run()
    cluster.jump(48 * HOUR)
    report = leader.run()
    assert (report.refused, cluster.deleted, events(cluster)) == (Reason.CLOCK_SKEW, [], ["refused_clock_skew"])


def test_o35_d5_the_wrong_clock_is_not_trusted_by_the_next_pass() -> None:
    cluster = Cluster([*ready_fleet(9), dead(hours=5 / 60)])
    leader = Leader(cluster)
    leader.run()
    cluster.jump(48 * HOUR)
    leader.run()
    for _ in range(23):
        cluster.wait(HOUR)
        assert leader.run().refused is Reason.UNTRUSTED
    assert cluster.deleted == []
    cluster.wait(HOUR)
    leader.run()
    assert cluster.deleted == ["pi-abc123"]


@pytest.mark.parametrize("fault", [{SwapLedger: UNKNOWN}, {SwapLedger: CHANGED}, {ReadLedger: UNKNOWN}], ids=repr)
def test_o35_d5_a_jump_is_not_forgotten_because_the_ledger_failed_in_that_pass(
    fault: dict[type[Any], Fault],
) -> None:
    # A machine that was suspended wakes up with a clock that jumped and a network that is not there yet.
    cluster = Cluster([*ready_fleet(9), dead(hours=5 / 60)])
    leader = Leader(cluster)
    leader.run()
    cluster.jump(48 * HOUR)
    leader.run(faults=fault)
    cluster.wait(HOUR)
    leader.run()
    assert cluster.deleted == []


@pytest.mark.parametrize("fault", [{SwapLedger: UNKNOWN}, {ReadLedger: UNKNOWN}], ids=repr)
def test_a_mass_death_is_not_forgotten_because_the_ledger_failed_in_that_pass_b28(
    fault: dict[type[Any], Fault],
) -> None:
    cluster = Cluster([*ready_fleet(1), *dead_fleet(*[30.0] * 4)])
    leader = Leader(cluster)
    assert leader.run(faults=fault).refused is Reason.MASS_STALE
    for number in range(3):
        cluster.revive(f"pi-dead-{number:02}")
    cluster.wait(HOUR)
    assert leader.run().refused is Reason.UNTRUSTED
    assert cluster.deleted == []


def test_o29_nobody_else_is_ever_deleted() -> None:
    unlabelled = dead("laptop-x", 500, labels=dict.fromkeys(living("pi-1")["metadata"]["labels"]))
    cluster = Cluster([dead(hours=500, labels={CONTROL_PLANE: ""}), virtual(), unlabelled])
    report = Leader(cluster).run()
    assert (cluster.deleted, report.error, report.refused) == ([], None, None)


def test_o30_one_that_came_back_does_not_spare_another() -> None:
    cluster = Cluster([*ready_fleet(6), dead("pi-flap", 148), dead("pi-dead", 96)])
    Leader(cluster).run(fresh={"pi-flap": revived(dead("pi-flap", 148))})
    assert cluster.deleted == ["pi-dead"]


@pytest.mark.parametrize(("seconds", "goes"), [(-1800, True), (0, True), (600, True), (601, False)])
def test_o31_a_jump_is_more_than_ten_minutes(seconds: float, goes: bool) -> None:
    cluster = Cluster(ready_fleet(3))
    leader = Leader(cluster)
    leader.run()
    cluster.nodes |= {"pi-abc123": dead()}
    cluster.jump(seconds)
    report = leader.run()
    assert bool(cluster.deleted) is goes
    assert report.refused is (None if goes else Reason.CLOCK_SKEW)


def test_o31_a_first_pass_cannot_tell() -> None:
    cluster = Cluster([dead()])
    cluster.jump(48 * HOUR)
    Leader(cluster).run()
    assert cluster.deleted == ["pi-abc123"]


def test_o34_the_jump_is_told_before_the_rest() -> None:
    cluster = Cluster(ready_fleet(3))
    leader = Leader(cluster)
    leader.run()
    cluster.nodes = Cluster([*dead_fleet(*[30.0] * 8), dead("pi-ahead", -10_000, "True")]).nodes
    cluster.jump(48 * HOUR)
    leader.run()
    (line,) = lines_of(cluster)
    assert line.event == "refused_clock_skew"
    assert "ahead of the monotonic" in line.detail


def test_o36_a_refusal_is_written_when_it_changes() -> None:
    cluster = Cluster(dead_fleet(*[30.0] * 8))
    leader = Leader(cluster)
    passes(leader, [HOUR, HOUR])
    assert events(cluster) == ["refused_mass_stale"]
    cluster.nodes |= {"pi-ninth": dead("pi-ninth")}
    leader.run()
    assert [line.scope for line in lines_of(cluster)] == [8, 9]


@pytest.mark.parametrize("good", ["nothing stale", "only untrusted"])
def test_o37_d8_a_good_pass_clears_the_refusal(good: str) -> None:
    cluster = Cluster(dead_fleet(30, 30))
    leader, before = Leader(cluster), dict(cluster.nodes)
    leader.run()
    cluster.revive("pi-dead-00")
    if good == "nothing stale":
        cluster.revive("pi-dead-01")
    leader.run()
    cluster.nodes = before
    leader.run()
    assert events(cluster) == ["refused_mass_stale"] * 2


def test_d8_a_refusal_that_could_not_be_written_is_written_by_the_next_pass() -> None:
    cluster = Cluster(dead_fleet(30, 30))
    leader = Leader(cluster)
    leader.run(faults={SwapLedger: UNKNOWN})
    leader.run()
    assert events(cluster) == ["refused_mass_stale"]


def test_d8_a_rehearsal_says_each_node_once_a_day() -> None:
    cluster = Cluster([*ready_fleet(5), *dead_fleet(50, 40)])
    leader = Leader(cluster, mode=Mode.DRY_RUN)
    passes(leader, [HOUR] * 23)
    assert events(cluster) == ["dry_run_deleted"] * 2
    cluster.wait(HOUR)
    leader.run()
    assert events(cluster) == ["dry_run_deleted"] * 4


def test_o39_d8_three_in_two_windows_is_what_hourly_passes_come_to() -> None:
    cluster = Cluster([*ready_fleet(100), *dead_fleet(*[48.0] * 49)])
    leader = Leader(cluster, uptime=300, **OURS_OFF)
    leader.latency = 0.1
    counts, left = [], HOUR
    for _ in range(6):
        began = cluster.seconds
        leader.run()
        counts.append(len(cluster.deleted))
        left = HOUR - (cluster.seconds - began)
        cluster.wait(left)
    assert counts == [0, 3, 3, 6, 6, 9]


def test_o39_d4_a_partition_is_not_drained_in_a_day() -> None:
    cluster = Cluster([*ready_fleet(100), *dead_fleet(*[48.0] * 49)])
    leader = Leader(cluster)
    for _ in range(24):
        leader.run()
        cluster.wait(HOUR + 60)
    assert len(cluster.deleted) <= 38  # a quarter of 149


# --- the order of a pass -----------------------------------------------------------------------------------


def test_rule_1_a_pass_without_candidates_asks_for_the_fence_and_keeps_the_ledger_and_nothing_else() -> None:
    assert asked(Leader(Cluster(ready_fleet(3)))) == ["ReadClock", "ReadLedger", "AskFence", "SwapLedger"]


def test_rule_1_with_nothing_stale_no_guard_refuses_and_yet_it_is_told_what_they_say() -> None:
    cluster = Cluster(ready_fleet(3))
    assert Leader(cluster).run().standing.refused is None
    cluster.fenced = False
    report = Leader(cluster).run()
    assert (report.refused, report.standing.refused) == (None, Reason.NOT_FENCED)


def test_rule_1_a_refused_pass_reads_no_node() -> None:
    kinds = asked(Leader(Cluster(dead_fleet(30, 30))))
    assert kinds == ["ReadClock", "ReadLedger", "AskFence", "SwapLedger"]


def test_rule_2_a_node_is_read_dated_and_its_lease_heard_before_anything_is_written() -> None:
    kinds = asked(Leader(Cluster([dead(), *ready_fleet(1)])))
    assert kinds == [
        "ReadClock",
        "ReadLedger",
        "AskFence",
        "ReadNode",
        "ReadClock",
        "ReadNodeLease",
        "SwapLedger",
        "DeleteNode",
        "ReadClock",
        "SwapLedger",
        "SwapLedger",
    ]


def test_rule_2_the_second_judgement_has_a_fresh_clock() -> None:
    cluster = Cluster([dead(), *ready_fleet(1)])
    running = Leader(cluster).begin()
    running.until(ReadNode)
    cluster.jump(-2 * HOUR)  # the clock was wrong, and was set right meanwhile
    running.finish()
    assert cluster.deleted == []
    assert running.report is not None
    assert reasons(running.report) == {"pi-abc123": Reason.WITHIN_GRACE}


def test_rule_2_a_node_that_is_gone_is_passed_over_d7() -> None:
    cluster = Cluster([*ready_fleet(3), *dead_fleet(100, 50)])
    report = Leader(cluster).run(fresh={"pi-dead-00": None})
    assert (cluster.deleted, report.error) == (["pi-dead-01"], None)


@pytest.mark.parametrize("fault", [UNKNOWN, FORBIDDEN, REFUSED], ids=repr)
def test_rule_2_a_lease_that_cannot_be_read_is_no_answer(fault: Fault) -> None:
    cluster = Cluster([*ready_fleet(3), *dead_fleet(100, 50)])
    report = Leader(cluster).run(faults={ReadNodeLease: fault})
    assert cluster.deleted == []
    assert set(reasons(report).values()) == {Reason.LEASE_UNREADABLE}


def test_rule_2_a_lease_that_is_renewed_holds_its_node_and_no_other_b02() -> None:
    cluster = Cluster([*ready_fleet(3), *dead_fleet(100, 50)], leases={"pi-dead-00": lease(20 / 3600)})
    report = Leader(cluster).run()
    assert (cluster.deleted, reasons(report)) == (["pi-dead-01"], {"pi-dead-00": Reason.WITNESS_LIVES})


def test_rule_2_a_node_that_no_cache_knows_is_no_dead_one_b79() -> None:
    cluster = Cluster([*ready_fleet(3), *dead_fleet(100)])
    running = Leader(cluster).begin()
    cluster.nodes["pi-just-joined"] = dead("pi-just-joined", 400)
    running.finish()
    assert cluster.deleted == ["pi-dead-00"]


def test_rule_3_nothing_is_deleted_before_the_intention_is_written() -> None:
    cluster = Cluster([dead(), *ready_fleet(1)])
    running = Leader(cluster).begin()
    running.until(DeleteNode)
    assert events(cluster) == ["intended"]


@pytest.mark.parametrize("fault", [UNKNOWN, CHANGED, FORBIDDEN, Fault(Trouble.UNKNOWN, applied=True)], ids=repr)
def test_rule_3_an_intention_that_cannot_be_written_deletes_nothing(fault: Fault) -> None:
    cluster = Cluster([*ready_fleet(3), *dead_fleet(100, 50)])
    report = Leader(cluster).run(faults={SwapLedger: fault})
    assert cluster.deleted == []
    assert report.error is not None


def test_rule_3_a_recovery_between_read_and_delete_wins_d6() -> None:
    cluster = Cluster([*ready_fleet(3), *dead_fleet(100, 50)])
    running = Leader(cluster).begin()
    running.until(DeleteNode)
    cluster.revive("pi-dead-00")
    running.finish()
    assert cluster.deleted == ["pi-dead-01"]
    assert events(cluster) == ["intended", "skipped", "intended", "deleted"]


@pytest.mark.parametrize(
    ("fault", "event", "goes_on"),
    [
        (GONE, "skipped", True),
        (CHANGED, "skipped", True),
        (REFUSED, "rejected", True),
        (FORBIDDEN, "rejected", False),
    ],
    ids=["404", "409", "422", "403"],
)
def test_rules_4_and_5_what_the_api_server_answers_to_the_delete_d7_b06_b81(
    fault: Fault, event: str, goes_on: bool
) -> None:
    cluster = Cluster([*ready_fleet(3), *dead_fleet(100, 50)])
    running, faults = Leader(cluster).begin(), [fault]
    while running.step(faults.pop() if isinstance(running.ask, DeleteNode) and faults else None):
        pass
    assert events(cluster) == ["intended", event, *(["intended", "deleted"] if goes_on else [])]
    assert cluster.deleted == (["pi-dead-01"] if goes_on else [])
    assert running.report is not None
    assert (running.report.error is None) is goes_on
    assert running.report.budget_left == (2 if goes_on else 3)


@pytest.mark.parametrize("applied", [True, False])
def test_rule_4_a_delete_without_an_answer_is_spent(applied: bool) -> None:
    cluster = Cluster([*ready_fleet(3), *dead_fleet(100, 50)])
    leader = Leader(cluster, maxDeletes=1)
    leader.run(faults={DeleteNode: Fault(Trouble.UNKNOWN, applied=applied)})
    assert leader.run().refused is Reason.BUDGET_SPENT
    assert Leader(cluster, maxDeletes=1).run().refused is Reason.BUDGET_SPENT
    assert events(cluster) == ["intended"]


def test_rule_4_a_rejected_node_is_left_alone_for_an_hour_and_others_are_not_b81() -> None:
    cluster = Cluster([*ready_fleet(3), *dead_fleet(100, 50)])
    leader = Leader(cluster, interval="10m", maxDeletes=1)
    leader.run(faults={DeleteNode: REFUSED})
    assert (cluster.deleted, events(cluster)) == ([], ["intended", "rejected"] * 2)
    cluster.wait(600)
    report = leader.run()
    assert events(cluster) == ["intended", "rejected"] * 2
    assert set(reasons(report).values()) == {Reason.WRITE_REJECTED}
    cluster.wait(3000)
    leader.run()
    assert cluster.deleted == ["pi-dead-00"]


def test_rule_4_a_deletion_that_could_not_be_written_down_stays_spent() -> None:
    cluster = Cluster([*ready_fleet(3), *dead_fleet(100, 50)])
    running, swaps = Leader(cluster, maxDeletes=1).begin(), 0
    while running.ask is not None:
        swaps += isinstance(running.ask, SwapLedger)
        running.step(UNKNOWN if isinstance(running.ask, SwapLedger) and swaps > 1 else None)
    assert running.report is not None
    assert running.report.error is not None
    assert cluster.deleted == ["pi-dead-00"]
    assert Leader(cluster, maxDeletes=1).run().refused is Reason.BUDGET_SPENT


# --- the ledger of a pass ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("interval", "hours"), [("10s", 1), ("59m", 1), ("1h", 1), ("90m", 1.5), ("24h", 24)])
def test_the_window_is_the_interval_and_an_hour_at_the_least(interval: str, hours: float) -> None:
    assert window_of(agents(interval=interval).policy) == timedelta(hours=hours)


def test_the_window_does_not_shrink_with_the_interval() -> None:
    cluster = Cluster([*ready_fleet(20), *dead_fleet(*[48.0] * 8)])
    leader = Leader(cluster)
    leader.run()
    leader.settings = {"interval": "10s"}
    for _ in range(50):
        cluster.wait(60)
        leader.run()
    assert len(cluster.deleted) == 3


@pytest.mark.parametrize("restarted", [False, True])
def test_a_raised_maximum_does_not_forget_what_was_deleted(restarted: bool) -> None:
    cluster = Cluster([*ready_fleet(20), *dead_fleet(*[48.0] * 8)])
    leader = Leader(cluster)
    leader.run()
    if restarted:
        leader = Leader(cluster)
    leader.settings = {"maxDeletes": 5}
    cluster.wait(60)
    leader.run()
    assert len(cluster.deleted) == 5


def test_a_ledger_that_is_younger_than_a_window_counts_as_spent() -> None:
    cluster = Cluster([dead(), *ready_fleet(3)], created_at=START - timedelta(minutes=59))
    report = Leader(cluster).run()
    assert (report.refused, report.budget_left) == (Reason.BUDGET_SPENT, 0)
    cluster.wait(60)
    Leader(cluster).run()
    assert cluster.deleted == ["pi-abc123"]


def test_a_ledger_from_the_future_counts_as_spent() -> None:
    cluster = Cluster([dead(), *ready_fleet(3)], created_at=START + timedelta(hours=5))
    assert Leader(cluster).run().refused is Reason.BUDGET_SPENT


def test_deleting_the_ledger_does_not_refill_the_budget() -> None:
    cluster = Cluster([*ready_fleet(20), *dead_fleet(*[48.0] * 8)])
    leader = Leader(cluster)
    leader.run()
    cluster.wait(60)
    cluster.text, cluster.trust, cluster.created_at = "", None, cluster.wall
    Leader(cluster).run()
    leader.run()
    assert len(cluster.deleted) == 3


def lose_the_ledger(cluster: Cluster) -> None:
    """Somebody deletes it, and it is made anew."""
    cluster.text, cluster.trust, cluster.created_at = "", None, cluster.wall


def test_deleting_the_ledger_does_not_restore_trust() -> None:
    cluster = Cluster(ready_fleet(3))
    leader = Leader(cluster, grace="24h")
    leader.run()
    cluster.jump(3 * HOUR)
    cluster.nodes["pi-abc123"] = dead()
    assert leader.run().refused is Reason.CLOCK_SKEW
    lose_the_ledger(cluster)
    passes(leader, [HOUR] * 20)
    assert (cluster.deleted, leader.run().refused) == ([], Reason.UNTRUSTED)
    assert read_trust(cluster.trust).cause is Reason.CLOCK_SKEW
    passes(leader, [HOUR] * 4)
    assert cluster.deleted == ["pi-abc123"]


def test_deleting_the_ledger_does_not_begin_a_new_day() -> None:
    cluster = Cluster([*ready_fleet(8), *dead_fleet(*[48.0] * 5)])
    leader = Leader(cluster, maxReapedPercentPerDay=20)
    leader.run()
    assert len(cluster.deleted) == 3
    lose_the_ledger(cluster)
    passes(leader, [HOUR] * 20)
    assert (len(cluster.deleted), leader.run().refused) == (3, Reason.DAILY_LIMIT)
    passes(leader, [HOUR] * 4)
    assert len(cluster.deleted) == 5


def test_rubbish_in_the_ledger_is_spent_and_not_for_ever() -> None:
    cluster = Cluster([dead(), *ready_fleet(3)], text="rubbish\n")
    leader = Leader(cluster, maxDeletes=1)
    assert leader.run().refused is Reason.BUDGET_SPENT
    for _ in range(26):
        cluster.wait(HOUR)
        leader.run()
    assert cluster.deleted == ["pi-abc123"]


def test_a_torn_last_line_spoils_no_other_d23() -> None:
    torn = write_line(line_at(START, LedgerEvent.DELETED, node="x", uid="u"))[:30]
    cluster = Cluster([*ready_fleet(20), *dead_fleet(*[48.0] * 8)], text=torn)
    Leader(cluster).run()
    assert len(cluster.deleted) == 2
    assert cluster.text.startswith(torn + "\n")


@pytest.mark.parametrize("text", ["\ud800", "\ud800\n", '{"at": "\ud800"}'], ids=ascii)
def test_half_a_character_in_the_ledger_ends_no_pass_with_a_crash(text: str) -> None:
    cluster = Cluster([dead(), *ready_fleet(3)], text=text)
    report = Leader(cluster).run()
    assert report.deleted == () or report.error is None


def test_a_ledger_that_is_full_deletes_nothing_and_says_so() -> None:
    many = [
        line_at(START, LedgerEvent.DRY_RUN_DELETED, node=f"n{number}", detail="x" * 900) for number in range(300)
    ]
    cluster = Cluster([dead(), *ready_fleet(3)], text="".join(write_line(line) + "\n" for line in many))
    report = Leader(cluster).run()
    assert cluster.deleted == []
    assert (report.error, report.error_reason) == ("the ledger is full", Reason.LEDGER_FULL)


def test_what_is_reported_as_written_was_written() -> None:
    cluster = Cluster(dead_fleet(30, 30))
    report = Leader(cluster).run(faults={SwapLedger: UNKNOWN})
    assert (report.lines, cluster.text) == ((), "")


def test_two_leaders_lose_nothing_of_each_other() -> None:
    cluster = Cluster([*ready_fleet(20), *dead_fleet(*[48.0] * 8)])
    first, second = Leader(cluster).begin(), Leader(cluster).begin()
    first.until(DeleteNode)
    second.finish()
    first.finish()
    assert first.report is not None
    assert first.report.error is not None
    assert len(cluster.deleted) <= 3


def test_a_deletion_by_a_leader_that_was_too_slow_to_say_so_stays_spent() -> None:
    # The first one's DELETE is under way when the second begins; the second comes too late for the same node.
    cluster = Cluster([*ready_fleet(20), *dead_fleet(48, 40)])
    first = Leader(cluster, maxDeletes=2).begin()
    first.until(DeleteNode)
    second = Leader(cluster, maxDeletes=2).begin()
    second.until(DeleteNode)
    first.step()  # the node goes, and the first one's ledger line is lost
    assert cluster.deleted == ["pi-dead-00"]
    second.step()  # 404
    second.finish()
    third = Leader(cluster, maxDeletes=2).run()
    assert len(cluster.deleted) == 2
    assert third.budget_left == 0


def test_a_slow_delete_that_nobody_answered_counts_from_when_it_may_have_been_done() -> None:
    cluster = Cluster([*ready_fleet(20), *dead_fleet(48, 40)])
    slow = Leader(cluster, maxDeletes=1)
    slow.latency = 5.0
    running = slow.begin()
    running.until(DeleteNode)
    running.crash(applied=True)
    intended = lines_of(cluster)[0].at
    cluster.wait(HOUR + 1 - (cluster.wall - (parse_time(intended) or START)).total_seconds())
    Leader(cluster, maxDeletes=1).run()
    times = [gone.seconds for gone in cluster.deletions]
    assert len(times) == 1 or times[1] - times[0] >= HOUR


def test_a_clock_that_is_set_back_within_a_pass_does_not_refill_the_budget() -> None:
    cluster = Cluster([*ready_fleet(20), *dead_fleet(48, 40)])
    leader = Leader(cluster, maxDeletes=1)
    leader.run()
    cluster.wait(HOUR - 10)
    cluster.jump(599)
    running = Leader(cluster, maxDeletes=1).begin()
    running.until(ReadNode)
    cluster.jump(-HOUR)
    running.finish()
    assert cluster.deleted == ["pi-dead-00"]


@pytest.mark.parametrize("jump", [599, 2 * HOUR])
def test_a_clock_that_runs_ahead_does_not_refill_the_budget(jump: float) -> None:
    cluster = Cluster([*ready_fleet(20), *dead_fleet(*[48.0] * 9)])
    leader = Leader(cluster, interval="10s", **OURS_OFF)
    passes(leader, [HOUR - 100])
    cluster.jump(jump)
    leader.run()
    leader.run()
    assert len(cluster.deleted) == 3


# --- trust in a pass ---------------------------------------------------------------------------------------


def test_trust_is_earned_by_passes_and_kept_in_the_ledger() -> None:
    cluster = Cluster([dead(), *ready_fleet(3)], trust=write_trust(doubted(Reason.CLOCK_SKEW)))
    leader = Leader(cluster)
    passes(leader, [HOUR] * 3)
    assert read_trust(cluster.trust).seconds == 3 * HOUR
    Leader(cluster).run()
    assert read_trust(cluster.trust).seconds == 3 * HOUR


@pytest.mark.parametrize("cause", ["ClockSkew", "LedgerUnreadable", "ACauseOfTomorrow"])
def test_a_graver_doubt_is_not_made_milder_by_a_mass_death(cause: str) -> None:
    nodes = dead_fleet(*[30.0] * 6)
    cluster = Cluster([*nodes, *ready_fleet(4)], trust=f'{{"seconds":0,"cause":"{cause}"}}')
    leader = Leader(cluster)
    leader.approved = ("pi-dead-00", "uid-pi-dead-00")
    leader.run()
    assert read_trust(cluster.trust).cause not in {None, Reason.MASS_STALE}
    leader.run()
    assert cluster.deleted == []


def test_a_list_that_is_not_complete_yet_casts_no_doubt() -> None:
    cluster = Cluster(dead_fleet(30, 30))
    leader = Leader(cluster)
    leader.complete = False
    report = leader.run()
    assert report.refused is Reason.EVIDENCE_INCOMPLETE
    assert report.trust.is_earned(24 * HOUR)


def test_after_a_mass_death_a_grace_passes_before_the_next_deletion_b28() -> None:
    cluster = Cluster([*ready_fleet(3), *dead_fleet(*[26.0] * 7)])
    leader = Leader(cluster)
    leader.run()
    for number in range(6):
        cluster.revive(f"pi-dead-{number:02}")
    hours = 0
    while not cluster.deleted:
        cluster.wait(HOUR)
        hours += 1
        leader.run()
    assert hours == 24


def test_the_bar_stays_where_it_was_although_nodes_went_b27() -> None:
    cluster = Cluster([*ready_fleet(5), *dead_fleet(*[25.0] * 5)])
    leader = Leader(cluster)
    leader.run()
    assert len(cluster.deleted) == 3
    cluster.wait(HOUR + 1)
    for number in range(2):
        cluster.nodes[f"pi-ready-{number:02}"] = dead(f"pi-ready-{number:02}")
    report = leader.run()
    assert (report.refused, len(cluster.deleted)) == (Reason.MASS_STALE, 3)


# --- approval, ghosts, and what is held --------------------------------------------------------------------


def test_an_approved_node_goes_alone_in_a_fleet_that_is_held() -> None:
    cluster = Cluster([*ready_fleet(3), *dead_fleet(*[26.0] * 7)])
    leader = Leader(cluster)
    leader.approved = ("pi-dead-03", "uid-pi-dead-03")
    report = leader.run()
    assert cluster.deleted == ["pi-dead-03"]
    assert set(reasons(report).values()) == {Reason.MASS_STALE}


def test_an_approval_does_not_overrule_a_lease() -> None:
    cluster = Cluster([*ready_fleet(3), *dead_fleet(*[26.0] * 7)], leases={"pi-dead-03": lease(1)})
    leader = Leader(cluster)
    leader.approved = ("pi-dead-03", "uid-pi-dead-03")
    leader.run()
    assert cluster.deleted == []


def test_ghosts_of_a_rejoined_host_go_one_after_the_other_b104() -> None:
    ghosts = [dead("h1-aaaa", 40, host="h1"), dead("h1-bbbb", 30, host="h1")]
    cluster = Cluster([*ghosts, living("h1-cccc", host="h1"), *ready_fleet(2)])
    Leader(cluster).run()
    assert cluster.deleted == ["h1-aaaa", "h1-bbbb"]
    assert all("superseded by h1-cccc" in line.detail for line in lines_of(cluster))


def test_a_deletion_names_what_it_leaves_b11() -> None:
    cluster = Cluster([dead()])
    Leader(cluster).run()
    assert all("pi-abc123.node-password.k3s" in line.detail for line in lines_of(cluster))


def test_a_candidate_that_the_budget_does_not_reach_is_held_and_says_so() -> None:
    spent = write_line(line_at(START, LedgerEvent.DELETED, node="x", uid="u")) + "\n"
    cluster = Cluster([*ready_fleet(20), *dead_fleet(100, 90, 80)], text=spent)
    report = Leader(cluster).run()
    assert (len(cluster.deleted), reasons(report)) == (2, {"pi-dead-02": Reason.BUDGET_SPENT})


def test_a_node_that_was_gone_is_not_said_to_wait_for_the_budget() -> None:
    cluster = Cluster([*ready_fleet(20), *dead_fleet(100, 90, 80, 70)])
    report = Leader(cluster).run(fresh={"pi-dead-00": None})
    assert (len(cluster.deleted), reasons(report)) == (3, {})


def test_without_the_fence_nothing_goes_and_only_a_live_pass_asks_for_it() -> None:
    cluster = Cluster([dead(), *ready_fleet(1)])
    cluster.fenced = False
    assert Leader(cluster).run().refused is Reason.NOT_FENCED
    assert "AskFence" not in asked(Leader(cluster, mode=Mode.DRY_RUN))
    assert "AskFence" not in asked(Leader(Cluster([dead()]), requireFence=False))
    assert cluster.deleted == []
