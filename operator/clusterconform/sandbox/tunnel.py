"""What stands in for the tunnel between API server and agents: many addresses, one kubelet behind them all.

The API server dials an agent by the loopback address and the port that are published for it. Each such
endpoint is opened here and leads to the port on which kwok answers for all its nodes. One thread carries the
traffic.
"""

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

_CHUNK_BYTES: Final = 64 * 1024
_OPEN_SECONDS: Final = 10.0

Result = TypeVar("Result")


class Tunnel:
    """Forwards TCP connections from any number of loopback endpoints to one port on 127.0.0.1."""

    def __init__(self, port: int) -> None:
        """Start the thread; nothing listens yet. ``port`` is where the connections are to end."""
        self._port = port
        self._loop = asyncio.new_event_loop()
        self._servers: dict[tuple[str, int], asyncio.Server] = {}
        self._open: dict[tuple[str, int], set[asyncio.StreamWriter]] = {}
        self._thread = threading.Thread(target=self._loop.run_forever, name="tunnel", daemon=True)
        self._thread.start()

    @property
    def endpoints(self) -> list[tuple[str, int]]:
        """The addresses and ports that are open."""
        return list(self._servers)

    def open(self, address: str, port: int) -> None:
        """Listen on an endpoint; one that is open already stays so.

        Raises:
            OSError: it is taken, or no address of this machine.
        """
        if (address, port) not in self._servers:
            serve = partial(self._serve, self._open.setdefault((address, port), set()))
            self._servers[address, port] = self._run(asyncio.start_server(serve, address, port))

    def shut(self, address: str, port: int) -> None:
        """Listen no more on an endpoint, as if its agent's tunnel had broken; open connections live on."""
        server = self._servers.pop((address, port), None)
        if server is not None:
            self._run(_close(server))

    def cut(self, address: str, port: int) -> None:
        """Shut an endpoint and drop its connections, as if its agent's machine had lost the network."""
        self.shut(address, port)
        self._run(_abort(self._open.get((address, port), set())))

    def close(self) -> None:
        """Shut all endpoints, drop the connections, and end the thread. May be called again."""
        if self._loop.is_closed():
            return
        for endpoint in self.endpoints:
            self.shut(*endpoint)
        self._run(_cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _serve(
        self, held: set[asyncio.StreamWriter], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        held.add(writer)
        try:
            await self._forward(reader, writer)
        finally:
            held.discard(writer)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:  # nobody there: the caller sees a closed connection, as with a dead agent
            writer.close()
            return
        with suppress(OSError, asyncio.CancelledError):
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        far_writer.close()
        writer.close()

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_OPEN_SECONDS)


async def _abort(writers: set[asyncio.StreamWriter]) -> None:
    for writer in writers:
        writer.transport.abort()


async def _close(server: asyncio.Server) -> None:
    server.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(_CHUNK_BYTES):
        writer.write(chunk)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
