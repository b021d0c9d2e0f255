"""``clusterconform status``: the fleet at a glance."""

import sys
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import click

from clusterconform.cli.formats import ago, fields_text, left, output_option, print_value, table_text
from clusterconform.cli.gather import lease_of, objects_of, profiles_of
from clusterconform.cli.live import Live, UnavailableError, cluster_options
from clusterconform.contract.times import parse_time
from clusterconform.decisions.glance import glance
from clusterconform.decisions.standing import HELD

_PERIOD_SECONDS: Final = 2.0
_COLUMNS: Final = (
    ("NODES", "total"),
    ("CONFORM", "conformant"),
    ("DRIFTED", "drifted"),
    ("CONFLICT", "conflicting"),
    ("CONTESTED", "contested"),
    ("NOTREADY", "notReady"),
)


@click.command(
    epilog="""\b
Examples:
  clusterconform status
  clusterconform status --watch
Docs: docs/cli.md"""
)
@click.option("--watch", "-w", is_flag=True, help="Show it anew every 2 s until Ctrl-C.")
@output_option
@cluster_options
def status(*, watch: bool, output: str, cluster: Live) -> None:
    """Show per profile how many nodes conform, and what holds the rest; who leads; how old it all is.

    Exit codes: 0 shown, 2 the cluster cannot be read.
    """
    if not watch:
        _print(_seen(cluster), output)
        return
    try:
        _watch(cluster, output)
    except KeyboardInterrupt:  # the way to end it
        return


def _seen(cluster: Live) -> Mapping[str, Any]:
    profiles = profiles_of(cluster)
    return glance(profiles, objects_of(profiles), lease_of(cluster), cluster.now())


def _print(value: Mapping[str, Any], output: str) -> None:
    if output == "table":
        click.echo(text_of(value))
    else:
        print_value(value, output)


def _watch(cluster: Live, output: str) -> None:
    terminal = sys.stdout.isatty()
    value = _seen(cluster)
    while True:
        if terminal:
            click.clear()
        _print(value, output)
        value = _next(cluster)


def _next(cluster: Live) -> Mapping[str, Any]:
    """The next glance; a cluster that is away for a while is what one watches for, so it is waited for."""
    while True:
        time.sleep(_PERIOD_SECONDS)
        try:
            return _seen(cluster)
        except UnavailableError as error:
            click.echo(f"clusterconform: {error}", err=True)


def text_of(value: Mapping[str, Any]) -> str:
    """``value`` for people."""
    rows = [
        (
            profile["name"],
            profile["ready"],
            *(str(profile["nodes"][name]) for _, name in _COLUMNS),
            _held(profile["held"]),
            profile["reason"],
        )
        for profile in value["profiles"]
    ]
    heads = ("PROFILE", "READY", *(head for head, _ in _COLUMNS), "HELD", "REASON")
    return f"{table_text(heads, rows)}\n\n{fields_text(_lines(value))}"


def _lines(value: Mapping[str, Any]) -> list[tuple[str, str]]:
    now, leader, reaping = parse_time(value["now"]), value["leader"], value["reaping"]
    if now is None:
        raise TypeError("a glance without its time")
    rows = [("leader", _leader(leader, ago(leader["renewed"], now)))]
    rows.append(("last resync", _heard(value, now)))
    if reaping is None:
        rows.append(("reaping", "no operator has told where it stands"))
    else:
        word = "allowed" if reaping["allowed"] == "True" else "held"
        mode = f"{reaping['mode']} (by {reaping['limitedBy']})" if reaping["mode"] else "unknown"
        rows += [
            ("reaping", f"{word}: {reaping['reason']}: {reaping['message']}"),
            ("", f"mode {mode}; {_number(reaping['stale'])} stale of {_number(reaping['eligible'])}"),
            ("budget", f"{_number(reaping['budgetLeft'])} left, {_number(reaping['reapedInWindow'])} spent"),
            (
                "last pass",
                f"{ago(reaping['lastPass'], now)}; the next one {left(reaping['nextPass'], now) or '-'}",
            ),
        ]
        rows += [
            (
                "held" if index == 0 else "",
                f"{held['name']}: {held['reason']}{_until(held, now)}",
            )
            for index, held in enumerate(reaping["held"])
        ]
    agents = value["agents"] or {}
    rows += [(name, f"{seen['status']}: {seen['reason']}: {seen['message']}") for name, seen in agents.items()]
    rows.append(("last report", ago(value["lastReport"], now)))
    amiss = [profile for profile in value["profiles"] if profile["ready"] != "True"]
    rows += [(profile["name"], f"{profile['reason']}: {profile['message']}") for profile in amiss]
    return rows


def _leader(leader: Mapping[str, Any], renewed: str) -> str:
    if leader["holder"] is None:
        return "none: nobody leads, and nothing is written"
    if leader["alive"]:
        return f"{leader['holder']}, renewed {renewed}"
    return f"{leader['holder']} does not answer: its Lease was renewed {renewed} and has run out"


def _heard(value: Mapping[str, Any], now: datetime) -> str:
    if value["lastResync"] is None and value["lastHeard"] is None:
        return "not told by any leader"
    return f"{ago(value['lastResync'], now)}; nodes last heard of {ago(value['lastHeard'], now)}"


def _held(count: int) -> str:
    # The operator lists no more: how many there are besides, nobody tells.
    return f"{count}+" if count >= HELD else str(count)


def _until(held: Mapping[str, Any], now: datetime) -> str:
    until = left(held.get("until"), now)
    return f", at least {until}" if until else ""


def _number(value: Any) -> str:
    return "?" if value is None else str(value)
