"""``clusterconform simulate``: what would the operator do with this?"""

import sys
from datetime import datetime
from typing import Any, Final

import click
import msgspec

from clusterconform.cli.reading import UnreadableInputError, documents_in, read_text
from clusterconform.contract.times import Duration, Moment, parse_time
from clusterconform.decisions.simulation import UnusableWorldError, read_moment, read_uptime, read_world
from clusterconform.decisions.simulation import simulate as answer
from clusterconform.effects.clock import Clock

# Longer than any gate that waits for uptime may be set to (the CRD's largest is 168h).
_LONG_ENOUGH: Final = Duration("10000h").seconds


class _Time(click.ParamType[datetime]):
    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        at = value if isinstance(value, datetime) else parse_time(value)
        if at is None:
            self.fail(f"must be a time such as 2026-08-01T12:00:00Z, not {value!r}", param, ctx)
        return at


class _Uptime(click.ParamType[float]):
    name = "DURATION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return read_uptime(value)
        except UnusableWorldError as error:
            self.fail(str(error), param, ctx)


@click.command(
    name="simulate",
    epilog="""\b
Examples:
  kubectl get nodes,pods,leases,rtp -A -o json | clusterconform simulate -
  clusterconform simulate nodes.yaml profiles.yaml --now 2026-08-01T12:00:00Z
Docs: docs/simulate.md""",
)
@click.argument("files", nargs=-1, metavar="[FILES|-]")
@click.option("--now", type=_Time(), help="Wall clock of the operator; default: this machine's.")
@click.option(
    "--uptime",
    type=_Uptime(),
    default=_LONG_ENOUGH,
    help="How long the operator has been running, as seconds or 1h30m; default: long enough for every gate.",
)
@click.option("--lines", is_flag=True, help="JSON Lines: one world a line, one answer a line, with its id.")
@click.option("--passes", metavar="FILE", help="Reaping passes to play on the world, a JSON or YAML list.")
def simulate(
    files: tuple[str, ...], now: datetime | None, uptime: float, *, lines: bool, passes: str | None
) -> None:
    """Print what the operator would do with these objects, as JSON, without a cluster and without writing.

    Input is what kubectl prints, JSON or YAML; without RuntimeProfiles in it the built-in ones hold. Exit
    codes: 0 answered, 2 unusable input (one sentence says where).
    """
    moment = Moment(wall=now or Clock().moment().wall, uptime=uptime)
    paths = files or ("-",)
    try:
        if lines:
            for path in paths:
                _answer_lines(path, moment)
            return
        world = read_world(document for path in paths for document in documents_in(path))
        click.echo(msgspec.json.format(msgspec.json.encode(answer(world, moment, _read_passes(passes))), indent=2))
    except (UnreadableInputError, UnusableWorldError) as error:
        click.echo(f"clusterconform: {error}", err=True)
        sys.exit(2)


def _read_passes(path: str | None) -> list[Any] | None:
    if path is None:
        return None
    documents = list(documents_in(path))
    if len(documents) != 1 or not isinstance(documents[0], list):
        raise UnreadableInputError(path, "must be one list of passes")
    return documents[0]


def _answer_lines(path: str, moment: Moment) -> None:
    lines = sys.stdin.buffer if path == "-" else iter(read_text(path).splitlines())
    for line in lines:
        if line.strip():
            sys.stdout.buffer.write(msgspec.json.encode(_answer_line(line, moment)) + b"\n")
            sys.stdout.buffer.flush()


def _answer_line(line: bytes, moment: Moment) -> dict[str, Any]:
    identity: Any = None
    try:
        request = msgspec.json.decode(line)
        if not isinstance(request, dict):
            return {"id": None, "error": "a line must be a JSON object"}
        identity = request.get("id")
        at = read_moment(request, moment)
        items, passes = request.get("items"), request.get("passes")
        if not isinstance(items, list) or not isinstance(passes, list | None):
            return {"id": identity, "error": "items, and passes where given, must be lists of objects"}
        return {"id": identity, **answer(read_world(items), at, passes)}
    except (ValueError, RecursionError) as error:
        return {"id": identity, "error": str(error) or type(error).__name__}
