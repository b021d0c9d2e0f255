"""What the kernel knows about a process: CPU time, peak memory, whether it has come to rest."""

import os
import time
from pathlib import Path
from typing import Final

from clusterconform.sandbox.programs import Program

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_WINDOW_SECONDS: Final = 1.0
_QUIET_WINDOWS: Final = 2
_QUIET_SHARE: Final = 0.1
_PATIENCE_SECONDS: Final = 300.0


def cpu_seconds(pid: int) -> float:
    """CPU time that the process has used so far, its threads included, in steps of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def peak_mib(pid: int) -> float:
    """The most memory that the process ever had in RAM (VmHWM), in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


def await_rest(program: Program) -> None:
    """Wait until the program has used less than a tenth of a core for two seconds on end.

    Raises:
        ProgramEnded: it has ended.
        TimeoutError: it never comes to rest.
    """
    deadline, quiet = time.monotonic() + _PATIENCE_SECONDS, 0
    while quiet < _QUIET_WINDOWS:
        program.check()
        if time.monotonic() > deadline:
            raise TimeoutError(f"{program.name} does not come to rest")
        before = cpu_seconds(program.pid)
        time.sleep(_WINDOW_SECONDS)
        used = cpu_seconds(program.pid) - before
        quiet = quiet + 1 if used < _QUIET_SHARE * _WINDOW_SECONDS else 0
