"""A fault proxy between the operator and the API server, in a thread of the test's process.

The operator reaches it by plain HTTP through a kubeconfig of the proxy's, with its own token; the proxy reaches
the API server by TLS, over a new connection for each request, so that it never sends one twice itself. What it
does at the k-th request that matches is told beforehand::

    with FaultProxy(account, directory, name="first") as proxy, operator(proxy.kubeconfig):
        hold = proxy.hold(is_delete, when=When.BEFORE)
        hold.wait()      # the request has arrived, and is not forwarded yet
        hold.release()

or for as long as a block lasts, to each of them::

        with proxy.answering(is_patch, Reply(429, headers={"Retry-After": "5"})):
            ...

And what happens to whoever is connected happens at once: ``cut_watches``, ``expire_watches``, ``freeze``.
"""

import asyncio
import base64
import json
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
from aiohttp import web
from yarl import URL

Json = dict[str, Any]

_HOP_BY_HOP: Final = frozenset({"host", "connection", "keep-alive", "transfer-encoding", "content-length"})
_WAIT_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 0.01
# How soon a silent watch notices that nobody listens any more.
_GLANCE_SECONDS: Final = 0.2


class When(Enum):
    """At which end of a request something is done."""

    BEFORE = "before it is forwarded"
    AFTER = "after it was answered"


@dataclass(slots=True)
class Exchange:
    """One request and what became of it.

    Attributes:
        number: Its place in the order of arrival, from 1; watches have an order of their own.
        method: HTTP method.
        path: Without the query.
        query: The query, as it came.
        body: As JSON, None without one.
        status: Of the API server's answer; 0 before that, or where none came.
        audit: Its number in the audit log; empty before the answer.
        at: When it came, in seconds of the monotonic clock.
        is_watch: Whether it is a watch.
        more: Whether the answer is a page of a list that other pages follow.
    """

    number: int
    method: str
    path: str
    query: str
    body: Any
    status: int = 0
    audit: str = ""
    at: float = field(default=0.0, compare=False)
    is_watch: bool = field(default=False, compare=False)
    more: bool = field(default=False, compare=False)

    @property
    def name(self) -> str:
        """The last word of the path: an object's name, or a collection's."""
        return self.path.rpartition("/")[2]

    @property
    def is_last_page(self) -> bool:
        """Whether the answer is the last page of a list that has several; told when it has been answered."""
        return "continue=" in self.query and not self.more


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer in the place of the API server's: a Status, as it would send one.

    Attributes:
        status: HTTP status.
        reason: The word for programs, as Expired.
        headers: Such as Retry-After.
    """

    status: int
    reason: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def body(self) -> Json:
        """The Status object."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": f"the proxy says {self.status}",
            "reason": self.reason,
            "code": self.status,
        }

    def response(self) -> web.Response:
        """As it is sent."""
        return web.json_response(self.body, status=self.status, headers=dict(self.headers))


Matches = Callable[[Exchange], bool]


class Hold:
    """A request that waits for the test's word."""

    def __init__(self) -> None:
        self.exchange: Exchange | None = None
        self._reached, self._released = threading.Event(), threading.Event()

    def __call__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self._reached.set()
        self._released.wait(_WAIT_SECONDS)

    def wait(self, seconds: float = _WAIT_SECONDS) -> Exchange:
        """Wait until the request has come to that point."""
        assert self._reached.wait(seconds), "no such request came"
        assert self.exchange is not None
        return self.exchange

    def release(self) -> None:
        """Let it go on."""
        self._released.set()

    close = release


@dataclass(slots=True, kw_only=True)
class Fault:
    """What is done to requests that match.

    Attributes:
        met: How many matched so far.
        done: Whether it is over.
    """

    matches: Matches
    when: When
    nth: int = 0
    act: Callable[[Exchange], object] | None = None
    reply: Reply | None = None
    delay: float = 0.0
    cut: bool = False
    met: int = 0
    done: bool = False

    def is_at(self, exchange: Exchange, when: When) -> bool:
        """Whether this is the request and the end of it: the ``nth``, once, or each where that is 0."""
        if when is not self.when or self.done or not self.matches(exchange):
            return False
        self.met += 1
        if self.nth == 0:
            return True
        self.done = self.met == self.nth
        return self.done


@dataclass(slots=True, kw_only=True, eq=False)
class _Watch:
    """A watch that is open, and what is to become of it."""

    exchange: Exchange
    transport: asyncio.Transport | None
    last: bytes = b""
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class FaultProxy:
    """The proxy, from entering the block to its end.

    Attributes:
        kubeconfig: The way to it.
        exchanges: All requests but watches, in order of arrival.
        watched: All watches, in order of arrival.
        page: How many items a page of a list has at the most; None for as many as were asked for. The pages and
            their tokens are the API server's, which is asked for fewer.
    """

    def __init__(self, account: Path, directory: Path, *, name: str = "") -> None:
        """Stand before the API server of ``account``.

        Args:
            account: A kubeconfig of one cluster with its authority, and one user with a token.
            directory: Where the proxy's own kubeconfig is written.
            name: Added to the User-Agent of each request, by which the audit log then tells operators apart.
        """
        self.exchanges: list[Exchange] = []
        self.watched: list[Exchange] = []
        self.page: int | None = None
        self._config = json.loads(account.read_text())
        self._cluster = self._config["clusters"][0]["cluster"]
        self._server = self._cluster["server"]
        self._name = name
        self._faults: list[Fault] = []
        self._busy: set[asyncio.Future[web.StreamResponse]] = set()
        self._open: set[_Watch] = set()
        self._connected: set[asyncio.Transport] = set()
        self._frozen: set[asyncio.Transport] = set()
        self._guard = threading.Lock()
        self._up, self._stop = threading.Event(), asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=f"proxy {name}")
        self.kubeconfig = directory / f"through-proxy-{name or 'of-test'}.json"

    def __enter__(self) -> Self:
        """Listen."""
        self._thread.start()
        assert self._up.wait(_WAIT_SECONDS), "the proxy does not listen"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End; whoever still waits is cut off."""
        for fault in self._faults:
            if isinstance(fault.act, Hold):
                fault.act.release()
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_WAIT_SECONDS)
        assert not self._thread.is_alive()

    def at(
        self, matches: Matches, act: Callable[[Exchange], object], *, nth: int = 1, when: When, cut: bool = False
    ) -> None:
        """Call ``act`` at the ``nth`` request from now on that matches; the request waits for it.

        Args:
            matches: Which requests are counted.
            act: What to do, in a thread of its own.
            nth: Which of them it is, from 1.
            when: At which end of it.
            cut: Afterwards break the connection: the request is not forwarded, or its answer is lost.
        """
        self._add(Fault(matches=matches, nth=nth, when=when, act=act, cut=cut))

    def answer(self, matches: Matches, reply: Reply, *, nth: int = 1, when: When = When.BEFORE) -> None:
        """Answer the ``nth`` request that matches in the API server's place, without or with its effect."""
        self._add(Fault(matches=matches, nth=nth, when=when, reply=reply))

    @contextmanager
    def answering(self, matches: Matches, reply: Reply, *, when: When = When.BEFORE) -> Iterator[Fault]:
        """Answer each request that matches, for the length of the block."""
        with self._for_a_while(Fault(matches=matches, when=when, reply=reply)) as fault:
            yield fault

    @contextmanager
    def slow(self, matches: Matches, seconds: float, *, when: When = When.AFTER) -> Iterator[Fault]:
        """Let each request that matches wait, or its answer, for the length of the block; others pass."""
        with self._for_a_while(Fault(matches=matches, when=when, delay=seconds)) as fault:
            yield fault

    def cut_watches(self, matches: Matches = lambda _: True) -> None:
        """Break the connections of the watches that are open and match."""

        def cut(watch: _Watch) -> None:
            if watch.transport is not None:
                watch.transport.abort()

        self._upon_watches(matches, cut)

    def expire_watches(self, matches: Matches = lambda _: True, reply: Reply | None = None) -> None:
        """End the watches that are open and match with an ERROR event, 410 Gone unless ``reply`` says another."""
        status = (reply or Reply(410, reason="Expired")).body
        line = json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"

        def end(watch: _Watch) -> None:
            watch.last = line
            watch.ended.set()

        self._upon_watches(matches, end)

    def freeze(self) -> int:
        """Let every connection that is open now be silent for ever, without an end: half-open; how many.

        What comes over them is swallowed. New connections are as good as ever.
        """

        async def freeze() -> int:
            self._frozen |= {seen for seen in self._connected if not seen.is_closing()}
            return len(self._frozen)

        return asyncio.run_coroutine_threadsafe(freeze(), self._loop).result(_WAIT_SECONDS)

    def _upon_watches(self, matches: Matches, act: Callable[[_Watch], None]) -> None:
        async def upon_all() -> None:
            for watch in list(self._open):
                if matches(watch.exchange):
                    act(watch)

        asyncio.run_coroutine_threadsafe(upon_all(), self._loop).result(_WAIT_SECONDS)

    def _add(self, fault: Fault) -> None:
        with self._guard:
            self._faults.append(fault)

    @contextmanager
    def _for_a_while(self, fault: Fault) -> Iterator[Fault]:
        self._add(fault)
        try:
            yield fault
        finally:
            with self._guard:
                fault.done = True
                self._faults.remove(fault)

    def hold(self, matches: Matches, *, nth: int = 1, when: When, cut: bool = False) -> Hold:
        """Hold the ``nth`` request that matches until it is released."""
        hold = Hold()
        self.at(matches, hold, nth=nth, when=when, cut=cut)
        return hold

    def cut(self, matches: Matches, *, nth: int = 1, when: When) -> None:
        """Break the connection of the ``nth`` request that matches, without or with its effect."""
        self.at(matches, lambda _: None, nth=nth, when=when, cut=True)

    def seen(self, matches: Matches) -> list[Exchange]:
        """The requests so far that match."""
        return [exchange for exchange in list(self.exchanges) if matches(exchange)]

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        authority = base64.b64decode(self._cluster["certificate-authority-data"]).decode()
        # A connection of its own for each request: over a used one aiohttp would send it again when it breaks.
        connector = aiohttp.TCPConnector(
            ssl=ssl.create_default_context(cadata=authority), force_close=True, limit=0
        )
        async with aiohttp.ClientSession(
            connector=connector, auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None)
        ) as self._session:
            app = web.Application(client_max_size=2**24)
            app.router.add_route("*", "/{path:.*}", self._handle)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self._write_kubeconfig(runner.addresses[0][1])
            self._up.set()
            await self._stop.wait()
            # Or their sockets would outlive the loop.
            await asyncio.gather(*self._busy, return_exceptions=True)
            await runner.cleanup()
        # A transport is closed some rounds after it was told to.
        async with asyncio.timeout(_WAIT_SECONDS):
            while any(transport._sock is not None for transport in self._transports()):  # noqa: ASYNC110 - none tells
                await asyncio.sleep(_PAUSE_SECONDS)

    def _transports(self) -> list[Any]:
        # No public name tells of them; those without a socket are only waiting to be forgotten.
        return list(self._loop._transports.values())  # type: ignore[attr-defined]

    def _write_kubeconfig(self, port: int) -> None:
        cluster = {"server": f"http://127.0.0.1:{port}"}
        clusters = [{"name": self._config["clusters"][0]["name"], "cluster": cluster}]
        self.kubeconfig.write_text(json.dumps({**self._config, "clusters": clusters}))

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        task = asyncio.ensure_future(self._pass_on(request))
        self._busy.add(task)
        task.add_done_callback(self._busy.discard)
        return await task

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        content = await request.read()
        self._remember(request)
        if request.transport in self._frozen:
            return await self._swallowed(request)
        exchange = self._note(request, content)
        if (instead := await self._met(request, exchange, When.BEFORE)) is not None:
            return instead
        if exchange.is_watch:
            return await self._stream(request, exchange)
        return await self._forwarded(request, content, exchange)

    async def _forwarded(self, request: web.Request, content: bytes, exchange: Exchange) -> web.StreamResponse:
        try:
            async with self._sent(request, content) as answer:
                body = await answer.read()
        except (aiohttp.ClientError, OSError):
            return _broken(request)
        exchange.status, exchange.audit = answer.status, answer.headers.get("Audit-Id", "")
        if "limit=" in exchange.query:
            exchange.more = _goes_on(body)
        if (instead := await self._met(request, exchange, When.AFTER)) is not None:
            return instead
        if request.transport in self._frozen:
            return await self._swallowed(request)
        return web.Response(status=answer.status, body=body, headers=_kept(answer.headers))

    def _remember(self, request: web.Request) -> None:
        self._connected = {seen for seen in self._connected if not seen.is_closing()}
        self._frozen &= self._connected
        if request.transport is not None:
            self._connected.add(request.transport)

    async def _swallowed(self, request: web.Request) -> web.Response:
        """Wait until the other side gives the connection up; it gets nothing."""
        while not self._stop.is_set() and _listens(request):  # noqa: ASYNC110 - none tells
            await asyncio.sleep(_GLANCE_SECONDS)
        return _broken(request)

    def _note(self, request: web.Request, content: bytes) -> Exchange:
        is_watch = request.query.get("watch") == "true"
        with self._guard:
            order = self.watched if is_watch else self.exchanges
            exchange = Exchange(
                number=len(order) + 1,
                method=request.method,
                path=request.path,
                query=request.query_string,
                body=json.loads(content) if content else None,
                at=time.monotonic(),
                is_watch=is_watch,
            )
            order.append(exchange)
        return exchange

    async def _met(self, request: web.Request, exchange: Exchange, when: When) -> web.Response | None:
        """Do what was told for this point; what is answered instead, or None where all goes on."""
        with self._guard:
            faults = [fault for fault in self._faults if fault.is_at(exchange, when)]
        for fault in faults:
            if fault.act is not None:
                await asyncio.to_thread(fault.act, exchange)
            await asyncio.sleep(fault.delay)
        if any(fault.cut for fault in faults):
            return _broken(request)
        replies = [fault.reply for fault in faults if fault.reply is not None]
        return replies[0].response() if replies else None

    def _sent(self, request: web.Request, content: bytes) -> Any:
        headers = _kept(request.headers)
        if self._name:
            headers["User-Agent"] = f"{headers.get('User-Agent', '')} ({self._name})"
        path = request.raw_path
        if self.page is not None:
            path = re.sub(r"(?<=[?&])limit=\d+", f"limit={self.page}", path)
        url = URL(self._server + path, encoded=True)
        return self._session.request(request.method, url, headers=headers, data=content or None)

    async def _stream(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        watch = _Watch(exchange=exchange, transport=request.transport)
        self._open.add(watch)
        try:
            async with self._sent(request, b"") as answer:
                exchange.status = answer.status
                response = web.StreamResponse(status=answer.status, headers=_kept(answer.headers))
                await response.prepare(request)
                whole = True
                while not self._stop.is_set() and _listens(request) and not (whole and watch.ended.is_set()):
                    try:
                        chunk = await asyncio.wait_for(answer.content.readany(), _GLANCE_SECONDS)
                    except TimeoutError:
                        continue
                    if request.transport in self._frozen:
                        return await self._swallowed(request)
                    if not chunk:
                        break
                    await response.write(chunk)
                    whole = chunk.endswith(b"\n")
                if watch.last:
                    await response.write(watch.last)
        except (aiohttp.ClientError, OSError):
            return _broken(request)
        finally:
            self._open.discard(watch)
        return response


def _goes_on(body: bytes) -> bool:
    try:
        return bool(json.loads(body)["metadata"].get("continue"))
    except (ValueError, LookupError, TypeError, AttributeError):
        return False


def _kept(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _HOP_BY_HOP}


def _listens(request: web.Request) -> bool:
    return request.transport is not None and not request.transport.is_closing()


def _broken(request: web.Request) -> web.Response:
    """Break the connection; what is returned reaches nobody."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=502)
