from datetime import UTC, datetime, timedelta
from unittest import mock

from builders import START
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from clusterconform.decisions import ledger
from clusterconform.decisions.ledger import (
    DAY,
    SIZE,
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

_minutes = st.integers(-60 * 24 * 90, 60 * 24 * 3)
_names = st.sampled_from(["a", "b", "c"])
_own_lines: st.SearchStrategy[LedgerLine] = st.builds(
    lambda minutes, event, node, detail: line_at(
        START + timedelta(minutes=minutes), event, node=node, uid=f"uid-{node}", detail=detail
    ),
    _minutes,
    st.sampled_from(LedgerEvent),
    _names,
    st.text(max_size=5),
)
_lines = _own_lines | _own_lines.map(lambda line: replace(line, event="of_a_newer_version"))
_any_lines = st.builds(
    line_at,
    st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30), timezones=st.just(UTC)),  # noqa: DTZ001
    st.sampled_from(LedgerEvent),
    node=st.text(max_size=8),
    uid=st.text(max_size=8),
    not_ready_since=st.none() | st.just(START),
    stale=st.integers(0, 2**31),
    scope=st.integers(0, 2**31),
    detail=st.text(max_size=20),
)
_rubbish = st.sampled_from(
    [
        "rubbish",
        "{}",
        "[",
        "\ud800",
        '{"at":"2026-08-01T11:30:00","event":"deleted"}',
        '{"at":"2026-08-01T11:30:00Z","event":"del',
        '{"at":"2026-08-01T11:30:00Z","event":"x","scope":' + "9" * 40 + "}",
        "[" * 3_000,
        '{"a":' * 3_000,
    ]
) | st.text(max_size=10).map(lambda text: text.replace("\n", " "))
_texts = st.lists(st.one_of(_lines.map(write_line), _any_lines.map(write_line), _rubbish), max_size=12).map(
    "\n".join
)
_wild = _texts | st.text() | st.text(alphabet=st.characters()) | st.text(alphabet='{}[]",:\\\r\n\x00\ud800 aet1Z-')
_cutoffs = st.integers(0, 60 * 23).map(lambda minutes: START - timedelta(minutes=minutes))


def folded(text: str, keep_after: datetime) -> str:
    """``text`` folded however short it is."""
    with mock.patch.object(ledger, "_FOLD_ABOVE", 0):
        return fold(text, keep_after)


class TestAnyTextIsReadable:
    """A ledger holds what it holds: it is read, counted, added to and folded, and nothing raises."""

    @given(text=_wild, cutoff=_cutoffs)
    def test_nothing_raises(self, text: str, cutoff: datetime) -> None:
        entries = read_ledger(text)
        assert 0 <= malformed(entries) <= len(entries)
        assert spent_since(entries, cutoff) >= 0
        assert len(unanswered(entries)) <= len(entries)
        assert isinstance(folded(text, cutoff), str)
        assert append(text, []).startswith(text)

    @given(text=_wild)
    def test_reading_is_the_same_with_dos_line_ends(self, text: str) -> None:
        plain = text.replace("\r", "")
        lines = [entry.line for entry in read_ledger(plain)]
        assert [entry.line for entry in read_ledger(plain.replace("\n", "\r\n"))] == lines


class TestWhatIsWrittenIsRead:
    """A line that was appended is read again as it was, whatever stood there."""

    @given(text=_texts, lines=st.lists(_any_lines, max_size=4))
    def test_appended_lines_are_the_last_ones(self, text: str, lines: list[LedgerLine]) -> None:
        entries = read_ledger(append(text, lines))
        assert [entry.line for entry in entries[len(entries) - len(lines) :]] == lines
        assert len(entries) == len(read_ledger(text)) + len(lines)

    @given(line=_any_lines)
    def test_a_line_is_one_line_and_says_what_its_values_say(self, line: LedgerLine) -> None:
        assert "\n" not in write_line(line)
        assert as_values([line])[0]["event"] == line.event


class TestNothingSpentIsForgotten:
    """Neither rubbish nor folding nor a torn line ever gives a deletion back."""

    @given(lines=st.lists(_lines, max_size=10), rubbish=_rubbish, where=st.integers(0, 10), cutoff=_cutoffs)
    def test_rubbish_takes_nothing_from_the_count(
        self, lines: list[LedgerLine], rubbish: str, where: int, cutoff: datetime
    ) -> None:
        texts = [write_line(line) for line in lines]
        with_rubbish = [*texts[:where], rubbish, *texts[where:]]
        assert spent_since(read_ledger("\n".join(with_rubbish)), cutoff) >= spent_since(
            read_ledger("\n".join(texts)), cutoff
        )

    @given(lines=st.lists(_lines, max_size=10), keep=st.integers(0, 200), cutoff=_cutoffs)
    def test_a_torn_last_line_that_may_lie_in_the_window_is_spent(
        self, lines: list[LedgerLine], keep: int, cutoff: datetime
    ) -> None:
        last = write_line(line_at(START, LedgerEvent.DELETED, node="new", uid="new"))
        text = append("", lines)
        torn = append(text + last[: 1 + keep % (len(last) - 1)], [])
        assert spent_since(read_ledger(torn), cutoff) == spent_since(read_ledger(text), cutoff) + 1

    @given(text=_texts, cutoff=_cutoffs)
    def test_folding_keeps_the_count_of_every_window_that_is_still_asked_for(
        self, text: str, cutoff: datetime
    ) -> None:
        before = spent_since(read_ledger(text), cutoff)
        times = [entry.at for entry in read_ledger(text) if entry.at is not None]
        for _ in range(2):
            text = folded(text, START - DAY)
            after = spent_since(read_ledger(text), cutoff)
            # Where the clock was set back, what folds away may be the answer or the bound of what stays.
            assert after == before if times == sorted(times) else after >= before

    @given(text=_texts)
    def test_folding_keeps_every_line_of_an_event_that_is_not_known(self, text: str) -> None:
        foreign = [line for line in text.split("\n") if '"of_a_newer_version"' in line]
        assert [line for line in folded(text, START).split("\n") if line in foreign] == foreign

    @given(text=_texts)
    def test_folding_twice_is_folding_once(self, text: str) -> None:
        once = folded(text, START - DAY)
        assert folded(once, START - DAY) == once

    @given(lines=st.lists(_lines, max_size=10), more=_lines, cutoff=_cutoffs)
    def test_only_an_answer_gives_back(self, lines: list[LedgerLine], more: LedgerLine, cutoff: datetime) -> None:
        before = spent_since(read_ledger(append("", lines)), cutoff)
        after = spent_since(read_ledger(append("", [*lines, more])), cutoff)
        if more.event in {LedgerEvent.SKIPPED, LedgerEvent.REJECTED}:
            assert before - 1 <= after <= before
        elif more.event == LedgerEvent.DELETED:
            assert before - 1 <= after <= before + 1  # it may tell that an intention was carried out long ago
        else:
            assert before <= after <= before + 1


class TestTheSizeIsBounded:
    """What is older than the window and the day folds away, so that the ledger never fills for ever."""

    @given(count=st.integers(800, 3000), event=st.sampled_from(LedgerEvent))
    def test_old_lines_of_any_event_fold_into_a_few(self, count: int, event: LedgerEvent) -> None:
        lines = [
            line_at(START - DAY - HOUR * number, event, node=f"node-{number:05}", uid=f"uid-{number:05}" * 4)
            for number in range(count, 0, -1)
        ]
        assert len(fold(append("", lines), START - DAY).encode()) <= SIZE // 2
