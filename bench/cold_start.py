"""From the start of the process until it is ready, with the whole fleet there already."""

from typing import Final

from bench.options import Options
from bench.report import Figure, Series
from bench.scene import Scene, scene
from bench.subjects import OURS, WHOLE_STREAM, Subject, running

NAME: Final = "cold start"
READY: Final = "time to /readyz"

_GOAL_SECONDS: Final = 10.0
_GOAL_MIB: Final = 200.0


def measure(options: Options) -> list[Figure]:
    """Start the operator as often as is asked for."""
    series = Series(NAME)
    with scene(options.nodes) as staged:
        for run in range(options.runs):
            for subject in (OURS, WHOLE_STREAM):
                options.tell(f"run {run + 1} of {options.runs}: {subject.name}")
                take(series, subject.name, staged, subject)
    return series.figures()


def take(series: Series, label: str, staged: Scene, subject: Subject) -> None:
    """Start ``subject`` once and add its figures."""
    goals = (_GOAL_SECONDS, _GOAL_MIB) if subject is OURS else (None, None)
    with running(staged, subject) as operator:
        series.add(label, READY, operator.await_ready(), unit="s", at_most=goals[0])
        operator.settle()
        series.add(label, "CPU until at rest", operator.cpu, unit="s")
        series.add(label, "peak RSS", operator.peak, unit="MiB", at_most=goals[1])
