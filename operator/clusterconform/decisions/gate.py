"""The gate: contract rules R1-R5 over profiles, and R10, R12 and R13 over built nodes.

R1 stands in ``contract.profile`` (a manifest whose name is not its backend is no profile); here are:

- R2  every profile serves pod-lifecycle.
- R3  class agent: label ``agent``; the whole streaming set, not just any of it (contract §2.5, holes); no
      provider taint; subject to all three node reconcilers.
- R4  class virtual: label ``virtual``; none of the streaming set; both result channels; the provider taint;
      subject to no node reconciler and without settings for one; suffix ``-`` + backend.
- R5  over a set: exactly one profile of class agent, at least one of class virtual.
- R10 a built node is named base + suffix and carries the runtime, backend and provider marks of its profile.
- R12, R13, identity half: an agent node is not taken for virtual, a virtual one is recognised as such.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from clusterconform.contract.facts import NodeFacts
from clusterconform.contract.matrix import AGENT_BACKEND
from clusterconform.contract.names import (
    BACKEND_LABEL,
    PROVIDER_TAINT_EFFECT,
    PROVIDER_TAINT_KEY,
    RUNTIME_LABEL,
)
from clusterconform.contract.profile import (
    RESULT_CHANNELS,
    STREAMING,
    Capability,
    NodeClass,
    ProfileObject,
    Refusal,
    RuntimeProfile,
)
from clusterconform.contract.verdicts import AGENT_EVIDENCE, Catalogue, Finding, Reason
from clusterconform.decisions.identity import evidence_of


@dataclass(frozen=True, slots=True)
class Breach:
    """One rule broken.

    Attributes:
        rule: Its number, such as ``R4``.
        path: Where: a field of the spec, or of the node.
        message: What is wrong, for a person.
    """

    rule: str
    path: str
    message: str

    def __str__(self) -> str:
        """One sentence with path and rule."""
        return f"{self.path}: {self.message} ({self.rule})"


def judge_profile(profile: RuntimeProfile) -> list[Breach]:
    """The rules R2-R4 that ``profile`` breaks, in order; empty when it keeps them."""
    breaches = []
    if not profile.serves(Capability.POD_LIFECYCLE):
        breaches.append(Breach("R2", "spec.capabilities", "every backend serves pod-lifecycle"))
    of_class = _judge_agent if profile.node_class is NodeClass.AGENT else _judge_virtual
    return breaches + of_class(profile)


def _judge_agent(profile: RuntimeProfile) -> list[Breach]:
    missing = [capability for capability in STREAMING if not profile.serves(capability)]
    found = [
        (
            profile.runtime_label_value != NodeClass.AGENT,
            "runtimeLabelValue",
            "class agent needs runtimeLabelValue agent",
        ),
        (
            bool(missing),
            "capabilities",
            f"class agent must serve the whole streaming set; missing: {' '.join(missing)}",
        ),
        (profile.provider_taint, "providerTaint", "class agent carries no provider taint"),
        *((not value, field, f"class agent needs {field} true") for field, value in _subject_flags(profile)),
    ]
    return [Breach("R3", f"spec.{field}", message) for broken, field, message in found if broken]


def _judge_virtual(profile: RuntimeProfile) -> list[Breach]:
    claimed = [capability for capability in STREAMING if profile.serves(capability)]
    missing = [capability for capability in RESULT_CHANNELS if not profile.serves(capability)]
    suffix = f"-{profile.backend}"
    blocks = (
        ("nodeGC", profile.node_gc),
        ("runtimeProbe", profile.runtime_probe),
        ("addressReconcile", profile.address_reconcile),
    )
    found = [
        (
            profile.runtime_label_value != NodeClass.VIRTUAL,
            "runtimeLabelValue",
            "class virtual needs runtimeLabelValue virtual",
        ),
        (bool(claimed), "capabilities", f"class virtual must not claim: {' '.join(claimed)}"),
        (
            bool(missing),
            "capabilities",
            f"class virtual must serve both result channels; missing: {' '.join(missing)}",
        ),
        (not profile.provider_taint, "providerTaint", "class virtual needs the provider taint"),
        *(
            (value, field, f"class virtual is subject to no node reconciler: {field}")
            for field, value in _subject_flags(profile)
        ),
        *((block is not None, field, f"{field} is for class agent only") for field, block in blocks),
        (
            profile.node_name_suffix != suffix,
            "nodeNameSuffix",
            f"class virtual needs nodeNameSuffix {suffix}",
        ),
    ]
    return [Breach("R4", f"spec.{field}", message) for broken, field, message in found if broken]


def _subject_flags(profile: RuntimeProfile) -> tuple[tuple[str, bool], ...]:
    return (
        ("subjectToNodeGC", profile.subject_to_node_gc),
        ("subjectToRuntimeProbe", profile.subject_to_runtime_probe),
        ("subjectToAddressReconcile", profile.subject_to_address_reconcile),
    )


def judge_set(profiles: Iterable[RuntimeProfile]) -> list[Breach]:
    """What the rules say of a whole set: R2-R4 of each, then R5."""
    rows = list(profiles)
    breaches = [breach for row in rows for breach in judge_profile(row)]
    agents = sorted(row.backend for row in rows if row.node_class is NodeClass.AGENT)
    if len(agents) != 1:
        breaches.append(Breach("R5", "class", f"exactly one profile of class agent, not {len(agents)}: {agents}"))
    if len(agents) == len(rows):
        breaches.append(Breach("R5", "class", "at least one profile of class virtual"))
    return breaches


def judge_built_node(node: NodeFacts, profile: RuntimeProfile, base: str) -> list[Breach]:
    """Whether ``node``, as a backend's builder makes it for host ``base``, is what ``profile`` promises."""
    virtual = profile.node_class is NodeClass.VIRTUAL
    against = evidence_of(node, [profile])
    contradiction = against & AGENT_EVIDENCE if virtual else against - AGENT_EVIDENCE
    name = base + profile.node_name_suffix
    named = node.name == name or (not virtual and node.name.startswith(f"{base}-"))
    tainted = any(
        taint.key == PROVIDER_TAINT_KEY and taint.effect == PROVIDER_TAINT_EFFECT for taint in node.taints or ()
    )
    found = [
        (not named, "R10", "metadata.name", f"must be {name}, not {node.name}"),
        (
            node.labels.get(RUNTIME_LABEL) != profile.runtime_label_value,
            "R10",
            f"metadata.labels[{RUNTIME_LABEL}]",
            f"must be {profile.runtime_label_value}",
        ),
        (
            node.labels.get(BACKEND_LABEL) != profile.backend,
            "R10",
            f"metadata.labels[{BACKEND_LABEL}]",
            f"must be {profile.backend}",
        ),
        (
            tainted != profile.provider_taint,
            "R10",
            "spec.taints",
            f"{'must' if profile.provider_taint else 'must not'} hold {PROVIDER_TAINT_KEY}",
        ),
        (
            bool(contradiction),
            "R13" if virtual else "R12",
            "metadata",
            f"a node of class {profile.node_class} shows: {', '.join(sorted(contradiction))}",
        ),
    ]
    return [Breach(rule, path, message) for broken, rule, path, message in found if broken]


def accept(objects: Sequence[ProfileObject]) -> Catalogue:
    """Which of ``objects`` act, and why the others do not.

    What the CRD's rules see is judged here again, since files have met no API server. What they cannot see:
    of several profiles of class agent the oldest acts, by creation and then name, so that a newcomer can
    never take over a running fleet. An object without a creation time counts as the youngest.
    """
    profiles: dict[str, RuntimeProfile] = {}
    refusals: dict[str, Finding] = {}
    agent: str | None = None
    for seen in sorted(objects, key=_age):
        if isinstance(seen.contract, Refusal):
            refusals[seen.name] = Finding(Reason.INVALID, str(seen.contract))
            continue
        profiles[seen.name] = seen.contract
        breaches = judge_profile(seen.contract)
        if breaches:
            refusals[seen.name] = Finding(Reason.INVALID, "; ".join(map(str, breaches)))
        elif seen.contract.node_class is NodeClass.AGENT and agent is not None:
            message = f"{agent} is the older profile of class agent; there is exactly one (R5)"
            refusals[seen.name] = Finding(Reason.ANOTHER_AGENT_PROFILE, message)
        elif seen.contract.node_class is NodeClass.AGENT:
            agent = seen.name
    return Catalogue(profiles=profiles, refusals=refusals)


def _age(seen: ProfileObject) -> tuple[bool, float, bool, str]:
    created = seen.created_at
    # Without times, as in files, the built-in agent backend counts as the older one.
    return created is None, created.timestamp() if created else 0.0, seen.name != AGENT_BACKEND, seen.name
