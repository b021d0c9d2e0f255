"""What a managed node should carry, and what of it is amiss.

1. Runtime label: the profile's value.
2. Backend label: the profile's backend; only ever absent here, since a present one is the claim.
3. Host label: a non-empty one is never changed, because k3s and virtual-kubelet put theirs back and nodegc
   trusts it; an absent one is derived (``identity.host_of``) or reported.
4. Provider taint: key, effect and value of the profile's, corrected in place; other effects of the same key
   are somebody else's.
5. A mark that our annotation lists and the profile no longer wants is taken back; foreign ones never.
6. A virtual node advertises no kubelet port.
7. Advice only: an agent's name begins with its host, a virtual node's ends with its suffix.
"""

import re
from dataclasses import dataclass
from typing import Final

from clusterconform.contract.facts import NodeFacts, Taint, marks_listed
from clusterconform.contract.names import (
    BACKEND_LABEL,
    HOST_LABEL,
    PROVIDER_TAINT_EFFECT,
    PROVIDER_TAINT_KEY,
    RUNTIME_LABEL,
)
from clusterconform.contract.plan import BACKEND_MARK, HOST_MARK, PROVIDER_TAINT_MARK, RUNTIME_MARK
from clusterconform.contract.profile import NodeClass, RuntimeProfile
from clusterconform.contract.settings import LABEL_VALUE
from clusterconform.contract.verdicts import Finding, Reason
from clusterconform.decisions.identity import host_of

_LABEL_VALUE: Final = re.compile(LABEL_VALUE)
_LABEL_VALUE_LENGTH: Final = 63
_ABSENT: Final = "absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """One mark that is not as it should be and can be put right.

    Attributes:
        mark: Which one.
        finding: What is said about it.
        label: Key and value to set, for a label; a None value takes it away.
        annotation: The same for an annotation.
        taint: The taint as it should read; None takes it back, where the mark is a taint.
        ours: Whether the mark becomes ours by it. A taint that was there and only gets its value corrected is
            somebody else's: it stays evidence, and is never taken back.
        released: Whether the mark ceases to be ours by it.
    """

    mark: str
    finding: Finding
    label: tuple[str, str | None] | None = None
    annotation: tuple[str, str | None] | None = None
    taint: Taint | None = None
    ours: bool = True
    released: bool = False


def drifts_of(node: NodeFacts, profile: RuntimeProfile) -> list[Drift]:
    """Rules 1-5: what can be put right on ``node``, in that order."""
    wanted = [
        (RUNTIME_MARK, RUNTIME_LABEL, profile.runtime_label_value, Reason.RUNTIME_LABEL_DRIFTED),
        (BACKEND_MARK, BACKEND_LABEL, profile.backend, Reason.BACKEND_LABEL_MISSING),
    ]
    host = _missing_host(node, profile)
    if isinstance(host, str):
        wanted.append((HOST_MARK, HOST_LABEL, host, Reason.HOST_LABEL_MISSING))
    drifts = [
        Drift(
            mark=mark,
            label=(key, value),
            finding=Finding(reason, f"{key} is {node.labels.get(key) or _ABSENT}, not {value}"),
        )
        for mark, key, value, reason in wanted
        if node.labels.get(key) != value
    ]
    taint = _taint_drift(node, profile)
    return [*drifts, taint] if taint else drifts


def flaws_of(node: NodeFacts, profile: RuntimeProfile) -> list[Finding]:
    """Rules 3, 6 and 7: what only others can put right on ``node``; advice comes last."""
    flaws = []
    virtual = profile.node_class is NodeClass.VIRTUAL
    host = _missing_host(node, profile)
    if isinstance(host, Finding):
        flaws.append(host)
    if virtual and node.kubelet_port:
        message = f"a virtual node advertises kubelet port {node.kubelet_port}"
        flaws.append(Finding(Reason.KUBELET_ENDPOINT_ADVERTISED, message))
    label = node.labels.get(HOST_LABEL, "")
    if not virtual and label and not node.name.startswith(f"{label}-"):
        message = f"the name does not begin with host {label}-, so the node is never reaped"
        flaws.append(Finding(Reason.HOST_NAME_MISMATCH, message))
    if virtual and not node.name.endswith(profile.node_name_suffix):
        message = f"the name does not end with {profile.node_name_suffix}"
        flaws.append(Finding(Reason.NAME_SUFFIX_MISMATCH, message))
    return flaws


def _missing_host(node: NodeFacts, profile: RuntimeProfile) -> str | Finding | None:
    """The host label to set, or why it cannot be set; None where one is there."""
    if node.labels.get(HOST_LABEL):
        return None
    host = host_of(node, profile)
    if host is None:
        return Finding(Reason.HOST_UNKNOWN, f"{HOST_LABEL} is {_ABSENT} and nothing tells the host")
    if len(host) > _LABEL_VALUE_LENGTH or not _LABEL_VALUE.fullmatch(host):
        # Shortening it would make an identity that no other writer of this host knows (bug case B94).
        return Finding(Reason.HOST_UNKNOWN, f"{HOST_LABEL} is {_ABSENT} and {host[:80]} is no label value")
    return host


def _taint_drift(node: NodeFacts, profile: RuntimeProfile) -> Drift | None:
    ours = next((taint for taint in node.taints or () if is_provider_taint(taint)), None)
    if profile.provider_taint:
        if ours is not None and ours.value == profile.provider_taint_value:
            return None
        seen = _ABSENT if ours is None else f"={ours.value}"
        message = f"taint {PROVIDER_TAINT_KEY} is {seen}, not ={profile.provider_taint_value}"
        wanted = Taint(
            PROVIDER_TAINT_KEY,
            profile.provider_taint_value,
            PROVIDER_TAINT_EFFECT,
            ours.time_added if ours else None,
        )
        return Drift(
            mark=PROVIDER_TAINT_MARK,
            finding=Finding(Reason.PROVIDER_TAINT_DRIFTED, message),
            taint=wanted,
            ours=ours is None,
        )
    if ours is not None and PROVIDER_TAINT_MARK in marks_listed(node):
        message = f"taint {PROVIDER_TAINT_KEY}, which we set, is not wanted by class {profile.node_class}"
        unwanted = Finding(Reason.MARK_UNWANTED, message)
        return Drift(mark=PROVIDER_TAINT_MARK, finding=unwanted, ours=False, released=True)
    return None


def is_provider_taint(taint: Taint) -> bool:
    """Whether ``taint`` is the one that profiles speak of: key and effect, whatever its value."""
    return taint.key == PROVIDER_TAINT_KEY and taint.effect == PROVIDER_TAINT_EFFECT
