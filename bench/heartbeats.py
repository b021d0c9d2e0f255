"""Kubelets that report, and nothing else: what a change costs that no decision reads.

A bare client of its own moves the heartbeat time of Ready, 500 times a second, each time on another node.
"""

import random
import time
from typing import Final

from bench import fleet
from bench.bare import Result
from bench.options import Options
from bench.report import Figure, Series
from bench.scene import Scene, scene
from bench.subjects import OURS, WHOLE_STREAM, Running, Subject, running

NAME: Final = "heartbeats"

_PER_SECOND: Final = 500
_LINES: Final = "clusterconform_node_stream_lines_total"
_WRITES: Final = "clusterconform_node_writes_total"
_GOAL_PERCENT: Final = 20.0
# The client has its list to read and its connections to open.
_HEAD_START_SECONDS: Final = 1.0


def measure(options: Options) -> list[Figure]:
    """Measure the operator with and without its slim stream, each for ``heartbeat_seconds`` in windows."""
    series = Series(NAME)
    with scene(options.nodes) as staged:
        for subject in (OURS, WHOLE_STREAM):
            options.tell(f"{options.heartbeat_seconds:g} s of heartbeats: {subject.name}")
            with running(staged, subject) as operator:
                operator.settle()
                _take(series, staged, operator, subject, options)
    return series.figures()


def _take(series: Series, staged: Scene, operator: Running, subject: Subject, options: Options) -> None:
    goals = (_GOAL_PERCENT, 0.0) if subject is OURS else (None, None)
    names = random.Random(0).sample(sorted(staged.right), len(staged.right))  # noqa: S311 - an order, no secret
    window = options.heartbeat_seconds / options.runs
    writes, dropped = operator.metric(_WRITES), operator.metric(_LINES, fate="dropped")
    beating = staged.start_bare(
        fleet.heartbeats(names),
        per_second=_PER_SECOND,
        seconds=options.heartbeat_seconds + 2 * _HEAD_START_SECONDS,
    )
    time.sleep(_HEAD_START_SECONDS)
    for _ in range(options.runs):
        cpu, started = operator.cpu, time.monotonic()
        time.sleep(window)
        share = 100 * (operator.cpu - cpu) / (time.monotonic() - started)
        series.add(subject.name, "CPU share of a core", share, unit="%", at_most=goals[0])
    result = staged.finish(beating)
    series.add(subject.name, "heartbeats per second", _rate(result), unit="1/s")
    dropped = operator.metric(_LINES, fate="dropped") - dropped
    if subject is OURS:
        series.add(subject.name, "dropped of all lines", 100 * dropped / result.answered, unit="%")
    series.add(subject.name, "writes", operator.metric(_WRITES) - writes, at_most=goals[1])


def _rate(result: Result) -> float:
    return result.answered / result.seconds
