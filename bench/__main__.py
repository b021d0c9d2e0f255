"""The command line: ``python -m bench``."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click
import msgspec
from rich.console import Console

from bench import (
    addresses,
    against_size,
    at_rest,
    cold_start,
    command_line,
    heartbeats,
    machine,
    mass_drift,
    one_drift,
    pure,
    reaping,
    takeover,
)
from bench.options import Options
from bench.report import Figure, sheets, shown

BENCHMARKS: Final[dict[str, Callable[[Options], list[Figure]]]] = {
    "decisions": pure.measure,
    "reaping": reaping.measure,
    "command-line": command_line.measure,
    "cold-start": cold_start.measure,
    "at-rest": at_rest.measure,
    "one-drift": one_drift.measure,
    "heartbeats": heartbeats.measure,
    "mass-drift": mass_drift.measure,
    "addresses": addresses.measure,
    "takeover": takeover.measure,
    "against-size": against_size.measure,
}


class _Sizes(click.ParamType[tuple[int, ...]]):
    name = "N,N,..."

    def convert(
        self,
        value: str | tuple[int, ...],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        if not all(word.isdigit() and int(word) for word in value.split(",")):
            self.fail(f"must be numbers of nodes with commas between them, not {value!r}", param, ctx)
        return tuple(sorted({int(word) for word in value.split(",")}))


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--nodes", type=click.IntRange(min=200), default=5000, show_default=True, help="Size of the fleet.")
@click.option(
    "--runs", type=click.IntRange(min=1), default=5, show_default=True, help="How often; medians are told."
)
@click.option("--only", type=click.Choice(list(BENCHMARKS)), multiple=True, help="Only this benchmark.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    default="build/bench.json",
    show_default=True,
    help="Where all figures go, with all runs and a description of this machine.",
)
@click.option(
    "--sizes", type=_Sizes(), default="500,1000,2000,5000,10000", show_default=True, help="For against-size."
)
@click.option("--rest-seconds", type=float, default=120.0, show_default=True, help="For at-rest.")
@click.option("--heartbeat-seconds", type=float, default=60.0, show_default=True, help="For heartbeats.")
def main(
    *,
    nodes: int,
    runs: int,
    only: tuple[str, ...],
    output: Path,
    sizes: tuple[int, ...],
    rest_seconds: float,
    heartbeat_seconds: float,
) -> None:
    """Measure the operator on a real API server on this machine.

    Figures are compared with goals and never fail: they say as much about the machine as about the program.
    """
    progress = Console(stderr=True)
    console = Console()
    figures: list[Figure] = []
    for name, measure in BENCHMARKS.items():
        if only and name not in only:
            continue
        progress.print(f"[bold]{name}[/]")
        options = Options(
            nodes=nodes,
            runs=runs,
            sizes=sizes,
            rest_seconds=rest_seconds,
            heartbeat_seconds=heartbeat_seconds,
            tell=lambda text: progress.print(f"  {time.strftime('%H:%M:%S')} {text}"),
        )
        figures += measure(options)
        # After each: an interrupted run keeps what it has measured.
        _write(output, nodes, figures)
    about = machine.describe()
    console.print(f"{nodes:,} nodes; {about['cores']} cores ({about['cpu']}) shared by {about['shared by']}\n")
    for sheet in sheets(figures):
        console.print(shown(sheet))


def _write(output: Path, nodes: int, figures: list[Figure]) -> None:
    content = {"machine": machine.describe(), "nodes": nodes, "figures": figures}
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")


if __name__ == "__main__":
    main()
