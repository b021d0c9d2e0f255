"""One node, one decision: facts, profiles, memory and now give verdict, plan, memory and a next look.

Everything that is ever written to a Node is planned here. The plan is empty for a node that is being deleted,
and for one that no accepted, enforcing profile manages, apart from turning our own condition to Unknown. Marks of
the probe and the endpoint need an accepted, enforcing agent profile, but not that it manages the node: it may
include nodes that nobody claims. They are no part of conformance: a node with a broken runtime may conform.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from clusterconform.contract.facts import NodeFacts, Taint, marks_listed
from clusterconform.contract.memory import NodeMemory
from clusterconform.contract.plan import (
    CONDITION_MARK,
    PROVIDER_TAINT_MARK,
    UNAVAILABLE_TAINT_MARK,
    ConditionWrite,
    EndpointWrite,
    MarksPatch,
    Plan,
)
from clusterconform.contract.profile import Enforcement, RuntimeProfile
from clusterconform.contract.settings import ProbeMode
from clusterconform.contract.times import Moment
from clusterconform.contract.verdicts import (
    ADVICE,
    Catalogue,
    Finding,
    Identity,
    IdentityKind,
    NodeVerdict,
    Reason,
)
from clusterconform.decisions import conditions, contention, sandbox
from clusterconform.decisions.addresses import AddressVerdict, annotation_drift, hindered, within_limit, write_of
from clusterconform.decisions.addresses import judge as judge_address
from clusterconform.decisions.conformance import Drift, drifts_of, flaws_of, is_provider_taint
from clusterconform.decisions.identity import classify
from clusterconform.decisions.scope import acting_agent
from clusterconform.decisions.surroundings import ALONE, Surroundings


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What follows for one node.

    Attributes:
        verdict: Whether it conforms, and why not.
        plan: What is to be written now.
        memory: What is to be remembered.
        address: Where its endpoint stands.
        recheck_after: Seconds after which the answer may differ although nothing changed; None for never.
    """

    verdict: NodeVerdict
    plan: Plan
    memory: NodeMemory
    address: AddressVerdict
    recheck_after: float | None = None


def decide(
    node: NodeFacts,
    catalogue: Catalogue,
    memory: NodeMemory,
    now: Moment,
    around: Surroundings = ALONE,
) -> Decision:
    """What follows for ``node`` among ``around`` at ``now``; see the module's text."""
    agent = acting_agent(catalogue)
    may_mark = agent is not None and agent.enforcement is Enforcement.ENFORCE and not node.terminating
    extra = _Extra()
    if agent is not None and may_mark:
        extra, memory = _extra(node, around, agent, memory, now)
    identity = around.identity or classify(node, catalogue)
    made = _conform(node, identity, catalogue, memory, now=now, extra=extra)
    waits = [wait for wait in (made.recheck_after, *extra.waits) if wait is not None]
    verdict = judge_address(node, around.endpoint, around.mode, around.outside)
    return Decision(
        verdict=made.verdict,
        plan=replace(made.plan, endpoint=extra.endpoint),
        memory=made.memory,
        address=hindered(verdict, made.memory),
        recheck_after=min(waits, default=None),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Conformed:
    """What follows from a node's conformance alone, without its endpoint."""

    verdict: NodeVerdict
    plan: Plan
    memory: NodeMemory
    recheck_after: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Extra:
    """What the probe and the address want of one node beside its conformance."""

    drifts: list[Drift] = field(default_factory=list)
    endpoint: EndpointWrite | None = None
    waits: tuple[float | None, ...] = ()


def _extra(
    node: NodeFacts, around: Surroundings, agent: RuntimeProfile, memory: NodeMemory, now: Moment
) -> tuple[_Extra, NodeMemory]:
    drifts, wait, write, rest = [], None, None, None
    if not around.probed:
        drifts += sandbox.leftovers_of(node)
    elif around.probe is not None and agent.runtime_probe is not None:
        holds, memory, wait = sandbox.stabilized(around.probe, memory, agent.runtime_probe, now.uptime)
        if holds and agent.runtime_probe.mode is ProbeMode.ENFORCE:
            drifts += sandbox.drifts_of(node, around.probe, now)
    if around.endpoint is not None:
        drift = annotation_drift(node, around.endpoint, around.mode)
        drifts += [drift] if drift else []
        write = write_of(node, around.endpoint, around.mode)
        write, memory, rest = within_limit(write, memory, now.uptime)
    return _Extra(drifts=drifts, endpoint=write, waits=(wait, rest)), memory


def _conform(
    node: NodeFacts, identity: Identity, catalogue: Catalogue, memory: NodeMemory, *, now: Moment, extra: _Extra
) -> _Conformed:
    profile = identity.profile
    managed = identity.kind is IdentityKind.MANAGED and profile is not None
    drifts = drifts_of(node, profile) if managed and profile else []
    flaws = flaws_of(node, profile) if managed and profile else []
    own = [identity.finding] if identity.finding else []
    why = _why_released(identity, catalogue)
    if profile is None or why or node.terminating:
        findings = (*own, *(drift.finding for drift in drifts), *flaws)
        verdict = NodeVerdict(identity=identity, findings=findings)
        return _released(node, verdict, memory, now, why=why, extra=extra)
    # On a node whose evidence contradicts its claim nothing but the condition is written.
    more = [] if identity.kind is IdentityKind.CONFLICTING else extra.drifts
    memory = contention.amiss(memory, [drift.mark for drift in (*drifts, *more)], now.uptime)
    contested = [drift for drift in (*drifts, *more) if drift.mark in memory.contested]
    amiss = _Amiss(
        identity=identity,
        drifts=[drift for drift in drifts if drift not in contested],
        extra=[drift for drift in more if drift not in contested],
        blocked=[*own, *map(_contested, contested)],
        flaws=flaws,
    )
    return _enforce(node, profile, amiss, memory, now)


def _released(
    node: NodeFacts, verdict: NodeVerdict, memory: NodeMemory, now: Moment, *, why: str, extra: _Extra
) -> _Conformed:
    """What is left to do on a node that no profile keeps to its contract."""
    condition = None if node.terminating else conditions.released(node, why, now)
    # Timers start afresh when enforcement comes back; quarrels do not, or flipping the claim would end them.
    memory = replace(memory, clean_since=None, drift_since=None)
    condition, memory = _unless_contested(condition, memory, now)
    memory = contention.amiss(memory, [drift.mark for drift in extra.drifts], now.uptime)
    marks = _patch(node, [drift for drift in extra.drifts if drift.mark not in memory.contested])
    memory = _still_rejected(memory, marks)
    return _Conformed(
        verdict=verdict,
        plan=Plan(marks=None if memory.rejected is not None else marks, condition=condition),
        memory=memory,
        recheck_after=_rests(memory, now),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Amiss:
    """What is amiss on one node: what we put right now, what we may not, and what others must."""

    identity: Identity
    drifts: list[Drift]
    extra: list[Drift]
    blocked: list[Finding]
    flaws: list[Finding]


def _enforce(
    node: NodeFacts, profile: RuntimeProfile, amiss: _Amiss, memory: NodeMemory, now: Moment
) -> _Conformed:
    marks = _patch(node, [*amiss.drifts, *amiss.extra])
    memory = _still_rejected(memory, marks)
    blocked = list(amiss.blocked)
    if memory.rejected is not None:
        blocked.append(Finding(Reason.WRITE_REJECTED, f"the API server refuses our patch: {memory.rejected[1]}"))
    blocked += [flaw for flaw in amiss.flaws if flaw.reason not in ADVICE]
    advice = [flaw for flaw in amiss.flaws if flaw.reason in ADVICE]
    findings = [*blocked, *(drift.finding for drift in amiss.drifts), *advice]
    verdict = NodeVerdict(
        identity=amiss.identity, findings=tuple(findings), contested=tuple(sorted(memory.contested))
    )
    memory = _timed(memory, clean=verdict.conformant, drifted=bool(amiss.drifts), uptime=now.uptime)
    condition, recheck = _condition(node, profile, _Words(blocked, findings, advice), memory, now)
    condition, memory = _unless_contested(condition, memory, now)
    waits = [wait for wait in (recheck, _rests(memory, now)) if wait is not None]
    return _Conformed(
        verdict=verdict,
        plan=Plan(marks=None if memory.rejected is not None else marks, condition=condition),
        memory=memory,
        recheck_after=min(waits, default=None),
    )


@dataclass(frozen=True, slots=True)
class _Words:
    """What a condition can say: what we may not or cannot repair, all of it, and advice."""

    blocked: list[Finding]
    findings: list[Finding]
    advice: list[Finding]


def _condition(
    node: NodeFacts, profile: RuntimeProfile, words: _Words, memory: NodeMemory, now: Moment
) -> tuple[ConditionWrite | None, float | None]:
    """The condition to write now, if any, and the seconds after which to look again."""
    if memory.clean_since is not None:
        left = _left(memory.clean_since, conditions.CLEAN_SECONDS, now)
        return (conditions.conforming(node, profile, words.advice, now), None) if left is None else (None, left)
    left = None if memory.drift_since is None else _left(memory.drift_since, conditions.DRIFT_SECONDS, now)
    if left is None:
        return conditions.failing(node, words.findings, now), None
    if words.blocked and memory.rejected is not None:
        return conditions.failing(node, words.findings, now), left
    if words.blocked:
        # A drift that is being repaired is left out: naming it would cost a second write after the repair.
        return conditions.failing(node, [*words.blocked, *words.advice], now), left
    return None, left


def _rests(memory: NodeMemory, now: Moment) -> float | None:
    """Seconds until the first contested mark is tried again."""
    return min((until - now.uptime for until in memory.contested.values()), default=None)


def fingerprint(marks: MarksPatch) -> str:
    """What makes two patches the same, so that one refused for good is not sent again; times are no part of it."""
    taints = tuple(replace(taint, time_added=None) for taint in marks.taints or ())
    return repr(replace(marks, taints=taints))


def _still_rejected(memory: NodeMemory, marks: MarksPatch | None) -> NodeMemory:
    """``memory`` without a refusal that was about another patch."""
    if memory.rejected is None or (marks is not None and memory.rejected[0] == fingerprint(marks)):
        return memory
    return replace(memory, rejected=None)


def marks_written(memory: NodeMemory, marks: MarksPatch, now: Moment) -> NodeMemory:
    """``memory`` after ``marks`` were written."""
    return replace(contention.written(memory, marks.marks, now.uptime), rejected=None)


def marks_rejected(memory: NodeMemory, marks: MarksPatch, message: str) -> NodeMemory:
    """``memory`` after the API server refused ``marks`` for good."""
    return replace(memory, rejected=(fingerprint(marks), message))


def condition_written(memory: NodeMemory, condition: ConditionWrite, now: Moment) -> NodeMemory:
    """``memory`` after ``condition`` was written; another text begins a new count."""
    if memory.condition != condition.text:
        others = {mark: times for mark, times in memory.repairs.items() if mark != CONDITION_MARK}
        memory = replace(memory, repairs=others)
    return replace(contention.written(memory, [CONDITION_MARK], now.uptime), condition=condition.text)


def _why_released(identity: Identity, catalogue: Catalogue) -> str:
    """Why no profile keeps this node to its contract; empty where one does."""
    profile = identity.profile
    if identity.kind in {IdentityKind.UNIDENTIFIED, IdentityKind.UNKNOWN_BACKEND}:
        return identity.finding.message if identity.finding else ""
    if profile is None or profile.backend in catalogue.refusals:
        return "its RuntimeProfile is not accepted"
    if profile.enforcement is Enforcement.OBSERVE:
        return f"RuntimeProfile {profile.backend} only observes"
    return ""


def _contested(drift: Drift) -> Finding:
    # Without the value that it has now: two writers who alternate would make each change of it a write.
    return Finding(Reason.CONTESTED, f"another writer keeps putting {drift.mark} back")


def _timed(memory: NodeMemory, *, clean: bool, drifted: bool, uptime: float) -> NodeMemory:
    clean_since = (uptime if memory.clean_since is None else memory.clean_since) if clean else None
    drift_since = (uptime if memory.drift_since is None else memory.drift_since) if drifted else None
    if (clean_since, drift_since) == (memory.clean_since, memory.drift_since):
        return memory
    return replace(memory, clean_since=clean_since, drift_since=drift_since)


def _left(since: float | None, seconds: float, now: Moment) -> float | None:
    """Seconds left of ``seconds`` since ``since``; None when they are over."""
    left = (now.uptime if since is None else since) + seconds - now.uptime
    return left if left > 0 else None


def _unless_contested(
    condition: ConditionWrite | None, memory: NodeMemory, now: Moment
) -> tuple[ConditionWrite | None, NodeMemory]:
    if condition is None or memory.condition != condition.text:
        return condition, memory
    # It reads otherwise than we last wrote it, so somebody else wrote it: the same rule as for any mark.
    memory = contention.amiss(memory, [CONDITION_MARK], now.uptime)
    return (None if CONDITION_MARK in memory.contested else condition), memory


def _patch(node: NodeFacts, drifts: Iterable[Drift]) -> MarksPatch | None:
    drifts = list(drifts)
    if not drifts:
        return None
    listed = set(marks_listed(node))
    taints: tuple[Taint, ...] | None = None
    for drift in drifts:
        if drift.mark == PROVIDER_TAINT_MARK:
            taints = _with_provider_taint(node.taints or () if taints is None else taints, drift.taint)
        if drift.mark == UNAVAILABLE_TAINT_MARK:
            seen = node.taints or () if taints is None else taints
            taints = sandbox.with_unavailable_taint(seen, drift.taint)
        if drift.released:
            listed.discard(drift.mark)
        elif drift.ours:
            listed.add(drift.mark)
    return MarksPatch(
        labels=dict(drift.label for drift in drifts if drift.label),
        annotations=dict(drift.annotation for drift in drifts if drift.annotation),
        taints=taints,
        listed=tuple(sorted(listed)),
        marks=tuple(sorted(drift.mark for drift in drifts)),
        why="; ".join(dict.fromkeys(drift.finding.message for drift in drifts)),
    )


def _with_provider_taint(taints: tuple[Taint, ...], wanted: Taint | None) -> tuple[Taint, ...]:
    """``taints`` with the provider taint as ``wanted``, in its old place or last; all others untouched."""
    if wanted is None:
        return tuple(taint for taint in taints if not is_provider_taint(taint))
    if any(is_provider_taint(taint) for taint in taints):
        return tuple(wanted if is_provider_taint(taint) else taint for taint in taints)
    return (*taints, wanted)
