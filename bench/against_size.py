"""The same operator with fleets of growing size: what grows, and whether anything grows faster than they."""

from itertools import pairwise
from typing import Final

from bench import cold_start, mass_drift
from bench.options import Options
from bench.report import Figure, Series
from bench.scene import scene
from bench.subjects import OURS

NAME: Final = "against size, nodes"

_MOST_RUNS: Final = 3
_GROWING: Final = (
    "time to /readyz",
    "CPU of its start",
    "peak RSS",
    "time until all are right",
    "CPU until at rest",
)
_SHOWN: Final = ("time / bare client's time", *_GROWING)
# Below it a difference is noise on a shared machine.
_NOISE: Final = 1.25


def measure(options: Options) -> list[Figure]:
    """Cold start and mass drift for each size, the cost of each node, and how it grows."""
    series = Series(NAME)
    runs = min(options.runs, _MOST_RUNS)
    for size in options.sizes:
        with scene(size) as staged:
            for run in range(runs):
                options.tell(f"{size} nodes, run {run + 1} of {runs}")
                done = mass_drift.repair(staged, OURS, f"wrong-{run}")
                subject = _subject(size)
                series.add(subject, cold_start.READY, done.ready, unit="s")
                mass_drift.take(series, subject, OURS, done, size)
    figures = [figure for figure in series.figures() if figure.name in _SHOWN]
    for figure in figures:
        # The goals are those of 5,000 nodes; here it is the growth that counts.
        figure.at_most = None
    return [*figures, *_per_node(figures, options.sizes), *_growth(figures, options.sizes)]


def _per_node(figures: list[Figure], sizes: tuple[int, ...]) -> list[Figure]:
    of = {_subject(size): size for size in sizes}
    units = {"s": ("ms", 1000.0), "MiB": ("KiB", 1024.0)}
    return [
        Figure(
            benchmark="against size, for each node",
            subject=figure.subject,
            name=figure.name,
            unit=units[figure.unit][0],
            runs=[units[figure.unit][1] * value / of[figure.subject] for value in figure.runs],
        )
        for figure in figures
        if figure.name in _GROWING
    ]


def _growth(figures: list[Figure], sizes: tuple[int, ...]) -> list[Figure]:
    """The growth of each figure from one size to the next, as a share of the fleet's growth.

    1 is linear; less means that a part does not grow at all. More than the noise is beyond the goal.
    """
    medians = {(figure.subject, figure.name): figure.median for figure in figures}
    return [
        Figure(
            benchmark="against size, growth of the medians from the size before; 1 is linear",
            subject=_subject(large),
            name=name,
            unit="",
            runs=[(medians[_subject(large), name] / medians[_subject(small), name]) / (large / small)],
            at_most=_NOISE,
        )
        for name in _GROWING
        for small, large in pairwise(sizes)
    ]


def _subject(size: int) -> str:
    return f"{size:,}"
