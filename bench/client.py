"""A bare client of the API server: aiohttp, a client certificate and bytes, and nothing that could be slow.

It sends what it is given over a fixed number of connections. That is the floor: no operator written in this
language can be faster on the same machine, so every time is also told as a ratio to this client's.
"""

import asyncio
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

import aiohttp
from msgspec import Struct

CONNECTIONS: Final = 32
"""As many as the operator has writers; against this API server more were no faster."""

NOW: Final = b"$NOW"
"""In a body: replaced by the time of sending."""

_SECONDS: Final = 60.0


class Credentials(Struct, frozen=True, kw_only=True):
    """Where the API server is, and the files with which a client is let in."""

    server: str
    authority: str
    certificate: str
    key: str


class Call(Struct, frozen=True):
    """One request."""

    method: str
    path: str
    content_type: str = ""
    body: bytes = b""


def open_session(credentials: Credentials, connections: int = CONNECTIONS) -> aiohttp.ClientSession:
    """Give a session; it opens its connections when they are needed."""
    tls = ssl.create_default_context(cafile=credentials.authority)
    tls.load_cert_chain(credentials.certificate, credentials.key)
    return aiohttp.ClientSession(
        base_url=credentials.server,
        connector=aiohttp.TCPConnector(ssl=tls, limit=connections),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=_SECONDS),
    )


async def send(session: aiohttp.ClientSession, call: Call) -> tuple[int, bytes]:
    """Send one request; give status and body of the answer."""
    headers = {"Content-Type": call.content_type} if call.content_type else None
    body = call.body.replace(NOW, _now()) if NOW in call.body else call.body
    async with session.request(call.method, call.path, data=body or None, headers=headers) as response:
        return response.status, await response.read()


async def get(session: aiohttp.ClientSession, path: str) -> bytes:
    """Read ``path``.

    Raises:
        RuntimeError: the answer is not a success.
    """
    status, body = await send(session, Call("GET", path))
    if status != 200:  # noqa: PLR2004 - what HTTP calls success
        raise RuntimeError(f"GET {path}: {status} {body[:200].decode(errors='replace')}")
    return body


async def send_all(session: aiohttp.ClientSession, calls: Iterable[Call], connections: int) -> Counter[int]:
    """Send ``calls`` as fast as the API server takes them; count the answers by status."""
    pending, codes = iter(calls), Counter[int]()
    async with asyncio.TaskGroup() as workers:
        for _ in range(connections):
            workers.create_task(_work(session, pending, codes))
    return codes


async def send_paced(
    session: aiohttp.ClientSession, calls: list[Call], *, per_second: float, seconds: float
) -> Counter[int]:
    """Send ``calls`` in turn, over and over, at a steady rate; count the answers by status."""
    codes = Counter[int]()
    started = time.monotonic()
    async with asyncio.TaskGroup() as flights:
        for number in range(int(per_second * seconds)):
            wait = started + number / per_second - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            flights.create_task(_work(session, iter([calls[number % len(calls)]]), codes))
    return codes


async def lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Cut the body of a watch into its lines."""
    rest = b""
    async for chunk in response.content.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line


async def _work(session: aiohttp.ClientSession, pending: Iterator[Call], codes: Counter[int]) -> None:
    for call in pending:
        status, _ = await send(session, call)
        codes[status] += 1


def _now() -> bytes:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ").encode()
