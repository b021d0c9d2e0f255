"""Whose node is it?

1. The backend label is the claim. A claim that names a profile makes the node *managed* by it.
2. A claim whose class the evidence contradicts is *conflicting*: a node can forge its labels, but not easily
   everything that its kubelet or its virtual-kubelet writes about itself (node-facts §2).
3. A claim that names no profile is an *unknown backend*.
4. No claim: the node gets its backend back iff our condition is on it and its evidence names exactly one
   profile, or that profile adopts by evidence. Otherwise it is *unidentified*.
5. A mark that our annotation lists is our own writing and no evidence: were it, a node labelled by mistake
   could never be healed, since the taint we put there would contradict the corrected label for ever. A taint
   of the same key with another effect is not ours.
6. Evidence of both classes names no profile and contradicts either claim.
"""

import json
from collections.abc import Iterable
from typing import Final

from clusterconform.contract.facts import NodeFacts, marks_listed
from clusterconform.contract.names import (
    BACKEND_LABEL,
    HOST_LABEL,
    K3S_PROVIDER_ID_PREFIX,
    K3S_VERSION_MARK,
    NODE_ARGS_ANNOTATION,
    PROVIDER_TAINT_EFFECT,
    PROVIDER_TAINT_KEY,
    TYPE_LABEL,
    VIRTUAL_KUBELET_TYPE,
)
from clusterconform.contract.plan import PROVIDER_TAINT_MARK
from clusterconform.contract.profile import Adoption, NodeClass, RuntimeProfile
from clusterconform.contract.verdicts import (
    AGENT_EVIDENCE,
    Catalogue,
    Evidence,
    Finding,
    Identity,
    IdentityKind,
    Reason,
)

_GO_SPACE: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)


def classify(node: NodeFacts, catalogue: Catalogue) -> Identity:
    """Whose node ``node`` is among the profiles of ``catalogue``."""
    evidence = evidence_of(node, catalogue.profiles.values())
    claim = node.labels.get(BACKEND_LABEL, "")
    if claim:
        return _judge_claim(claim, catalogue, evidence)
    named = _named_by(node, evidence, catalogue.accepted.values())
    if named is not None and (node.conformant is not None or named.adopt is Adoption.BY_EVIDENCE):
        return Identity(kind=IdentityKind.MANAGED, profile=named, evidence=evidence)
    hint = f"; its evidence names {named.backend}" if named else ""
    return Identity(
        kind=IdentityKind.UNIDENTIFIED,
        profile=named,
        evidence=evidence,
        finding=Finding(Reason.UNIDENTIFIED, f"no label {BACKEND_LABEL}{hint}"),
    )


def evidence_of(node: NodeFacts, profiles: Iterable[RuntimeProfile]) -> frozenset[Evidence]:
    """What ``node`` says about itself apart from our labels and our own marks."""
    listed = PROVIDER_TAINT_MARK in marks_listed(node)
    foreign_taint = any(
        taint.key == PROVIDER_TAINT_KEY and not (listed and taint.effect == PROVIDER_TAINT_EFFECT)
        for taint in node.taints or ()
    )
    found = {
        Evidence.NODE_ARGS: node_args(node)[:1] == ["agent"],
        Evidence.PROVIDER_ID: node.provider_id.startswith(K3S_PROVIDER_ID_PREFIX),
        Evidence.KUBELET_VERSION: K3S_VERSION_MARK in node.kubelet_version,
        Evidence.TYPE_LABEL: node.labels.get(TYPE_LABEL) == VIRTUAL_KUBELET_TYPE,
        Evidence.ANNOTATIONS: node.virtual_kubelet_annotations,
        Evidence.PROVIDER_TAINT: foreign_taint,
        Evidence.NAME_SUFFIX: any(_has_suffix(node, profile) for profile in profiles),
    }
    return frozenset(kind for kind, present in found.items() if present)


def node_args(node: NodeFacts) -> list[str]:
    """The arguments in ``k3s.io/node-args``; empty where it is no JSON array of strings (contract §5.1)."""
    text = go_trimmed(node.annotations.get(NODE_ARGS_ANNOTATION, ""))
    if not text:
        return []
    try:
        # NaN and Infinity are no JSON, although Python reads them (contract §8.3).
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return []
    if not isinstance(value, list) or not all(item is None or isinstance(item, str) for item in value):
        return []
    # A lone surrogate is no character: Go makes it U+FFFD, and no message could be written with it.
    return [(item or "").encode("utf-16", "surrogatepass").decode("utf-16", "replace") for item in value]


def go_trimmed(text: str) -> str:
    """``text`` without white space around it, as Go trims it.

    Python's own would take U+001C to U+001F for white space too (contract §8.3).
    """
    return text.strip(_GO_SPACE)


def host_of(node: NodeFacts, profile: RuntimeProfile) -> str | None:
    """The host label that ``node`` should carry where it has none; None where nothing tells.

    An agent's comes from its own ``--node-label``, never from ``--node-name``: the host is the machine's
    identity, shared by every runtime on it (contract §1.1), and a name override need not be it. A virtual
    node's is its name without the suffix.
    """
    if profile.node_class is NodeClass.VIRTUAL:
        return node.name.removesuffix(profile.node_name_suffix) if _has_suffix(node, profile) else None
    return host_in_args(node)


def host_in_args(node: NodeFacts) -> str | None:
    """The host label that a k3s agent was started with, None where its arguments name none."""
    args, wanted = node_args(node), f"{HOST_LABEL}="
    for index, word in enumerate(args):
        label = word.removeprefix("--node-label=") if word.startswith("--node-label=") else None
        if word == "--node-label" and index + 1 < len(args):
            label = args[index + 1]
        if label is not None and label.startswith(wanted):
            return label.removeprefix(wanted) or None
    return None


def _refuse_constant(word: str) -> float:
    raise ValueError(word)


def _has_suffix(node: NodeFacts, profile: RuntimeProfile) -> bool:
    suffix = profile.node_name_suffix
    return (
        profile.node_class is NodeClass.VIRTUAL
        and bool(suffix)
        and node.name.endswith(suffix)
        and len(node.name) > len(suffix)
    )


def _judge_claim(claim: str, catalogue: Catalogue, evidence: frozenset[Evidence]) -> Identity:
    profile, refusal = catalogue.profiles.get(claim), catalogue.refusals.get(claim)
    not_accepted = Finding(Reason.PROFILE_NOT_ACCEPTED, f"RuntimeProfile {claim} is not accepted")
    if profile is None:
        unknown = Finding(Reason.UNKNOWN_BACKEND, f"no RuntimeProfile is named {claim}")
        return Identity(
            kind=IdentityKind.UNKNOWN_BACKEND,
            profile=None,
            evidence=evidence,
            finding=not_accepted if refusal else unknown,
        )
    agent = profile.node_class is NodeClass.AGENT
    against = sorted(evidence - AGENT_EVIDENCE if agent else evidence & AGENT_EVIDENCE)
    if against:
        message = f"claims backend {claim} of class {profile.node_class}, but: {', '.join(against)}"
        return Identity(
            kind=IdentityKind.CONFLICTING,
            profile=profile,
            evidence=evidence,
            finding=Finding(Reason.IDENTITY_CONFLICT, message),
        )
    return Identity(
        kind=IdentityKind.MANAGED,
        profile=profile,
        evidence=evidence,
        finding=not_accepted if refusal else None,
    )


def _named_by(
    node: NodeFacts, evidence: frozenset[Evidence], profiles: Iterable[RuntimeProfile]
) -> RuntimeProfile | None:
    agent, virtual = bool(evidence & AGENT_EVIDENCE), bool(evidence - AGENT_EVIDENCE)
    if agent == virtual:
        return None
    if agent:
        named = [profile for profile in profiles if profile.node_class is NodeClass.AGENT]
    else:
        of_class = [profile for profile in profiles if profile.node_class is NodeClass.VIRTUAL]
        named = [profile for profile in of_class if _has_suffix(node, profile)] or of_class
    return named[0] if len(named) == 1 else None
