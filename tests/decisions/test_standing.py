"""Where reaping stands: whose word limits it, what the status shows, and which guard the condition names."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from builders import START, catalogue
from reaping_worlds import HOUR, Cluster, Fault, Leader, agents, dead, dead_fleet, lease, ready_fleet

from clusterconform.contract.asks import DeleteNode, ReadLedger, ReadNode, SwapLedger, Trouble
from clusterconform.contract.names import KEEP_ANNOTATION
from clusterconform.contract.profile import Enforcement
from clusterconform.contract.reaping import Mode
from clusterconform.contract.settings import Bound, ReapingMode
from clusterconform.contract.verdicts import Reason
from clusterconform.decisions.ledger import LedgerEvent, append, line_at
from clusterconform.decisions.rehearsal import agents_of
from clusterconform.decisions.report import PassReport
from clusterconform.decisions.standing import (
    HELD,
    LastPass,
    Mandate,
    Standing,
    mandate_of,
    reaping_allowed,
    reaping_status,
)
from clusterconform.decisions.trust import doubted, write_trust

Json = dict[str, Any]

LIVE, DRY, OFF = ReapingMode.LIVE, ReapingMode.DRY_RUN, ReapingMode.OFF
PROFILE, WORD, BOUND = "nodeGC.mode", "OUTPOST_NODEGC", "--bound"


def standing(
    report: PassReport | None,
    *,
    mode: ReapingMode = LIVE,
    by: str = PROFILE,
    due: float | None = None,
    **settings: Any,
) -> Standing:
    """Where reaping stands after ``report``, the next pass being due in ``due`` seconds."""
    return Standing(
        mandate=Mandate(mode=mode, by=by),
        policy=agents(**settings).policy,
        last=None if report is None else LastPass(report=report, mode=mode, at=START),
        next_at=None if due is None else START + timedelta(seconds=due),
    )


def after(*nodes: Json, mode: Mode = Mode.LIVE, cluster: Cluster | None = None, **settings: Any) -> PassReport:
    """What a pass over ``nodes`` reports."""
    return Leader(cluster or Cluster(nodes), mode=mode, **settings).run()


def condition(report: PassReport | None, **how: Any) -> tuple[str, Reason]:
    """Status and reason of the condition."""
    status, finding = reaping_allowed(standing(report, **how))
    return status, finding.reason


# --- the mandate -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("profile", "word", "bound", "mode", "by"),
    [
        (LIVE, "", Bound.ENFORCE, LIVE, PROFILE),
        (LIVE, "live", Bound.ENFORCE, LIVE, PROFILE),
        (LIVE, "", Bound.OBSERVE, DRY, BOUND),
        (LIVE, "dry-run", Bound.ENFORCE, DRY, WORD),
        (LIVE, "off", Bound.ENFORCE, OFF, WORD),
        (LIVE, "off", Bound.OBSERVE, OFF, WORD),
        (LIVE, "dry-run", Bound.OBSERVE, DRY, WORD),
        (DRY, "live", Bound.ENFORCE, DRY, PROFILE),
        (DRY, "", Bound.OBSERVE, DRY, PROFILE),
        (DRY, "dry-run", Bound.ENFORCE, DRY, PROFILE),
        (DRY, "off", Bound.ENFORCE, OFF, WORD),
        (OFF, "live", Bound.ENFORCE, OFF, PROFILE),
        (OFF, "dry-run", Bound.OBSERVE, OFF, PROFILE),
    ],
)
def test_the_mildest_word_wins_and_is_named(
    profile: ReapingMode, word: str, bound: Bound, mode: ReapingMode, by: str
) -> None:
    assert mandate_of(profile, word, bound) == Mandate(mode=mode, by=by)


@pytest.mark.parametrize("word", ["", " LIVE ", "on", "Enabled", "\tlive\n"])
def test_m1_words_that_ask_for_nothing_milder(word: str) -> None:
    assert mandate_of(LIVE, word, Bound.ENFORCE).mode is LIVE


@pytest.mark.parametrize("word", ["dry-run", "dryrun", "Dry_Run", " DRY-RUN "])
def test_m1_words_for_a_dry_run(word: str) -> None:
    assert mandate_of(LIVE, word, Bound.ENFORCE).mode is DRY


@pytest.mark.parametrize("word", ["off", "0", "of", "dryrunn", "no", "false", "lives", "\x1clive", "dry run"])
def test_m1_d19_any_other_word_means_off(word: str) -> None:
    assert mandate_of(LIVE, word, Bound.ENFORCE).mode is OFF


@pytest.mark.parametrize("word", ["", "live", "dry-run", "off"])
@pytest.mark.parametrize("bound", Bound)
@pytest.mark.parametrize("profile", ReapingMode)
def test_no_word_makes_it_sharper_than_the_profile(profile: ReapingMode, word: str, bound: Bound) -> None:
    sharpness = [OFF, DRY, LIVE]
    mode = mandate_of(profile, word, bound).mode
    assert sharpness.index(mode) <= sharpness.index(profile)


# --- the condition -----------------------------------------------------------------------------------------


def test_before_the_first_pass_nothing_is_known() -> None:
    assert condition(None) == ("Unknown", Reason.EVIDENCE_INCOMPLETE)
    assert condition(None, mode=DRY) == ("Unknown", Reason.EVIDENCE_INCOMPLETE)


@pytest.mark.parametrize("by", [PROFILE, WORD])
def test_off_is_said_with_whose_word_it_is_and_outweighs_an_older_pass(by: str) -> None:
    status, finding = reaping_allowed(standing(after(*ready_fleet(2)), mode=OFF, by=by))
    assert (status, finding.reason) == ("False", Reason.NOT_LIVE)
    assert by in finding.message


def test_a_fleet_that_lives_is_no_reason_to_hold() -> None:
    assert condition(after(*ready_fleet(3))) == ("True", Reason.GUARDS_PASS)


def test_a_pass_that_deleted_leaves_it_allowed() -> None:
    report = after(*dead_fleet(30.0), *ready_fleet(3))
    assert report.deleted
    assert condition(report) == ("True", Reason.GUARDS_PASS)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"uptime": 60.0}, Reason.EVIDENCE_INCOMPLETE),
        ({"uptime": 600.0}, Reason.MIN_UPTIME),
    ],
)
def test_the_guard_that_would_refuse_is_named_although_nothing_is_stale(settings: Json, reason: Reason) -> None:
    """So that it is known before it is needed."""
    report = Leader(Cluster(ready_fleet(3)), **settings).run()
    assert report.refused is None
    assert condition(report) == ("False", reason)


def test_a_mass_death_is_named_and_so_is_the_time_after_it() -> None:
    cluster = Cluster(dead_fleet(30.0, 30.0, 30.0))
    leader = Leader(cluster)
    assert condition(leader.run()) == ("False", Reason.MASS_STALE)
    for name in list(cluster.nodes)[:2]:
        cluster.revive(name)
    assert condition(leader.run()) == ("False", Reason.UNTRUSTED)


def test_the_fence_that_is_missing_is_named_although_nothing_is_stale() -> None:
    cluster = Cluster(ready_fleet(3))
    cluster.fenced = False
    assert condition(after(cluster=cluster)) == ("False", Reason.NOT_FENCED)
    assert condition(after(cluster=cluster, requireFence=False)) == ("True", Reason.GUARDS_PASS)


def test_a_spent_budget_is_named() -> None:
    report = after(*dead_fleet(30.0, 30.0), *ready_fleet(5), maxDeletes=1)
    assert condition(report, maxDeletes=1) == ("True", Reason.GUARDS_PASS)
    cluster = Cluster(dead_fleet(30.0, 30.0) + ready_fleet(5))
    leader = Leader(cluster, maxDeletes=1)
    leader.run()
    assert condition(leader.run(), maxDeletes=1) == ("False", Reason.BUDGET_SPENT)


def test_a_guard_that_ends_by_time_alone_says_when() -> None:
    _, finding = reaping_allowed(standing(Leader(Cluster(ready_fleet(1)), uptime=600.0).run()))
    assert finding.message.endswith("at least until 2026-08-01T12:50:00Z")


def test_a_ledger_that_cannot_be_read_is_named_with_the_servers_words() -> None:
    report = Leader(Cluster(dead_fleet(30.0) + ready_fleet(2))).run(faults={ReadLedger: Fault(Trouble.UNKNOWN)})
    status, finding = reaping_allowed(standing(report))
    assert (status, finding.reason) == ("False", Reason.LEDGER_UNREADABLE)
    assert "as told by the test" in finding.message


def test_an_error_in_the_middle_of_a_pass_is_named() -> None:
    report = Leader(Cluster(dead_fleet(30.0) + ready_fleet(2))).run(faults={ReadNode: Fault(Trouble.UNKNOWN)})
    assert condition(report) == ("False", Reason.ENDED_EARLY)
    report = Leader(Cluster(dead_fleet(30.0) + ready_fleet(2))).run(faults={DeleteNode: Fault(Trouble.FORBIDDEN)})
    assert condition(report) == ("False", Reason.ENDED_EARLY)
    report = Leader(Cluster(dead_fleet(30.0) + ready_fleet(2))).run(faults={SwapLedger: Fault(Trouble.UNKNOWN)})
    assert condition(report) == ("False", Reason.LEDGER_UNREADABLE)


def test_a_full_ledger_is_named() -> None:
    rows = [line_at(START, LedgerEvent.NOTED, detail="x" * 1000) for _ in range(300)]
    report = after(cluster=Cluster(dead_fleet(30.0) + ready_fleet(2), text=append("", rows)))
    assert condition(report) == ("False", Reason.LEDGER_FULL)


def test_a_dry_run_is_never_allowed_and_names_what_would_have_gone() -> None:
    report = after(*dead_fleet(30.0), *ready_fleet(3), mode=Mode.DRY_RUN)
    status, finding = reaping_allowed(standing(report, mode=DRY, by=BOUND))
    assert (status, finding.reason) == ("False", Reason.NOT_LIVE)
    assert BOUND in finding.message
    assert "it would have deleted pi-dead-00" in finding.message


def test_a_guard_outweighs_a_dry_run_and_both_are_told() -> None:
    report = after(*dead_fleet(30.0, 30.0, 30.0), mode=Mode.DRY_RUN)
    status, finding = reaping_allowed(standing(report, mode=DRY, by=WORD))
    assert (status, finding.reason) == ("False", Reason.MASS_STALE)
    assert WORD in finding.message


@pytest.mark.parametrize(("grace", "warned"), [("59m", True), ("1m", True), ("1h", False), ("24h", False)])
def test_a_grace_below_an_hour_is_warned_of_while_reaping_is_allowed(grace: str, *, warned: bool) -> None:
    settings: Json = {"grace": grace, "interval": "1m"}
    status, finding = reaping_allowed(standing(after(*ready_fleet(2), **settings), **settings))
    assert (status, finding.reason) == ("True", Reason.GUARDS_PASS)
    assert (f"grace of {grace}" in finding.message) is warned


# --- the status --------------------------------------------------------------------------------------------


def test_before_the_first_pass_the_status_shows_what_is_in_force() -> None:
    status = reaping_status(standing(None, mode=DRY, by=WORD, maxDeletes=2))
    assert {key: status[key] for key in ("mode", "limitedBy")} == {"mode": "DryRun", "limitedBy": WORD}
    assert status["settings"]["maxDeletes"] == 2
    assert set(status) == {"mode", "limitedBy", "settings"}


def test_the_settings_in_force_are_those_of_the_contract_unless_set() -> None:
    assert reaping_status(standing(None))["settings"] == {
        "grace": "24h",
        "maxDeletes": 3,
        "interval": "1h",
        "settle": "5m",
        "minUptime": "1h",
        "maxStalePercent": 50,
        "futureTolerance": "5m",
        "clockJumpTolerance": "10m",
        "maxReapedPercentPerDay": 25,
        "reearnTrust": True,
        "leaseWitness": True,
        "requireFence": True,
    }
    assert reaping_status(standing(None, selfHost="plane"))["settings"]["selfHost"] == "plane"


def test_after_a_pass_the_status_shows_its_numbers() -> None:
    report = after(*dead_fleet(30.0, 40.0), *ready_fleet(6), maxDeletes=5)
    status = reaping_status(standing(report, due=HOUR, maxDeletes=5))
    numbers = {"eligible": 8, "stale": 2, "reapedInWindow": 2, "budgetLeft": 3}
    assert {key: status[key] for key in numbers} == numbers
    assert (status["lastPass"], status["nextPass"]) == ("2026-08-01T12:00:00Z", "2026-08-01T13:00:00Z")
    assert status["deleted"] == ["pi-dead-01", "pi-dead-00"]
    assert "held" not in status


def test_what_earlier_passes_spent_is_shown_too() -> None:
    leader = Leader(Cluster(dead_fleet(30.0, 40.0) + ready_fleet(6)), maxDeletes=5)
    leader.run()
    status = reaping_status(standing(leader.run(), maxDeletes=5))
    assert (status["reapedInWindow"], status["budgetLeft"], "deleted" in status) == (2, 3, False)


def test_no_list_is_empty_since_it_would_come_back_absent_and_look_like_a_change() -> None:
    status = reaping_status(standing(after(*ready_fleet(2))))
    assert [] not in status.values()


def test_each_held_candidate_has_its_reason_and_when_that_may_change() -> None:
    kept = dead("pi-kept", 30.0, annotations={KEEP_ANNOTATION: ""})
    cluster = Cluster([dead("pi-renewed", 30.0), kept, *ready_fleet(6)], leases={"pi-renewed": lease(1.0)})
    status = reaping_status(standing(after(cluster=cluster)))
    assert status["held"] == [
        {"name": "pi-renewed", "reason": "WitnessLives", "until": "2026-08-02T11:00:00Z"},
        {"name": "pi-kept", "reason": "Kept"},
    ]


@pytest.mark.parametrize("mode", Mode)
def test_of_many_only_some_are_listed(mode: Mode) -> None:
    settings: Json = {"maxDeletes": 100, "maxStalePercent": 100}
    report = after(*dead_fleet(*[30.0] * 40), mode=mode, **settings)
    assert len(reaping_status(standing(report, **settings))["deleted"]) == HELD
    held = after(*dead_fleet(*[30.0] * 40), maxStalePercent=50)
    assert len(reaping_status(standing(held))["held"]) == HELD


def test_an_installation_that_was_never_doubted_is_trusted_for_as_long_as_it_was_seen() -> None:
    report = after(*ready_fleet(2))
    report = replace(report, trust=replace(report.trust, seconds=HOUR))
    assert reaping_status(standing(report))["trustedSince"] == "2026-08-01T11:00:00Z"


def test_after_a_doubt_trust_is_shown_once_it_is_earned_and_since_then() -> None:
    grace = 24 * HOUR
    for seconds, since in ((0.0, None), (grace - 1, None), (grace + HOUR, "2026-08-01T11:00:00Z")):
        trust = write_trust(replace(doubted(Reason.MASS_STALE), seconds=seconds))
        report = after(cluster=Cluster(ready_fleet(2), trust=trust))
        status = reaping_status(standing(report))
        assert status.get("trustedSince") == since
        assert status.get("lastDoubt") == (None if since else "MassStale")


def test_a_profile_that_only_observes_deletes_nothing() -> None:
    """README: ``enforcement: Observe`` stops all writes to the nodes of one profile."""
    observing = mandate_of(LIVE, "", Bound.ENFORCE, Enforcement.OBSERVE)
    assert observing == Mandate(mode=DRY, by="spec.enforcement")
    assert mandate_of(OFF, "", Bound.ENFORCE, Enforcement.OBSERVE).mode is OFF
    profile = catalogue(k3s={"enforcement": "Observe"})
    found = agents_of(profile)
    assert found is not None
    assert (found.policy.mode, found.mode) == (LIVE, DRY)


def test_an_approval_of_one_node_does_not_make_the_guards_look_open() -> None:
    leader = Leader(Cluster(dead_fleet(30, 30, 30)))
    leader.approved = ("pi-dead-00", "uid-pi-dead-00")
    report = leader.run()
    assert report.deleted == ("pi-dead-00",)
    status, finding = reaping_allowed(standing(report))
    assert (status, finding.reason) == ("False", Reason.MASS_STALE)
    assert "agents are stale" in finding.message


def test_what_a_live_pass_deleted_is_not_retold_as_what_a_dry_run_would_have() -> None:
    report = after(dead(), *ready_fleet(4))
    assert report.deleted
    milder = replace(standing(report), mandate=Mandate(mode=DRY, by=BOUND))
    assert "would have deleted" not in reaping_allowed(milder)[1].message
    assert "would have deleted" in reaping_allowed(standing(report, mode=DRY, by=BOUND))[1].message
