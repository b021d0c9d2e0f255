"""A backend's Node builder held to the matrix: R10 to R13 of the contract, on nodes that have just been built.

What a builder makes must need no repair: whatever the operator would have to say about the fresh node is a
breach too.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from clusterconform.contract.facts import READY, NodeFacts, UnreadableNodeError, read_node, view_node
from clusterconform.contract.matrix import AGENT_BACKEND
from clusterconform.contract.memory import EMPTY
from clusterconform.contract.profile import NodeClass, RuntimeProfile
from clusterconform.contract.reaping import Agents
from clusterconform.contract.settings import NodeGC
from clusterconform.contract.times import Moment, format_time
from clusterconform.contract.verdicts import ADVICE, Catalogue
from clusterconform.decisions.gate import Breach, judge_built_node
from clusterconform.decisions.planning import decide
from clusterconform.decisions.staleness import Outcome, judge


def judge_builder(
    built: Mapping[str, Mapping[str, Any]], profile: RuntimeProfile, catalogue: Catalogue, now: Moment
) -> list[Breach]:
    """What of ``built`` is not what ``profile`` promises.

    Args:
        built: By base (the host's name), the Node that the builder made for it, as JSON values.
        profile: What it should be.
        catalogue: All profiles, among which the node must be recognised.
        now: The time of the trial.
    """
    breaches: list[Breach] = []
    names: list[str] = []
    for base, manifest in built.items():
        try:
            node = read_node(view_node(manifest))
            dead = read_node(view_node(_dead(manifest, profile, now)))
        except (UnreadableNodeError, TypeError, ValueError) as error:
            breaches.append(Breach("R10", "metadata", f"no Node at all: {error}"))
            continue
        names.append(node.name)
        breaches += judge_built_node(node, profile, base)
        breaches += _needs_no_repair(node, catalogue, now)
        breaches += _is_reaped_iff_an_agent(dead, profile, catalogue, now)
    if len(set(names)) < len(names):
        breaches.append(Breach("R10", "metadata.name", f"is the same on every host: {names[0]}"))
    return list(dict.fromkeys(breaches))


def _needs_no_repair(node: NodeFacts, catalogue: Catalogue, now: Moment) -> Sequence[Breach]:
    findings = decide(node, catalogue, EMPTY, now).verdict.findings
    return [
        Breach(finding.reason.value, "metadata", finding.message)
        for finding in findings
        if finding.reason not in ADVICE
    ]


def _is_reaped_iff_an_agent(
    dead: NodeFacts, profile: RuntimeProfile, catalogue: Catalogue, now: Moment
) -> Sequence[Breach]:
    """R11, on a node that has been dead for twice as long as grace."""
    agent = profile.node_class is NodeClass.AGENT
    agents = Agents(backend=profile.backend if agent else AGENT_BACKEND, policy=_policy(profile))
    answer = judge(dead, decide(dead, catalogue, EMPTY, now).verdict, agents, now.wall)
    if (answer.outcome is Outcome.STALE) == agent:
        return []
    said = "is never reaped" if agent else "could be reaped"
    return [
        Breach("R11", "metadata.labels", f"a dead node of class {profile.node_class} {said}: {answer.message}")
    ]


def _dead(manifest: Mapping[str, Any], profile: RuntimeProfile, now: Moment) -> Mapping[str, Any]:
    grace = timedelta(seconds=_policy(profile).grace.seconds)
    ready = {"type": READY, "status": "Unknown", "lastTransitionTime": format_time(now.wall - 2 * grace)}
    born = format_time(now.wall - 3 * grace)
    return {
        **manifest,
        "metadata": {**(manifest.get("metadata") or {}), "creationTimestamp": born},
        "status": {**(manifest.get("status") or {}), "conditions": [ready]},
    }


def _policy(profile: RuntimeProfile) -> NodeGC:
    return profile.node_gc or NodeGC()
