"""One pass of reaping, without I/O: a generator that asks for reads and writes and is told the answers.

The operator drives it with the API, ``simulate`` with files, tests with every crash point. In order:

1. Read the ledger. Judge the fleet as listed and ask the guards (``decisions.fleet``).
2. For each admitted candidate, oldest first, until the budget is spent: read the node; gone or another life
   of the name: next. Judge it again with a freshly read clock; read its Lease; hear all witnesses.
3. Write ``intended`` into the ledger by compare-and-swap, and only then DELETE with the uid and the
   resourceVersion of that read. A lost swap means that somebody else leads: the pass ends.
4. Write what became of it: ``deleted``, ``skipped`` (gone or changed meanwhile, 404 or 409), ``rejected``
   (the API server refuses). No answer, or none that means anything, leaves it ``intended``, and spent.
5. 404 and 409 go on to the next; a refusal of this one node (4xx) too; 403, no answer and 5xx end the pass.
"""

from collections.abc import Generator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from clusterconform.contract.asks import (
    Answer,
    Ask,
    AskFence,
    DeleteNode,
    Failed,
    LedgerText,
    ReadClock,
    ReadLedger,
    ReadNode,
    ReadNodeLease,
    SwapLedger,
    Trouble,
)
from clusterconform.contract.reaping import Fleet, Held, Mode, ReapingMemory
from clusterconform.contract.settings import NodeGC
from clusterconform.contract.times import Moment
from clusterconform.contract.verdicts import AGENT_EVIDENCE, Reason
from clusterconform.contract.witness import FreshNode, LeaseFacts
from clusterconform.decisions import trust as trusting
from clusterconform.decisions.fleet import (
    Admission,
    Candidate,
    Circumstances,
    Survey,
    admit,
    is_clock_doubtful,
    is_mass_stale,
    survey,
)
from clusterconform.decisions.identity import evidence_of
from clusterconform.decisions.ledger import (
    DAY,
    SIZE,
    LedgerEvent,
    LedgerLine,
    append,
    fold,
    line_at,
    malformed,
    read_ledger,
    size_of,
    spent_since,
)
from clusterconform.decisions.report import PassReport
from clusterconform.decisions.staleness import Outcome, Staleness, confirm, judge, undetermined

_LEAST_WINDOW: Final = timedelta(hours=1)
# The longest that the CRD allows: an edit that raises the interval must find the deletions of its new window.
_LONGEST_WINDOW: Final = timedelta(hours=168)
_REJECTED_SECONDS: Final = 3600.0


Pass = Generator[Ask, Answer, PassReport]


def window_of(policy: NodeGC) -> timedelta:
    """The budget window: the interval, but an hour at least, so that an edit cannot shrink it."""
    return max(timedelta(seconds=policy.interval.seconds), _LEAST_WINDOW)


def reap(fleet: Fleet, memory: ReapingMemory) -> Pass:
    """One pass; see the module's text."""
    return (yield from _Pass(fleet, memory).run())


class _Pass:
    """The state of one pass; it lives as long as the generator."""

    def __init__(self, fleet: Fleet, memory: ReapingMemory) -> None:
        self.fleet, self.memory = fleet, memory
        self.policy = fleet.agents.policy
        self.verdicts = {node.name: verdict for node, verdict in fleet.nodes}
        self.text, self.trust = "", trusting.Trust()
        self.lines: list[LedgerLine] = []
        self.pending: list[LedgerLine] = []
        self.doubt = memory.doubt
        self.tried: set[str] = set()
        self.young = self.exhausted = False
        self.deleted: list[str] = []
        self.held: dict[str, Held] = {}
        self.error: str | None = None
        self.error_reason: Reason | None = None
        self.readable = True
        self.began = Moment(wall=datetime.min.replace(tzinfo=UTC), uptime=0.0)

    def run(self) -> Pass:
        moment: Moment = yield ReadClock()
        self.began = moment
        jumped = self._has_jumped(moment)
        self.memory = replace(self.memory, last=moment)
        created = yield from self._read_ledger()
        found = survey(self.fleet.nodes, self.fleet.agents, moment.wall)
        fenced = None
        if self.policy.require_fence and self.fleet.mode is Mode.LIVE:
            # Also with nothing stale: that the fence is down is to be known before it is needed.
            fenced = yield AskFence()
        seen = self._circumstances(moment, jumped=jumped, created=created, fenced=fenced)
        self._weigh_trust(found, seen)
        seen = replace(seen, trust=self.trust)
        admission = admit(found, self.policy, seen)
        quiet = not found.stale and not found.future
        if quiet:
            self.memory = replace(self.memory, refusal=None)
        else:
            self._note_refusal(admission, found, moment.wall)
            if admission.refused is None:
                yield from self._try_all(admission)
            self._hold_the_rest(found, admission)
        yield from self._settle()
        trust = trusting.write_trust(self.trust) if self.readable else self.memory.trust
        self.memory = replace(self.memory, doubt=self.doubt, trust=trust)
        if self.pending:
            self.memory = replace(self.memory, refusal=None)  # not written, so it is to be said again
        spent = self.policy.max_deletes if self.young else self._spent(moment, window_of(self.policy))
        return PassReport(
            refused=None if quiet else admission.refused,
            standing=admission,
            error=self.error,
            error_reason=self.error_reason or (Reason.ENDED_EARLY if self.error else None),
            deleted=tuple(self.deleted),
            held=tuple(self.held[candidate.name] for candidate in found.candidates if candidate.name in self.held),
            survey=found,
            lines=tuple(self.lines),
            spent=spent,
            budget_left=max(0, self.policy.max_deletes - spent) if self.readable else 0,
            trust=self.trust,
            memory=self.memory,
        )

    def _has_jumped(self, moment: Moment) -> bool:
        """The wall clock ran ahead of the monotonic one; the first pass cannot tell (contract §3.4)."""
        last = self.memory.last
        if last is None:
            return False
        ahead = (moment.wall - last.wall).total_seconds() - (moment.uptime - last.uptime)
        return ahead > self.policy.clock_jump_tolerance.seconds

    def _read_ledger(self) -> Generator[Ask, Answer, datetime | None]:
        answer = yield ReadLedger()
        if isinstance(answer, Failed):
            self.readable = False
            self._fail(f"ledger: {answer.message or answer.trouble}", Reason.LEDGER_UNREADABLE)
            return None
        ledger: LedgerText = answer
        # Where somebody deleted the ledger, what was doubted before is still known to whoever doubted it.
        self.text, self.trust = ledger.text, trusting.read_trust(ledger.trust or self.memory.trust)
        if self.doubt is not None:
            self.trust = trusting.doubted(self.doubt, self.trust)
        return ledger.created_at

    def _circumstances(
        self, moment: Moment, *, jumped: bool, created: datetime | None, fenced: bool | None
    ) -> Circumstances:
        self.young = created is not None and moment.wall - created < window_of(self.policy)
        # A ledger younger than one window counts as spent: deleting it must not refill the budget.
        spent = self.policy.max_deletes if self.young else self._spent(moment, window_of(self.policy))
        return Circumstances(
            now=moment.wall,
            uptime=moment.uptime,
            complete=self.fleet.complete,
            jumped=jumped,
            clock_difference=self.fleet.clock_difference,
            ledger_read=self.readable,
            spent_in_window=spent,
            spent_in_day=self._spent(moment, DAY),
            trust=self.trust,
            fenced=fenced,
            approved=self.fleet.approved,
        )

    def _spent(self, now: Moment, window: timedelta) -> int:
        # Our own are counted on the monotonic clock, which does not jump, and whatever becomes of the ledger.
        remembered = sum(now.uptime - at < window.total_seconds() for at in self.memory.deletions)
        return max(remembered, spent_since(read_ledger(self.text), now.wall - window))

    def _weigh_trust(self, found: Survey, seen: Circumstances) -> None:
        if is_clock_doubtful(self.policy, seen) or (found.future and seen.complete):
            self.trust = trusting.doubted(self._doubt(Reason.CLOCK_SKEW), self.trust)
        elif seen.complete and is_mass_stale(found, self.policy, seen):
            # Any other doubt stays the graver cause, such as a clock's: no approval overrides it.
            earlier = None if self.trust.is_earned(self.policy.grace.seconds) else self.trust.cause
            self.trust = trusting.doubted(self._doubt(earlier or Reason.MASS_STALE), self.trust)
        else:
            self.trust = trusting.earned(self.trust, self.fleet.trusted_seconds)

    def _doubt(self, cause: Reason) -> Reason:
        """Remember ``cause`` until it is written down."""
        self.doubt = cause
        return cause

    def _note_refusal(self, admission: Admission, found: Survey, now: datetime) -> None:
        """The contract's two refusals go into the ledger, each once until it changes or a pass goes well."""
        event = {
            Reason.MASS_STALE: LedgerEvent.REFUSED_MASS_STALE,
            Reason.CLOCK_SKEW: LedgerEvent.REFUSED_CLOCK_SKEW,
        }.get(admission.refused or Reason.ACCEPTED)
        if event is None:
            self.memory = replace(self.memory, refusal=None)
            return
        signature = (event.value, admission.message)
        if self.memory.refusal == signature:
            return
        self.memory = replace(self.memory, refusal=signature)
        detail = {"stale": found.stale, "scope": found.scope, "detail": admission.message}
        self._write(line_at(now, event, **detail))

    def _try_all(self, admission: Admission) -> Generator[Ask, Answer, None]:
        for candidate in admission.admitted:
            if len(self.deleted) >= admission.allowed or self.exhausted or self.error is not None:
                return
            yield from self._try(candidate)

    def _try(self, candidate: Candidate) -> Generator[Ask, Answer, None]:
        name = candidate.name
        self.tried.add(name)
        fresh = yield ReadNode(name)
        if isinstance(fresh, Failed):
            if fresh.trouble is not Trouble.GONE:
                self.error = f"reading node {name}: {fresh.message or fresh.trouble}"
            return
        node: FreshNode = fresh
        if node.facts.uid != candidate.uid:
            return
        moment: Moment = yield ReadClock()
        answer = yield from self._judge_fresh(node, moment)
        if answer.outcome is not Outcome.STALE:
            self.held[name] = Held(name=name, reason=answer.reason, until=answer.until)
            return
        if self.memory.rejected.get(candidate.uid, 0.0) > moment.uptime:
            self.held[name] = Held(name=name, reason=Reason.WRITE_REJECTED)
            return
        about: dict[str, Any] = {"node": name, "uid": candidate.uid, "not_ready_since": answer.since}
        about["detail"] = _leftovers(candidate)
        if self.fleet.mode is Mode.DRY_RUN:
            self._rehearse(name, candidate.uid, moment, about)
            return
        if self._spent(moment, window_of(self.policy)) >= self.policy.max_deletes:
            # The clock was set back since the guards were asked; nobody else need be read for that.
            self.exhausted = True
            self.held[name] = Held(name=name, reason=Reason.BUDGET_SPENT)
            return
        yield from self._delete(node, moment, about)

    def _judge_fresh(self, node: FreshNode, moment: Moment) -> Generator[Ask, Answer, Staleness]:
        agents = self.fleet.agents
        verdict = self.verdicts.get(node.facts.name)
        if verdict is None:
            return undetermined(Reason.NOT_AN_AGENT, "the answer is about another node")
        if evidence_of(node.facts, ()) - AGENT_EVIDENCE:
            return undetermined(Reason.IDENTITY_CONFLICT, "its evidence contradicts its labels")
        answer = judge(node.facts, verdict, agents, moment.wall)
        if answer.outcome is not Outcome.STALE or not self.policy.lease_witness:
            return (
                answer
                if answer.outcome is not Outcome.STALE
                else confirm(answer, node, None, agents=agents, now=moment.wall)
            )
        lease = yield ReadNodeLease(node.facts.name)
        if isinstance(lease, Failed) and lease.trouble is not Trouble.GONE:
            return undetermined(Reason.LEASE_UNREADABLE, f"its Lease could not be read: {lease.message}")
        heard: LeaseFacts | None = None if isinstance(lease, Failed) else lease
        return confirm(answer, node, heard, agents=agents, now=moment.wall)

    def _rehearse(self, name: str, uid: str, moment: Moment, about: Mapping[str, Any]) -> None:
        self.deleted.append(name)
        said = {
            (entry.line.node, entry.line.uid)
            for entry in read_ledger(self.text)
            if entry.line is not None
            and entry.line.event == LedgerEvent.DRY_RUN_DELETED
            and entry.at is not None
            and entry.at > moment.wall - DAY
        }
        if (name, uid) not in said:
            self._write(line_at(moment.wall, LedgerEvent.DRY_RUN_DELETED, **about))

    def _delete(self, node: FreshNode, moment: Moment, about: Mapping[str, Any]) -> Generator[Ask, Answer, None]:
        name, uid = node.facts.name, node.facts.uid
        self._write(line_at(moment.wall, LedgerEvent.INTENDED, **about))
        swapped = yield from self._swap(moment.wall)
        if not swapped:
            return
        answer = yield DeleteNode(name, uid, node.facts.resource_version)
        now: Moment = yield ReadClock()
        if answer is None:
            self.deleted.append(name)
            self.memory = replace(self.memory, deletions=(*self.memory.deletions, now.uptime))
            self._write(line_at(now.wall, LedgerEvent.DELETED, **about))
        else:
            failed: Failed = answer
            self._note_failure(name, uid, failed, now, about)
        yield from self._swap(now.wall)

    def _note_failure(self, name: str, uid: str, failed: Failed, now: Moment, about: Mapping[str, Any]) -> None:
        about = {**about, "detail": failed.message or failed.trouble.value}
        if failed.trouble in {Trouble.GONE, Trouble.CHANGED}:
            self._write(line_at(now.wall, LedgerEvent.SKIPPED, **about))
        elif failed.trouble in {Trouble.REFUSED, Trouble.FORBIDDEN}:
            self._write(line_at(now.wall, LedgerEvent.REJECTED, **about))
            rejected = {**self.memory.rejected, uid: now.uptime + _REJECTED_SECONDS}
            self.memory = replace(self.memory, rejected=rejected)
            self.held[name] = Held(name=name, reason=Reason.WRITE_REJECTED)
            if failed.trouble is Trouble.FORBIDDEN:
                self.error = f"deleting node {name}: {about['detail']}"
        else:
            # It may have been done: it stays intended, and spent.
            self.error = f"deleting node {name}: {about['detail']}"

    def _hold_the_rest(self, found: Survey, admission: Admission) -> None:
        admitted = {candidate.name for candidate in admission.admitted}
        for candidate in found.candidates:
            name = candidate.name
            if name in self.deleted or name in self.held or (self.error is None and name in self.tried):
                continue
            reason = Reason.BUDGET_SPENT if self.error is None else Reason.ENDED_EARLY
            reason = admission.refused or (reason if name in admitted else admission.others or reason)
            self.held[name] = Held(name=name, reason=reason, until=admission.until)

    def _fail(self, error: str, reason: Reason) -> None:
        self.error, self.error_reason = error, reason

    def _write(self, line: LedgerLine) -> None:
        self.pending.append(line)
        self.text = append(self.text, [line])

    def _swap(self, now: datetime) -> Generator[Ask, Answer, bool]:
        text = fold(self.text, now - _LONGEST_WINDOW)
        if size_of(text) > SIZE:
            self._fail("the ledger is full", Reason.LEDGER_FULL)
            return False
        self.text = text
        answer = yield SwapLedger(text, trusting.write_trust(self.trust))
        if isinstance(answer, Failed):
            self._fail(f"ledger: {answer.message or answer.trouble}", Reason.LEDGER_UNREADABLE)
            return False
        self.lines += self.pending
        self.pending, self.doubt = [], None
        return True

    def _settle(self) -> Generator[Ask, Answer, None]:
        """Persist trust and refusals once at the end; a failure is said, and undoes nothing."""
        if self.readable and self.error is None:
            entries = read_ledger(self.text)
            if entries and entries[-1].line is None:
                # A good line behind the rubbish tells that it lies no later.
                detail = f"{malformed(entries)} lines cannot be read"
                self._write(line_at(self.began.wall, LedgerEvent.NOTED, detail=detail))
            yield from self._swap(self.began.wall)


def _leftovers(candidate: Candidate) -> str:
    leftovers = f"leaves secret kube-system/{candidate.name}.node-password.k3s and its Lease to their owners"
    if candidate.superseded_by:
        return f"superseded by {candidate.superseded_by}; {leftovers}"
    return leftovers
