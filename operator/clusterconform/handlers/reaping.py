"""Drives the reaping pass on its interval, and shows what it did.

The pass itself (``decisions.reaping``) does no I/O: each of its asks is answered here by one request, and the
errors of the API server are sorted into what they mean for a deletion.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

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
from clusterconform.contract.facts import NodeFacts, UnreadableNodeError
from clusterconform.contract.names import API_VERSION, APPROVE_ANNOTATION, KIND, LEASES_NAMESPACE
from clusterconform.contract.reaping import Agents, Fleet, Mode, ReapingMemory
from clusterconform.contract.request import JSON, Request
from clusterconform.contract.settings import Bound, ReapingMode
from clusterconform.contract.times import Moment
from clusterconform.contract.verdicts import Reason
from clusterconform.contract.witness import decode_fresh_node, read_lease
from clusterconform.decisions.ledger import LedgerEvent, LedgerLine, malformed, read_ledger, size_of
from clusterconform.decisions.reaping import reap
from clusterconform.decisions.rehearsal import agents_of
from clusterconform.decisions.report import PassReport
from clusterconform.decisions.standing import LastPass, Mandate, Standing, mandate_of, reaping_allowed
from clusterconform.effects import fence
from clusterconform.effects.clock import Clock
from clusterconform.effects.cluster import Cluster, decoded
from clusterconform.effects.errors import (
    ApiError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    RejectedError,
)
from clusterconform.effects.events import EventNote, EventRecorder
from clusterconform.effects.ledger import Ledger
from clusterconform.effects.metrics import ReapingMetrics
from clusterconform.handlers.cache import Cache
from clusterconform.handlers.nodes import NodeReconciler

log = logging.getLogger(__name__)

TICK_SECONDS: Final = 5.0
# The contract's time for a GET (§3.1); a witness that takes longer is no witness.
_READ_SECONDS: Final = 5.0
# The error that the pass gets tells what may have happened: everything not listed may have been done.
_TROUBLES: Final[tuple[tuple[type[ApiError], Trouble], ...]] = (
    (NotFoundError, Trouble.GONE),
    (ConflictError, Trouble.CHANGED),
    (ForbiddenError, Trouble.FORBIDDEN),
    (RejectedError, Trouble.REFUSED),
)
_EVENTS: Final[Mapping[str, tuple[str, Reason]]] = {
    LedgerEvent.DELETED: ("Normal", Reason.REAPED),
    LedgerEvent.REJECTED: ("Warning", Reason.WRITE_REJECTED),
    LedgerEvent.REFUSED_MASS_STALE: ("Warning", Reason.MASS_STALE),
    LedgerEvent.REFUSED_CLOCK_SKEW: ("Warning", Reason.CLOCK_SKEW),
}


class Reaper:
    """Runs passes for as long as we lead."""

    def __init__(
        self,
        *,
        cache: Cache,
        nodes: NodeReconciler,
        cluster: Cluster,
        clock: Clock,
        events: EventRecorder,
        metrics: ReapingMetrics,
        ledger: Ledger,
        bound: Bound,
        word: str,
        own_node: str,
        synced_at: Callable[[], float | None],
        hears: Callable[[], bool],
        clock_difference: Callable[[], float | None],
        changed: Callable[[str], None],
    ) -> None:
        """Reap what ``cache`` knows.

        Args:
            cache: Nodes and profiles.
            nodes: Their verdicts.
            cluster: The API client, with its fence.
            clock: The time.
            events: The event recorder.
            metrics: Gets what a pass did.
            ledger: The ledger of this leadership.
            bound: The bound of the process.
            word: The environment's OUTPOST_NODEGC.
            own_node: The node on which we run; empty when unknown.
            synced_at: Uptime of the last complete list, None before the first.
            hears: Whether the node stream is alive.
            clock_difference: Seconds by which the API server's clock is ahead of ours, if known.
            changed: Told the profile whose status has news.
        """
        self._cache, self._nodes, self._cluster, self._clock = cache, nodes, cluster, clock
        self._events, self._metrics, self._ledger = events, metrics, ledger
        self._bound, self._word, self._own_node = bound, word, own_node
        self._synced_at, self._hears, self._clock_difference = synced_at, hears, clock_difference
        self._changed = changed
        self._memory = ReapingMemory()
        self._trusted = 0.0
        self._first_synced: float | None = None
        self._last: LastPass | None = None
        self._last_uptime: float | None = None
        self._heeded: tuple[str, str] | None = None

    async def run(self) -> None:
        """Pass after pass, for ever; a pass that fails is said and the next one comes."""
        # After seeding, which tells whether this is the installation's first ledger.
        await self._nodes.may_act.wait()
        await self._claim()
        before = self._clock.uptime()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = self._clock.uptime()
            if self._is_complete():
                # Only time in which we led, knew everything and heard the stream earns trust; what a paused
                # process slept through does not.
                self._trusted += min(now - before, 2 * TICK_SECONDS)
                self._first_synced = now if self._first_synced is None else self._first_synced
            before = now
            agents = self._agents()
            if agents is not None and self._is_due(agents, now):
                await self.once(agents)

    async def _claim(self) -> None:
        """Shut out whoever led before, long before the first pass; which tries again where this fails."""
        try:
            await self._ledger.claim()
        except ApiError as error:
            log.warning("the ledger cannot be claimed", extra={"fields": {"error": str(error)}})

    def _agents(self) -> Agents | None:
        found = agents_of(self._cache.catalogue)
        return None if found is None else replace(found, own_node=self._own_node)

    def _is_complete(self) -> bool:
        judged = self._nodes.verdicts
        known = self._synced_at() is not None and all(name in judged for name in self._cache.names())
        return known and self._hears()

    def _is_due(self, agents: Agents, now: float) -> bool:
        if self._first_synced is None or now - self._first_synced < agents.policy.settle.seconds:
            return False
        if self._last_uptime is None or now - self._last_uptime >= agents.policy.interval.seconds:
            return True
        return self._approved(agents) not in {None, self._heeded}

    def mandate(self, agents: Agents) -> Mandate:
        """What may be done, and who says so."""
        return mandate_of(agents.policy.mode, self._word, self._bound, agents.enforcement)

    def standing(self, backend: str) -> Standing | None:
        """Where reaping by the profile ``backend`` stands; None for one that does not reap."""
        agents = self._agents()
        if agents is None or agents.backend != backend:
            return None
        return Standing(
            mandate=self.mandate(agents), policy=agents.policy, last=self._last, next_at=self._next_at(agents)
        )

    def _next_at(self, agents: Agents) -> datetime | None:
        if self._last is not None:
            return self._last.at + timedelta(seconds=agents.policy.interval.seconds)
        return None

    async def once(self, agents: Agents) -> None:
        """One pass, unless reaping is off."""
        mode, now = self.mandate(agents).mode, self._moment()
        self._last_uptime, self._heeded = self._clock.uptime(), self._approved(agents)
        if mode is ReapingMode.OFF:
            self._last = None
            self._measure_standing(agents)
            self._changed(agents.backend)
            return
        nodes = self._nodes.verdicts
        fleet = Fleet(
            nodes=[(node, nodes[node.name]) for node in self._cache.nodes() if node.name in nodes],
            agents=agents,
            mode=Mode(mode.value),
            complete=self._is_complete(),
            trusted_seconds=self._trusted,
            clock_difference=self._clock_difference(),
            approved=self._heeded,
        )
        report = await self._drive(fleet)
        self._memory, self._trusted = report.memory, 0.0
        self._last = LastPass(report=report, mode=mode, at=now.wall, approved=fleet.approved)
        self._tell(report, mode, agents.backend)
        self._measure(report, mode, now.wall)
        self._measure_standing(agents)
        self._changed(agents.backend)

    async def _drive(self, fleet: Fleet) -> PassReport:
        steps = reap(fleet, self._memory)
        answer: Answer = None
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
                if not isinstance(answer, Failed):
                    self._metrics.malformed_lines.set(malformed(read_ledger(answer.text)))
            case SwapLedger():
                answer = await self._ledger.swap(ask.text, ask.trust)
                self._metrics.ledger_bytes.set(size_of(ask.text))
            case ReadNode():
                answer = await self._read_node(ask.name)
            case ReadNodeLease():
                answer = await self._read_lease(ask.name)
            case DeleteNode():
                answer = await self._delete(ask)
            case _:
                answer = await fence.stands(self._cluster, sorted(self._cache.nodes(), key=_is_ready))
        return answer

    def _moment(self) -> Moment:
        # Uptime counts from leadership and the first complete picture, not from the start of the process.
        now = self._clock.moment()
        return Moment(
            wall=now.wall, uptime=now.uptime - (now.uptime if self._first_synced is None else self._first_synced)
        )

    async def _read_node(self, name: str) -> Answer:
        request = Request(method="GET", path=f"/api/v1/nodes/{name}")
        try:
            return decode_fresh_node(await self._cluster.send(request, timeout=_READ_SECONDS))
        except ApiError as error:
            return _failed(error)
        except UnreadableNodeError as error:
            return Failed(Trouble.UNKNOWN, str(error))

    async def _read_lease(self, name: str) -> Answer:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{LEASES_NAMESPACE}/leases/{name}"
        request = Request(method="GET", path=path)
        try:
            found = decoded(await self._cluster.send(request, timeout=_READ_SECONDS))
        except ApiError as error:
            return _failed(error)
        if not isinstance(found, dict) or found.get("kind") != "Lease":
            # A Lease without a time is no objection; something else in its place is a witness not heard.
            return Failed(Trouble.UNKNOWN, "the answer is no Lease")
        return read_lease(found)

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

    def _tell(self, report: PassReport, mode: ReapingMode, backend: str) -> None:
        for line in report.lines:
            fields = {name: value for name, value in msgspec.to_builtins(line).items() if name != "at"}
            log.info("ledger", extra={"fields": {**fields, "mode": mode}})
            self._announce(line, backend)
        if report.error is not None:
            fields = {"error": report.error, "reason": report.error_reason}
            log.warning("the reaping pass ended early", extra={"fields": fields})
        for held in (*report.held, *report.survey.undecided):
            fields = {"node": held.name, "reason": held.reason, "until": held.until}
            log.info("stale node held", extra={"fields": {key: value for key, value in fields.items() if value}})

    def _announce(self, line: LedgerLine, backend: str) -> None:
        """A deleted Node has no place for an Event any more, so they go to the profile."""
        event, profile = _EVENTS.get(line.event), self._cache.profiles().get(backend)
        if event is None or profile is None:
            return
        kind, reason = event
        reference = {"apiVersion": API_VERSION, "kind": KIND, "name": backend, "uid": profile.uid}
        message = f"node {line.node}: {line.detail}" if line.node else line.detail
        self._events.note(EventNote(reference=reference, type=kind, reason=reason, message=message))

    def _measure(self, report: PassReport, mode: ReapingMode, at: datetime) -> None:
        metrics = self._metrics
        metrics.passes.labels(report.error_reason or report.refused or "Done").inc()
        metrics.last_pass.set(at.timestamp())
        metrics.reaped.labels(mode).inc(len(report.deleted))
        metrics.budget_left.set(report.budget_left)
        metrics.trusted.set(report.trust.seconds)
        oldest = min((candidate.since for candidate in report.survey.candidates), default=at)
        metrics.oldest_stale.set((at - oldest).total_seconds())
        metrics.terminating.set(sum(node.terminating for node in self._cache.nodes()))
        metrics.held.clear()
        for held in (*report.held, *report.survey.undecided):
            metrics.held.labels(held.reason).inc()

    def _measure_standing(self, agents: Agents) -> None:
        if (standing := self.standing(agents.backend)) is not None:
            status, finding = reaping_allowed(standing)
            self._metrics.reaping_allowed.clear()
            self._metrics.reaping_allowed.labels(status, finding.reason).set(1)


def _is_ready(node: NodeFacts) -> bool:
    return node.ready is not None and node.ready.status == "True"


def _failed(error: ApiError) -> Failed:
    trouble = next((trouble for kind, trouble in _TROUBLES if isinstance(error, kind)), Trouble.UNKNOWN)
    return Failed(trouble, str(error))
