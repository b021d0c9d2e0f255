"""What the demo prints: lines that stay, and on a terminal below them a picture of what is in motion.

Where there is no terminal the picture is left out, and when nothing has been said for a while, one line tells
what is being waited for.
"""

import _thread
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

_MARGIN: Final = 10  # the width of "  12.3 s  "
_PICTURES_PER_SECOND: Final = 5
_SILENCE_SECONDS: Final = 5.0


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Nobody reads any more: end as on SIGTERM, whichever thread has noticed."""
        _thread.interrupt_main(signal.SIGTERM)
        super().on_broken_pipe()


class Screen:
    """Prints to standard output; use it as a context manager."""

    def __init__(self, console: Console | None = None) -> None:
        """Prepare.

        Args:
            console: where to print; standard output if None, without colour where NO_COLOR says so.
        """
        self.console = console or _Console(highlight=False)
        self.lively = self.console.is_terminal and sys.stdout.isatty() and not self.console.is_dumb_terminal
        self._began = self._said = time.monotonic()
        self._doing: tuple[str, float] | None = None
        self._scene: Callable[[], list[RenderableType]] = list
        self._rest: Callable[[], str] = str
        self._spinner = Spinner("line")
        self._ended = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="screen", daemon=True)
        self._live = Live(
            console=self.console,
            get_renderable=self._picture,
            refresh_per_second=_PICTURES_PER_SECOND,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        """Begin to show what is in motion."""
        if self.lively:
            self._live.start()
        else:
            self._ticker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the picture away; the lines stay."""
        self._ended.set()
        if self.lively:
            self._live.stop()
        else:
            self._ticker.join()

    def picture(self, scene: Callable[[], list[RenderableType]], rest: Callable[[], str]) -> None:
        """Name what is shown below the lines.

        Args:
            scene: gives the picture, on any thread; each element begins on a line of its own.
            rest: the same as a clause, for where there is no terminal; empty if there is nothing to say.
        """
        self._scene, self._rest = scene, rest

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Show ``what`` as being done, with the seconds it has taken so far."""
        self._doing = (what, time.monotonic())
        try:
            yield
        finally:
            self._doing = None

    def say(self, text: str, *, style: str = "") -> None:
        """Print a line with the seconds since the beginning in front of it."""
        now = time.monotonic()
        self._said = now
        stamp = Text(f"{now - self._began:6.1f} s  ", style="dim")
        self._print(stamp + Text(self._wrapped(text, _MARGIN), style=style))

    def add(self, text: str, *, title: str = "", style: str = "") -> None:
        """Print a line that belongs to the one before, with a short title in front of it."""
        self._print(Text(f"{title:>{_MARGIN - 2}}  ", "dim") + Text(self._wrapped(text, _MARGIN), style))

    def quote(self, text: str | Text, *, style: str = "") -> None:
        """Print something as it is: a table, a command line, a line of a log. Nothing is wrapped."""
        self._print(text if isinstance(text, Text) else Text(text, style=style))

    def heading(self, text: str) -> None:
        """Print a heading, and an empty line before it."""
        self._print(Text(f"\n{self._wrapped(text, 0)}", style="bold"))

    def _print(self, text: Text) -> None:
        self.console.print(text, soft_wrap=True, markup=False, highlight=False)

    def _wrapped(self, text: str, margin: int) -> str:
        if not self.lively:
            return text
        lines = textwrap.wrap(
            text, max(20, self.console.width - margin), break_long_words=False, break_on_hyphens=False
        )
        return ("\n" + " " * margin).join(lines)

    def _picture(self) -> RenderableType:
        shown = self._scene()
        if (doing := self._doing) is not None:
            what, since = doing
            self._spinner.update(text=Text(f"{what} ({time.monotonic() - since:.0f} s)", style="dim"))
            shown.append(self._spinner)
        return Group(*shown)

    def _tick(self) -> None:
        while not self._ended.wait(1):
            doing = self._doing
            if doing is None or time.monotonic() - self._said < _SILENCE_SECONDS:
                continue
            what, since = doing
            rest = self._rest()
            self.say(f"{what} ({time.monotonic() - since:.0f} s)" + (f"; {rest}" if rest else ""))
