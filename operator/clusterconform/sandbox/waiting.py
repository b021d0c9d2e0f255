"""Waiting for a condition with a deadline, and for programs that may end instead of fulfilling it."""

import time
from collections.abc import Callable, Iterable
from typing import Final

from clusterconform.sandbox.programs import Program, ProgramEnded

_PAUSE_SECONDS: Final = 0.05


class SandboxFailed(Exception):  # noqa: N818 - the state of the sandbox as its user sees it
    """The sandbox did not get where it should: one sentence, and in ``log`` what a program said last."""

    def __init__(self, message: str, *, log: str = "") -> None:
        super().__init__(message)
        self.log = log


def wait_until(
    condition: Callable[[], bool],
    *,
    what: str,
    seconds: float,
    programs: Iterable[Program] = (),
    pause: float = _PAUSE_SECONDS,
) -> None:
    """Ask again and again until ``condition`` holds.

    Args:
        condition: the question; it is asked at least once.
        what: completes the sentence "waited in vain until …".
        seconds: how long to wait at most.
        programs: those that have to run meanwhile.
        pause: seconds between two questions.

    Raises:
        SandboxFailed: the time is over, or one of the programs has ended.
    """
    deadline = time.monotonic() + seconds
    watched = tuple(programs)
    while not condition():
        for program in watched:
            try:
                program.check()
            except ProgramEnded as ended:
                raise SandboxFailed(f"Waited in vain until {what}: {ended}", log=ended.log) from ended
        if time.monotonic() > deadline:
            log = "\n".join(f"{program.name}: {program.log_tail()}" for program in watched)
            raise SandboxFailed(f"Waited in vain for {seconds:g} seconds until {what}.", log=log)
        time.sleep(pause)
