"""What a decision on one node takes from the others: its endpoint among all, and its probe's word."""

from dataclasses import dataclass

from clusterconform.contract.settings import AddressMode
from clusterconform.contract.verdicts import Finding, Identity
from clusterconform.decisions.allocation import Endpoint
from clusterconform.decisions.sandbox import ProbeVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What is known around a node; the empty one leads to no write for probe or address.

    Attributes:
        identity: Whose node it is by the same catalogue, where that has been worked out; it is half of a decision.
        endpoint: What is derived for it; None for a node that is no agent.
        outside: Why it has none; None where it has one.
        mode: How addresses are published.
        probe: Its probe's word; None where nothing is known of probes, or the node is no agent.
        probed: Whether the node is to be probed; where it is not, what we left there is taken back.
    """

    identity: Identity | None = None
    endpoint: Endpoint | None = None
    outside: Finding | None = None
    mode: AddressMode = AddressMode.OFF
    probe: ProbeVerdict | None = None
    probed: bool = True


ALONE = Surroundings()
