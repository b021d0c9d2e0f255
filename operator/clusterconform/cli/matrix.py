"""``clusterconform matrix``: the built-in matrix."""

from typing import Any

import click

from clusterconform.cli.formats import output_option, print_value
from clusterconform.contract.matrix import MATRIX
from clusterconform.contract.profile import Capability, RuntimeProfile, manifest_of


@click.command(
    epilog="""\b
Examples:
  clusterconform matrix
  clusterconform matrix --output yaml"""
)
@output_option
def matrix(output: str) -> None:
    """Print what each backend promises: its marks, who may touch its nodes, and what they serve."""
    specs = [manifest_of(profile)["spec"] for profile in MATRIX.values()]
    if output == "table":
        _print_table(list(MATRIX.values()))
    else:
        print_value(specs, output)


def _print_table(rows: list[RuntimeProfile]) -> None:
    from rich import box  # noqa: PLC0415 - as above
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=box.SIMPLE)
    table.add_column("")
    for row in rows:
        table.add_column(row.backend)
    for title, cells in _lines(rows):
        table.add_row(title, *cells)
    console = Console(highlight=False, width=100)
    with console.capture() as text:
        console.print(table)
    click.echo("\n".join(line.rstrip() for line in text.get().strip("\n").splitlines()))


def _lines(rows: list[RuntimeProfile]) -> list[tuple[str, list[str]]]:
    def line(title: str, value: Any) -> tuple[str, list[str]]:
        return title, [_cell(value(row)) for row in rows]

    return [
        line("class", lambda row: row.node_class.value),
        line("runtime label", lambda row: row.runtime_label_value),
        line("node name suffix", lambda row: row.node_name_suffix),
        line("provider taint", lambda row: row.provider_taint),
        line("subject to nodegc", lambda row: row.subject_to_node_gc),
        line("subject to runtime probe", lambda row: row.subject_to_runtime_probe),
        line("subject to address reconcile", lambda row: row.subject_to_address_reconcile),
        *(
            line(capability.value, lambda row, capability=capability: row.serves(capability))
            for capability in Capability
        ),
    ]


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "-"
    return str(value) or "-"
