"""What a profile's status says, from the verdicts on its nodes.

Counts and at most 20 samples, never a list of all nodes: 12,000 names of 253 characters would burst the
object (bug case B44). Of the conditions ``Ready`` sums up: Accepted, Conformant and no failing writes (reaping
that is held or in dry run does not clear it); it is worked out here and nowhere set by hand.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from clusterconform.contract.facts import NodeFacts
from clusterconform.contract.profile import ProfileObject, Refusal
from clusterconform.contract.reported import condition_of, rows_of
from clusterconform.contract.times import format_time
from clusterconform.contract.verdicts import (
    ADVICE,
    Finding,
    IdentityKind,
    NodeVerdict,
    Reason,
)
from clusterconform.decisions.agent_standing import AgentStanding, blocks_of, results_of
from clusterconform.decisions.standing import Standing, reaping_allowed, reaping_status

SAMPLES: Final = 20
_STATUS_FIELDS: Final = (
    "observedGeneration",
    "nodes",
    "nodeGC",
    "runtimeProbe",
    "addressReconcile",
    "streaming",
    "conditions",
    "samples",
    "truncated",
    "servesKubeletStreaming",
)
_MESSAGE_LENGTH: Final = 512
_IN_ORDER: Final = (
    "Accepted",
    "Conformant",
    "ReapingAllowed",
    "ProbeHealthy",
    "AddressesPublished",
    "StreamingVerified",
    "Ready",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One node of a profile with its verdict, and the failure of the last write to it if there is one."""

    node: NodeFacts
    verdict: NodeVerdict
    failure: str = ""


def status_of(
    profile: ProfileObject,
    refusal: Finding | None,
    nodes: Sequence[Judged],
    *,
    complete: bool,
    now: datetime,
    standing: Standing | None = None,
    agents: AgentStanding | None = None,
) -> Mapping[str, Any]:
    """The status of ``profile`` as JSON values.

    Args:
        profile: The profile, with the status that it shows now (for transition times).
        refusal: Why it is not accepted, or None.
        nodes: The nodes that it names, unidentified ones included.
        complete: Whether all nodes are known.
        now: Wall clock.
        standing: Where reaping by this profile stands; None for a profile that does not reap.
        agents: Where its agents stand; None for a profile that has none.
    """
    own = [seen for seen in nodes if seen.verdict.identity.kind is not IdentityKind.UNIDENTIFIED]
    failing = [seen for seen in own if seen.failure]
    accepted = refusal or Finding(Reason.ACCEPTED, "acts on its nodes")
    conformant = _conformance(own, complete=complete)
    results: dict[str, tuple[str, Finding]] = {
        "Accepted": ("False" if refusal else "True", accepted),
        "Conformant": conformant,
        "Ready": _ready(refusal, conformant, failing),
    }
    if standing is not None:
        results["ReapingAllowed"] = reaping_allowed(standing)
    if agents is not None:
        results |= results_of(agents, complete=complete)
    amiss = [seen for seen in own if seen.failure or not seen.verdict.conformant]
    status: dict[str, Any] = {
        "observedGeneration": profile.generation,
        "nodes": _counts(nodes, own),
        "conditions": [
            _condition(profile, kind, *results[kind], now=now) for kind in _IN_ORDER if kind in results
        ],
        "truncated": len(amiss) > SAMPLES,
    }
    if agents is not None:
        status |= blocks_of(agents)
    if standing is not None:
        status["nodeGC"] = reaping_status(standing)
        if standing.last is not None:
            status["nodes"] = {**status["nodes"], "stale": standing.last.report.survey.stale}
    if amiss:
        # An empty list would come back absent from the API server, and look like a change for ever.
        in_order = sorted(amiss, key=lambda seen: seen.node.name)
        status["samples"] = [_sample(seen) for seen in in_order[:SAMPLES]]
    if not isinstance(profile.contract, Refusal):
        status["servesKubeletStreaming"] = profile.contract.serves_kubelet_streaming
    return status


def own_part(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """What of ``status`` may be ours: no field and no condition of another writer or another version."""
    own = {field: status[field] for field in _STATUS_FIELDS if field in status}
    if isinstance(own.get("conditions"), list):
        own["conditions"] = [seen for seen in rows_of(own, "conditions") if seen.get("type") in _IN_ORDER]
    return own


def node_counts(verdicts: Iterable[NodeVerdict]) -> Mapping[tuple[str, str], int]:
    """How many nodes there are by profile (empty for none) and first reason."""
    counts: dict[tuple[str, str], int] = {}
    for verdict in verdicts:
        profile = verdict.identity.profile
        managed = profile is not None and verdict.identity.kind is not IdentityKind.UNIDENTIFIED
        name = profile.backend if profile is not None and managed else ""
        key = (name, first_reason(verdict))
        counts[key] = counts.get(key, 0) + 1
    return counts


def first_reason(verdict: NodeVerdict) -> Reason:
    """The first reason why a node does not conform, or that it does."""
    return next((seen.reason for seen in verdict.findings if seen.reason not in ADVICE), Reason.CONFORMS)


def _counts(nodes: Sequence[Judged], own: Sequence[Judged]) -> Mapping[str, int]:
    kinds = [seen.verdict.identity.kind for seen in own]
    conformant = sum(seen.verdict.conformant for seen in own)
    conflicting = kinds.count(IdentityKind.CONFLICTING)
    return {
        "total": len(own),
        "conformant": conformant,
        "drifted": len(own) - conformant - conflicting,
        "conflicting": conflicting,
        "contested": sum(bool(seen.verdict.contested) for seen in own),
        "notReady": sum(seen.node.ready is None or seen.node.ready.status != "True" for seen in own),
        "unidentified": len(nodes) - len(own),
    }


def _conformance(own: Sequence[Judged], *, complete: bool) -> tuple[str, Finding]:
    if not complete:
        return "Unknown", Finding(Reason.EVIDENCE_INCOMPLETE, "not all nodes and profiles are known yet")
    if not own:
        return "True", Finding(Reason.NO_NODES, "no node claims this backend")
    amiss = [seen for seen in own if not seen.verdict.conformant]
    if not amiss:
        return "True", Finding(Reason.CONFORMS, f"all {len(own)} nodes conform")
    reasons = sorted({first_reason(seen.verdict).value for seen in amiss})
    message = f"{len(amiss)} of {len(own)} nodes do not conform: {', '.join(reasons)}"
    return "False", Finding(Reason.NODES_NOT_CONFORMANT, message)


def _ready(
    refusal: Finding | None, conformant: tuple[str, Finding], failing: Sequence[Judged]
) -> tuple[str, Finding]:
    # False beats Unknown beats True; the first of the dependents that is not True gives the reason.
    if refusal is not None:
        return "False", refusal
    if failing:
        first = failing[0]
        message = f"writes to {len(failing)} nodes fail, such as {first.node.name}: {first.failure}"
        return "False", Finding(Reason.WRITES_FAILING, _short(message))
    return conformant


def _condition(profile: ProfileObject, kind: str, status: str, finding: Finding, *, now: datetime) -> Any:
    seen = condition_of(profile.status, kind)
    kept = seen.get("lastTransitionTime") if seen.get("status") == status else None
    return {
        "type": kind,
        "status": status,
        "reason": finding.reason.value,
        "message": finding.message,
        "observedGeneration": profile.generation,
        "lastTransitionTime": kept or format_time(now),
    }


def _sample(seen: Judged) -> Mapping[str, str]:
    messages = [finding.message for finding in seen.verdict.findings]
    reason = Reason.WRITES_FAILING if seen.failure else first_reason(seen.verdict)
    message = seen.failure or "; ".join(messages)
    return {"name": seen.node.name, "reason": reason.value, "message": _short(message)}


def _short(message: str) -> str:
    # Bytes, not characters: 20 samples in a script of three bytes each would burst the 32 kB otherwise.
    return message.encode()[:_MESSAGE_LENGTH].decode(errors="ignore")
