import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from unittest import mock

import pytest
from builders import START

from clusterconform.decisions import ledger
from clusterconform.decisions.ledger import (
    DAY,
    LedgerEvent,
    LedgerLine,
    append,
    as_values,
    fold,
    line_at,
    malformed,
    read_ledger,
    spent_since,
    unanswered,
    write_line,
)

HOUR = timedelta(hours=1)
DELETED, INTENDED = LedgerEvent.DELETED, LedgerEvent.INTENDED
SKIPPED, REJECTED = LedgerEvent.SKIPPED, LedgerEvent.REJECTED


def line(event: LedgerEvent, minutes: float = 0, node: str = "a", uid: str = "") -> LedgerLine:
    return line_at(START + timedelta(minutes=minutes), event, node=node, uid=uid or f"uid-{node}")


def text_of(*lines: LedgerLine | str) -> str:
    return "".join((seen if isinstance(seen, str) else write_line(seen)) + "\n" for seen in lines)


def spent(text: str, minutes: float = 60, window: timedelta = HOUR) -> int:
    """What counts ``minutes`` after the start in the window that ends there."""
    return spent_since(read_ledger(text), START + timedelta(minutes=minutes) - window)


@pytest.fixture
def folding() -> Iterator[None]:
    """Fold however short the text is."""
    with mock.patch.object(ledger, "_FOLD_ABOVE", 0):
        yield


# --- the contract's rows -----------------------------------------------------------------------------------


def test_l1_a_deletion_counts_and_a_rehearsed_one_does_not() -> None:
    text = text_of(line(DELETED), line(LedgerEvent.DRY_RUN_DELETED, 1, "b"))
    assert spent_since(read_ledger(text), START - HOUR) == 1
    assert spent_since(read_ledger(text), START) == 0
    last = read_ledger(text)[-1].line
    assert last is not None
    assert last.event == "dry_run_deleted"


def test_l2_a_ledger_that_was_never_written_counts_nothing() -> None:
    assert (read_ledger(""), spent(""), malformed(read_ledger("")), unanswered(read_ledger(""))) == ([], 0, 0, [])


def test_l3_rubbish_between_two_deletions_hides_neither() -> None:
    text = text_of(line(DELETED), "garbage", line(DELETED, node="b"))
    assert malformed(read_ledger(text)) == 1
    assert spent(text, 30) == 3  # what cannot be read may have been one
    assert spent(text_of(line(DELETED), "garbage", line(DELETED, node="b"), line(DELETED, 90, "c")), 90) == 1


def test_l3_two_deletions_without_name_and_uid_are_two() -> None:
    bare = json.dumps({"at": "2026-08-01T12:00:00Z", "event": "deleted"})
    assert spent(text_of(bare, bare), 30) == 2


def test_l3_two_deletions_of_one_name_without_uid_are_two() -> None:
    bare = json.dumps({"at": "2026-08-01T12:00:00Z", "event": "deleted", "node": "a"})
    assert spent(text_of(bare, bare), 30) == 2


def test_o22_a_line_says_when_what_and_since_when() -> None:
    since = START - timedelta(hours=48, microseconds=-5)
    made = line_at(START + timedelta(microseconds=5), DELETED, node="a", uid="u", not_ready_since=since)
    assert json.loads(write_line(made)) == {
        "at": "2026-08-01T12:00:00.000005Z",
        "event": "deleted",
        "node": "a",
        "uid": "u",
        "not_ready_since": "2026-07-30T12:00:00Z",
    }


def test_a_time_in_another_zone_is_written_in_utc() -> None:
    made = line_at(START.astimezone(timezone(timedelta(hours=5))), DELETED)
    assert made.at == "2026-08-01T12:00:00.000000Z"


def test_what_is_empty_is_left_out() -> None:
    assert write_line(line_at(START, LedgerEvent.REFUSED_CLOCK_SKEW)).count(":") == 1 + 3
    assert as_values([line_at(START, DELETED)]) == [{"at": "2026-08-01T12:00:00.000000Z", "event": "deleted"}]


# --- rule 1: each line on its own --------------------------------------------------------------------------


def test_rule_1_a_torn_line_spoils_only_itself_d23() -> None:
    torn = text_of(line(DELETED)) + write_line(line(DELETED, 1, "b"))[:40]
    text = append(torn, [line(DELETED, 2, "c")])
    assert [entry.line is not None for entry in read_ledger(text)] == [True, False, True]
    assert spent(text, 30) == 3


def test_rule_1_a_whole_line_without_its_break_is_kept_whole() -> None:
    text = append(write_line(line(DELETED)), [line(DELETED, 1, "b")])
    assert (malformed(read_ledger(text)), spent(text, 30)) == (0, 2)


@pytest.mark.parametrize("old", ["", "x", "x\n", "\n", "x\r\n"], ids=repr)
def test_rule_1_what_stands_there_is_never_changed(old: str) -> None:
    assert append(old, [line(DELETED)]).startswith(old)
    assert append(old, []).rstrip("\n") == old.rstrip("\n")


# --- rule 2: what cannot be read ---------------------------------------------------------------------------

AT = "2026-08-01T12:00:00Z"
GOOD = {"at": AT, "event": "deleted", "node": "a", "uid": "u"}
MALFORMED: list[Any] = [
    "garbage",
    "[]",
    "null",
    "5",
    '"text"',
    "{}",
    '{"at": "2026-08-01T12:00:00Z"}',
    '{"event": "deleted"}',
    json.dumps(GOOD)[:-1],
    json.dumps(GOOD) + json.dumps(GOOD),
    {**GOOD, "at": None},
    {**GOOD, "at": ""},
    {**GOOD, "at": "2026-08-01 12:00:00Z"},
    {**GOOD, "at": "2026-08-01T12:00:00"},
    {**GOOD, "at": "2026-08-01"},
    {**GOOD, "at": 1785585600},
    {**GOOD, "event": 5},
    {**GOOD, "event": None},
    {**GOOD, "node": 5},
    {**GOOD, "uid": ["u"]},
    {**GOOD, "stale": "5"},
    {**GOOD, "stale": 1.5},
    {**GOOD, "scope": True},
    {**GOOD, "detail": {}},
    {**GOOD, "not_ready_since": 0},
    "\ud800",
    "\x00",
    "[" * 100_000,
    '{"at":"2026-08-01T12:00:00Z","event":"deleted","more":' + "[" * 100_000,
]


@pytest.mark.parametrize("bad", MALFORMED, ids=lambda bad: ascii(bad)[:50])
def test_rule_2_a_malformed_line_is_skipped_counted_and_spent(bad: Any) -> None:
    text = text_of(bad if isinstance(bad, str) else json.dumps(bad))
    assert malformed(read_ledger(text)) == 1
    assert spent(text) == 1
    assert unanswered(read_ledger(text)) == []


def test_rule_2_a_line_of_any_depth_is_read_or_malformed() -> None:
    text = text_of('{"at":"2026-08-01T12:00:00Z","event":"deleted","more":' + "[" * 5_000 + "]" * 5_000 + "}")
    assert spent(text, 30) == 1


@pytest.mark.parametrize(
    "at",
    [
        AT,
        "2026-08-01T12:00:00.1Z",
        "2026-08-01T12:00:00.123456Z",
        "2026-08-01T12:00:00.123456789Z",
        "2026-08-01T14:00:00+02:00",
        "2026-08-01T04:00:00.999999999-08:00",
    ],
)
def test_rule_2_a_time_with_a_fraction_or_another_zone_is_fine(at: str) -> None:
    text = text_of(json.dumps({**GOOD, "at": at}))
    assert (malformed(read_ledger(text)), spent(text, 30)) == (0, 1)


def test_rule_2_dos_line_ends_are_fine() -> None:
    text = text_of(line(DELETED), line(DELETED, node="b")).replace("\n", "\r\n")
    assert (malformed(read_ledger(text)), spent(text, 30)) == (0, 2)
    assert malformed(read_ledger(append(text, [line(DELETED, node="c")]))) == 0


@pytest.mark.parametrize("blank", ["", " ", "\t", "\r", "\r\n\r\n", "  \n\n"], ids=repr)
def test_rule_2_an_empty_line_is_none(blank: str) -> None:
    assert read_ledger(blank) == []


def test_rule_2_a_field_that_is_not_known_is_passed_over() -> None:
    assert spent(text_of(json.dumps({**GOOD, "term": 7, "more": {"a": [1]}})), 30) == 1


def test_rule_2_a_later_line_of_before_the_window_frees_what_stands_before_it() -> None:
    text = text_of("garbage", "garbage", line(LedgerEvent.REFUSED_CLOCK_SKEW, -1))
    assert spent(text) == 0
    assert spent(text, -0.5) == 2


def test_rule_2_what_stands_behind_the_last_old_line_is_spent() -> None:
    assert spent(text_of(line(DELETED, -500), "garbage")) == 1
    assert spent(text_of("garbage", line(DELETED, -500), "garbage", line(DELETED, 50, "b"))) == 2


def test_rule_2_a_clock_that_was_set_back_frees_nothing_by_its_old_times() -> None:
    # The clock was an hour and a half behind for one line; what cannot be read stands between two good ones.
    text = text_of(line(DELETED, 30), "garbage", line(LedgerEvent.REFUSED_MASS_STALE, -60), line(DELETED, 40, "b"))
    assert spent(text) == 3


# --- rule 3: intended, and what became of it ---------------------------------------------------------------


def test_rule_3_a_deletion_is_spent_from_its_intention_on_and_once() -> None:
    assert spent(text_of(line(INTENDED, 10)), 30) == 1
    assert spent(text_of(line(INTENDED, 10), line(DELETED, 11)), 30) == 1


@pytest.mark.parametrize("outcome", [SKIPPED, REJECTED])
def test_rule_3_what_was_not_done_is_given_back_b81(outcome: LedgerEvent) -> None:
    assert spent(text_of(line(INTENDED, 10), line(outcome, 11)), 30) == 0


def test_rule_3_what_nobody_answered_stays_spent() -> None:
    text = text_of(line(INTENDED, 10), line(INTENDED, 12, "b"), line(DELETED, 13, "b"))
    assert spent(text, 30) == 2
    assert [seen.node for seen in unanswered(read_ledger(text))] == ["a"]


def test_rule_3_an_answer_belongs_to_one_intention_only() -> None:
    # A first DELETE that nobody answered may have been the one that a second one came too late for.
    text = text_of(line(INTENDED, 10), line(INTENDED, 20), line(SKIPPED, 21))
    assert spent(text, 30) == 1


def test_rule_3_a_deletion_is_not_undone_by_a_later_refusal() -> None:
    assert spent(text_of(line(INTENDED, 10), line(DELETED, 11), line(INTENDED, 20), line(SKIPPED, 21)), 30) == 1


def test_rule_3_another_life_of_the_name_is_another_deletion() -> None:
    text = text_of(line(DELETED, 10, uid="u1"), line(DELETED, 20, uid="u2"))
    assert spent(text, 30) == 2


def test_rule_3_an_answer_without_an_intention_gives_nothing() -> None:
    assert spent(text_of(line(SKIPPED, 5), line(REJECTED, 6, "b"), line(DELETED, 7, "c")), 30) == 1


@pytest.mark.parametrize(
    "event", ["dry_run_deleted", "refused_mass_stale", "refused_clock_skew", "folded", "noted"]
)
def test_rule_3_nothing_else_counts(event: str) -> None:
    assert spent(text_of(json.dumps({**GOOD, "event": event, "scope": 50})), 30) == 0


# --- rule 4: the window ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("minutes", "counts"), [(-1, 0), (0, 0), (0.001, 1), (30, 1), (60, 1), (10**6, 1)])
def test_rule_4_a_line_at_the_cutoff_is_free_and_one_of_the_future_counts(minutes: float, counts: int) -> None:
    assert spent(text_of(line(DELETED, minutes))) == counts


# --- rule 5: folding ---------------------------------------------------------------------------------------


def test_rule_5_a_short_text_stays_as_it_is() -> None:
    text = text_of(line(DELETED, -(10**6)), "garbage")
    assert fold(text, START) is text


@pytest.mark.usefixtures("folding")
def test_rule_5_what_is_old_becomes_one_line_a_month() -> None:
    old = [line_at(datetime(2026, month, 5, tzinfo=UTC), DELETED, node=f"n{month}") for month in (5, 6, 6, 7)]
    text = fold(text_of(*old, line(LedgerEvent.REFUSED_MASS_STALE, -9000), line(DELETED, 5)), START - DAY)
    months = [(seen.line.at, seen.line.scope) for seen in read_ledger(text) if seen.line and seen.line.scope]
    assert months == [("2026-05-01T00:00:00Z", 1), ("2026-06-01T00:00:00Z", 2), ("2026-07-01T00:00:00Z", 1)]
    assert spent(text, 30) == 1


@pytest.mark.usefixtures("folding")
def test_rule_5_folding_twice_loses_no_month() -> None:
    old = text_of(*(line_at(datetime(2026, 5, day, tzinfo=UTC), DELETED, node=f"n{day}") for day in range(1, 20)))
    text = old
    for _ in range(3):
        text = fold(append(text, [line(DELETED, -5000, "m")]), START - DAY)
    counted = {seen.line.at[:7]: seen.line.scope for seen in read_ledger(text) if seen.line}
    assert counted["2026-05"] == 19
    assert counted["2026-07"] == 3


@pytest.mark.usefixtures("folding")
def test_rule_5_what_may_lie_later_is_kept() -> None:
    text = text_of(line(DELETED, -9000), "garbage", line(INTENDED, -9, "open"), line(DELETED, -5), "garbage")
    folded = fold(text, START - DAY)
    assert [seen.node for seen in unanswered(read_ledger(folded))] == ["open"]
    assert spent(folded, 0, DAY) == spent(text, 0, DAY) == 4


@pytest.mark.usefixtures("folding")
def test_rule_5_a_line_of_the_future_is_kept_although_older_ones_stand_behind_it() -> None:
    # The clock was ahead when it was written, and was set right since.
    text = text_of(line(DELETED, 10_000), line(LedgerEvent.REFUSED_MASS_STALE, -9000, "-"))
    assert spent(fold(text, START - DAY)) == spent(text) == 1


@pytest.mark.usefixtures("folding")
@pytest.mark.parametrize("year", ["0001", "0005", "0999", "1970", "9998"])
def test_rule_5_a_month_of_any_year_can_be_read_again(year: str) -> None:
    text = text_of(json.dumps({**GOOD, "at": f"{year}-02-03T00:00:00Z"}), line(LedgerEvent.FOLDED, -9000, "-"))
    folded = fold(text, START - DAY)
    assert malformed(read_ledger(folded)) == 0
    assert spent(folded) == spent(text)


@pytest.mark.usefixtures("folding")
@pytest.mark.parametrize("count", [-5, 2**63, 10**30])
def test_rule_5_any_number_in_a_fold_is_carried_on(count: int) -> None:
    text = text_of(json.dumps({"at": "2026-05-01T00:00:00Z", "event": "folded", "scope": count}))
    assert malformed(read_ledger(fold(fold(text, START), START))) == 0


def test_rule_5_a_text_with_half_a_character_is_folded_or_left_but_never_raises() -> None:
    assert isinstance(fold("\ud800\n", START), str)


def test_rule_5_intentions_of_long_ago_do_not_fill_the_ledger_for_ever() -> None:
    lines = [line(INTENDED, -100_000 + number, f"node-{number:06}") for number in range(3_000)]
    assert len(fold(text_of(*lines), START - DAY).encode()) <= ledger.SIZE


# --- rule 6: what a newer version writes -------------------------------------------------------------------


def foreign(minutes: float, node: str = "", **more: Any) -> str:
    """A line of an event that this version does not know."""
    at = (START + timedelta(minutes=minutes)).isoformat()
    about = {"node": node, "uid": f"uid-{node}"} if node else {}
    return json.dumps({"at": at, "event": "evacuated", **about, **more})


def test_rule_6_a_line_of_an_unknown_event_is_spent_for_its_window_and_is_not_damaged() -> None:
    text = text_of(foreign(10, "a", pods=[1]), foreign(20))
    assert malformed(read_ledger(text)) == 0
    assert (spent(text, 30), spent(text, 75), spent(text, 90)) == (2, 1, 0)


def test_rule_6_what_is_told_of_one_node_in_words_known_and_unknown_is_one_deletion() -> None:
    assert spent(text_of(line(INTENDED, 10), foreign(11, "a"), line(DELETED, 12)), 30) == 1


@pytest.mark.parametrize("outcome", [SKIPPED, REJECTED])
def test_rule_6_nothing_gives_it_back(outcome: LedgerEvent) -> None:
    assert spent(text_of(foreign(10, "a"), line(INTENDED, 11), line(outcome, 12)), 30) == 1


def test_rule_6_an_old_one_answers_no_later_intention() -> None:
    assert spent(text_of(foreign(-120, "a"), line(INTENDED, 10)), 30) == 1


@pytest.mark.usefixtures("folding")
def test_rule_6_it_is_kept_as_it_stands_however_old() -> None:
    old = foreign(-(10**5), "a", pods=[1, 2], tomorrow={"deep": ["x"]})
    text = text_of(line(DELETED, -(10**5), "b"), old, line(DELETED, -9000, "c"))
    once = fold(text, START - DAY)
    assert old in once.splitlines()
    assert fold(once, START - DAY) == once
    assert [seen.line.event for seen in read_ledger(once) if seen.line] == ["folded", "folded", "evacuated"]


@pytest.mark.usefixtures("folding")
def test_a_known_line_with_more_keys_than_are_known_keeps_them() -> None:
    text = text_of(json.dumps({**GOOD, "cost": 0.5, "why": {"deep": ["x"]}}))
    assert append(fold(text, START - DAY), [line(DELETED, 5, "b")]).startswith(text)
    assert spent(text, 30) == 1
