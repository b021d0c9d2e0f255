"""Drives the reaping pass on its interval, and shows what it did.

The pass itself (``decisions.reaping``) does no I/O: each of its asks is answered here by one request, and the
errors of the API server are sorted into what they mean for a deletion.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from clusterconform.contract.asks import (
    Answer,
    Ask,
    DeleteNode,
    Failed,
    ReadClock,
    ReadLedger,
    ReadNode,
    ReadNodeLease,
    SwapLedger,
    Trouble,
)
from clusterconform.contract.facts import UnreadableNodeError
from clusterconform.contract.names import APPROVE_ANNOTATION, LEASES_NAMESPACE
from clusterconform.contract.reaping import Agents, Fleet, Mode, ReapingMemory, mildest, mode_of_word
from clusterconform.contract.request import JSON, Request
from clusterconform.contract.settings import Bound, ReapingMode
from clusterconform.contract.times import Moment
from clusterconform.contract.witness import decode_fresh_node, read_lease
from clusterconform.decisions.reaping import PassReport, reap
from clusterconform.decisions.rehearsal import agents_of
from clusterconform.effects.clock import Clock
from clusterconform.effects.cluster import Cluster
from clusterconform.effects.errors import (
    ApiError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    RejectedError,
)
from clusterconform.effects.ledger import Ledger
from clusterconform.handlers.cache import Cache
from clusterconform.handlers.nodes import NodeReconciler

log = logging.getLogger(__name__)

SWITCH: Final = "OUTPOST_NODEGC"
_TICK_SECONDS: Final = 10.0
_TROUBLES: Final[tuple[tuple[type[ApiError], Trouble], ...]] = (
    (NotFoundError, Trouble.GONE),
    (ConflictError, Trouble.CHANGED),
    (ForbiddenError, Trouble.FORBIDDEN),
    (RejectedError, Trouble.REFUSED),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastPass:
    """What the last pass did, for status and metrics.

    Attributes:
        report: Its report.
        mode: What it was allowed to do.
        at: When it began.
        next_after: Seconds from then to the next one.
    """

    report: PassReport
    mode: ReapingMode
    at: Moment
    next_after: float


class Reaper:
    """Runs passes while we lead."""

    def __init__(
        self,
        *,
        cache: Cache,
        nodes: NodeReconciler,
        cluster: Cluster,
        clock: Clock,
        ledger: Ledger,
        bound: Bound,
        synced_at: Callable[[], float | None],
        hears: Callable[[], bool],
        fenced: Callable[[], Any],
        done: Callable[[str, LastPass], None],
    ) -> None:
        """Reap what ``cache`` knows.

        Args:
            cache: Nodes and profiles.
            nodes: Their verdicts.
            cluster: The API client, with its fence.
            clock: The time.
            ledger: The ledger of this leadership.
            bound: The bound of the process.
            synced_at: Uptime of the last complete list, None before the first.
            hears: Whether the node stream is alive.
            fenced: Asks whether the admission policy is in force.
            done: Told the profile and what a pass did.
        """
        self._cache, self._nodes, self._cluster, self._clock = cache, nodes, cluster, clock
        self._ledger, self._bound, self._synced_at, self._hears = ledger, bound, synced_at, hears
        self._fenced, self._done = fenced, done
        self._memory = ReapingMemory()
        self._trusted = 0.0
        self._first_synced: float | None = None

    async def run(self) -> None:
        """Pass after pass, for ever; a pass that fails is said and the next one comes."""
        await self._ledger.claim()
        due = 0.0
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            now = self._clock.uptime()
            if self._hears():
                # Only time in which we led, knew everything and heard the stream earns trust.
                self._trusted += _TICK_SECONDS
            agents = agents_of(self._cache.catalogue)
            if agents is None or now < due or not self._is_settled(agents, now):
                continue
            last = await self.once(agents)
            due = now + (last.next_after if last is not None else _TICK_SECONDS)

    def _is_settled(self, agents: Agents, now: float) -> bool:
        synced = self._synced_at()
        if synced is None:
            return False
        self._first_synced = synced if self._first_synced is None else self._first_synced
        return now - self._first_synced >= agents.policy.settle.seconds

    def mode(self, agents: Agents) -> ReapingMode:
        """What may be done: the mildest of the profile's mode, the environment's word and the bound."""
        bound = ReapingMode.LIVE if self._bound is Bound.ENFORCE else ReapingMode.DRY_RUN
        return mildest(agents.policy.mode, mode_of_word(os.environ.get(SWITCH, "")), bound)

    async def once(self, agents: Agents) -> LastPass | None:
        """One pass; None where reaping is off."""
        mode = self.mode(agents)
        if mode is ReapingMode.OFF:
            return None
        fleet = Fleet(
            nodes=[
                (node, verdict)
                for node in self._cache.nodes()
                if (verdict := self._nodes.verdicts.get(node.name)) is not None
            ],
            agents=agents,
            mode=Mode(mode.value),
            complete=self._synced_at() is not None and self._hears(),
            trusted_seconds=self._trusted,
            approved=self._approved(agents),
        )
        at = self._moment()
        report = await self._drive(fleet)
        self._memory, self._trusted = report.memory, 0.0
        last = LastPass(report=report, mode=mode, at=at, next_after=agents.policy.interval.seconds)
        _log(report, mode)
        self._done(agents.backend, last)
        return last

    async def _drive(self, fleet: Fleet) -> PassReport:
        steps, answer = reap(fleet, self._memory), None
        while True:
            try:
                ask = steps.send(answer)
            except StopIteration as end:
                report: PassReport = end.value
                return report
            answer = await self._answer(ask)

    async def _answer(self, ask: Ask) -> Answer:
        match ask:
            case ReadClock():
                answer: Answer = self._moment()
            case ReadLedger():
                answer = await self._ledger.read()
            case SwapLedger():
                answer = await self._ledger.swap(ask.text, ask.trust)
            case ReadNode():
                answer = await self._read_node(ask.name)
            case ReadNodeLease():
                answer = await self._read_lease(ask.name)
            case DeleteNode():
                answer = await self._delete(ask)
            case _:
                answer = await self._fenced()
        return answer

    def _moment(self) -> Moment:
        now = self._clock.moment()
        since = self._first_synced or 0.0
        # Uptime counts from leadership and sync, not from the start of the process.
        return Moment(wall=now.wall, uptime=now.uptime - since)

    async def _read_node(self, name: str) -> Answer:
        try:
            return decode_fresh_node(await self._cluster.send(Request(method="GET", path=f"/api/v1/nodes/{name}")))
        except ApiError as error:
            return _failed(error)
        except UnreadableNodeError as error:
            return Failed(Trouble.UNKNOWN, str(error))

    async def _read_lease(self, name: str) -> Answer:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{LEASES_NAMESPACE}/leases/{name}"
        try:
            return read_lease(await self._cluster.get(path))
        except ApiError as error:
            return _failed(error)

    async def _delete(self, ask: DeleteNode) -> Answer:
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": ask.uid, "resourceVersion": ask.resource_version},
        }
        path = f"/api/v1/nodes/{ask.name}"
        try:
            await self._cluster.send(Request(method="DELETE", path=path, content_type=JSON, body=body))
        except ApiError as error:
            return _failed(error)
        return None

    def _approved(self, agents: Agents) -> tuple[str, str] | None:
        profile = self._cache.profiles().get(agents.backend)
        approval = profile.annotations.get(APPROVE_ANNOTATION, "") if profile else ""
        name, slash, uid = approval.partition("/")
        return (name, uid) if slash else None


def _failed(error: ApiError) -> Failed:
    trouble = next((trouble for kind, trouble in _TROUBLES if isinstance(error, kind)), Trouble.UNKNOWN)
    return Failed(trouble, str(error))


def _log(report: PassReport, mode: ReapingMode) -> None:
    for line in report.lines:
        fields = msgspec.to_builtins(line)
        log.info("ledger", extra={"fields": {**fields, "mode": mode}})
    if report.error is not None:
        log.error("reaping pass ended early", extra={"fields": {"error": report.error}})
