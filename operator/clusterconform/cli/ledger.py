"""``clusterconform ledger``: what was reaped, refused and held."""

import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import click

from clusterconform.cli.formats import output_option, print_value, table_text
from clusterconform.cli.live import Live, UnavailableError, cluster_options
from clusterconform.contract.names import LEDGER_CONFIGMAP, LEDGER_KEY, NAMESPACE
from clusterconform.contract.times import Duration, parse_time
from clusterconform.decisions.ledger import Entry, LedgerLine, malformed, read_ledger, unanswered, write_line

_PATH: Final = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{LEDGER_CONFIGMAP}"
_PERIOD_SECONDS: Final = 2.0


class _Since(click.ParamType[datetime | timedelta]):
    name = "TIME|DURATION"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime | timedelta:
        if isinstance(value, datetime | timedelta):
            return value
        at = parse_time(value)
        if at is not None:
            return at
        try:
            return timedelta(seconds=Duration(str(value)).seconds)
        except ValueError:
            self.fail(
                f"must be a time such as 2026-08-01T12:00:00Z or a duration such as 24h, not {value!r}", param, ctx
            )


@click.command(
    epilog="""\b
Examples:
  clusterconform ledger --since 24h
  clusterconform ledger --node pi-4c7adeb6 --output json
Docs: docs/cli.md"""
)
@click.option("--since", type=_Since(), help="Only what is younger.")
@click.option("--node", help="Only what is about this node.")
@click.option("--follow", "-f", is_flag=True, help="Go on with what is added, as JSON Lines, until Ctrl-C.")
@output_option
@cluster_options
def ledger(
    *, since: datetime | timedelta | None, node: str | None, follow: bool, output: str, cluster: Live
) -> None:
    """Print the reaping ledger: each node that was reaped, refused or held, and why.

    Exit codes: 0 printed, 2 the cluster cannot be read.
    """
    entries = _entries(cluster)
    cutoff = cluster.now() - since if isinstance(since, timedelta) else since
    chosen = [entry for entry in entries if _is_wanted(entry, cutoff, node)]
    if follow:
        try:
            _follow(cluster, chosen, cutoff, node)
        except KeyboardInterrupt:  # the way to end it
            return
    elif output == "table":
        click.echo(_table(chosen, unanswered(entries)))
    else:
        print_value([_as_value(entry) for entry in chosen], output)
    if damaged := malformed(entries):
        click.echo(f"clusterconform: {damaged} lines cannot be read; each may stand for a deletion", err=True)


def _entries(cluster: Live) -> list[Entry]:
    stored = cluster.find(_PATH)
    data = (stored or {}).get("data") or {}
    return read_ledger(str(data.get(LEDGER_KEY) or ""))


def _is_wanted(entry: Entry, cutoff: datetime | None, node: str | None) -> bool:
    if entry.line is None or entry.at is None:
        return cutoff is None and node is None
    return (cutoff is None or entry.at >= cutoff) and node in {None, entry.line.node}


def _follow(cluster: Live, first: Sequence[Entry], cutoff: datetime | None, node: str | None) -> None:
    told: set[str] = set()
    entries = list(first)
    while True:
        for entry in entries:
            if entry.text not in told:
                click.echo(write_line(entry.line) if entry.line else entry.text)
        told |= {entry.text for entry in entries}
        time.sleep(_PERIOD_SECONDS)
        try:
            entries = [entry for entry in _entries(cluster) if _is_wanted(entry, cutoff, node)]
        except UnavailableError as error:  # it may come back, and the ledger with it
            click.echo(f"clusterconform: {error}", err=True)


def _as_value(entry: Entry) -> Mapping[str, Any]:
    import msgspec  # noqa: PLC0415

    return {"malformed": entry.text} if entry.line is None else msgspec.to_builtins(entry.line)


def _table(entries: Sequence[Entry], open_lines: Sequence[LedgerLine]) -> str:
    if not entries:
        return "nothing is written there"
    heads = ("AT", "EVENT", "NODE", "NOT READY SINCE", "DETAIL")
    rows = [
        ("-", "malformed", "-", "-", entry.text[:80])
        if entry.line is None
        else (
            entry.line.at[:19] + "Z",
            entry.line.event,
            entry.line.node or "-",
            entry.line.not_ready_since or "-",
            _detail(entry.line, unknown=entry.line in open_lines),
        )
        for entry in entries
    ]
    return table_text(heads, rows)


def _detail(line: LedgerLine, *, unknown: bool) -> str:
    counts = f"{line.stale} stale of {line.scope}" if line.stale and line.scope else ""
    # It counts as a deletion until its window is over.
    outcome = "no outcome is known" if unknown else ""
    return "; ".join(part for part in (line.detail, counts, outcome) if part) or "-"
