"""The work queue: each key once, one worker per key at a time, bounded workers, backoff per key.

Events only say that something is due; what to do is worked out from the newest facts when a worker gets
there, so a burst of events for one node costs one decision.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from clusterconform.effects.metrics import Metrics

log = logging.getLogger(__name__)

WORKERS: Final = 32
"""Writers at once: against a real API server 8 connections wrote 430 patches/s, 32 wrote 960, 100 no more."""

_FIRST_BACKOFF: Final = 0.05
_LAST_BACKOFF: Final = 60.0


class WorkQueue:
    """Keys that are due, and those that will be."""

    def __init__(self, work: Callable[[str], Awaitable[None]], metrics: Metrics) -> None:
        """Call ``work`` with each key that is due; it must not raise what it can handle itself."""
        self._work, self._metrics = work, metrics
        self._ready: deque[str] = deque()
        self._queued: set[str] = set()
        self._busy: set[str] = set()
        self._again: set[str] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._failures: dict[str, int] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        """Keys waiting for a worker."""
        return len(self._ready)

    def add(self, key: str) -> None:
        """``key`` is due now."""
        if key in self._busy:
            self._again.add(key)
            return
        if key in self._queued:
            return
        self._queued.add(key)
        self._ready.append(key)
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                break

    def add_after(self, key: str, seconds: float) -> None:
        """``key`` is due in ``seconds``; an earlier appointment stays, a later one is replaced."""
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= loop.time() + seconds:
                return
            timer.cancel()
        self._timers[key] = loop.call_later(seconds, self._ring, key)

    def retry(self, key: str, at_least: float = 0.0) -> float:
        """``key`` failed: due again after a backoff that doubles; returns the seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        pause = max(at_least, min(_FIRST_BACKOFF * 2.0 ** min(failures, 16), _LAST_BACKOFF))
        self.add_after(key, pause)
        return pause

    def succeeded(self, key: str) -> None:
        """``key`` went well: the next failure starts with the shortest backoff."""
        self._failures.pop(key, None)

    def forget(self, key: str) -> None:
        """``key`` is gone: no appointment, no backoff."""
        self._failures.pop(key, None)
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    async def run(self) -> None:
        """Work, for ever."""
        async with asyncio.TaskGroup() as workers:
            for number in range(WORKERS):
                workers.create_task(self._worker(), name=f"node worker {number}")

    def _ring(self, key: str) -> None:
        self._timers.pop(key, None)
        self.add(key)

    async def _worker(self) -> None:
        while True:
            while not self._ready:
                waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiting.append(waiter)
                await waiter
            key = self._ready.popleft()
            self._queued.discard(key)
            self._busy.add(key)
            self._metrics.queue_depth.set(len(self._ready))
            try:
                # Work that never waits would keep timers, probes and the watch waiting until all of it is done.
                await asyncio.sleep(0)
                await self._work(key)
            except Exception:
                # A defect must not take the other nodes down with it, nor hide: it is logged whole, and the
                # node waits longer each time.
                log.exception("a decision failed", extra={"fields": {"node": key}})
                self.retry(key, at_least=1.0)
            finally:
                self._busy.discard(key)
                if key in self._again:
                    self._again.discard(key)
                    self.add(key)
