"""May any node be deleted now? The predicate judges one node, this judges the fleet.

The guards, in order; the first that refuses ends the pass:

 1. Evidence is complete: a full list under this leadership, a live stream, settled.
 2. The wall clock has not jumped ahead of the monotonic one since the last pass, and is the API server's.
 3. No eligible node's Ready transition lies in the future.
 4. Not too large a share of the fleet is stale. Deletions of the last 24 h count on both sides, so that
    deleting cannot lower the bar.
 5. The operator has been up for ``minUptime``.
 6. The ledger could be read.
 7. The budget of the window is not spent.
 8. Trust is earned (``decisions.trust``).
 9. The admission policy that fences us is in force.
10. The share of the fleet that may go in 24 h is not gone.

2-7 are the contract's (§3.3), in its order; the rest is ours and can only refuse more. A person can approve one
node (``outpost.dhnt.io/approve-reap``): that overrides 4, 8 after a mass-stale, and 10, for it alone.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from clusterconform.contract.facts import NodeFacts
from clusterconform.contract.names import HOST_LABEL
from clusterconform.contract.reaping import Agents, Held
from clusterconform.contract.settings import NodeGC
from clusterconform.contract.verdicts import NodeVerdict, Reason
from clusterconform.decisions.staleness import (
    Outcome,
    Staleness,
    dead_since,
    is_eligible,
    is_from_the_future,
    judge,
)
from clusterconform.decisions.trust import Trust

# Below two stale nodes the breaker would make a fleet of one or two agents unrepairable (contract §3.1).
_FLOOR = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A stale node, as listed.

    Attributes:
        name: Its name.
        uid: Its uid.
        since: Since when it is not Ready.
        superseded_by: A Ready node of the same host, if there is one: then this is the ghost of a rejoin.
    """

    name: str
    uid: str
    since: datetime
    superseded_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The fleet at one moment.

    Attributes:
        scope: Eligible nodes.
        stale: Those of them that are dead by the contract's count.
        future: Those of them whose transition lies in the future.
        candidates: Stale nodes without an objection, oldest first, then by name.
        undecided: Nodes that count as stale and are no candidates, with the objection to each.
        answers: By name, the answer for every node.
    """

    scope: int
    stale: int
    future: int
    candidates: tuple[Candidate, ...]
    undecided: tuple[Held, ...]
    answers: Mapping[str, Staleness]


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What the guards look at beside the fleet.

    Attributes:
        now: Wall clock.
        uptime: Monotonic seconds of leadership and sync.
        complete: Whether the evidence is complete.
        jumped: Whether the wall clock jumped since the last pass.
        clock_difference: Seconds by which the API server's clock is ahead of ours; None where that is unknown.
        ledger_read: Whether the ledger could be read.
        spent_in_window: Deletions that count in the budget window.
        spent_in_day: Deletions that count in the last 24 h.
        trust: The trust.
        fenced: Whether the admission policy is in force; None where it was not asked.
        approved: The node that a person approved, as name and uid, or None.
    """

    now: datetime
    uptime: float
    complete: bool
    jumped: bool
    ledger_read: bool
    spent_in_window: int
    spent_in_day: int
    trust: Trust
    clock_difference: float | None = None
    fenced: bool | None = None
    approved: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """What the guards say.

    Attributes:
        refused: The guard that refuses, None where some may go.
        message: Its reason in one sentence.
        until: When it may say otherwise by time alone; None where it will not.
        allowed: How many may go in this pass.
        admitted: Who may be tried, in order.
        others: The guard that holds everybody but the one that a person approved, or None.
    """

    refused: Reason | None
    message: str = ""
    until: datetime | None = None
    allowed: int = 0
    admitted: tuple[Candidate, ...] = ()
    others: Reason | None = None


def survey(nodes: Iterable[tuple[NodeFacts, NodeVerdict]], agents: Agents, now: datetime) -> Survey:
    """Judge every node of ``nodes``."""
    seen = list(nodes)
    answers = {str(node.name): judge(node, verdict, agents, now) for node, verdict in seen}
    # A node whose deletion is under way is neither living nor to be deleted again (contract D26).
    eligible = [node for node, _ in seen if not node.terminating and is_eligible(node, agents)]
    future = [node for node in eligible if is_from_the_future(node, agents, now)]
    ahead = {node.name for node in future}
    ready = {
        node.labels.get(HOST_LABEL, ""): node.name
        for node in eligible
        if node.ready is not None and node.ready.status == "True"
    }
    candidates = [
        Candidate(
            name=node.name,
            uid=node.uid,
            since=answer.since,
            superseded_by=ready.get(node.labels.get(HOST_LABEL, ""), ""),
        )
        for node in eligible
        if (answer := answers[node.name]).outcome is Outcome.STALE
        and answer.since is not None
        and node.name not in ahead
    ]
    dead = [node for node in eligible if node.name not in ahead and dead_since(node, agents, now) is not None]
    undecided = [
        Held(name=node.name, reason=answer.reason, until=answer.until)
        for node in dead
        if (answer := answers[node.name]).outcome is not Outcome.STALE
    ]
    return Survey(
        scope=len(eligible),
        stale=len(dead),
        future=len(future),
        candidates=tuple(sorted(candidates, key=lambda candidate: (candidate.since, candidate.name))),
        undecided=tuple(sorted(undecided, key=lambda held: held.name)),
        answers=answers,
    )


def admit(fleet: Survey, policy: NodeGC, seen: Circumstances) -> Admission:
    """What the guards say of ``fleet``; see the module's text."""
    for guard in (_evidence, _clock, _future, _mass_stale, _uptime, _ledger, _budget, _trust, _fence, _daily):
        refusal = guard(fleet, policy, seen)
        if refusal is not None and not _is_overridden(refusal, fleet, seen):
            return refusal
    left = policy.max_deletes - seen.spent_in_window
    admitted = fleet.candidates
    refusals = [
        found for guard in (_mass_stale, _trust, _daily) if (found := guard(fleet, policy, seen)) is not None
    ]
    if refusals:  # but for the approved one
        held = refusals[0]
        return replace(held, refused=None, others=held.refused, allowed=left, admitted=_approved(fleet, seen))
    left = min(left, _allowed_today(fleet, policy, seen))
    return Admission(refused=None, allowed=left, admitted=admitted)


def is_mass_stale(fleet: Survey, policy: NodeGC, seen: Circumstances) -> bool:
    """Guard 4 alone: also while it lasts, trust is doubted."""
    return _mass_stale(fleet, policy, seen) is not None


def _evidence(_: Survey, policy: NodeGC, seen: Circumstances) -> Admission | None:
    if seen.complete and seen.uptime >= policy.settle.seconds:
        return None
    return Admission(
        refused=Reason.EVIDENCE_INCOMPLETE, message="nodes and profiles are not known for long enough"
    )


def is_clock_doubtful(policy: NodeGC, seen: Circumstances) -> bool:
    """Guard 2 alone: also while it lasts, trust is doubted."""
    return _clock(None, policy, seen) is not None


def _clock(_: Survey | None, policy: NodeGC, seen: Circumstances) -> Admission | None:
    if seen.jumped:
        tolerance = policy.clock_jump_tolerance.text
        message = f"the wall clock ran ahead of the monotonic one by more than {tolerance}"
    elif seen.clock_difference is not None and abs(seen.clock_difference) > policy.future_tolerance.seconds:
        way = "behind" if seen.clock_difference > 0 else "ahead of"
        message = f"our clock is {way} the API server's by more than {policy.future_tolerance.text}"
    else:
        return None
    return Admission(refused=Reason.CLOCK_SKEW, message=message)


def _future(fleet: Survey, policy: NodeGC, _: Circumstances) -> Admission | None:
    if not fleet.future:
        return None
    message = f"{fleet.future} nodes changed more than {policy.future_tolerance.text} in the future"
    return Admission(refused=Reason.CLOCK_SKEW, message=message)


def _mass_stale(fleet: Survey, policy: NodeGC, seen: Circumstances) -> Admission | None:
    gone = _gone_today(policy, seen)
    stale, scope = fleet.stale + gone, fleet.scope + gone
    if stale < _FLOOR or stale * 100 <= policy.max_stale_percent * scope:
        return None
    message = f"{stale}/{scope} agents are stale or were reaped today, more than {policy.max_stale_percent} %"
    return Admission(refused=Reason.MASS_STALE, message=message)


def _uptime(_: Survey, policy: NodeGC, seen: Circumstances) -> Admission | None:
    left = policy.min_uptime.seconds - seen.uptime
    if left <= 0:
        return None
    return Admission(
        refused=Reason.MIN_UPTIME,
        message=f"leading and synced for less than {policy.min_uptime.text}",
        until=seen.now + timedelta(seconds=left),
    )


def _ledger(_: Survey, __: NodeGC, seen: Circumstances) -> Admission | None:
    if seen.ledger_read:
        return None
    return Admission(refused=Reason.LEDGER_UNREADABLE, message="the ledger could not be read")


def _budget(_: Survey, policy: NodeGC, seen: Circumstances) -> Admission | None:
    if seen.spent_in_window < policy.max_deletes:
        return None
    message = f"{seen.spent_in_window} of {policy.max_deletes} deletions of this window are spent"
    return Admission(refused=Reason.BUDGET_SPENT, message=message)


def _trust(_: Survey, policy: NodeGC, seen: Circumstances) -> Admission | None:
    left = policy.grace.seconds - seen.trust.seconds
    if not policy.reearn_trust or seen.trust.is_earned(policy.grace.seconds):
        return None
    return Admission(
        refused=Reason.UNTRUSTED,
        message=f"less than {policy.grace.text} have passed since {seen.trust.cause}",
        until=seen.now + timedelta(seconds=left),
    )


def _fence(_: Survey, policy: NodeGC, seen: Circumstances) -> Admission | None:
    if not policy.require_fence or seen.fenced is not False:
        return None
    return Admission(refused=Reason.NOT_FENCED, message="the admission policy that fences us is not in force")


def _daily(fleet: Survey, policy: NodeGC, seen: Circumstances) -> Admission | None:
    if _allowed_today(fleet, policy, seen) > 0:
        return None
    share = policy.max_reaped_percent_per_day
    message = f"{seen.spent_in_day} agents were reaped within 24 h, all that {share} % allow"
    return Admission(refused=Reason.DAILY_LIMIT, message=message)


def _gone_today(policy: NodeGC, seen: Circumstances) -> int:
    return 0 if policy.max_reaped_percent_per_day >= 100 else seen.spent_in_day  # noqa: PLR2004 - switched off


def _allowed_today(fleet: Survey, policy: NodeGC, seen: Circumstances) -> int:
    if policy.max_reaped_percent_per_day >= 100:  # noqa: PLR2004 - switched off
        return policy.max_deletes
    gone = seen.spent_in_day
    share = math.ceil(policy.max_reaped_percent_per_day * (fleet.scope + gone) / 100)
    return max(policy.max_deletes, share) - gone


def overrides(refused: str | None, doubt: str | None) -> bool:
    """Whether a person's approval of one node overrides a guard for it.

    Args:
        refused: The guard's reason.
        doubt: The last doubt: where it was a clock, ``Untrusted`` holds for the approved node too.
    """
    if refused == Reason.UNTRUSTED:
        return doubt == Reason.MASS_STALE
    return refused in {Reason.MASS_STALE, Reason.DAILY_LIMIT}


def _approved(fleet: Survey, seen: Circumstances) -> tuple[Candidate, ...]:
    return tuple(candidate for candidate in fleet.candidates if (candidate.name, candidate.uid) == seen.approved)


def _is_overridden(refusal: Admission, fleet: Survey, seen: Circumstances) -> bool:
    return overrides(refusal.refused, seen.trust.cause) and bool(_approved(fleet, seen))
