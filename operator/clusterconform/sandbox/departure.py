"""An orderly end when the process is asked to end.

Ctrl-C raises an exception by itself; SIGTERM ends Python on the spot, and the sandbox's directory would stay.
So while a sandbox is open SIGTERM raises too, unless the program has its own idea of it.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, NoReturn

_EXIT_ON_TERM: Final = 128 + signal.SIGTERM


class Departure:
    """Turns SIGTERM into an exception between ``arm`` and ``disarm``."""

    def __init__(self) -> None:
        self._before: Any = None
        self._armed = False

    def arm(self) -> None:
        """Take over SIGTERM; does nothing outside of the main thread or where a handler is installed."""
        if _in_main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            self._before = signal.signal(signal.SIGTERM, _leave)
            self._armed = True

    def disarm(self) -> None:
        """Give SIGTERM back."""
        if self._armed and _in_main_thread():
            signal.signal(signal.SIGTERM, self._before)
            self._armed = False


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore SIGINT and SIGTERM: a second Ctrl-C must not interrupt the cleaning-up after the first."""
    if not _in_main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(_EXIT_ON_TERM)
