"""Leader election on a Lease: of all processes, at most one leads.

1. A process leads from the moment a write of its name was answered, and until ``deadline`` after the start of
   the last write that was answered. What got no answer counts for nothing, even if it was carried out.
2. A standby takes the Lease only by compare-and-swap on a record that it saw unchanged for the whole
   ``duration``, which is longer than the deadline, or that was released. It counts from the arrival of the
   first answer that showed the record, so never from before it was written.
3. A Lease that is absent is created without a holder and then waited for like any other: a leader may live
   whose Lease was deleted.
4. All waiting is measured on the monotonic clock. The wall clock only goes into the Lease's times, which
   nobody of ours ever compares with a clock.
5. Whoever has lost does not lead again: a new process does, under a new name.

This does not stop a request that was sent and then delayed; see ``Cluster`` for the fence before each one.
"""

import asyncio
import logging
import math
import os
import secrets
import socket
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final, NoReturn

from clusterconform.contract.lease import (
    LEASE_PATH,
    LeaseRecord,
    LeaseTimings,
    Term,
    UnreadableLeaseError,
    read_lease,
    unheld,
)
from clusterconform.contract.request import Request
from clusterconform.effects.clock import Clock
from clusterconform.effects.cluster import Cluster, decoded
from clusterconform.effects.errors import ApiError, ConflictError, NotFoundError, UnreachableError

log = logging.getLogger(__name__)

_READ: Final = Request(method="GET", path=LEASE_PATH)

# Timers are no more exact than this.
_INSTANT: Final = 0.001
# With less time than this left, one more renewal would only blur why the ones before it failed.
_TOO_LATE: Final = 0.1


class LeadershipLostError(Exception):
    """Another leads, or may soon; the text says why."""


def new_identity() -> str:
    """A name that no other process has, nor this one after it executed itself anew."""
    return f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(4)}"


class Elector:
    """One process's part in the election: ``acquire``, then ``keep``, then ``release``, each once."""

    def __init__(self, cluster: Cluster, clock: Clock, identity: str, timings: LeaseTimings) -> None:
        """Stand by.

        Args:
            cluster: An API client of the elector's own, whose fence is open.
            clock: Measures the waiting.
            identity: Our name in the Lease, from ``new_identity``.
            timings: How long leadership lasts.
        """
        self._cluster, self._clock = cluster, clock
        self._identity, self._timings = identity, timings
        self._seen: LeaseRecord | None = None
        self._seen_at = -math.inf
        self._held: LeaseRecord | None = None
        self._tried_at = -math.inf
        self._well_at = -math.inf
        self._valid_until = -math.inf
        self._entered = False
        self._term: Term | None = None
        self.trouble = ""
        """Why the last attempt failed; empty when it did not."""
        self.tell: Callable[[], Mapping[str, datetime]] = dict
        """What each write of our name tells of us besides, by annotation: no write is made for it."""

    def valid_for(self, seconds: float) -> bool:
        """Whether we lead and will for ``seconds`` more, whatever happens meanwhile: the fence for writes."""
        return self._valid_until - self._clock.uptime() > seconds

    def standby_healthy(self) -> bool:
        """Whether the Lease could be read lately, and written where that was tried."""
        return self._clock.uptime() - self._well_at < self._timings.duration

    def clock_difference(self) -> float | None:
        """Seconds by which the API server's clock is ahead of ours, as last seen; None before that.

        The server tells whole seconds, so up to one second too little is told.
        """
        if self._cluster.server_date is None:
            return None
        date, received = self._cluster.server_date
        return (date - received.wall).total_seconds()

    async def acquire(self) -> Term:
        """Wait until we lead, for ever if need be; ``keep`` has to follow at once."""
        if self._term is not None:
            raise RuntimeError("an elector leads once")
        while True:
            self._tried_at = self._clock.uptime()
            try:
                term = await self._try()
            except ApiError as error:
                self._ill(error)
            else:
                self._well()
                if term is not None:
                    log.info("leading", extra={"fields": {"identity": self._identity, "term": term.number}})
                    self._term = term
                    return term
            await asyncio.sleep(self._until_next_look())

    async def keep(self) -> NoReturn:
        """Renew for as long as we lead.

        Raises:
            LeadershipLostError: We no longer lead.
        """
        if self._term is None:
            raise RuntimeError("there is nothing to keep before acquire")
        while True:
            now = self._clock.uptime()
            await asyncio.sleep(min(self._tried_at + self._timings.retry, self._valid_until) - now)
            self._tried_at = self._clock.uptime()
            if not self.valid_for(_TOO_LATE):
                raise self._lost(f"not renewed for {self._timings.deadline:g} s: {self.trouble or 'paused'}")
            try:
                await self._renew(self._term)
            except ApiError as error:
                self._ill(error)
            else:
                self._well()

    async def release(self) -> None:
        """Let the next one lead at once; only after all work has stopped. Never raises an error."""
        self._valid_until = -math.inf
        if not self._entered:
            return
        try:
            async with asyncio.timeout(self._timings.request):
                await self._release()
        except (ApiError, TimeoutError) as error:
            # The next one then has to wait for the Lease to run out.
            log.warning("could not release the Lease", extra={"fields": {"error": str(error) or "no answer"}})

    async def _try(self) -> Term | None:
        try:
            record = await self._read() or await self._send(unheld())
            self._observe(record)
            if not self._is_free(record):
                return None
            self._entered = True
            number = record.number_for(self._identity)
            await self._write(record, number)
        except ConflictError:
            # Another was faster, or an earlier write of ours was carried out: the next look tells.
            return None
        return Term(number=number, holder=self._identity, uid=record.uid)

    def _observe(self, record: LeaseRecord) -> None:
        if self._seen is None or record.state != self._seen.state:
            if self._seen is None or record.holder != self._seen.holder:
                log.info("standing by", extra={"fields": {"holder": record.holder or "nobody"}})
            self._seen, self._seen_at = record, self._clock.uptime()

    def _is_free(self, record: LeaseRecord) -> bool:
        return record.holder in {"", self._identity} or self._clock.uptime() >= self._free_at(record)

    def _free_at(self, record: LeaseRecord) -> float:
        return self._seen_at + max(record.seconds, self._timings.duration)

    def _until_next_look(self) -> float:
        now, then = self._clock.uptime(), self._tried_at + self._timings.retry
        if self._seen is not None and now < self._free_at(self._seen):
            then = min(then, self._free_at(self._seen))
        return max(_INSTANT, then - now)

    async def _renew(self, term: Term) -> None:
        # Twice, since a Lease that somebody labelled is still ours and a conflict is no reason to wait.
        for _ in range(2):
            record = self._held or await self._read()
            if record is None:
                raise self._lost("the Lease was deleted")
            if record.uid != term.uid:
                raise self._lost("the Lease was deleted and created anew")
            if record.holder != term.holder:
                raise self._lost(f"the Lease is held by {record.holder or 'nobody'}")
            try:
                return await self._write(record, term.number)
            except (ConflictError, NotFoundError) as error:
                conflict = error
        raise conflict

    async def _write(self, record: LeaseRecord, number: int) -> None:
        """Write our name, and lead for as long as the answer allows.

        Raises:
            ApiError: It may have been written or not; the next attempt reads first.
        """
        now, self._held = self._clock.moment(), None
        duration = self._timings.duration
        request = record.held(self._identity, number=number, duration=duration, now=now.wall, told=self.tell())
        written = await self._send(request)
        if (written.uid, written.holder) != (record.uid, self._identity) or written.version == record.version:
            raise UnreachableError("the answer does not show what was written")
        self._held = written
        self._valid_until = now.uptime + self._timings.deadline

    async def _release(self) -> None:
        for _ in range(2):
            record = await self._read()
            if record is None or record.holder != self._identity:
                return
            try:
                await self._send(record.released(self._clock.moment().wall))
            except ConflictError:
                continue
            log.info("released the Lease", extra={"fields": {"identity": self._identity}})
            return

    async def _read(self) -> LeaseRecord | None:
        try:
            return await self._send(_READ)
        except NotFoundError:
            return None

    async def _send(self, request: Request) -> LeaseRecord:
        seconds = self._timings.request
        if self._valid_until > -math.inf:
            # No renewal goes on beyond the end of our term: the loss is noticed then and not later.
            seconds = min(seconds, max(0.0, self._valid_until - self._clock.uptime()))
        try:
            # A second limit, since one request can be two: after a 401 the credentials are read again.
            async with asyncio.timeout(seconds):
                answer = await self._cluster.send(request, timeout=seconds)
            return read_lease(decoded(answer))
        except TimeoutError as error:
            raise UnreachableError(f"no answer within {seconds:.1f} s") from error
        except UnreadableLeaseError as error:
            raise UnreachableError(str(error)) from error

    def _well(self) -> None:
        if self.trouble:
            log.info("the Lease can be used again", extra={"fields": {"was": self.trouble}})
        self.trouble, self._well_at = "", self._clock.uptime()

    def _ill(self, error: ApiError) -> None:
        if str(error) != self.trouble:
            log.warning("cannot use the Lease", extra={"fields": {"error": str(error)}})
        self.trouble = str(error)

    def _lost(self, why: str) -> LeadershipLostError:
        self._valid_until = -math.inf
        self._entered = False
        log.warning("lost leadership", extra={"fields": {"identity": self._identity, "why": why}})
        return LeadershipLostError(why)
