"""The only place that knows what time it is."""

import time
from datetime import UTC, datetime

from clusterconform.contract.times import Moment


class Clock:
    """Wall clock and monotonic uptime; a test gives a subclass of its own."""

    def __init__(self) -> None:
        """Count uptime from now on."""
        self._started = time.monotonic()

    def uptime(self) -> float:
        """Monotonic seconds since the clock was made."""
        return time.monotonic() - self._started

    def moment(self) -> Moment:
        """Now, on both clocks."""
        return Moment(wall=datetime.now(UTC), uptime=self.uptime())
