"""When to stop fighting over a mark.

A mark that another writer puts back three times within ten minutes is contested for an hour: not written,
reported. "Put back" means: we wrote it, and it is amiss again. Any wrong value counts, not only the same one,
since two writers who alternate would otherwise keep us busy for ever. The numbers are the design's: three
rounds tell an accident from a habit, and an hour is short enough to heal by itself once the habit ends.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from clusterconform.contract.memory import NodeMemory

ROUNDS: Final = 3
WINDOW_SECONDS: Final = 600.0
REST_SECONDS: Final = 3600.0


def amiss(memory: NodeMemory, marks: Iterable[str], uptime: float) -> NodeMemory:
    """``memory`` after ``marks`` were seen amiss: those written too often become contested."""
    contested = {mark: until for mark, until in memory.contested.items() if until > uptime}
    for mark in marks:
        if mark not in contested and len(_recent(memory, mark, uptime)) >= ROUNDS:
            contested[mark] = uptime + REST_SECONDS
    return memory if contested == memory.contested else replace(memory, contested=contested)


def written(memory: NodeMemory, marks: Iterable[str], uptime: float) -> NodeMemory:
    """``memory`` after ``marks`` were written."""
    repairs = {mark: recent for mark in memory.repairs if (recent := _recent(memory, mark, uptime))}
    for mark in marks:
        repairs[mark] = (*repairs.get(mark, ()), uptime)
    return replace(memory, repairs=repairs)


def _recent(memory: NodeMemory, mark: str, uptime: float) -> tuple[float, ...]:
    return tuple(at for at in memory.repairs.get(mark, ()) if at > uptime - WINDOW_SECONDS)
