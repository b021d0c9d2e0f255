"""What comes out: figures with all their runs, as tables for people and JSON for everything else."""

from collections.abc import Iterable
from statistics import median
from typing import Any

from msgspec import Struct
from rich.table import Table


class Figure(Struct, kw_only=True):
    """One figure of one benchmark.

    Attributes:
        benchmark: which one.
        subject: what was measured: an operator, a size of the fleet, a program.
        name: what the figure tells.
        unit: of the values; empty for a plain number.
        runs: the values of all runs, in order.
        at_most: the goal, if there is one. Figures are compared with it and never asserted: they say as much
            about the machine as about the program.
        median: of the runs.
    """

    benchmark: str
    subject: str
    name: str
    unit: str
    runs: list[float]
    at_most: float | None = None
    median: float = 0.0

    def __post_init__(self) -> None:
        """Work out the median. Four digits are kept: more would only be noise."""
        self.runs = [_rounded(value) for value in self.runs]
        self.median = _rounded(median(self.runs))


class Series:
    """Collects the runs of one benchmark's figures."""

    def __init__(self, benchmark: str) -> None:
        """Collect for ``benchmark``."""
        self._benchmark = benchmark
        self._figures: dict[tuple[str, str], dict[str, Any]] = {}

    def add(self, subject: str, name: str, value: float, *, unit: str = "", at_most: float | None = None) -> None:
        """Take the value of one run."""
        entry = self._figures.setdefault((subject, name), {"unit": unit, "at_most": at_most, "runs": []})
        entry["runs"].append(value)

    def figures(self) -> list[Figure]:
        """All figures, in the order in which they first came."""
        return [
            Figure(benchmark=self._benchmark, subject=subject, name=name, **entry)
            for (subject, name), entry in self._figures.items()
        ]


def tables(figures: Iterable[Figure]) -> list[Table]:
    """A table for each benchmark: a row for each figure, a column for each subject."""
    groups: dict[str, list[Figure]] = {}
    for figure in figures:
        groups.setdefault(figure.benchmark, []).append(figure)
    return [_table(name, group) for name, group in groups.items()]


def _table(title: str, figures: list[Figure]) -> Table:
    subjects = list(dict.fromkeys(figure.subject for figure in figures))
    cells = {(figure.name, figure.subject): figure for figure in figures}
    shown = Table(title=f"[bold]{title}[/]", title_justify="left", title_style="")
    shown.add_column("median (least to most of all runs)")
    for subject in subjects:
        shown.add_column(subject, justify="right", overflow="fold")
    for name in dict.fromkeys(figure.name for figure in figures):
        row = [cells.get((name, subject)) for subject in subjects]
        unit = next(f", {figure.unit}" if figure.unit else "" for figure in row if figure)
        goal = next((f", at most {figure.at_most:g}" for figure in row if figure and _has_goal(figure)), "")
        shown.add_row(f"{name}{unit}[cyan]{goal}[/]", *(_cell(figure) if figure else "" for figure in row))
    return shown


def _has_goal(figure: Figure) -> bool:
    return figure.at_most is not None


def _cell(figure: Figure) -> str:
    spread = f" ({min(figure.runs):g} to {max(figure.runs):g})" if len(set(figure.runs)) > 1 else ""
    if figure.at_most is None:
        return f"{figure.median:g}{spread}"
    kept = figure.median <= figure.at_most
    word, colour = ("", "green") if kept else (" beyond", "red")
    return f"[{colour}]{figure.median:g}{word}[/]{spread}"


def _rounded(value: float) -> float:
    return float(f"{value:.4g}") if abs(value) < 1000 else float(round(value))  # noqa: PLR2004 - four digits
