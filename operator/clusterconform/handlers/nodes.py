"""One node: gather, decide, perform."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from clusterconform.contract.facts import (
    NodeFacts,
    UnreadableNodeError,
    decode_node,
    read_node,
)
from clusterconform.contract.memory import EMPTY, NodeMemory
from clusterconform.contract.plan import ConditionWrite, EndpointWrite, MarksPatch
from clusterconform.contract.request import Request
from clusterconform.contract.settings import Bound
from clusterconform.contract.times import Moment
from clusterconform.contract.verdicts import Catalogue, NodeVerdict, Reason
from clusterconform.decisions import planning
from clusterconform.decisions.addresses import endpoint_rejected, endpoint_written
from clusterconform.decisions.requests import condition_request, endpoint_request, marks_request
from clusterconform.decisions.sandbox import ProbeVerdict
from clusterconform.effects.clock import Clock
from clusterconform.effects.cluster import Cluster
from clusterconform.effects.errors import (
    ApiError,
    ConflictError,
    FencedError,
    ForbiddenError,
    NotFoundError,
    RejectedError,
)
from clusterconform.effects.events import EventNote, EventRecorder
from clusterconform.effects.metrics import Metrics
from clusterconform.effects.stream import NodeStream
from clusterconform.handlers.agents import AgentRoll, wait_for
from clusterconform.handlers.cache import Cache
from clusterconform.handlers.queue import WorkQueue

log = logging.getLogger(__name__)

# Rights come back when somebody grants them, not by asking often.
_FORBIDDEN_SECONDS: Final = 30.0
_REPORTED: Final = frozenset(
    {Reason.IDENTITY_CONFLICT, Reason.CONTESTED, Reason.UNKNOWN_BACKEND, Reason.WRITE_REJECTED}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A write to a node that did not succeed and will be tried again.

    Attributes:
        profile: Backend of the node's profile.
        message: The API server's words.
    """

    profile: str
    message: str


class NodeReconciler:
    """Keeps each node to what is decided for it."""

    def __init__(
        self,
        *,
        cache: Cache,
        cluster: Cluster,
        clock: Clock,
        stream: NodeStream,
        events: EventRecorder,
        metrics: Metrics,
        bound: Bound,
        changed: Callable[[str], None],
    ) -> None:
        """Reconcile what ``cache`` knows.

        Args:
            cache: Nodes and profiles.
            cluster: The API client, with its fence.
            clock: The time.
            stream: Told of our own writes, so that their echo wakes nobody.
            events: The event recorder.
            metrics: Counters.
            bound: Whether Nodes may be written at all.
            changed: Told the profile whose numbers have changed.
        """
        self._cache, self._cluster, self._clock, self._stream = cache, cluster, clock, stream
        self._events, self._metrics, self._bound, self._changed = events, metrics, bound, changed
        self.queue = WorkQueue(self.reconcile, metrics)
        self.roll = AgentRoll(cache)
        self.verdicts: dict[str, NodeVerdict] = {}
        self.failures: dict[str, Failure] = {}
        self.may_act = asyncio.Event()
        self._memories: dict[str, tuple[str, NodeMemory]] = {}
        self._ready: dict[str, bool] = {}

    async def reconcile(self, name: str) -> None:
        """Bring the node called ``name`` one step nearer to its contract."""
        node = self._cache.node(name)
        if node is None:
            self._forget(name)
            return
        if not self.may_act.is_set():
            # Nothing is concluded from a half-filled cache; all nodes become due when it is complete.
            return
        now = self._clock.moment()
        around, touched = self.roll.take(node, now)
        for other in touched:
            self.queue.add(other)
        decision = planning.decide(node, self._cache.catalogue, self._memory(node), now, around)
        self._remember(node, decision.memory)
        self._report(node, decision.verdict)
        self._report_agent(node, decision, around.probe, now)
        wait = wait_for(around.probe)
        if wait is not None:
            self.queue.add_after(name, wait)
        if self._bound is Bound.OBSERVE:
            return
        if decision.recheck_after is not None:
            self.queue.add_after(name, decision.recheck_after)
        if decision.plan:
            await self._perform(node, decision)
        else:
            self._succeeded(name)

    def _report(self, node: NodeFacts, verdict: NodeVerdict) -> None:
        before, ready = self.verdicts.get(node.name), node.ready is not None and node.ready.status == "True"
        if before == verdict and self._ready.get(node.name) == ready:
            return
        self.verdicts[node.name], self._ready[node.name] = verdict, ready
        for seen in (before, verdict):
            if seen is not None:
                self._changed(_profile(seen))
        known = {finding.reason for finding in before.findings} if before else set()
        for finding in verdict.findings:
            if finding.reason in _REPORTED and finding.reason not in known:
                fields = {"node": node.name, "reason": finding.reason, "why": finding.message}
                log.warning("node reported", extra={"fields": fields})
                self._announce(node, "Warning", finding.reason, finding.message)

    def _report_agent(
        self, node: NodeFacts, decision: planning.Decision, probe: ProbeVerdict | None, now: Moment
    ) -> None:
        news, heard = self.roll.note(node, decision.address, probe, now)
        agent = self.roll.agents.profile
        if news and agent is not None:
            self._changed(agent.backend)
        for warned in heard:
            about, finding = self._cache.node(warned.node), warned.finding
            fields = {"node": warned.node, "reason": finding.reason, "why": finding.message}
            log.warning("agent reported", extra={"fields": fields})
            if about is not None:
                self._announce(about, "Warning", finding.reason, finding.message)

    def _announce(self, node: NodeFacts, kind: str, reason: Reason, message: str) -> None:
        reference = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}
        self._events.note(EventNote(reference=reference, type=kind, reason=reason, message=message))

    async def _perform(self, node: NodeFacts, decision: planning.Decision) -> None:
        marks, catalogue = decision.plan.marks, self._cache.catalogue
        failure: ApiError | None = None
        if marks is not None:
            try:
                await self._write_marks(node, marks, decision.verdict)
            except RejectedError as error:
                self._rejected(node, marks, error)
                return
            except (NotFoundError, FencedError, ConflictError) as error:
                await self._failed(node, decision.verdict, error)
                return
            except ApiError as error:
                # The condition is another write, with another right: it can still say what is amiss.
                failure = error
        done = marks is not None and failure is None
        later = await self._perform_status(node, decision, catalogue, after_marks=done)
        failure = failure or later
        if failure is not None:
            await self._failed(node, decision.verdict, failure)
        else:
            self._succeeded(node.name)

    async def _perform_status(
        self, node: NodeFacts, decision: planning.Decision, catalogue: Catalogue, *, after_marks: bool
    ) -> ApiError | None:
        """Write endpoint and condition; gives the first failure. Each has a right of its own."""
        endpoint, condition = decision.plan.endpoint, decision.plan.condition
        failure: ApiError | None = None
        if endpoint is not None and not after_marks:
            try:
                await self._write_endpoint(node, endpoint)
            except ApiError as error:
                failure = error
        if condition is not None:
            if self._cache.catalogue is not catalogue:
                # A profile was edited or deleted meanwhile: what was decided before does not hold any more.
                self.queue.add(node.name)
                return failure
            try:
                await self._write_condition(node, condition, decision.verdict)
            except ApiError as error:
                failure = failure or error
        return failure

    async def _write_marks(self, node: NodeFacts, marks: MarksPatch, verdict: NodeVerdict) -> None:
        await self._write("marks", node, marks_request(node, marks))
        now = self._clock.moment()
        self._remember(node, planning.marks_written(self._memory(node), marks, now))
        fields = {
            "node": node.name,
            "profile": _profile(verdict),
            "reason": Reason.DRIFT_REPAIRED,
            "why": marks.why,
        }
        log.info("node repaired", extra={"fields": fields})
        self._announce(node, "Normal", Reason.DRIFT_REPAIRED, f"put back: {marks.why}")

    async def _write_endpoint(self, node: NodeFacts, endpoint: EndpointWrite) -> None:
        try:
            await self._write("endpoint", node, endpoint_request(node, endpoint))
        except RejectedError as error:
            # As with marks: remembered, so that the same is not sent again, and reported.
            self._remember(node, endpoint_rejected(self._memory(node), endpoint, str(error)))
            self.queue.add(node.name)
            return
        self._remember(node, endpoint_written(self._memory(node), self._clock.uptime()))
        log.info("endpoint written", extra={"fields": {"node": node.name, "why": endpoint.why}})

    async def _write_condition(self, node: NodeFacts, condition: ConditionWrite, verdict: NodeVerdict) -> None:
        await self._write("condition", node, condition_request(node, condition))
        now = self._clock.moment()
        self._remember(node, planning.condition_written(self._memory(node), condition, now))
        fields = {
            "node": node.name,
            "profile": _profile(verdict),
            "status": condition.status,
            "reason": condition.reason,
        }
        log.info("condition written", extra={"fields": fields})

    async def _write(self, what: str, node: NodeFacts, request: Request) -> None:
        try:
            answer = await self._cluster.send(request)
        except ApiError as error:
            self._metrics.writes.labels(what, _outcome(error)).inc()
            raise
        self._metrics.writes.labels(what, "done").inc()
        self._take(answer, node)

    def _take(self, answer: bytes, node: NodeFacts) -> None:
        """The answer is the node as it is now; its echo shall wake nobody, so what is new in it is due here.

        That is what we wrote, and what another writer wrote just before. Our own condition alone is no news:
        looking again for it would hurry a patch that is being refused.
        """
        try:
            view = decode_node(answer)
        except UnreadableNodeError:
            log.exception("an answer is no node", extra={"fields": {"node": node.name}})
            return
        fresh = read_node(view)
        if self._cache.confirm(fresh):
            self._stream.note(view)
            if replace(fresh, resource_version="", conformant=None) != replace(
                node, resource_version="", conformant=None
            ):
                self.queue.add(node.name)

    def _memory(self, node: NodeFacts) -> NodeMemory:
        uid, memory = self._memories.get(node.name, ("", EMPTY))
        return memory if uid == node.uid else EMPTY

    def _remember(self, node: NodeFacts, memory: NodeMemory) -> None:
        self._memories[node.name] = (node.uid, memory)

    def _rejected(self, node: NodeFacts, marks: MarksPatch, error: RejectedError) -> None:
        """Refused for good: remembered, so that the same patch is not sent again, and reported at once."""
        memory = self._memory(node)
        self._remember(node, planning.marks_rejected(memory, marks, str(error)))
        self.queue.add(node.name)

    async def _failed(self, node: NodeFacts, verdict: NodeVerdict, error: ApiError) -> None:
        name = node.name
        fields = {"node": name, "profile": _profile(verdict), "error": str(error)}
        if isinstance(error, NotFoundError):
            # Deleted while it waited: nothing to repair, and nothing that would create it again.
            self._cache.forget(name, node.uid)
            self._forget(name)
            return
        if isinstance(error, FencedError):
            self.queue.retry(name, at_least=1.0)
            return
        if isinstance(error, ConflictError):
            self._metrics.conflicts.inc()
            log.debug("write met another writer", extra={"fields": fields})
            await self._reread(node)
            self.queue.retry(name)
            return
        self._record_failure(name, Failure(profile=_profile(verdict), message=str(error)))
        least = (
            _FORBIDDEN_SECONDS if isinstance(error, ForbiddenError | RejectedError) else error.retry_after or 0.0
        )
        pause = self.queue.retry(name, at_least=least)
        log.warning("write failed", extra={"fields": {**fields, "again_in": f"{pause:.1f}s"}})

    async def _reread(self, node: NodeFacts) -> None:
        request = Request(method="GET", path=f"/api/v1/nodes/{node.name}")
        try:
            fresh = read_node(decode_node(await self._cluster.send(request)))
        except NotFoundError:
            self._cache.forget(node.name, node.uid)
        except (ApiError, UnreadableNodeError) as error:
            fields = {"node": node.name, "error": str(error)}
            log.warning("node could not be read again", extra={"fields": fields})
        else:
            self._cache.observe(fresh)

    def _record_failure(self, name: str, failure: Failure) -> None:
        if self.failures.get(name) != failure:
            self.failures[name] = failure
            self._changed(failure.profile)

    def _succeeded(self, name: str) -> None:
        self.queue.succeeded(name)
        failure = self.failures.pop(name, None)
        if failure is not None:
            self._changed(failure.profile)

    def _forget(self, name: str) -> None:
        verdict = self.verdicts.pop(name, None)
        if verdict is not None:
            self._changed(_profile(verdict))
        for other in self.roll.forget(name):
            self.queue.add(other)
        self._memories.pop(name, None)
        self._ready.pop(name, None)
        self._succeeded(name)
        self.queue.forget(name)


def _profile(verdict: NodeVerdict) -> str:
    return verdict.identity.profile.backend if verdict.identity.profile else ""


def _outcome(error: ApiError) -> str:
    return type(error).__name__.removesuffix("Error").lower()
