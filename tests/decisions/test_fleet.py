from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from builders import START, agent, at, catalogue, facts, ready, virtual
from reaping_worlds import CONTROL_PLANE, OURS_OFF, agents, ago, dead, dead_fleet, living, ready_fleet

from clusterconform.contract.memory import EMPTY
from clusterconform.contract.names import HOST_LABEL, KEEP_ANNOTATION
from clusterconform.contract.verdicts import Reason
from clusterconform.decisions.fleet import Admission, Circumstances, Survey, admit, is_mass_stale, survey
from clusterconform.decisions.planning import decide
from clusterconform.decisions.trust import Trust, doubted

Json = dict[str, Any]

BUILT_IN = catalogue()
FINE = Circumstances(
    now=START,
    uptime=7200.0,
    complete=True,
    jumped=False,
    ledger_read=True,
    spent_in_window=0,
    spent_in_day=0,
    trust=Trust(),
    fenced=True,
)


def seen(*raws: Json, own_node: str = "", **settings: Any) -> Survey:
    nodes = [(node, decide(node, BUILT_IN, EMPTY, at(0)).verdict) for node in map(facts, raws)]
    return survey(nodes, agents(own_node, **settings), START)


def asked(fleet: Survey, settings: Json | None = None, **circumstances: Any) -> Admission:
    return admit(fleet, agents(**(settings or {})).policy, replace(FINE, **circumstances))


def names(admission: Admission) -> list[str]:
    return [candidate.name for candidate in admission.admitted]


def counts(fleet: Survey) -> tuple[int, int, int]:
    return fleet.scope, fleet.stale, fleet.future


ONE_OF_SIX = seen(dead(), *ready_fleet(5))
SIX_OF_TEN = seen(*dead_fleet(*[48.0] * 6), *ready_fleet(4))


def with_ahead(hours: float) -> Json:
    raw = agent("pi-ahead")
    raw["status"]["conditions"] = [ready(lastTransitionTime=ago(-hours))]
    return raw


# --- the survey --------------------------------------------------------------------------------------------


def test_only_eligible_nodes_count_so_others_neither_trip_nor_mask_the_breaker_b01() -> None:
    others = [virtual(host=f"h{number}") for number in range(20)]
    fleet = seen(*dead_fleet(25, 25, 25, 25), *ready_fleet(2), *others)
    assert counts(fleet) == (6, 4, 0)
    admission = asked(fleet)
    assert admission.refused is Reason.MASS_STALE
    assert "4/6" in admission.message


def test_o29_control_plane_virtual_and_unlabelled_nodes_count_for_nothing() -> None:
    unlabelled = dead("laptop-x", 500, labels={HOST_LABEL: None})
    fleet = seen(dead(hours=500, labels={CONTROL_PLANE: ""}), virtual(), unlabelled)
    assert (counts(fleet), fleet.candidates) == ((0, 0, 0), ())


def test_o26_the_control_planes_own_host_counts_for_nothing() -> None:
    plane = [dead(f"plane-{number}", 200, host="plane") for number in range(3)]
    fleet = seen(*plane, *dead_fleet(48, 48), selfHost="plane")
    assert counts(fleet) == (2, 2, 0)
    assert asked(fleet).refused is Reason.MASS_STALE


def test_a_terminating_node_is_neither_living_nor_dead_d26() -> None:
    fleet = seen(dead("pi-1", deleted=ago(1)), living("pi-2", deleted=ago(1)), living("pi-3"))
    assert (counts(fleet), fleet.candidates) == ((1, 0, 0), ())
    assert fleet.answers["pi-1"].reason is Reason.TERMINATING


@pytest.mark.parametrize(
    "changes",
    [{"annotations": {KEEP_ANNOTATION: ""}}, {"labels": {"type": "virtual-kubelet"}}],
    ids=["kept", "conflicting"],
)
def test_what_we_alone_would_not_delete_still_counts_as_dead_for_the_breaker(changes: Json) -> None:
    fleet = seen(dead("pi-1"), dead("pi-2", **changes), living("pi-3"))
    assert counts(fleet) == (3, 2, 0)
    assert [candidate.name for candidate in fleet.candidates] == ["pi-1"]
    assert asked(fleet).refused is Reason.MASS_STALE


def test_candidates_come_oldest_first_and_then_by_name_o1_o2() -> None:
    ages = {"pi-d": 48.0, "pi-c": 48.0, "pi-b": 30.0, "pi-a": 25.0, "pi-e": 100.0}
    fleet = seen(*(dead(name, hours) for name, hours in ages.items()))
    assert [candidate.name for candidate in fleet.candidates] == ["pi-e", "pi-c", "pi-d", "pi-b", "pi-a"]
    assert fleet.candidates[0].since == START - timedelta(hours=100)
    assert fleet.candidates[0].uid == "uid-pi-e"


def test_the_ghost_of_a_rejoin_is_named_as_such_b104() -> None:
    fleet = seen(dead("h1-aaaa", 40, host="h1"), dead("h1-bbbb", host="h1"), living("h1-cccc", host="h1"))
    assert [candidate.superseded_by for candidate in fleet.candidates] == ["h1-cccc", "h1-cccc"]


def test_a_dead_node_of_a_host_without_a_living_one_is_no_ghost() -> None:
    fleet = seen(dead("h1-aaaa", host="h1"), living("h2-cccc", host="h2"))
    assert [candidate.superseded_by for candidate in fleet.candidates] == [""]


# --- each guard --------------------------------------------------------------------------------------------


def test_without_an_objection_all_candidates_may_be_tried_as_far_as_the_budget_goes() -> None:
    fleet = seen(*dead_fleet(48, 40, 30, 25), *ready_fleet(8))
    admission = asked(fleet)
    assert (admission.refused, admission.allowed) == (None, 3)
    assert names(admission) == ["pi-dead-00", "pi-dead-01", "pi-dead-02", "pi-dead-03"]


@pytest.mark.parametrize("changes", [{"complete": False}, {"uptime": 299.9}], ids=["complete", "settled"])
def test_rule_1_evidence_must_be_complete_and_settled(changes: Json) -> None:
    settings = {"minUptime": "0s"}
    assert asked(ONE_OF_SIX, settings, **changes).refused is Reason.EVIDENCE_INCOMPLETE
    assert asked(ONE_OF_SIX, settings, uptime=300.0).refused is None


def test_rule_2_a_wall_clock_that_jumped_proves_nothing() -> None:
    assert asked(ONE_OF_SIX, jumped=True).refused is Reason.CLOCK_SKEW


@pytest.mark.parametrize(
    ("minutes", "refused"), [(-60, None), (2, None), (5, None), (5.02, Reason.CLOCK_SKEW), (60, Reason.CLOCK_SKEW)]
)
def test_rule_3_no_transition_lies_in_the_future_o18_o19_o32_b29(minutes: float, refused: Reason | None) -> None:
    assert asked(seen(dead(), *ready_fleet(3), with_ahead(minutes / 60))).refused is refused


def test_rule_3_a_node_out_of_scope_may_say_what_it_likes() -> None:
    foreign = with_ahead(1)
    foreign["metadata"]["labels"][HOST_LABEL] = "elsewhere"
    assert asked(seen(dead(), *ready_fleet(3), foreign)).refused is None


@pytest.mark.parametrize(
    ("stale", "living_ones", "refused"),
    [
        pytest.param(5, 5, False, id="O12"),
        pytest.param(6, 4, True, id="O12 more"),
        pytest.param(2, 2, False, id="O13"),
        pytest.param(3, 1, True, id="O13 more"),
        pytest.param(1, 0, False, id="O14 b26"),
        pytest.param(1, 1, False, id="b26 one of two"),
        pytest.param(2, 0, True, id="b26 two of two"),
        pytest.param(8, 0, True, id="O11"),
    ],
)
def test_rule_4_more_than_half_of_the_agents_do_not_die_at_once(
    stale: int, living_ones: int, refused: bool
) -> None:
    fleet = seen(*dead_fleet(*[30.0] * stale), *ready_fleet(living_ones))
    assert (asked(fleet).refused is Reason.MASS_STALE) is refused
    assert is_mass_stale(fleet, agents().policy, FINE) is refused


def test_rule_4_percentages_are_compared_as_integers() -> None:
    fleet = seen(*dead_fleet(*[30.0] * 29), *ready_fleet(21))
    assert asked(fleet, {"maxStalePercent": 58}).refused is None
    assert asked(fleet, {"maxStalePercent": 57}).refused is Reason.MASS_STALE


def test_rule_4_a_hundred_percent_switch_it_off() -> None:
    assert asked(seen(*dead_fleet(*[30.0] * 8)), {"maxStalePercent": 100}).refused is None


def test_rule_4_deleting_does_not_lower_the_bar_b27() -> None:
    later = seen(*dead_fleet(*[25.0] * 4), *ready_fleet(3))
    admission = asked(later, spent_in_day=3)
    assert admission.refused is Reason.MASS_STALE
    assert "7/10" in admission.message
    assert asked(seen(*dead_fleet(25, 25), *ready_fleet(5)), spent_in_day=3).refused is not Reason.MASS_STALE


def test_rule_4_with_the_daily_limit_off_the_bar_is_the_contracts() -> None:
    fleet = seen(*dead_fleet(25, 25, 25), *ready_fleet(4))
    assert asked(fleet, {"maxReapedPercentPerDay": 100}, spent_in_day=3).refused is None


@pytest.mark.parametrize(("uptime", "refused"), [(120.0, True), (3599.9, True), (3600.0, False), (3660.0, False)])
def test_rule_5_a_young_operator_only_looks_o20_o33(uptime: float, refused: bool) -> None:
    admission = asked(ONE_OF_SIX, {"settle": "0s"}, uptime=uptime)
    assert (admission.refused is Reason.MIN_UPTIME) is refused
    if refused:
        assert admission.until == START + timedelta(seconds=3600 - uptime)


def test_rule_6_without_the_ledger_nothing_goes_o16_o28() -> None:
    assert asked(ONE_OF_SIX, ledger_read=False).refused is Reason.LEDGER_UNREADABLE


@pytest.mark.parametrize(("spent", "allowed"), [(0, 3), (1, 2), (2, 1), (3, None), (4, None), (100, None)])
def test_rule_7_the_budget_of_the_window_is_not_exceeded(spent: int, allowed: int | None) -> None:
    admission = asked(ONE_OF_SIX, spent_in_window=spent)
    if allowed is None:
        assert admission.refused is Reason.BUDGET_SPENT
    else:
        assert admission.allowed == allowed


def test_rule_7_a_raised_maximum_does_not_forget_what_was_spent() -> None:
    assert asked(ONE_OF_SIX, {"maxDeletes": 5}, spent_in_window=3).allowed == 2


def test_rule_7_a_lowered_maximum_holds_at_once() -> None:
    assert asked(ONE_OF_SIX, {"maxDeletes": 1}, spent_in_window=3).refused is Reason.BUDGET_SPENT


@pytest.mark.parametrize("cause", [Reason.CLOCK_SKEW, Reason.MASS_STALE, Reason.LEDGER_UNREADABLE])
def test_rule_8_trust_is_earned_for_a_grace_b28(cause: Reason) -> None:
    admission = asked(ONE_OF_SIX, trust=Trust(seconds=80_000, cause=cause))
    assert (admission.refused, admission.until) == (Reason.UNTRUSTED, START + timedelta(seconds=6_400))
    assert asked(ONE_OF_SIX, trust=Trust(seconds=86_400, cause=cause)).refused is None


def test_rule_8_can_be_switched_off() -> None:
    assert asked(ONE_OF_SIX, {"reearnTrust": False}, trust=doubted(Reason.CLOCK_SKEW)).refused is None


@pytest.mark.parametrize(
    ("difference", "refused"), [(None, False), (300.0, False), (-300.0, False), (301.0, True), (-301.0, True)]
)
def test_rule_2_our_clock_is_the_api_servers(difference: float | None, refused: bool) -> None:
    admission = asked(ONE_OF_SIX, clock_difference=difference)
    assert (admission.refused is Reason.CLOCK_SKEW) == refused
    if refused:
        assert ("behind" if (difference or 0) > 0 else "ahead of") in admission.message


def test_rule_9_the_fence_must_stand() -> None:
    assert asked(ONE_OF_SIX, fenced=False).refused is Reason.NOT_FENCED
    assert asked(ONE_OF_SIX, {"requireFence": False}, fenced=False).refused is None
    assert asked(ONE_OF_SIX, fenced=None).refused is None


@pytest.mark.parametrize(("scope", "gone", "allowed"), [(100, 0, 3), (100, 31, 2), (100, 33, 1), (100, 34, None)])
def test_rule_10_a_quarter_of_the_fleet_may_go_in_a_day(scope: int, gone: int, allowed: int | None) -> None:
    # What went counts on both sides: a quarter of 134 is 33.5, so 34 may go.
    admission = asked(replace(ONE_OF_SIX, scope=scope), spent_in_day=gone)
    if allowed is None:
        assert admission.refused is Reason.DAILY_LIMIT
    else:
        assert admission.allowed == allowed


def test_rule_10_never_below_one_window() -> None:
    assert asked(ONE_OF_SIX).allowed == 3
    assert asked(ONE_OF_SIX, spent_in_day=2).allowed == 1
    assert asked(ONE_OF_SIX, spent_in_day=3).refused is Reason.DAILY_LIMIT


def test_rule_10_a_hundred_percent_switch_it_off() -> None:
    assert asked(ONE_OF_SIX, {"maxReapedPercentPerDay": 100}, spent_in_day=500).allowed == 3


# --- their order -------------------------------------------------------------------------------------------

BROKEN: list[tuple[Reason, Json]] = [
    (Reason.EVIDENCE_INCOMPLETE, {"complete": False}),
    (Reason.CLOCK_SKEW, {"jumped": True}),
    (Reason.MASS_STALE, {}),  # and what lies in the future: both in the fleet
    (Reason.MIN_UPTIME, {"uptime": 600.0}),
    (Reason.LEDGER_UNREADABLE, {"ledger_read": False}),
    (Reason.BUDGET_SPENT, {"spent_in_window": 3}),
    (Reason.UNTRUSTED, {"trust": doubted(Reason.CLOCK_SKEW)}),
    (Reason.NOT_FENCED, {"fenced": False}),
    (Reason.DAILY_LIMIT, {"spent_in_day": 1000}),
]


def test_the_guards_speak_in_the_order_of_their_numbers_o34() -> None:
    fleet, said, wrong = seen(*dead_fleet(*[30.0] * 8), with_ahead(1)), [], dict(BROKEN)
    for mended in [*wrong, None]:
        changes = {key: value for change in wrong.values() for key, value in change.items()}
        said.append(asked(fleet, **changes).refused)
        if mended is Reason.CLOCK_SKEW:
            # The second guard is mended; the third, of the same word, still refuses.
            changes.pop("jumped")
            again = asked(fleet, **changes)
            assert again.refused is Reason.CLOCK_SKEW
            assert "future" in again.message
            fleet = replace(fleet, future=0)
        if mended is Reason.MASS_STALE:
            fleet = replace(ONE_OF_SIX, scope=3_000)
        if mended is not None:
            del wrong[mended]
    assert said == [*(reason for reason, _ in BROKEN), None]


# --- approval by a person ----------------------------------------------------------------------------------

APPROVED = ("pi-dead-04", "uid-pi-dead-04")


@pytest.mark.parametrize(
    "circumstances",
    [{}, {"trust": doubted(Reason.MASS_STALE)}, {"spent_in_day": 100}],
    ids=["mass stale", "untrusted after it", "daily limit"],
)
def test_an_approved_node_may_go_alone_although_the_fleet_is_doubtful(circumstances: Json) -> None:
    admission = asked(SIX_OF_TEN, approved=APPROVED, **circumstances)
    assert (admission.refused, names(admission)) == (None, ["pi-dead-04"])


@pytest.mark.parametrize(
    ("circumstances", "refused"),
    [
        ({"complete": False}, Reason.EVIDENCE_INCOMPLETE),
        ({"jumped": True}, Reason.CLOCK_SKEW),
        ({"uptime": 600.0}, Reason.MIN_UPTIME),
        ({"ledger_read": False}, Reason.LEDGER_UNREADABLE),
        ({"spent_in_window": 3}, Reason.BUDGET_SPENT),
        ({"trust": doubted(Reason.CLOCK_SKEW)}, Reason.UNTRUSTED),
        ({"trust": doubted(Reason.LEDGER_UNREADABLE)}, Reason.UNTRUSTED),
        ({"fenced": False}, Reason.NOT_FENCED),
    ],
    ids=str,
)
def test_an_approval_overrides_no_other_guard(circumstances: Json, refused: Reason) -> None:
    assert asked(SIX_OF_TEN, approved=APPROVED, **circumstances).refused is refused


def test_an_approval_overrides_no_future_evidence() -> None:
    fleet = seen(*dead_fleet(*[48.0] * 6), with_ahead(1))
    assert asked(fleet, approved=APPROVED).refused is Reason.CLOCK_SKEW


@pytest.mark.parametrize(
    "approved",
    [("pi-dead-04", "uid-of-another-life"), ("pi-dead-04", ""), ("pi-ready-00", "uid-pi-ready-00"), ("", "")],
    ids=repr,
)
def test_an_approval_of_what_is_no_candidate_overrides_nothing(approved: tuple[str, str]) -> None:
    assert asked(SIX_OF_TEN, approved=approved).refused is Reason.MASS_STALE


def test_an_approval_changes_nothing_where_no_guard_refuses() -> None:
    fleet = seen(*dead_fleet(48, 40), *ready_fleet(8))
    assert asked(fleet, approved=("pi-dead-01", "uid-pi-dead-01")) == asked(fleet)


def test_the_breakers_default_is_in_force_without_any_setting_b82() -> None:
    assert agents().policy.max_stale_percent == 50
    assert asked(SIX_OF_TEN).refused is Reason.MASS_STALE


def test_our_own_guards_can_all_be_switched_off() -> None:
    fleet = seen(*dead_fleet(48, 40), *ready_fleet(2))
    circumstances = {"spent_in_day": 50, "trust": doubted(Reason.CLOCK_SKEW), "fenced": False}
    assert asked(fleet, OURS_OFF, **circumstances).refused is None
