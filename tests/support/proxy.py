"""A fault proxy between the operator and the API server, in a thread of the test's process.

The operator reaches it by plain HTTP through a kubeconfig of the proxy's, with its own token; the proxy reaches
the API server by TLS, over a new connection for each request, so that it never sends one twice itself. What it
does at the k-th request that matches is told beforehand::

    with FaultProxy(account, directory, name="first") as proxy, operator(proxy.kubeconfig):
        hold = proxy.hold(is_delete, when=When.BEFORE)
        hold.wait()      # the request has arrived, and is not forwarded yet
        hold.release()
"""

import asyncio
import base64
import json
import ssl
import threading
from collections.abc import Callable
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
    """One request and what became of it; watches are none.

    Attributes:
        number: Its place in the order of arrival, from 1.
        method: HTTP method.
        path: Without the query.
        query: The query.
        body: As JSON, None without one.
        status: Of the API server's answer; 0 before that, or where none came.
        audit: Its number in the audit log; empty before the answer.
    """

    number: int
    method: str
    path: str
    query: str
    body: Any
    status: int = 0
    audit: str = ""

    @property
    def name(self) -> str:
        """The last word of the path: an object's name, or a collection's."""
        return self.path.rpartition("/")[2]


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
class _Fault:
    matches: Matches
    nth: int
    when: When
    act: Callable[[Exchange], object]
    cut: bool
    seen: set[int] = field(default_factory=set)
    done: bool = False

    def is_at(self, exchange: Exchange, when: When) -> bool:
        """Whether this is the request and the end of it; each fault happens once."""
        if when is not self.when or self.done or not self.matches(exchange):
            return False
        self.seen.add(exchange.number)
        self.done = len(self.seen) == self.nth
        return self.done


class FaultProxy:
    """The proxy, from entering the block to its end.

    Attributes:
        kubeconfig: The way to it.
        exchanges: All requests but watches, in order of arrival.
        watches: How many watches were opened.
    """

    def __init__(self, account: Path, directory: Path, *, name: str = "") -> None:
        """Stand before the API server of ``account``.

        Args:
            account: A kubeconfig of one cluster with its authority, and one user with a token.
            directory: Where the proxy's own kubeconfig is written.
            name: Added to the User-Agent of each request, by which the audit log then tells operators apart.
        """
        self.exchanges: list[Exchange] = []
        self.watches = 0
        self._config = json.loads(account.read_text())
        self._cluster = self._config["clusters"][0]["cluster"]
        self._server = self._cluster["server"]
        self._name = name
        self._faults: list[_Fault] = []
        self._busy: set[asyncio.Future[web.StreamResponse]] = set()
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
        with self._guard:
            self._faults.append(_Fault(matches=matches, nth=nth, when=when, act=act, cut=cut))

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
        if request.query.get("watch") == "true":
            self.watches += 1
            return await self._stream(request)
        exchange = self._note(request, content)
        if await self._met(exchange, When.BEFORE):
            return _broken(request)
        try:
            async with self._sent(request, content) as answer:
                body = await answer.read()
        except (aiohttp.ClientError, OSError):
            return _broken(request)
        exchange.status, exchange.audit = answer.status, answer.headers.get("Audit-Id", "")
        if await self._met(exchange, When.AFTER):
            return _broken(request)
        return web.Response(status=answer.status, body=body, headers=_kept(answer.headers))

    def _note(self, request: web.Request, content: bytes) -> Exchange:
        with self._guard:
            exchange = Exchange(
                number=len(self.exchanges) + 1,
                method=request.method,
                path=request.path,
                query=request.query_string,
                body=json.loads(content) if content else None,
            )
            self.exchanges.append(exchange)
        return exchange

    async def _met(self, exchange: Exchange, when: When) -> bool:
        """Do what was told for this point; whether the connection is to be broken."""
        with self._guard:
            faults = [fault for fault in self._faults if fault.is_at(exchange, when)]
        for fault in faults:
            await asyncio.to_thread(fault.act, exchange)
        return any(fault.cut for fault in faults)

    def _sent(self, request: web.Request, content: bytes) -> Any:
        headers = _kept(request.headers)
        if self._name:
            headers["User-Agent"] = f"{headers.get('User-Agent', '')} ({self._name})"
        url = URL(self._server + request.raw_path, encoded=True)
        return self._session.request(request.method, url, headers=headers, data=content or None)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        try:
            async with self._sent(request, b"") as answer:
                response = web.StreamResponse(status=answer.status, headers=_kept(answer.headers))
                await response.prepare(request)
                while not self._stop.is_set() and _listens(request):
                    try:
                        chunk = await asyncio.wait_for(answer.content.readany(), _GLANCE_SECONDS)
                    except TimeoutError:
                        continue
                    if not chunk:
                        break
                    await response.write(chunk)
        except (aiohttp.ClientError, OSError):
            return _broken(request)
        return response


def _kept(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _HOP_BY_HOP}


def _listens(request: web.Request) -> bool:
    return request.transport is not None and not request.transport.is_closing()


def _broken(request: web.Request) -> web.Response:
    """Break the connection; what is returned reaches nobody."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=502)
