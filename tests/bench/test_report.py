"""The tables of the benchmarks: figures side by side, with goals, for a terminal and for docs/."""

from pathlib import Path

import msgspec
import pytest
from bench.report import Figure, Series, Sheet, main, markdown, sheets, shown
from click.testing import CliRunner
from rich.console import Console


def series() -> Series:
    """Two operators, three runs; the second has no goal and one figure less."""
    taken = Series("mass drift")
    for value in (1.371, 1.253, 1.604):
        taken.add("ours", "time / bare client's time", value, at_most=1.5)
    for value in (1.72, 12.0, 1.7):
        taken.add("naive", "time / bare client's time", value)
    taken.add("ours", "failed requests", 0, at_most=0)
    taken.add("ours", "peak RSS", 161.2, unit="MiB", at_most=100)
    return taken


def sheet() -> Sheet:
    (only,) = sheets(series().figures())
    return only


def test_a_row_shows_medians_side_by_side_with_the_same_digits() -> None:
    row = sheet().rows[0]
    assert [row.median(figure) for figure in row.cells if figure] == ["1.4 ✓", "1.7"]
    assert [row.spread(figure) for figure in row.cells if figure] == ["1.3…1.6", "1.7…12.0"]


def test_counts_have_no_digits_behind_the_point_and_no_spread_of_one_value() -> None:
    row = sheet().rows[1]
    (ours, naive) = row.cells
    assert ours is not None
    assert (row.median(ours), row.spread(ours), naive) == ("0 ✓", "", None)


def test_what_misses_its_goal_says_so() -> None:
    row = sheet().rows[2]
    (ours, _) = row.cells
    assert ours is not None
    assert (row.name, row.goal, row.median(ours)) == ("peak RSS, MiB", "≤ 100", "161 ✗")


def test_without_goals_there_is_no_column_for_them() -> None:
    figures = [Figure(benchmark="decisions", subject="5,000 nodes", name="decide", unit="s CPU", runs=[0.1])]
    (plain,) = sheets(figures)
    assert "goal" not in markdown(plain)
    assert "goal" in markdown(sheet())


def test_markdown_is_a_table() -> None:
    lines = markdown(sheet()).splitlines()
    assert lines == [
        "**mass drift**: median of 1 to 3 runs, and least…most",
        "",
        "|  | goal | ours | naive |",
        "| --- | ---: | ---: | ---: |",
        "| time / bare client's time | ≤ 1.5 | 1.4 ✓ <sub>1.3…1.6</sub> | 1.7 <sub>1.7…12.0</sub> |",
        "| failed requests | ≤ 0 | 0 ✓ |  |",
        "| peak RSS, MiB | ≤ 100 | 161 ✗ |  |",
    ]


@pytest.mark.parametrize("width", [80, 100])
def test_a_terminal_shows_every_cell_whole(width: int) -> None:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(shown(sheet()))
    text = capture.get()
    assert max(map(len, text.splitlines())) <= width
    for word in ("1.4 ✓", "1.3…1.6", "1.7…12.0", "161 ✗", "≤ 1.5", "ours", "naive"):
        assert word in text, text


def test_four_subjects_fit_into_80_columns() -> None:
    taken = Series("mass drift")
    for subject in ("ours", "ours, whole stream", "naive Kopf", "textbook Kopf"):
        for value in (12.345, 6789.0):
            taken.add(subject, "CPU of all / bare client's CPU of all", value, at_most=20000)
    (wide,) = sheets(taken.figures())
    console = Console(width=80)
    with console.capture() as capture:
        console.print(shown(wide))
    assert capture.get().count("12…6,789") == 4


def test_reports_are_shown_again_and_the_last_file_wins(tmp_path: Path) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    for file, value in ((old, 9.0), (new, 1.0)):
        figures = [Figure(benchmark="decisions", subject="ours", name="decide", unit="s", runs=[value])]
        file.write_bytes(msgspec.json.encode({"machine": {}, "nodes": 1, "figures": figures}))
    done = CliRunner().invoke(main, ["--markdown", str(old), str(new)])
    assert (done.exit_code, "| decide, s | 1 |" in done.stdout, "9" in done.stdout) == (0, True, False)


def test_a_file_that_is_no_report_is_refused_with_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    file.write_text("[]")
    done = CliRunner().invoke(main, [str(file)])
    assert done.exit_code == 2
    assert "not a report of this program" in done.stderr
