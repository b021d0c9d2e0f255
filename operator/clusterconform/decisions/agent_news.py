"""What of the verdicts on an agent is news, and who should hear of it.

In mode Status the kubelet takes a published address away about every ten seconds, for some milliseconds, until it
is put back: such a flicker is neither counted nor told.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from clusterconform.contract.verdicts import Finding, Reason
from clusterconform.decisions.addresses import AddressVerdict
from clusterconform.decisions.sandbox import ProbeVerdict

FLICKER_SECONDS: Final = 5.0
_WARNED: Final = frozenset(
    {
        Reason.PORT_COLLISION,
        Reason.ADDRESS_CONTESTED,
        Reason.ADDRESSES_EXHAUSTED,
        Reason.WRITE_REJECTED,
        Reason.RUNTIME_UNAVAILABLE,
        Reason.MASS_UNAVAILABLE,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentView:
    """An agent as it was last looked at.

    Attributes:
        address: Where its endpoint stands.
        probe: What the probe says of it; None where it is not probed.
        settled: Where its endpoint stands in a word, flickers left out.
        missing_since: Monotonic seconds since which a published address is not seen; None while it is.
    """

    address: AddressVerdict
    probe: ProbeVerdict | None
    settled: Reason
    missing_since: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    """A warning, and the node that it is an Event on."""

    node: str
    finding: Finding


def view_of(
    before: AgentView | None, address: AddressVerdict, probe: ProbeVerdict | None, uptime: float
) -> AgentView:
    """The agent as it is seen now, at ``uptime`` monotonic seconds, after ``before``."""
    reason = address.finding.reason
    known = before is not None and before.settled is Reason.ENDPOINT_PUBLISHED
    if before is None or not known or reason is not Reason.ENDPOINT_MISSING:
        return AgentView(address=address, probe=probe, settled=reason)
    since = uptime if before.missing_since is None else before.missing_since
    settled = Reason.ENDPOINT_PUBLISHED if uptime - since < FLICKER_SECONDS else reason
    return AgentView(address=address, probe=probe, settled=settled, missing_since=since)


def is_news(before: AgentView | None, now: AgentView) -> bool:
    """Whether the numbers of the profile's status may have changed."""
    if before is None:
        return True
    return (
        before.settled is not now.settled
        or before.address.real != now.address.real
        or _probed(before) != _probed(now)
    )


def warnings(node: str, before: AgentView | None, now: AgentView) -> Iterator[Warned]:
    """What people should hear of the agent ``node``, each thing once."""
    address, probe = now.address, now.probe
    if address.finding.reason in _WARNED and _placed(before) != _placed(now):
        yield Warned(node=node, finding=address.finding)
        holder = address.endpoint.holder if address.endpoint is not None else ""
        if address.finding.reason is Reason.PORT_COLLISION and holder:
            # Two machines are concerned, and whoever looks at the other one should see it too.
            yield Warned(
                node=holder, finding=Finding(Reason.PORT_COLLISION, f"{node} derives the same kubelet port")
            )
    if address.publish and address.real and (before is None or before.address.real != address.real):
        message = f"kept behind ours: {', '.join(address.real)}"
        yield Warned(node=node, finding=Finding(Reason.REAL_EXTERNAL_IP, message))
    if probe is not None and probe.cause.reason in _WARNED and _probed(before) != _probed(now):
        yield Warned(node=node, finding=probe.cause)


def _placed(view: AgentView | None) -> tuple[bool, Reason] | None:
    return None if view is None else (view.address.publish, view.address.finding.reason)


def _probed(view: AgentView | None) -> tuple[object, ...] | None:
    probe = None if view is None else view.probe
    return None if probe is None else (probe.runtime, probe.cause.reason, probe.pod)
