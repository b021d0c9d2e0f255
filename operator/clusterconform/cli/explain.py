"""``clusterconform explain``: why is this node treated as it is?"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import click

from clusterconform.cli.formats import age, ago, fields_text, left, nearest, output_option, print_value, table_text
from clusterconform.cli.gather import NODES, PROBES, objects_of, profiles_of, stream_trials
from clusterconform.cli.live import DeniedError, Live, UnavailableError, cluster_options
from clusterconform.contract.names import LEASES_NAMESPACE
from clusterconform.contract.times import Moment
from clusterconform.decisions.explanation import Sight
from clusterconform.decisions.explanation import explain as words_on
from clusterconform.decisions.world import UnusableWorldError, World, read_world

_LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{LEASES_NAMESPACE}/leases"
# Longer than any wait of a decision: the operator has been up for long enough.
_LONG_AGO: Final = 1e9


@click.command(
    epilog="""\b
Examples:
  clusterconform explain pi-4c7adeb6
  clusterconform explain --all --output json
Docs: docs/cli.md"""
)
@click.argument("node", required=False)
@click.option("--all", "every", is_flag=True, help="All nodes, as a table.")
@output_option
@cluster_options
def explain(node: str | None, *, every: bool, output: str, cluster: Live) -> None:
    """Tell of a node its profile, what it can do, what has drifted, and why it is or is not reaped.

    The node's own verdicts are worked out here, by the operator's code; the fleet's guards are those that the
    operator wrote down, with their age.

    Exit codes: 0 told, 2 no such node, or the cluster cannot be read.
    """
    if every == bool(node):
        raise click.UsageError("Name one node, or say --all.")
    sight = _sight(cluster, node)
    try:
        rows = words_on(sight, None if every else [str(node)])
    except UnusableWorldError as error:
        raise UnavailableError(str(error)) from error
    if output != "table":
        print_value(rows if every else rows[0], output)
    elif every:
        click.echo(_table(rows, sight.now.wall))
    else:
        click.echo(fields_text(_lines(rows[0], sight.now.wall)))


def _sight(cluster: Live, node: str | None) -> Sight:
    profiles = objects_of(profiles_of(cluster))
    nodes = cluster.items(NODES)
    names = [str(item["metadata"]["name"]) for item in nodes]
    if node is not None and node not in names:
        raise UnavailableError(f"there is no node {node!r}.{nearest(node, names)}")
    try:
        pods = cluster.items(PROBES)
    except DeniedError:
        pods = []  # whoever may not read them is told of no probe
    world = read_world([*nodes, *pods])
    # With their status, and none where there are none: built-in ones would be no part of this cluster.
    world = World(nodes=world.nodes, profiles=profiles, pods=world.pods, leases={}, ledger=None)
    leases: dict[str, Any] = {}
    unreadable: dict[str, str] = {}
    if node is not None:
        try:
            leases[node] = cluster.find(f"{_LEASES}/{node}")
        except UnavailableError as error:
            unreadable[node] = str(error)
    trials = {} if node is None else stream_trials(cluster, pods, [node])
    now = Moment(wall=cluster.now(), uptime=_LONG_AGO)
    return Sight(world=world, now=now, leases=leases, unreadable=unreadable, trials=trials)


def _table(rows: Sequence[Mapping[str, Any]], now: datetime) -> str:
    heads = ("NODE", "PROFILE", "IDENTITY", "READY", "CONFORMS", "REAPING", "UNTIL")
    cells = [
        (
            row["node"],
            row["profile"] or "-",
            row["identity"]["kind"],
            row["ready"]["status"] if row["ready"] else "-",
            ", ".join(dict.fromkeys(finding["reason"] for finding in row["findings"])) or "yes",
            _reaping_word(row["reaping"]),
            left(row["reaping"]["until"], now) or "-",
        )
        for row in rows
    ]
    return table_text(heads, cells, folds="CONFORMS")


def _reaping_word(reaping: Mapping[str, Any]) -> str:
    return f"held: {reaping['held']['reason']}" if reaping["held"] else str(reaping["reason"])


def _lines(row: Mapping[str, Any], now: datetime) -> list[tuple[str, str]]:
    identity, ready = row["identity"], row["ready"]
    profile = f"{row['profile']} (class {row['class']}, {row['enforcement']})" if row["profile"] else "none"
    evidence = ", ".join(identity["evidence"]) or "none"
    return [
        ("node", row["node"]),
        ("profile", profile),
        ("identity", f"{identity['kind']}; evidence: {evidence}"),
        (
            "ready",
            f"{ready['status']}{_for(ready, now)}: {ready['reason']}" if ready else "never said",
        ),
        *_conformance(row, now),
        *_capabilities(row),
        ("endpoint", _endpoint(row["endpoint"])),
        ("kubelet path", _path(row["kubeletPath"])),
        ("probe", _probe(row["probe"])),
        *_reaping(row["reaping"], now),
        ("would write", "; ".join(row["wouldWrite"]) or "nothing"),
    ]


def _for(condition: Mapping[str, Any], now: datetime) -> str:
    # Of a virtual node it is not known: its kubelet says at each heartbeat that it began just now.
    return f" for {age(condition['since'], now)}" if condition["since"] else ""


def _conformance(row: Mapping[str, Any], now: datetime) -> list[tuple[str, str]]:
    lines = [("conforms", "yes" if row["conformant"] else "no")]
    for finding in row["findings"]:
        writer = finding["lastWriter"]
        by = f"; last written by {writer['name']} {ago(writer['at'], now)}" if writer else ""
        lines.append(("", f"{finding['reason']}: {finding['message']}{by}"))
    seen = row["condition"]
    words = f"{seen['status']}{_for(seen, now)}: {seen['message']}" if seen else "none"
    return [*lines, ("condition", words)]


def _capabilities(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    verified = {True: " (verified)", False: " (proven broken)", None: ""}
    claimed = [seen["name"] + verified[seen["verified"]] for seen in row["capabilities"] if seen["claimed"]]
    absent = [seen["name"] for seen in row["capabilities"] if not seen["claimed"]]
    return [
        ("serves", ", ".join(claimed) or "nothing is known"),
        ("does not serve", ", ".join(absent) or "nothing"),
    ]


def _endpoint(seen: Mapping[str, Any] | None) -> str:
    if seen is None:
        return "none"
    observed = f"; it shows {seen['observedAddress'] or 'no ExternalIP'}, port {seen['observedPort'] or 0}"
    return f"{seen['reason']}: {seen['message']}{observed if seen['address'] else ''}"


def _path(seen: Mapping[str, Any] | None) -> str:
    return f"{seen['reason']}: {seen['message']}" if seen else "not tried: it takes a probe pod that runs there"


def _probe(seen: Mapping[str, Any]) -> str:
    held = "; held back, since too many would be" if seen["held"] else ""
    return f"{seen['verdict']}: {seen['reason']}: {seen['message']}{held}"


def _reaping(seen: Mapping[str, Any], now: datetime) -> list[tuple[str, str]]:
    word = "a candidate" if seen["candidate"] else "no candidate"
    since = f"; dead for {age(seen['since'], now)}" if seen["since"] else ""
    until = f"; may change {left(seen['until'], now)}" if seen["until"] else ""
    lines = [("reaping", f"{word}: {seen['reason']}: {seen['message']}{since}{until}")]
    if seen["held"]:
        until = left(seen["held"]["until"], now)
        asked = f"in the pass {ago(seen['asOf'], now)}"
        lines.append(("held by", f"{seen['held']['reason']} {asked}{f', at least {until}' if until else ''}"))
    guard = seen["guard"]
    if guard:
        verdict = "allowed" if guard["allowed"] else "refused"
        coming = left(guard["nextPass"], now) or "is not planned"
        told = f"in the pass {ago(seen['asOf'], now)}; the next one {coming}"
        lines.append(("fleet's guards", f"{verdict}: {guard['reason']}: {guard['message']} ({told})"))
    return lines
