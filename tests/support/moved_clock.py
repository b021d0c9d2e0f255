"""``clusterconform`` on a machine whose wall clock is wrong, by as many seconds as stand in a file.

A process cannot be given a wall clock of its own, so what is moved is what the operator reads of it: everything
that it knows of the time of day it has from ``effects.clock`` (a lint rule forbids other ways). The monotonic
clock goes on as it is, as it does in life when somebody sets a clock.

    CLOCK_OFFSET=/path/to/file python moved_clock.py run ...
"""

import os
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Final, Self

VARIABLE: Final = "CLOCK_OFFSET"


class MovedDatetime(datetime):
    """``datetime`` whose ``now`` is off."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        text = Path(os.environ[VARIABLE]).read_text()
        moved = datetime.now(tz) + timedelta(seconds=float(text or 0))  # noqa: TID251 - this is the clock
        return cls.fromtimestamp(moved.timestamp(), tz)


if __name__ == "__main__":
    from clusterconform.cli.main import main
    from clusterconform.effects import clock

    clock.__dict__["datetime"] = MovedDatetime
    main()
