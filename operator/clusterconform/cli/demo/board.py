"""The parts of the sandbox as they are found or built."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from clusterconform.sandbox.builder import Progress, State
from clusterconform.sandbox.parts import Part

_THERE: Final = (State.FOUND, State.BUILT)
_MOVING: Final = (State.BUILDING, State.WAITING)
# As wide as "kube-controller-manager", "building" and "123 s, about 10 min left".
_WIDTHS: Final = (23, 8, 24)
_MINUTE: Final = 60
_TENS: Final = 10


def about(seconds: float) -> str:
    """Say roughly how long: no more digits than anybody knows."""
    if seconds >= 2 * _MINUTE:
        return f"about {round(seconds / _MINUTE)} min"
    return f"about {max(1, round(seconds / _TENS)) * _TENS} s"


class Board:
    """Knows the state of each part; told by the building thread, read by the one that prints."""

    def __init__(self, parts: Sequence[Part], tell: Callable[[str], None]) -> None:
        """Begin with nothing known.

        Args:
            parts: the parts in the order in which they are wanted.
            tell: is given one line for each part that is there.
        """
        self._parts = tuple(parts)
        self._absent: frozenset[str] = frozenset()
        self._tell = tell
        self._news: dict[str, tuple[Progress, float]] = {}
        self._lock = threading.Lock()

    def expect(self, absent: Iterable[Part]) -> None:
        """Name the parts that have to be built."""
        self._absent = frozenset(part.name for part in absent)

    def hear(self, news: Progress) -> None:
        """Take in news about a part."""
        with self._lock:
            self._news[news.part.name] = (news, time.monotonic())
        part = news.part
        if news.state in _THERE:
            how = "found" if news.state is State.FOUND else f"built in {news.elapsed:.0f} s"
            self._tell(f"{part.name} {part.version} ({part.purpose}): {how}")

    def outline(self) -> str:
        """Say in one sentence what has to be built and how long it takes; empty if nothing has."""
        absent = [part for part in self._parts if part.name in self._absent]
        if not absent:
            return ""
        names = ", ".join(part.name for part in absent)
        whole = about(sum(part.build_seconds for part in absent))
        return f"To be built from pinned sources, once: {names}; on two cores that takes {whole}."

    def seconds_left(self, upto: Part | None = None) -> float:
        """Give the expected seconds until ``upto`` (all parts if None) is there."""
        total = 0.0
        for part in self._parts:
            total += self._left(part)
            if part is upto:
                break
        return total

    def rows(self) -> list[RenderableType]:
        """Draw the parts that are not there yet; nothing if all are."""
        waiting = [part for part in self._parts if self._left(part) > 0]
        if not waiting:
            return []
        grid = Table.grid(padding=(0, 2, 0, 0), expand=True)
        for width in _WIDTHS:
            grid.add_column(no_wrap=True, min_width=width)
        grid.add_column(no_wrap=True, overflow="crop", ratio=1)
        details: list[RenderableType] = []
        for part in waiting:
            state, elapsed, detail = self._seen(part)
            clock = self._clock(part, state, elapsed)
            grid.add_row(part.name, state or "to come", clock, Text(part.purpose, style="dim"))
            if state in _MOVING:
                details = [Text(f"  {detail}", style="dim", no_wrap=True, overflow="crop")]
        return [Text(), grid, *details]

    def sentence(self) -> str:
        """Say what is being built; empty if nothing is."""
        for part in self._parts:
            state, elapsed, detail = self._seen(part)
            if self._left(part) > 0 and state in _MOVING:
                return f"{part.name} ({state}, {self._clock(part, state, elapsed)}): {detail}"
        return ""

    def _left(self, part: Part) -> float:
        state, elapsed, _ = self._seen(part)
        if state in {*_THERE, State.FAILED} or (not state and part.name not in self._absent):
            return 0.0
        return max(1.0, part.build_seconds - elapsed)

    def _seen(self, part: Part) -> tuple[str, float, str]:
        """Give state (empty before any news), seconds of work so far, and what is going on."""
        with self._lock:
            told = self._news.get(part.name)
        if told is None:
            return "", 0.0, ""
        news, at = told
        moving = news.state in _MOVING
        return news.state, news.elapsed + (time.monotonic() - at if moving else 0.0), news.detail

    def _clock(self, part: Part, state: str, elapsed: float) -> str:
        if not state:
            return about(part.build_seconds)
        left = part.build_seconds - elapsed
        return f"{elapsed:.0f} s, " + (f"{about(left)} left" if left > 0 else "longer than usual")
