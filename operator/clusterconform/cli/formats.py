"""How answers are printed: tables for people, JSON and YAML for programs; all of it at once, at the end.

A table is as wide as the terminal. Into a pipe a row is one line, however long, unless ``COLUMNS`` says how wide
it may be. Colours are only for terminals, and not under ``NO_COLOR``.
"""

import os
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final

import click
import msgspec

from clusterconform.contract.times import parse_time

# No row of ours is as long; rich has no word for "as wide as it takes".
_UNFOLDED: Final = 10_000
_GAP: Final = 2
_LEAST: Final = 10
_COLOURS: Final = {"True": "green", "False": "red", "error": "red", "warning": "yellow", "unusable": "magenta"}


class Word(click.Choice[str]):
    """One of a few words; another one is refused with the nearest."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """The sentence with which ``value`` is refused."""
        return super().get_invalid_choice_message(value, ctx) + nearest(str(value), self.choices)


def nearest(word: str, words: Sequence[str]) -> str:
    """The end of a sentence that names the one of ``words`` that was probably meant; empty where none is near."""
    found = get_close_matches(word, words, n=1)
    return f" Did you mean {found[0]!r}?" if found else ""


def output_option_of(default: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds ``--output``, which is ``default`` where it is not given."""
    return click.option(
        "--output",
        "-o",
        type=Word(["table", "json", "yaml"]),
        default=default,
        show_default=True,
        help="json and yaml are stable and documented.",
    )


output_option = output_option_of("table")


def print_value(value: Any, output: str) -> None:
    """Print ``value``, JSON values, as ``json`` or ``yaml``."""
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2))
        return
    import yaml  # noqa: PLC0415 - a tenth of a second that the other formats need not wait for

    plain = msgspec.to_builtins(value)
    dumped = yaml.dump(plain, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True, width=_UNFOLDED)
    click.echo(dumped, nl=False)


def table_text(heads: Sequence[str], rows: Sequence[Sequence[str]], *, folds: str | None = None) -> str:
    """A table with ``heads`` and ``rows``; where it is too wide, column ``folds`` (else the last) is folded."""
    from rich.console import Console  # noqa: PLC0415 - as above
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console(highlight=False, width=_width(), file=sys.stdout)
    longest = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    kept = sum(length for head, length in zip(heads, longest, strict=True) if head != (folds or heads[-1]))
    # On a narrow terminal every column is folded, or the last ones would not be seen at all.
    roomy = kept + _GAP * len(heads) + _LEAST <= console.width
    table = Table(box=None, pad_edge=False, padding=(0, _GAP), collapse_padding=True, header_style="bold")
    for head in heads:
        table.add_column(head, overflow="fold", no_wrap=roomy and head != (folds or heads[-1]))
    for row in rows:
        # As Text: what others wrote is no markup.
        table.add_row(*(Text(cell, style=_COLOURS.get(cell, "")) for cell in row))
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines()).strip("\n")


def fields_text(rows: Sequence[tuple[str, str]]) -> str:
    """Names and what is to be said of each, side by side; a name that is empty goes on with the one above."""
    from rich.console import Console  # noqa: PLC0415 - as above
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for name, words in rows:
        table.add_row(name, Text(words))
    console = Console(highlight=False, width=_width(), file=sys.stdout)
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines()).strip("\n")


def age(at: Any, now: datetime) -> str:
    """How old the timestamp ``at`` is; ``unknown`` for none."""
    moment = parse_time(at)
    return "unknown" if moment is None else length((now - moment).total_seconds())


def ago(at: Any, now: datetime) -> str:
    """How long ago the timestamp ``at`` was; ``never`` for none."""
    return "never" if parse_time(at) is None else f"{age(at, now)} ago"


def left(at: Any, now: datetime) -> str:
    """How long it is until the timestamp ``at``; empty for none."""
    moment = parse_time(at)
    return "" if moment is None else f"in {length(max(0.0, (moment - now).total_seconds()))}"


def length(seconds: float) -> str:
    """A length of time in its two largest units, such as ``2h5m``."""
    whole = int(abs(seconds))
    sign = "-" if seconds < -1 else ""
    for unit, size, smaller, step in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // step
            return f"{sign}{whole // size}{unit}" + (f"{rest}{smaller}" if rest else "")
    return f"{sign}{whole}s"


def _width() -> int | None:
    if os.environ.get("COLUMNS", "").isdigit() or sys.stdout.isatty():
        return None
    return _UNFOLDED
