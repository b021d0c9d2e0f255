"""What a reaping pass is about, and what it remembers between two passes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from clusterconform.contract.facts import NodeFacts
from clusterconform.contract.settings import NodeGC
from clusterconform.contract.times import Moment
from clusterconform.contract.verdicts import NodeVerdict, Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Agents:
    """Who counts as an agent that may be reaped at all.

    Attributes:
        backend: Name of the accepted agent profile.
        policy: Its settings.
        own_node: Name of the node on which we run; empty when unknown.
    """

    backend: str
    policy: NodeGC
    own_node: str = ""

    @property
    def grace(self) -> timedelta:
        """The policy's grace."""
        return timedelta(seconds=self.policy.grace.seconds)


class Mode(StrEnum):
    """What the pass may do, after all bounds."""

    LIVE = "Live"
    DRY_RUN = "DryRun"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReapingMemory:
    """What is remembered between the passes of one process.

    Attributes:
        last: When the last pass began, or None.
        deletions: When this process deleted, in the budget window.
        refusal: Event and detail of the last refusal in the ledger, to say each thing once.
        rejected: By uid, until which uptime a node that the API server would not delete is left alone.
    """

    last: Moment | None = None
    deletions: tuple[datetime, ...] = ()
    refusal: tuple[str, str] | None = None
    rejected: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What a pass is about.

    Attributes:
        nodes: All nodes as listed, with their verdicts.
        agents: Who counts as an agent, and the policy.
        mode: What may be done.
        complete: Whether the evidence is complete.
        trusted_seconds: Monotonic seconds since the last pass in which we led, synced, with a live stream.
        approved: The node that a person approved, as name and uid, or None.
    """

    nodes: Sequence[tuple[NodeFacts, NodeVerdict]]
    agents: Agents
    mode: Mode
    complete: bool = True
    trusted_seconds: float = 0.0
    approved: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A candidate that was not deleted: why, and when that may change."""

    name: str
    reason: Reason
    until: datetime | None = None
