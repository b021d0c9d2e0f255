"""``clusterconform reap NODE``: a person approves one deletion; the leading operator makes it.

The command deletes nothing itself. It puts the approval on the agent's RuntimeProfile, bound to the node's uid,
waits for what the operator does with it, and takes it off again.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import click
from rich.console import Console

from clusterconform.cli.formats import output_option, print_value
from clusterconform.cli.live import Live, UnavailableError, cluster_options
from clusterconform.contract.facts import UnreadableNodeError
from clusterconform.contract.names import API_VERSION, APPROVE_ANNOTATION, LEASES_NAMESPACE, PLURAL
from clusterconform.contract.profile import ProfileObject, Refusal, read_profile
from clusterconform.contract.reported import held_row, reaping_of
from clusterconform.contract.times import format_time, parse_time
from clusterconform.decisions.approval import Prospect, prospect
from clusterconform.effects.clock import Clock

_NODES: Final = "/api/v1/nodes"
_PROFILES: Final = f"/apis/{API_VERSION}/{PLURAL}"
_LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{LEASES_NAMESPACE}/leases"
_POLL_SECONDS: Final = 0.5
_MERGE: Final = "application/merge-patch+json"


@click.command(
    epilog="""\b
Examples:
  clusterconform reap pi-4c7adeb6           # shows what will happen, asks, waits
  clusterconform reap pi-4c7adeb6 --yes     # asks nothing
Docs: docs/reaping.md"""
)
@click.argument("node")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=1, max=3600),
    default=60.0,
    show_default=True,
    help="Seconds to wait for the operator.",
)
@output_option
@cluster_options
def reap(node: str, *, yes: bool, timeout: float, output: str, cluster: Live) -> None:
    """Approve the deletion of one dead agent's Node that a guard of the fleet holds.

    An approval overrides MassStale, DailyLimit and, after a mass outage, Untrusted, for this one node and no
    other of its name. The node must be stale all the same, and the budget is not exceeded. The operator
    deletes; this command only asks it to.

    Exit codes: 0 reaped, 1 not reaped (one sentence says why), 2 the cluster or the command line lacks
    something.
    """
    try:
        found = _prospect(cluster, node)
        why = found.objection
        if why:
            sentence = f"{node} would not be reaped: {why}"
        else:
            if output == "table" or not yes:
                _show(node, found, aside=output != "table")
            why = _reap(cluster, node, found, yes=yes, timeout=timeout)
            sentence = f"{node} was not reaped: {why}"
    except (UnavailableError, UnreadableNodeError, Refusal) as error:
        _end(str(error), code=2)
    if output != "table":
        print_value(_as_value(node, found, why), output)
    elif not why:
        click.echo(f"{node} was reaped.")
    if why:
        _end(sentence)


def _reap(cluster: Live, name: str, found: Prospect, *, yes: bool, timeout: float) -> str:
    """Ask, approve and wait; why it was not reaped, empty if it was."""
    if not yes:
        if not sys.stdin.isatty():
            _end("nobody is there to be asked; say --yes", code=2)
        if not click.confirm(f"Approve the deletion of node {name}?", err=True):
            return "nothing was approved"
    with _approved(cluster, found.backend, f"{name}/{found.uid}"):
        return _await(cluster, name, found, timeout)


def _as_value(name: str, found: Prospect, why: str) -> dict[str, Any]:
    return {
        "node": name,
        "uid": found.uid or None,
        "profile": found.backend or None,
        "deadSince": format_time(found.since) if found.since else None,
        "heldBy": {"reason": found.held, "message": found.held_message} if found.held else None,
        "reaped": not why,
        "why": why or None,
    }


def _prospect(cluster: Live, name: str) -> Prospect:
    node = cluster.get(f"{_NODES}/{name}")
    lease = cluster.find(f"{_LEASES}/{name}")
    profiles = [read_profile(item) for item in cluster.items(_PROFILES)]
    return prospect(node, lease, profiles, Clock().moment())


def _show(name: str, found: Prospect, *, aside: bool) -> None:
    since = format_time(found.since) if found.since else "unknown"
    lines = (
        f"node      {name} (uid {found.uid})",
        f"dead      since {since}; its Lease and the API server's own stamps agree",
        f"held by   {f'{found.held}: {found.held_message}' if found.held else 'nothing'}",
        f"approval  {APPROVE_ANNOTATION}={name}/{found.uid} on runtimeprofile {found.backend}",
        "then      the operator reads the node again, judges it again, writes the ledger and deletes the",
        "          Node with both preconditions; its pods are removed by the control plane, its Lease and",
        f"          the secret kube-system/{name}.node-password.k3s are left to their owners",
    )
    click.echo("\n".join(lines), err=aside)


@contextmanager
def _approved(cluster: Live, backend: str, approval: str) -> Iterator[None]:
    path = f"{_PROFILES}/{backend}"
    cluster.send("PATCH", path, {"metadata": {"annotations": {APPROVE_ANNOTATION: approval}}}, _MERGE)
    try:
        yield
    finally:
        # Only ours: somebody else may have approved another node meanwhile.
        if _annotation(cluster.get(path)) == approval:
            cluster.send("PATCH", path, {"metadata": {"annotations": {APPROVE_ANNOTATION: None}}}, _MERGE)


def _await(cluster: Live, name: str, found: Prospect, timeout: float) -> str:
    """Why it was not reaped; empty if it was."""
    console = Console(stderr=True)
    deadline = time.monotonic() + timeout
    with console.status(f"waiting for the operator, at most {timeout:g} s"):
        while time.monotonic() < deadline:
            node = cluster.find(f"{_NODES}/{name}")
            if node is None or node["metadata"].get("uid") != found.uid:
                return ""
            if node["metadata"].get("deletionTimestamp"):
                return "its deletion is under way, but a finalizer holds it"
            profile = _profile(cluster, found.backend)
            if _approval_in(profile) == f"{name}/{found.uid}" and (held := _held(profile, name)):
                return held
            time.sleep(_POLL_SECONDS)
    return f"the operator did not answer within {timeout:g} s; does one lead?"


def _held(profile: ProfileObject, name: str) -> str:
    """What the last pass held the node for; empty where it says nothing."""
    row = held_row(profile.status, name)
    if row is None:
        return ""
    until = parse_time(row.get("until"))
    return f"{row.get('reason')}" + (f", at least until {format_time(until)}" if until else "")


def _approval_in(profile: ProfileObject) -> Any:
    """The approval that the last pass knew of: an earlier pass says nothing of ours."""
    return reaping_of(profile.status).get("approved")


def _profile(cluster: Live, backend: str) -> ProfileObject:
    return read_profile(cluster.get(f"{_PROFILES}/{backend}"))


def _annotation(manifest: Any) -> str:
    return str((manifest["metadata"].get("annotations") or {}).get(APPROVE_ANNOTATION, ""))


def _end(sentence: str, *, code: int = 1) -> None:
    click.echo(f"clusterconform: {sentence}", err=True)
    sys.exit(code)
