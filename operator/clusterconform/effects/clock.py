"""The only place that knows what time it is."""

import sys
import time
from datetime import UTC, datetime

from clusterconform.contract.times import Moment


class Clock:
    """Wall clock and monotonic uptime; a test gives a subclass of its own."""

    def __init__(self) -> None:
        """Count uptime from now on."""
        self._started = _ticks()

    def uptime(self) -> float:
        """Monotonic seconds since the clock was made, those that the machine slept through included."""
        return _ticks() - self._started

    def moment(self) -> Moment:
        """Now, on both clocks."""
        return Moment(wall=datetime.now(UTC), uptime=self.uptime())


def _ticks() -> float:
    # A machine that was suspended has lost its Lease meanwhile; Linux's CLOCK_MONOTONIC would not know.
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()
