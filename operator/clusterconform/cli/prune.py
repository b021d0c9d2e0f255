"""``clusterconform prune``: take our marks off all nodes, for an uninstall."""

import sys
from collections.abc import Sequence
from typing import Any

import click

from clusterconform.cli.formats import output_option, print_value, table_text
from clusterconform.cli.gather import NODES, lease_of
from clusterconform.cli.live import AbsentError, ChangedError, Live, UnavailableError, cluster_options, progress
from clusterconform.contract.facts import UnreadableNodeError, read_node, view_node
from clusterconform.decisions.glance import leader_of
from clusterconform.decisions.pruning import Pruning
from clusterconform.decisions.pruning import prune as ours_on


@click.command(
    epilog="""\b
Examples:
  clusterconform prune                  # shows what would be taken off
  clusterconform prune --yes            # takes it off
Docs: docs/cli.md"""
)
@click.option("--yes", is_flag=True, help="Do it; without this nothing is written.")
@output_option
@cluster_options
def prune(*, yes: bool, output: str, cluster: Live) -> None:
    """Take off all nodes the marks that our annotation lists, and our condition; nothing else.

    It refuses while an operator leads, which would put them back. Exit codes: 0 done or nothing to do, 1 refused
    or not everywhere done, 2 the cluster cannot be read.
    """
    leader = leader_of(lease_of(cluster), cluster.now())
    if yes and leader.alive:
        click.echo(
            f"clusterconform: {leader.holder} leads and would put everything back; stop the operator first",
            err=True,
        )
        sys.exit(1)
    found = [pruning for manifest in cluster.items(NODES) if (pruning := _pruning(manifest)) is not None]
    outcomes = _carry_out(cluster, found) if yes else ["would be taken off"] * len(found)
    rows = [
        {
            "node": pruning.node,
            "marks": list(pruning.marks),
            "unknown": list(pruning.unknown),
            "outcome": outcome,
        }
        for pruning, outcome in zip(found, outcomes, strict=True)
    ]
    _print(rows, output, yes=yes)
    if yes and set(outcomes) - {"taken off", "gone"}:
        sys.exit(1)


def _pruning(manifest: Any) -> Pruning | None:
    try:
        return ours_on(read_node(view_node(manifest)), manifest)
    except UnreadableNodeError as error:
        raise UnavailableError(f"node {manifest['metadata']['name']} cannot be read: {error}") from error


def _carry_out(cluster: Live, found: Sequence[Pruning]) -> list[str]:
    outcomes = []
    with progress("taking our marks off") as say:
        for pruning in found:
            outcomes.append(_outcome(cluster, pruning))
            say(f"{len(outcomes)} of {len(found)}")
    return outcomes


def _outcome(cluster: Live, pruning: Pruning) -> str:
    try:
        for request in pruning.requests:
            cluster.send(request.method, request.path, request.body, request.content_type)
    except AbsentError:
        return "gone"
    except ChangedError:
        return "changed meanwhile; run it again"
    except UnavailableError as error:
        return str(error)
    return "taken off"


def _print(rows: Sequence[dict[str, Any]], output: str, *, yes: bool) -> None:
    if output != "table":
        print_value({"dryRun": not yes, "nodes": list(rows)}, output)
        return
    if not rows:
        click.echo("no node carries a mark of ours")
        return
    cells = [
        (
            row["node"],
            ", ".join([*row["marks"], *(f"{mark} (unknown, stays)" for mark in row["unknown"])]),
            row["outcome"],
        )
        for row in rows
    ]
    hint = "" if yes else "\n\nnothing was written; say --yes to take them off"
    click.echo(table_text(("NODE", "MARKS", "OUTCOME"), cells) + hint)
