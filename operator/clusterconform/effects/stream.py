"""The node stream: what Kopf reads of Nodes, cut down to what decisions read.

Kopf makes four deep copies of every object it is told of (62 % of its CPU, measured). This middleware of
its HTTP session cuts each Node of a list or a watch down to a ``NodeView`` and drops the lines of a watch
in which nothing of that has changed: heartbeats, image lists and the echoes of our own writes. What is
left goes straight to the cache, and Kopf is told how far the watch has come; lists, and whatever cannot be read
here, go through Kopf and its handlers. Taking all this away changes speed only: the handlers read whole Nodes
just as well, and an end-to-end test runs without it.

Besides it knows three things that Kopf does not tell: when bytes last came, when a watch was last tried, and
which nodes vanished between two lists (Kopf loses deletions across a relist); those get a DELETED line at the
start of the next watch.

It leans on two facts of Kopf 1.45, which a test pins: lists are read as ``response.json()``, watches through
``response.content.iter_chunked``.
"""

from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import msgspec
from aiohttp import ClientHandlerType, ClientRequest, ClientResponse
from msgspec import Raw, Struct

from clusterconform.contract.facts import NodeView, UnreadableNodeError, decode_node
from clusterconform.effects.metrics import Metrics

NODES_PATH: Final = "/api/v1/nodes"


class ForeignWriteError(RuntimeError):
    """Kopf tried to write; it must not, least of all to a Node."""


class _Event(Struct):
    type: str
    object: Raw


class _ListView(Struct, omit_defaults=True, rename="camel"):
    api_version: str | None = None
    kind: str | None = None
    metadata: Raw = Raw(b"{}")
    items: list[Raw] | None = None


class _Out(Struct):
    type: str
    object: NodeView


class _ListMetadata(Struct, rename={"token": "continue"}):
    token: str = ""


_EVENTS: Final = msgspec.json.Decoder(_Event)
_LISTS: Final = msgspec.json.Decoder(_ListView)


class NodeStream:
    """The middleware, and what it knows of the stream."""

    def __init__(
        self,
        metrics: Metrics,
        uptime: Callable[[], float],
        *,
        slim: bool = True,
        observe: Callable[[str, NodeView], None] | None = None,
    ) -> None:
        """Watch the stream.

        Args:
            metrics: Counts lines.
            uptime: The monotonic clock.
            slim: Whether to cut Nodes down; False only listens, and Kopf reads whole Nodes.
            observe: Told type and Node of each watch event that is news, instead of Kopf; None leaves them to
                Kopf. Its queue and tasks for each object cost 0.6 ms an event, more than all our own work on
                it, and a mass repair brings thousands.
        """
        self._observe = observe
        self._metrics, self._uptime, self.slim = metrics, uptime, slim
        self._known: dict[str, tuple[int, bytes]] = {}
        self._listed: set[str] | None = None
        self._vanished: list[bytes] = []
        self.last_byte: float | None = None
        self.last_attempt: float | None = None

    async def __call__(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        """Pass ``request`` on; wrap the answer where it brings Nodes.

        Raises:
            ForeignWriteError: For anything but a read.
        """
        if request.method != "GET":
            raise ForeignWriteError(f"refused: {request.method} {request.url.path}")
        if request.url.path != NODES_PATH:
            return await handler(request)
        self.last_attempt = self._uptime()
        response = await handler(request)
        if response.status == 200:  # noqa: PLR2004 - only a success brings Nodes
            first_page = "continue" not in request.url.query
            slim: Any = _SlimContent(response.content, self, first_page=first_page)
            response.content = slim
        return response

    def note(self, view: NodeView) -> None:
        """Remember ``view``, an answer to a write of ours, so that its echo is dropped.

        An answer that is older than what the stream has brought is no echo to come, and would hide a change back
        to it.
        """
        version, _ = self._known.get(view.metadata.name, (-1, b""))
        if _version(view) > version:
            self._remember(view)

    def _remember(self, view: NodeView) -> None:
        self._known[view.metadata.name] = (_version(view), _form(view))

    def slim_list(self, body: bytes, *, first_page: bool) -> bytes:
        """``body``, a page of a NodeList, with its items cut down; what is no list passes unchanged."""
        if not self.slim:
            return body
        if first_page:
            self._listed = set()
        try:
            page = _LISTS.decode(body)
            views = [decode_node(memoryview(item)) for item in page.items or ()]
            more = bool(msgspec.json.decode(page.metadata, type=_ListMetadata).token)
        except (msgspec.DecodeError, UnreadableNodeError):
            # A list with a page that cannot be read proves nobody's absence.
            self._listed = None
            return body
        for view in views:
            if self._listed is not None:
                self._listed.add(view.metadata.name)
            self._remember(view)
        if not more:
            self._find_vanished()
        page.items = [Raw(msgspec.json.encode(view)) for view in views]
        return msgspec.json.encode(page)

    def _find_vanished(self) -> None:
        if self._listed is None:
            return
        for name in self._known.keys() - self._listed:
            _, form = self._known.pop(name)
            self._vanished.append(_line("DELETED", msgspec.json.decode(form, type=NodeView)))

    def slim_line(self, line: bytes) -> tuple[bytes, str]:
        """One line of a watch, cut down and with its newline, and the resource version if it was dropped.

        A dropped line is empty. What cannot be read passes unchanged: Kopf's own handling of errors,
        bookmarks and rubbish stays as it is.
        """
        try:
            event = _EVENTS.decode(line)
            if event.type not in {"ADDED", "MODIFIED", "DELETED"}:
                return line + b"\n", ""
            view = decode_node(memoryview(event.object))
        except (msgspec.DecodeError, UnreadableNodeError):
            return line + b"\n", ""
        name, form = view.metadata.name, _form(view)
        if event.type == "DELETED":
            self._known.pop(name, None)
        elif self._known.get(name, (0, b""))[1] == form:
            self._metrics.stream_lines.labels("dropped").inc()
            return b"", view.metadata.resource_version or ""
        else:
            self._known[name] = (_version(view), form)
        self._metrics.stream_lines.labels("passed").inc()
        if self._observe is not None:
            self._observe(event.type, view)
            return b"", view.metadata.resource_version or ""
        return _line(event.type, view), ""

    def take_vanished(self) -> bytes:
        """The DELETED lines that are due, once."""
        lines, self._vanished = b"".join(self._vanished), []
        return lines

    def heard(self) -> None:
        """Bytes came."""
        self.last_byte = self._uptime()


class _SlimContent:
    """Stands in for a response's content; everything but the two ways in which Kopf reads is passed on."""

    def __init__(self, content: Any, stream: NodeStream, *, first_page: bool) -> None:
        self._content, self._stream, self._first_page = content, stream, first_page

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def read(self, n: int = -1) -> bytes:
        body: bytes = await self._content.read(n)
        self._stream.heard()
        return self._stream.slim_list(body, first_page=self._first_page)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        if not self._stream.slim:
            async for chunk in self._content.iter_chunked(size):
                self._stream.heard()
                yield chunk
            return
        vanished = self._stream.take_vanished()
        if vanished:
            yield vanished
        rest = b""
        async for chunk in self._content.iter_chunked(size):
            self._stream.heard()
            *lines, rest = (rest + chunk).split(b"\n")
            skipped = ""
            # One by one, since a line counts as told when it is taken, and a reader may stop at any.
            for line in filter(None, lines):
                slim, dropped = self._stream.slim_line(line)
                skipped = dropped or ("" if slim else skipped)
                if slim:
                    yield slim
            if skipped:
                # Without it a reconnect would resume before the dropped lines, and Kopf's inactivity timeout
                # would run although the stream is alive.
                yield _bookmark(skipped)
        if rest:
            yield self._stream.slim_line(rest)[0]


def _version(view: NodeView) -> int:
    version = view.metadata.resource_version or ""
    return int(version) if version.isdigit() else 0


def _form(view: NodeView) -> bytes:
    # Items of a list carry neither kind nor apiVersion, lines of a watch do.
    version, kind, api_version = view.metadata.resource_version, view.kind, view.api_version
    view.metadata.resource_version = view.kind = view.api_version = None
    form = msgspec.json.encode(view)
    view.metadata.resource_version, view.kind, view.api_version = version, kind, api_version
    return form


def _line(kind: str, view: NodeView) -> bytes:
    return msgspec.json.encode(_Out(kind, view)) + b"\n"


def _bookmark(version: str) -> bytes:
    metadata = {"resourceVersion": version}
    event = {"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "Node", "metadata": metadata}}
    return msgspec.json.encode(event) + b"\n"
