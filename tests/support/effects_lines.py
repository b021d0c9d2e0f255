"""What a watch of Nodes is made of, and a content to read it from in pieces of any size."""

import json
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from builders import Json
from effects_time import run_virtually

from clusterconform.contract.facts import NodeFacts, UnreadableNodeError, read_node, view_node
from clusterconform.effects.metrics import Metrics
from clusterconform.effects.stream import NodeStream, _SlimContent

Fold = dict[str, tuple[str, NodeFacts]]


def line(kind: str, raw: Any) -> bytes:
    """One line of a watch, with its newline."""
    return json.dumps({"type": kind, "object": raw}, separators=(",", ":")).encode() + b"\n"


def at_version(raw: Json, version: int) -> Json:
    """``raw`` at another resource version."""
    return {**raw, "metadata": {**raw["metadata"], "resourceVersion": str(version)}}


def node_list(items: Iterable[Json], version: int = 1, more: str = "") -> bytes:
    """A page of a NodeList."""
    metadata = {"resourceVersion": str(version), **({"continue": more} if more else {})}
    return json.dumps({"kind": "NodeList", "apiVersion": "v1", "metadata": metadata, "items": [*items]}).encode()


def new_stream() -> NodeStream:
    """A stream whose clock stands still."""
    return NodeStream(Metrics(), lambda: 0.0)


class Content:
    """A response's content that comes in ``chunks``."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self.chunks = list(chunks)
        self.total_bytes = 7

    async def read(self, n: int = -1) -> bytes:
        return b"".join(self.chunks)[: None if n < 0 else n]

    async def iter_chunked(self, _: int) -> AsyncIterator[bytes]:
        for chunk in self.chunks:
            yield chunk


async def through(stream: NodeStream, chunks: Sequence[bytes]) -> list[bytes]:
    """What comes out of one watch that brings ``chunks``, chunk by chunk."""
    return [chunk async for chunk in _SlimContent(Content(chunks), stream, first_page=True).iter_chunked(1024)]


def watch(stream: NodeStream, *chunks: bytes) -> list[Json]:
    """The events that come out of one watch that brings ``chunks``."""
    out = b"".join(run_virtually(through(stream, chunks)))
    return [json.loads(text) for text in out.split(b"\n") if text]


def folded(events: Iterable[Json], world: Fold | None = None) -> Fold:
    """The nodes by name as the operator's cache would hold them after ``events``: uid and facts."""
    nodes = dict(world or {})
    for event in events:
        if event["type"] not in {"ADDED", "MODIFIED", "DELETED"}:
            continue
        try:
            facts = read_node(view_node(event["object"]))
        except UnreadableNodeError:
            continue
        if event["type"] != "DELETED":
            nodes[facts.name] = (facts.uid, facts)
        elif nodes.get(facts.name, ("", None))[0] == facts.uid:
            del nodes[facts.name]
    return nodes
