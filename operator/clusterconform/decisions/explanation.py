"""Why a node is treated as it is: every verdict on it, worked out by the code of the operator.

What only the operator knows is read where it wrote it down: the quarrels of the last hour in the node's own
condition, the fleet's guards in the status of its profile, with the time of which they speak.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from clusterconform.contract.facts import Condition, NodeFacts
from clusterconform.contract.memory import EMPTY, NodeMemory
from clusterconform.contract.objects import Path
from clusterconform.contract.plan import Plan
from clusterconform.contract.profile import Capability, ProfileObject, RuntimeProfile
from clusterconform.contract.reported import condition_of, held_row, reaping_of
from clusterconform.contract.times import Moment, format_time
from clusterconform.contract.verdicts import Catalogue, Finding, IdentityKind, Reason
from clusterconform.contract.witness import LeaseFacts, read_fresh_node, read_lease
from clusterconform.contract.writers import last_writer
from clusterconform.decisions import addresses
from clusterconform.decisions.checking import FIELDS
from clusterconform.decisions.contention import REST_SECONDS
from clusterconform.decisions.gate import accept
from clusterconform.decisions.looking import Look, look_at
from clusterconform.decisions.rehearsal import agents_of, staleness_of
from clusterconform.decisions.sandbox import Runtime
from clusterconform.decisions.staleness import Outcome, Staleness, confirm, undetermined
from clusterconform.decisions.world import World, facts_of, name_of

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """A cluster as it was read.

    Attributes:
        world: Nodes, profiles with their status, probe pods.
        now: When.
        leases: Leases of nodes that were asked for, by node; None where the node has none.
        unreadable: Why a Lease could not be read, by node.
        trials: What a try to reach its kubelet through the API server told, by node.
    """

    world: World
    now: Moment
    leases: Mapping[str, Json | None] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    trials: Mapping[str, Finding] = field(default_factory=dict)


def explain(sight: Sight, names: Iterable[str] | None = None) -> list[Json]:
    """What is to be said of the nodes called ``names``, or of all, as JSON values in the order of the world.

    Raises:
        UnusableWorldError: A node with a field of a type that no API server would accept.
    """
    catalogue = accept(sight.world.profiles)
    facts = [facts_of(name_of(manifest), manifest) for manifest in sight.world.nodes]
    looks = look_at(sight.world, facts, catalogue, sight.now, lambda node: remembered(node, sight.now))
    judged = [(look.facts, look.decision.verdict) for look in looks]
    answers = staleness_of(judged, catalogue, sight.now)
    wanted = None if names is None else set(names)
    return [
        _explained(look, sight, catalogue, answers.get(look.facts.name))
        for look in looks
        if wanted is None or look.facts.name in wanted
    ]


def remembered(node: NodeFacts, now: Moment) -> NodeMemory:
    """What the operator's condition on ``node`` tells of its quarrels: the marks that it leaves alone."""
    seen = node.conformant
    if seen is None or seen.reason != Reason.CONTESTED:
        return EMPTY
    clauses = [clause.split() for clause in seen.message.split("; ")]
    marks = [words[-2] for words in clauses if words[:4] == ["another", "writer", "keeps", "putting"]]
    return NodeMemory(contested=dict.fromkeys(marks, now.uptime + REST_SECONDS))


def _explained(look: Look, sight: Sight, catalogue: Catalogue, staleness: Staleness | None) -> Json:
    node, verdict = look.facts, look.decision.verdict
    identity = verdict.identity
    owned = identity.kind in {IdentityKind.MANAGED, IdentityKind.CONFLICTING}
    profile = identity.profile if owned else None
    return {
        "node": node.name,
        "uid": node.uid,
        "profile": profile.backend if profile else None,
        "class": profile.node_class.value if profile else None,
        "enforcement": profile.enforcement.value if profile else None,
        "identity": {
            "kind": identity.kind.value,
            "evidence": sorted(evidence.value for evidence in identity.evidence),
        },
        "ready": _condition(node.ready),
        "conformant": verdict.conformant,
        "findings": [_finding(finding, look.manifest) for finding in verdict.findings],
        "condition": _condition(node.conformant),
        "capabilities": _capabilities(look, profile, sight),
        "endpoint": _endpoint(look),
        "kubeletPath": _path(sight.trials.get(node.name)),
        "probe": _probe(look),
        "reaping": _reaping(look, sight, catalogue, staleness),
        "wouldWrite": _words_of(look.decision.plan),
    }


def field_of(finding: Finding) -> Path:
    """The field of a Node that ``finding`` is about; empty where it is about none."""
    if finding.reason is not Reason.CONTESTED:
        return FIELDS.get(finding.reason, ())
    # The message names the mark, and a mark names its field; the condition is none of the node's own.
    kind, _, key = next((word for word in finding.message.split() if ":" in word), "").partition(":")
    return ("spec", "taints") if kind == "taint" else ("metadata", f"{kind}s", key) if kind else ()


def _finding(finding: Finding, manifest: Json) -> Json:
    path = field_of(finding)
    writer = last_writer(manifest, path) if path else None
    return {
        "reason": finding.reason.value,
        "message": finding.message,
        "lastWriter": {"name": writer.manager, "at": format_time(writer.at)} if writer else None,
    }


def _condition(seen: Condition | None) -> Json | None:
    if seen is None:
        return None
    since = format_time(seen.transition) if seen.transition else None
    return {"status": seen.status, "reason": seen.reason, "message": seen.message, "since": since}


def _capabilities(look: Look, profile: RuntimeProfile | None, sight: Sight) -> Sequence[Json]:
    """What the profile claims, and what of it is proven: by the probe that pods run, by its log that logs do."""
    probe = look.around.probe
    proven: dict[Capability, bool] = {}
    if probe is not None and probe.runtime is not Runtime.NONE:
        proven[Capability.POD_LIFECYCLE] = probe.runtime is Runtime.READY
    if look.facts.name in sight.trials:
        works = sight.trials[look.facts.name].reason is Reason.STREAMING_VERIFIED
        proven[Capability.KUBELET_LOG_STREAM] = works
    return [
        {
            "name": capability.value,
            "claimed": profile is not None and profile.serves(capability),
            "verified": proven.get(capability),
        }
        for capability in Capability
    ]


def _endpoint(look: Look) -> Json:
    verdict = look.decision.address
    return {
        **addresses.as_values(verdict),
        "message": verdict.finding.message,
        "observedAddress": verdict.observed_address or None,
        "observedPort": verdict.observed_port or None,
        "patched": verdict.patched,
    }


def _path(trial: Finding | None) -> Json | None:
    return None if trial is None else {"reason": trial.reason.value, "message": trial.message}


def _probe(look: Look) -> Json:
    verdict = look.around.probe
    cause = verdict.cause if verdict else look.unprobed
    return {
        "verdict": (verdict.runtime if verdict else Runtime.NONE).value,
        "reason": cause.reason.value,
        "message": cause.message,
        "held": verdict.held if verdict else False,
    }


def _reaping(look: Look, sight: Sight, catalogue: Catalogue, answer: Staleness | None) -> Json:
    answer = answer or undetermined(Reason.NOT_AN_AGENT, "no profile of class agent is accepted")
    answer = _heard(answer, look, sight, catalogue)
    agents = agents_of(catalogue)
    status = _status_of(sight.world.profiles, agents.backend if agents else "")
    held = held_row(status, look.facts.name)
    return {
        "candidate": answer.outcome is Outcome.STALE,
        "staleness": answer.outcome.value,
        "reason": answer.reason.value,
        "message": answer.message,
        "since": _time(answer.since),
        "until": _time(answer.until),
        "held": {"reason": held.get("reason"), "until": held.get("until")} if held else None,
        "asOf": reaping_of(status).get("lastPass"),
        "guard": _guard(status) if answer.outcome is Outcome.STALE else None,
    }


def _heard(answer: Staleness, look: Look, sight: Sight, catalogue: Catalogue) -> Staleness:
    """``answer`` after the other witnesses were heard, where they were asked for."""
    name, agents = look.facts.name, agents_of(catalogue)
    if answer.outcome is not Outcome.STALE or agents is None:
        return answer
    if name in sight.unreadable:
        return undetermined(Reason.LEASE_UNREADABLE, sight.unreadable[name])
    if name not in sight.leases:
        return answer
    raw = sight.leases[name]
    lease: LeaseFacts | None = None if raw is None else read_lease(raw)
    return confirm(answer, read_fresh_node(look.manifest), lease, agents=agents, now=sight.now.wall)


def _guard(status: Json) -> Json | None:
    """What the operator last said of the fleet's guards."""
    seen = condition_of(status, "ReapingAllowed")
    if not seen:
        return None
    return {
        "allowed": seen.get("status") == "True",
        "reason": seen.get("reason"),
        "message": seen.get("message"),
        "since": seen.get("lastTransitionTime"),
        "nextPass": reaping_of(status).get("nextPass"),
    }


def _status_of(profiles: Iterable[ProfileObject], name: str) -> Json:
    return next((seen.status for seen in profiles if seen.name == name), {})


def _time(at: datetime | None) -> str | None:
    return format_time(at) if at else None


def _words_of(plan: Plan) -> list[str]:
    words = []
    if plan.marks:
        words.append(f"marks: {plan.marks.why}")
    if plan.endpoint:
        words.append(f"endpoint: {plan.endpoint.why}")
    if plan.condition:
        words.append(f"condition: {plan.condition.status}, {plan.condition.reason}")
    return words
