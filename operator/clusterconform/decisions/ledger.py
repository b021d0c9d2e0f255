"""The ledger's text: JSON lines, read leniently, counted strictly.

1. One JSON object per line, append-only. A text that does not end with a line break gets one before the next
   line, so that a torn line spoils only itself (contract D23).
2. A line is malformed if it is no object, lacks a time or an event, or has a field of a wrong type. Malformed
   lines are skipped, counted, and spent unless a later good line shows that they lie before the window: they
   may have been deletions.
3. A deletion is spent from the moment it is ``intended``; ``rejected`` and ``skipped`` give it back,
   ``deleted`` does not. What nobody answered stays spent.
4. A line exactly at the cutoff is free; one dated in the future counts (contract §3.5).
5. Lines that neither the budget nor the last 24 hours need fold into monthly counts when the text grows.
6. A line of an event that is not known here is a newer version's: it is kept as it stands, and spent, since it may
   tell of a deletion; nothing gives it back.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

import msgspec
from msgspec import Struct

from clusterconform.contract.times import format_time, parse_time

SIZE: Final = 256 * 1024
"""Bytes of text at the most: a ConfigMap holds 1 MiB, and every swap writes all of it."""

DAY: Final = timedelta(hours=24)
_FOLD_ABOVE: Final = SIZE // 2
_LONGEST_DELETE: Final = timedelta(minutes=1)


class LedgerEvent(StrEnum):
    """What a line says; the first four are the contract's (§3.6)."""

    DELETED = "deleted"
    DRY_RUN_DELETED = "dry_run_deleted"
    REFUSED_MASS_STALE = "refused_mass_stale"
    REFUSED_CLOCK_SKEW = "refused_clock_skew"
    INTENDED = "intended"
    REJECTED = "rejected"
    SKIPPED = "skipped"
    FOLDED = "folded"
    NOTED = "noted"


_KNOWN: Final = frozenset(event.value for event in LedgerEvent)


class LedgerLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line.

    Attributes:
        at: When, RFC 3339 with fraction.
        event: What.
        node: Name of the node, where it is about one.
        uid: Its uid.
        not_ready_since: Since when it was not Ready, RFC 3339 in UTC.
        stale: Stale nodes counted.
        scope: Nodes they were counted among; for a fold, the deletions it stands for.
        detail: For a person.
    """

    at: str
    event: str
    node: str = ""
    uid: str = ""
    not_ready_since: str = ""
    stale: int = 0
    scope: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A good line with its time, or a malformed one with neither."""

    at: datetime | None
    line: LedgerLine | None
    text: str


def read_ledger(text: str) -> list[Entry]:
    """The entries of ``text``; empty lines are none."""
    return [_read_line(line.rstrip("\r")) for line in text.split("\n") if line.strip()]


def malformed(entries: Iterable[Entry]) -> int:
    """How many entries could not be read."""
    return sum(entry.line is None for entry in entries)


def spent_since(entries: Sequence[Entry], cutoff: datetime) -> int:
    """Deletions that count after ``cutoff``: made, intended without an answer, or not readable (rules 2-4, 6)."""
    intended: dict[tuple[str, str] | int, list[datetime]] = {}
    deleted: dict[tuple[str, str] | int, datetime] = {}
    spent: set[tuple[str, str] | int] = set()
    for index, entry in enumerate(entries):
        if entry.line is None or entry.at is None:
            continue
        # Without a uid two lines may tell of two lives.
        key = (entry.line.node, entry.line.uid) if entry.line.uid else index
        waiting = intended.setdefault(key, [])
        if entry.line.event == LedgerEvent.INTENDED:
            waiting.append(entry.at)
        elif entry.line.event == LedgerEvent.DELETED:
            deleted[key] = max(entry.at, deleted.get(key, entry.at))
        elif entry.line.event in {LedgerEvent.REJECTED, LedgerEvent.SKIPPED} and waiting:
            waiting.pop()
        elif entry.line.event not in _KNOWN and entry.at > cutoff:
            spent.add(key)
    spent |= {key for key, at in deleted.items() if at > cutoff}
    # What nobody answered may have been done as late as a request can take.
    spent |= {
        key for key, at in intended.items() if key not in deleted and at and max(at) + _LONGEST_DELETE > cutoff
    }
    return len(spent) + len(_unbounded(entries, cutoff))


def _unbounded(entries: Sequence[Entry], cutoff: datetime) -> set[int]:
    """The malformed lines that may lie after ``cutoff``: no later good line is older, or an earlier one is not."""
    found: set[int] = set()
    pending: set[int] = set()
    recent = False
    for index, entry in enumerate(entries):
        if entry.at is None:
            (found if recent else pending).add(index)
        elif entry.at > cutoff:
            recent = True
        else:
            pending.clear()
    return found | pending


def unanswered(entries: Iterable[Entry]) -> list[LedgerLine]:
    """The intentions that no later line has settled: whether the node went by them nobody has seen."""
    open_lines: dict[tuple[str, str], LedgerLine] = {}
    for entry in entries:
        if entry.line is None:
            continue
        key = (entry.line.node, entry.line.uid)
        if entry.line.event == LedgerEvent.INTENDED:
            open_lines[key] = entry.line
        elif entry.line.event in {LedgerEvent.DELETED, LedgerEvent.REJECTED, LedgerEvent.SKIPPED}:
            open_lines.pop(key, None)
    return list(open_lines.values())


def size_of(text: str) -> int:
    """Bytes of ``text``; half a character, which only a file can hold, counts too."""
    return len(text.encode("utf-8", "surrogatepass"))


def append(text: str, lines: Iterable[LedgerLine]) -> str:
    """``text`` with ``lines`` behind it, each on a line of its own (rule 1)."""
    head = text if not text or text.endswith("\n") else text + "\n"
    return head + "".join(write_line(line) + "\n" for line in lines)


def write_line(line: LedgerLine) -> str:
    """``line`` as JSON text without a line break."""
    return msgspec.json.encode(line).decode()


def line_at(at: datetime, event: LedgerEvent, **fields: Any) -> LedgerLine:
    """A line of ``event`` at ``at``, its time with microseconds."""
    stamp = at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    since = fields.pop("not_ready_since", None)
    return LedgerLine(at=stamp, event=event.value, not_ready_since=format_time(since) if since else "", **fields)


def fold(text: str, keep_after: datetime) -> str:
    """``text`` with everything before ``keep_after`` folded into one line a month (rule 5).

    Malformed lines that may lie later are kept, and those of a newer version: what they are worth it alone knows.
    """
    if size_of(text) <= _FOLD_ABOVE:
        return text
    entries = read_ledger(text)
    needed = _unbounded(entries, keep_after)
    counts: dict[str, int] = {}
    kept: list[str] = []
    for index, entry in enumerate(entries):
        foreign = entry.line is not None and entry.line.event not in _KNOWN
        if index in needed or foreign or (entry.at is not None and entry.at + _LONGEST_DELETE > keep_after):
            kept.append(entry.text)
        elif entry.line is not None and entry.at is not None:
            month = f"{entry.at.year:04}-{entry.at.month:02}-01T00:00:00Z"
            folded = (
                entry.line.scope
                if entry.line.event == LedgerEvent.FOLDED
                else int(entry.line.event == LedgerEvent.DELETED)
            )
            counts[month] = counts.get(month, 0) + folded
    folds = [
        write_line(
            LedgerLine(
                at=month, event=LedgerEvent.FOLDED.value, scope=count, detail=f"{count} deletions in a month"
            )
        )
        for month, count in sorted(counts.items())
    ]
    return "".join(line + "\n" for line in [*folds, *kept])


def _read_line(text: str) -> Entry:
    try:
        line = msgspec.json.decode(text, type=LedgerLine)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return Entry(at=None, line=None, text=text)
    at = parse_time(line.at)
    if at is None:
        return Entry(at=None, line=None, text=text)
    return Entry(at=at, line=line, text=text)


def as_values(lines: Iterable[LedgerLine]) -> list[Mapping[str, Any]]:
    """``lines`` as JSON values, for printing."""
    return [msgspec.to_builtins(line) for line in lines]
