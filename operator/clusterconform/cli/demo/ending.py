"""An orderly end, however the demo is asked to end: Ctrl-C, SIGTERM, or a terminal that goes away.

The first signal raises an exception, which closes everything on its way out. What follows in the next moments
is ignored: a second Ctrl-C out of impatience must not interrupt the removal of what the first one ended.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Longer than the cleaning-up takes. Not for ever: an exception may be swallowed where it strikes (in a
# finalizer), and then the next Ctrl-C has to count again.
_DEAF_SECONDS: Final = 10.0


@contextmanager
def orderly() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt, and SIGTERM and SIGHUP SystemExit; main thread only.

    A signal that was ignored before (``nohup``, a background job) stays ignored. Once one was heard, all of
    them are ignored afterwards too: the process is about to end.
    """
    heard_at: float | None = None

    def leave(number: int, _frame: FrameType | None) -> None:
        nonlocal heard_at
        now = time.monotonic()
        if heard_at is not None and now - heard_at < _DEAF_SECONDS:
            return
        heard_at = now
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    taken = {number: handler for number, handler in before.items() if handler not in {signal.SIG_IGN, None}}
    try:
        for number in taken:
            signal.signal(number, leave)
        yield
    finally:
        for number, handler in taken.items():
            signal.signal(number, handler if heard_at is None else signal.SIG_IGN)
