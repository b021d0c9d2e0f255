"""The API client: one way for every request, with the write fence in front of each write.

Where the API server asks to wait (Retry-After), no request of that kind is sent before the time is over, whoever
wants it: each caller has a pause of its own, and thousands of nodes want the same kind of write.

Bodies are JSON values and answers are bytes: the caller decodes just what it reads.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from clusterconform.contract.request import Request
from clusterconform.contract.times import Moment
from clusterconform.effects.clock import Clock
from clusterconform.effects.connection import Connection, ConnectionConfigError
from clusterconform.effects.errors import (
    ApiError,
    BusyError,
    FencedError,
    UnauthorizedError,
    UnreachableError,
    error_of,
)
from clusterconform.effects.metrics import Metrics

_TIMEOUT_SECONDS: Final = 10.0
_PAGE: Final = 500
# A server asks for seconds; nobody is to be silent for hours because of a slip in a header.
_LONGEST_WAIT: Final = 300.0


class _PageView(msgspec.Struct):
    class _Metadata(msgspec.Struct, rename={"token": "continue"}):
        token: str = ""

    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


_PAGE_DECODER: Final = msgspec.json.Decoder(_PageView)


class Cluster:
    """Sends requests and maps what comes back to our errors."""

    def __init__(
        self,
        connection: Connection,
        metrics: Metrics,
        clock: Clock,
        may_write: Callable[[float], bool],
        *,
        write_seconds: float = _TIMEOUT_SECONDS,
        longest_wait: float = _LONGEST_WAIT,
    ) -> None:
        """Send over ``connection``.

        Args:
            connection: Where to; opened.
            metrics: Counts requests by verb and code.
            clock: Tells when an answer came.
            may_write: The fence, asked immediately before each request that is not a read, with the seconds
                that the request may take.
            write_seconds: How long a write may take; longer than the fence ever promises, and none is sent.
            longest_wait: How long we wait at the most where the API server asks us to; seconds.
        """
        self._connection, self._metrics = connection, metrics
        self._write_seconds = min(write_seconds, _TIMEOUT_SECONDS)
        self._clock, self._may_write = clock, may_write
        self._longest_wait = longest_wait
        self._waits: dict[str, float] = {}
        self._session = connection.session()
        self._last_date = ""
        self.server_date: tuple[datetime, Moment] | None = None
        """The last Date header, and when it came: how far our clock is from the API server's."""

    async def close(self) -> None:
        """Close the sockets."""
        await self._session.close()

    async def send(self, request: Request, *, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        """Send ``request`` and return the body of the answer.

        Args:
            request: What to send.
            timeout: Seconds for the whole exchange; None for what is usual.

        Raises:
            FencedError: It is a write and we may not write now; nothing was sent.
            BusyError: The API server asked to wait, just now or lately; in the second case nothing was sent.
            ApiError: What the API server said, or that it said nothing.
        """
        if timeout is None:
            timeout = _TIMEOUT_SECONDS if request.method == "GET" else self._write_seconds
        try:
            return await self._send_once(request, timeout)
        except UnauthorizedError:
            # A token may have been replaced where it came from; a second refusal is the server's word.
            try:
                await self._connection.open()
            except ConnectionConfigError as error:
                raise UnauthorizedError(str(error)) from error
            return await self._send_once(request, timeout)

    async def _send_once(self, request: Request, timeout: float) -> bytes:  # noqa: ASYNC109
        self._wait_is_over(request)
        if request.method != "GET" and not self._may_write(timeout):
            raise FencedError(f"not sent, since we may not write now: {request.method} {request.path}")
        data = None if request.body is None else msgspec.json.encode(request.body)
        headers = {"Content-Type": request.content_type} if request.content_type else {}
        try:
            async with self._session.request(
                request.method,
                # Our paths are encoded; taking them apart again costs as much as the rest of the request.
                URL(self._connection.server + request.path, encoded=True),
                data=data,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=timeout),
            ) as response:
                answer = await response.read()
                self._metrics.requests.labels(request.method, str(response.status)).inc()
                self._note_date(response.headers.get("Date", ""))
                if response.status < 400:  # noqa: PLR2004 - what HTTP calls success
                    return answer
                refusal = error_of(response.status, _status_object(answer), response.headers.get("Retry-After"))
                if refusal.retry_after is not None:
                    wait = min(refusal.retry_after, self._longest_wait)
                    self._waits[request.kind] = self._clock.uptime() + wait
                raise refusal
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._metrics.requests.labels(request.method, "none").inc()
            raise UnreachableError(_words(error)) from error

    def _wait_is_over(self, request: Request) -> None:
        """Make sure that the API server does not want us to wait with ``request``.

        Raises:
            BusyError: It does.
        """
        if not self._waits or (until := self._waits.get(request.kind)) is None:
            return
        left = until - self._clock.uptime()
        if left <= 0:
            del self._waits[request.kind]
            return
        # Without the seconds: whoever tells of it would tell something new each time.
        busy = BusyError(f"not sent, since the API server asked to wait: {request.kind}")
        busy.retry_after = left
        raise busy

    def _note_date(self, header: str) -> None:
        # Whole seconds, so each text is parsed once: a clock that is off by less is nobody's worry.
        if header == self._last_date:
            return
        self._last_date = header
        try:
            date = parsedate_to_datetime(header)
        except ValueError:
            return
        # "-0000" tells no zone; HTTP knows only GMT.
        date = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
        self.server_date = (date, self._clock.moment())

    async def get(self, path: str) -> Any:
        """The object at ``path`` as JSON values.

        Raises:
            ApiError: As ``send``.
        """
        return decoded(await self.send(Request(method="GET", path=path)))

    async def pages(self, path: str) -> AsyncIterator[bytes]:
        """The list at ``path``, page by page; complete only when the iteration ends without an error.

        Raises:
            GoneError: The continue token grew too old; what was yielded is no whole list.
            ApiError: As ``send``.
        """
        token = ""
        while True:
            query = f"{path}{'&' if '?' in path else '?'}limit={_PAGE}" + (
                f"&continue={quote(token)}" if token else ""
            )
            page = await self.send(Request(method="GET", path=query), timeout=3 * _TIMEOUT_SECONDS)
            try:
                token = _PAGE_DECODER.decode(page).metadata.token
            except msgspec.DecodeError as error:
                raise UnreachableError(f"the list at {path} is no list: {error}") from error
            yield page
            if not token:
                return


def decoded(answer: bytes) -> Any:
    """``answer`` as JSON values.

    Raises:
        UnreachableError: It is none, as a proxy in between may send: no answer that means anything.
    """
    try:
        return msgspec.json.decode(answer)
    except msgspec.DecodeError as error:
        raise UnreachableError(f"the answer is no JSON: {error}") from error


async def answered(cluster: Cluster, path: str, tell: Callable[[str], None]) -> Any:
    """GET ``path``, waiting for an API server that is not there yet, for ever.

    Args:
        cluster: The API client.
        path: What to read.
        tell: Told in one line why we wait, once for each cause.

    Raises:
        ApiError: Any answer that waiting will not change (404, 403, ...).
    """
    told, pause = "", 0.5
    while True:
        try:
            return await cluster.get(path)
        except (UnreachableError, BusyError) as error:
            if str(error) != told:
                told = str(error)
                tell(told)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 15.0)


def _status_object(answer: bytes) -> Mapping[str, Any]:
    try:
        value = msgspec.json.decode(answer)
    except msgspec.DecodeError:
        return {"message": answer[:200].decode(errors="replace").strip()}
    return value if isinstance(value, Mapping) else {}


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__


__all__ = ["ApiError", "Cluster", "answered"]
