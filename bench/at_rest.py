"""A conforming fleet and nothing to do: what the operator asks of the API server all the same.

Read from the API server's audit log, which names each request with who sent it.
"""

import time
from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Struct, field

from bench.options import Options
from bench.report import Figure, Series
from bench.scene import OPERATOR, scene
from bench.subjects import OURS, running

NAME: Final = "at rest"

_READS: Final = frozenset({"get", "list", "watch"})


class _Named(Struct):
    username: str = ""


class _Object(Struct):
    resource: str = ""
    subresource: str = ""


class _Entry(Struct, rename="camel"):
    """What is read of an entry of the audit log. A watch is told of at its beginning and at its end."""

    stage: str = ""
    verb: str = ""
    request_uri: str = field(name="requestURI", default="")
    user: _Named = field(default_factory=_Named)
    object_ref: _Object | None = None


def measure(options: Options) -> list[Figure]:
    """Watch the operator at rest for ``rest_seconds``, once."""
    series = Series(NAME)
    with scene(options.nodes, audit=True) as staged, running(staged, OURS) as operator:
        operator.settle()
        begin, cpu = len(staged.plane.audit_lines()), operator.cpu
        options.tell(f"{options.rest_seconds:g} s of rest")
        time.sleep(options.rest_seconds)
        used = operator.cpu - cpu
        seen = requests_in(staged.plane.audit_lines()[begin:])
    for (verb, kind), count in sorted(seen.items()):
        series.add("ours", f"{verb} {kind}", count)
    writes = sum(count for (verb, kind), count in seen.items() if verb not in _READS and kind != "leases")
    series.add("ours", "writes but for the Lease", writes, at_most=0.0)
    series.add("ours", "requests per minute", 60 * seen.total() / options.rest_seconds)
    series.add("ours", "CPU share of a core", 100 * used / options.rest_seconds, unit="%")
    return series.figures()


def requests_in(log: Iterable[bytes]) -> Counter[tuple[str, str]]:
    """By verb and kind of path, the operator's requests that began within these lines of the audit log."""
    seen = Counter[tuple[str, str]]()
    for line in log:
        entry = msgspec.json.decode(line, type=_Entry)
        began = entry.stage == ("ResponseStarted" if entry.verb == "watch" else "ResponseComplete")
        if entry.user.username == OPERATOR and began:
            seen[entry.verb, _kind(entry)] += 1
    return seen


def _kind(entry: _Entry) -> str:
    if entry.object_ref is None:
        return entry.request_uri.partition("?")[0]
    of = entry.object_ref
    return f"{of.resource}/{of.subresource}" if of.subresource else of.resource
