"""What comes out: figures with all their runs, as tables for people and JSON for everything else.

``python -m bench.report build/bench.json`` shows them again, ``--markdown`` as they stand in docs/benchmarks.md.
"""

from collections.abc import Iterable
from math import floor, log10
from pathlib import Path
from statistics import median
from typing import Any

import click
import msgspec
from msgspec import Struct
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text


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


class Row(Struct, kw_only=True, frozen=True):
    """One line of a sheet.

    Attributes:
        name: of the figure, with its unit.
        goal: ``≤ 1.5``, or empty.
        cells: one for each subject of the sheet; None where it was not measured.
        digits: behind the point, the same in the whole row, so that its values can be compared at a glance.
    """

    name: str
    goal: str
    cells: list[Figure | None]
    digits: int

    def median(self, figure: Figure) -> str:
        """The median and, where the figure has a goal, whether it keeps it."""
        return self._text(figure.median) + {None: "", True: " ✓", False: " ✗"}[_kept(figure)]

    def spread(self, figure: Figure) -> str:
        """The least and the most of all runs, or nothing if they read the same."""
        least, most = self._text(min(figure.runs)), self._text(max(figure.runs))
        return "" if least == most else f"{least}…{most}"

    def _text(self, value: float) -> str:
        return f"{value:,.{self.digits}f}"


class Sheet(Struct, kw_only=True, frozen=True):
    """One benchmark: what was measured in the columns, side by side, and what the figures tell in the rows."""

    title: str
    note: str
    subjects: list[str]
    rows: list[Row]

    @property
    def has_goals(self) -> bool:
        """Whether any row has one; a column of nothing is not shown."""
        return any(row.goal for row in self.rows)


def sheets(figures: Iterable[Figure]) -> list[Sheet]:
    """A sheet for each benchmark, in the order in which they first come."""
    groups: dict[str, list[Figure]] = {}
    for figure in figures:
        groups.setdefault(figure.benchmark, []).append(figure)
    return [_sheet(name, group) for name, group in groups.items()]


def shown(sheet: Sheet) -> Group:
    """A sheet for a terminal of 80 columns: the spread stands small under its median."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("", max_width=30)
    if sheet.has_goals:
        table.add_column("goal", justify="right", style="dim", no_wrap=True)
    for subject in sheet.subjects:
        table.add_column(subject, justify="right", vertical="top", overflow="fold")
    for row in sheet.rows:
        goal = [row.goal] if sheet.has_goals else []
        table.add_row(row.name, *goal, *(_shown_cell(row, figure) if figure else "" for figure in row.cells))
    title = Text.assemble((sheet.title, "bold"), (f"  {sheet.note}", "dim"))
    return Group(title, Padding(table, (0, 0, 1, 2)))


def markdown(sheet: Sheet) -> str:
    """A sheet for docs/: one line a row, the spread behind its median."""
    goals = sheet.has_goals
    lines = [
        ["", *(["goal"] if goals else []), *sheet.subjects],
        ["---", *("---:" for _ in range(goals + len(sheet.subjects)))],
    ]
    for row in sheet.rows:
        cells = [_markdown_cell(row, figure) if figure else "" for figure in row.cells]
        lines.append([row.name, *([row.goal] if goals else []), *cells])
    note = f": {sheet.note}" if sheet.note else ""
    return f"**{sheet.title}**{note}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _markdown_cell(row: Row, figure: Figure) -> str:
    spread = row.spread(figure)
    return row.median(figure) + (f" <sub>{spread}</sub>" if spread else "")


def _shown_cell(row: Row, figure: Figure) -> Text:
    colour = {None: "", True: "green", False: "red"}[_kept(figure)]
    spread = row.spread(figure)
    return Text.assemble((row.median(figure), colour), (f"\n{spread}" if spread else "", "dim"))


def _sheet(title: str, figures: list[Figure]) -> Sheet:
    subjects = list(dict.fromkeys(figure.subject for figure in figures))
    cells = {(figure.name, figure.subject): figure for figure in figures}
    names = dict.fromkeys(figure.name for figure in figures)
    rows = [_row(name, [cells.get((name, subject)) for subject in subjects]) for name in names]
    runs = {len(figure.runs) for figure in figures}
    note = "" if runs == {1} else f"median of {_range(runs)} runs, and least…most"
    return Sheet(title=title, note=note, subjects=subjects, rows=rows)


def _range(counts: set[int]) -> str:
    return str(min(counts)) if len(counts) == 1 else f"{min(counts)} to {max(counts)}"


def _row(name: str, cells: list[Figure | None]) -> Row:
    measured = [figure for figure in cells if figure is not None]
    unit = next((f", {figure.unit}" for figure in measured if figure.unit), "")
    goals = [figure.at_most for figure in measured if figure.at_most is not None]
    return Row(
        name=f"{name}{unit}",
        goal=f"≤ {goals[0]:g}" if goals else "",
        cells=cells,
        digits=_digits([value for figure in measured for value in (figure.median, *figure.runs)]),
    )


def _digits(values: list[float]) -> int:
    """Three digits that mean something, for the largest of them; none behind the point of counts."""
    largest = max(abs(value) for value in values)
    if all(value == int(value) for value in values):
        return 0
    return max(0, min(3, 2 - floor(log10(largest))))


def _kept(figure: Figure) -> bool | None:
    return None if figure.at_most is None else figure.median <= figure.at_most


def _rounded(value: float) -> float:
    return float(f"{value:.4g}") if abs(value) < 1000 else float(round(value))  # noqa: PLR2004 - four digits


class _Report(Struct, kw_only=True):
    figures: list[Figure]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--markdown", "as_markdown", is_flag=True, help="As in docs/benchmarks.md.")
def main(files: tuple[Path, ...], *, as_markdown: bool) -> None:
    """Show what earlier runs have measured; of a benchmark that several FILES hold, the last one's figures."""
    latest: dict[str, list[Figure]] = {}
    for file in files:
        try:
            report = msgspec.json.decode(file.read_bytes(), type=_Report)
        except msgspec.DecodeError as error:
            raise click.UsageError(f"{file}: not a report of this program: {error}") from None
        latest |= {name: [f for f in report.figures if f.benchmark == name] for name in _benchmarks(report)}
    console = Console()
    for sheet in sheets(figure for group in latest.values() for figure in group):
        if as_markdown:
            click.echo(markdown(sheet))
        else:
            console.print(shown(sheet))


def _benchmarks(report: _Report) -> dict[str, None]:
    return dict.fromkeys(figure.benchmark for figure in report.figures)


if __name__ == "__main__":
    main()
