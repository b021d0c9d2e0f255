"""Which nodes the probe and the addresses are for: real agents, and what might be one.

Virtual means the runtime label, the claim of a virtual backend, OR any virtual evidence: a stock virtual-kubelet
without our labels is never probed and never addressed. What is neither claimed nor virtual counts as an agent
where the profile includes it (contract §1.4: these two reconcilers include the unknown, reaping excludes it). A
claim of a backend that nobody knows is left alone, unless label or evidence say that it is an agent; a claim of
another agent profile, which is not accepted, always is.
"""

from clusterconform.contract.facts import NodeFacts
from clusterconform.contract.names import RUNTIME_LABEL
from clusterconform.contract.profile import NodeClass, RuntimeProfile
from clusterconform.contract.verdicts import (
    AGENT_EVIDENCE,
    Catalogue,
    Finding,
    Identity,
    IdentityKind,
    Reason,
)


def acting_agent(catalogue: Catalogue) -> RuntimeProfile | None:
    """The accepted profile of class agent, of which there is one at the most."""
    return next((row for row in catalogue.accepted.values() if row.node_class is NodeClass.AGENT), None)


def excluded(
    node: NodeFacts, identity: Identity, agent: RuntimeProfile | None, *, include_unidentified: bool
) -> Finding | None:
    """Why ``node`` is not treated as an agent; None where it is."""
    if is_virtual(node, identity):
        return Finding(Reason.VIRTUAL_NODE, "a virtual node has no kubelet of its own")
    if agent is None:
        return Finding(Reason.NOT_AN_AGENT, "no profile of class agent is accepted")
    if identity.kind is IdentityKind.MANAGED and identity.profile is not None:
        if identity.profile == agent:
            return None
        return Finding(Reason.PROFILE_NOT_ACCEPTED, f"RuntimeProfile {identity.profile.backend} is not accepted")
    return _unmanaged(node, identity, agent, include=include_unidentified)


def _unmanaged(node: NodeFacts, identity: Identity, agent: RuntimeProfile, *, include: bool) -> Finding | None:
    unknown = identity.kind is IdentityKind.UNKNOWN_BACKEND
    if unknown and node.labels.get(RUNTIME_LABEL) != NodeClass.AGENT and not identity.evidence & AGENT_EVIDENCE:
        return Finding(Reason.UNKNOWN_BACKEND, "claims a backend that no RuntimeProfile is named after")
    if include:
        return None
    return Finding(Reason.UNIDENTIFIED, f"not known as a node of {agent.backend}, and such are not included")


def is_virtual(node: NodeFacts, identity: Identity) -> bool:
    """Whether anything says that ``node`` is a virtual one."""
    claimed = identity.kind in {IdentityKind.MANAGED, IdentityKind.CONFLICTING} and identity.profile is not None
    return (
        node.labels.get(RUNTIME_LABEL) == NodeClass.VIRTUAL
        or bool(identity.evidence - AGENT_EVIDENCE)
        or (claimed and identity.profile is not None and identity.profile.node_class is NodeClass.VIRTUAL)
    )
