"""``clusterconform simulate``: what would the operator do with this?"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import click
import msgspec

from clusterconform.cli.formats import fields_text, output_option_of, print_value, table_text
from clusterconform.cli.reading import JSON_BYTES, UnreadableInputError, documents_in, read_text
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
@output_option_of("json")
def simulate(
    files: tuple[str, ...], now: datetime | None, uptime: float, *, lines: bool, passes: str | None, output: str
) -> None:
    """Print what the operator would do with these objects, without a cluster and without writing.

    Input is what kubectl prints, JSON or YAML; without RuntimeProfiles in it the built-in ones hold. Exit
    codes: 0 answered, 2 unusable input (one sentence says where).
    """
    if lines and output != "json":
        raise click.UsageError("--lines prints JSON, one answer a line.")
    if not files and sys.stdin.isatty():
        raise click.UsageError("Name files, or pipe something in.")
    moment = Moment(wall=now or Clock().moment().wall, uptime=uptime)
    paths = files or ("-",)
    try:
        if lines:
            for path in paths:
                _answer_lines(path, moment)
            return
        world = read_world(document for path in paths for document in documents_in(path))
        value = answer(world, moment, _read_passes(passes))
        if output == "table":
            click.echo(_text(value))
        else:
            print_value(value, output)
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
    lines = _lines_of_input() if path == "-" else iter(read_text(path).splitlines())
    for line in lines:
        if line.strip():
            sys.stdout.buffer.write(msgspec.json.encode(_answer_line(line, moment)) + b"\n")
            sys.stdout.buffer.flush()


def _lines_of_input() -> Iterator[bytes]:
    """Standard input line by line; of one that is too long, and may have no end, only as much as tells so."""
    source = sys.stdin.buffer
    while line := source.readline(JSON_BYTES + 1):
        yield line
        while len(line) > JSON_BYTES and not line.endswith(b"\n"):
            line = source.readline(JSON_BYTES + 1)


def _answer_line(line: bytes, moment: Moment) -> dict[str, Any]:
    identity: Any = None
    if len(line) > JSON_BYTES:
        return {"id": None, "error": f"a line larger than {JSON_BYTES >> 20} MiB, which is the most that is read"}
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


def _text(value: Mapping[str, Any]) -> str:
    """``value`` for people: a row for each node, and what a reaping pass would come to."""
    heads = ("NODE", "PROFILE", "IDENTITY", "CONFORMS", "STALENESS", "REQUESTS", "REASONS")
    rows = [
        (
            node["name"],
            node["profile"] or "-",
            node["identity"],
            str(node["conformant"]),
            node["staleness"]["outcome"],
            str(len(node["requests"])),
            ", ".join(node["reasons"]) or "-",
        )
        for node in value["nodes"]
    ]
    about = [(profile["name"], f"not accepted: {profile['reason']}") for profile in _refused(value["profiles"])]
    if "reaping" in value:
        about += _pass_rows("reaping", value["reaping"])
    for step in value.get("passes", ()):
        about += _pass_rows(step["now"], step["reaping"])
    return "\n\n".join(part for part in (table_text(heads, rows), fields_text(about)) if part)


def _refused(profiles: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [profile for profile in profiles if not profile["accepted"]]


def _pass_rows(name: str, seen: Mapping[str, Any]) -> list[tuple[str, str]]:
    counts = f"{seen['facts']['stale']} stale of {seen['facts']['scope']}"
    outcome = seen["error"] or (f"refused: {seen['refused']}" if seen["refused"] else "no guard refuses it")
    rows = [(name, f"{outcome}; {counts}")]
    rows += [("", f"would delete {node}") for node in seen["deleted"]]
    for held in seen["held"]:
        until = f", at least until {held['until']}" if held["until"] else ""
        rows.append(("", f"holds {held['name']}: {held['reason']}{until}"))
    return rows
