"""A whole fleet looked at once: each node with what is known around it, and the first decision on it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clusterconform.contract.facts import NodeFacts
from clusterconform.contract.memory import EMPTY, NodeMemory
from clusterconform.contract.times import Moment
from clusterconform.contract.verdicts import Catalogue, Finding
from clusterconform.decisions import planning
from clusterconform.decisions.agents import Agents
from clusterconform.decisions.surroundings import Surroundings
from clusterconform.decisions.world import World


@dataclass(frozen=True, slots=True)
class Look:
    """One node.

    Attributes:
        manifest: The Node as JSON values.
        facts: What decisions read of it.
        agents: The whole fleet, which can be told of a change to it.
        around: What is known around it.
        unprobed: Why it is not probed, where it is not.
        decision: What follows for it.
    """

    manifest: Mapping[str, Any]
    facts: NodeFacts
    agents: Agents
    around: Surroundings
    unprobed: Finding
    decision: planning.Decision


def look_at(
    world: World,
    facts: Sequence[NodeFacts],
    catalogue: Catalogue,
    now: Moment,
    remembered: Callable[[NodeFacts], NodeMemory] = lambda _: EMPTY,
) -> list[Look]:
    """The nodes of ``world``, read as ``facts``, in their order; ``remembered`` gives what is known of each."""
    agents = Agents(catalogue)
    for pod in world.pods:
        agents.observe_pod(pod)
    for node in facts:
        agents.observe(node)
    for node in facts:
        agents.around(node, now.wall)  # all probes are judged before it is asked whether they are too many
    looks = []
    for manifest, node in zip(world.nodes, facts, strict=True):
        around = agents.around(node, now.wall)
        decision = planning.decide(node, catalogue, remembered(node), now, around)
        looks.append(Look(manifest, node, agents, around, agents.unprobed(node), decision))
    return looks
