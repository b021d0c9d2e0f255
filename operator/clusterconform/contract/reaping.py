"""What a reaping pass is about, and what it remembers between two passes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from clusterconform.contract.facts import NodeFacts
from clusterconform.contract.profile import Enforcement
from clusterconform.contract.settings import NodeGC, ReapingMode
from clusterconform.contract.times import Moment
from clusterconform.contract.verdicts import NodeVerdict, Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Agents:
    """Who counts as an agent that may be reaped at all.

    Attributes:
        backend: Name of the accepted agent profile.
        policy: Its settings.
        own_node: Name of the node on which we run; empty when unknown.
        enforcement: The profile's; one that only observes deletes nothing.
    """

    backend: str
    policy: NodeGC
    own_node: str = ""
    enforcement: Enforcement = Enforcement.ENFORCE

    @property
    def mode(self) -> ReapingMode:
        """What the profile allows: ``nodeGC.mode``, but a dry run at the most where it only observes."""
        return mildest(self.policy.mode, mode_of_enforcement(self.enforcement))

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
        deletions: When this process deleted.
        doubt: A cause of doubt that could not be written down yet, or None.
        trust: What was earned at the end of the last pass, as it stands beside the ledger, or None.
        refusal: Event and detail of the last refusal in the ledger, to say each thing once.
        rejected: By uid, until which uptime a node that the API server would not delete is left alone.
    """

    last: Moment | None = None
    deletions: tuple[float, ...] = ()
    doubt: Reason | None = None
    trust: str | None = None
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
        clock_difference: Seconds by which the API server's clock is ahead of ours; None where that is unknown.
        approved: The node that a person approved, as name and uid, or None.
    """

    nodes: Sequence[tuple[NodeFacts, NodeVerdict]]
    agents: Agents
    mode: Mode
    complete: bool = True
    trusted_seconds: float = 0.0
    clock_difference: float | None = None
    approved: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A candidate that was not deleted: why, and when that may change."""

    name: str
    reason: Reason
    until: datetime | None = None


# What Go's trim takes for white space; Python's own would strip U+001C to U+001F too (contract §8.3).
_SPACES: Final = (*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F)
WHITE_SPACE: Final = "".join(map(chr, (*_SPACES, 0x205F, 0x3000)))
_LIVE_WORDS: Final = frozenset({"", "live", "on", "enabled"})
_DRY_WORDS: Final = frozenset({"dry-run", "dryrun", "dry_run"})
_MILDEST_FIRST: Final = (ReapingMode.OFF, ReapingMode.DRY_RUN, ReapingMode.LIVE)


def mode_of_word(word: str) -> ReapingMode:
    """The mode that ``OUTPOST_NODEGC`` asks for; any word that is not known means off (contract §3.7)."""
    word = word.strip(WHITE_SPACE).lower()
    if word in _LIVE_WORDS:
        return ReapingMode.LIVE
    return ReapingMode.DRY_RUN if word in _DRY_WORDS else ReapingMode.OFF


def mode_of_enforcement(enforcement: Enforcement) -> ReapingMode:
    """What ``spec.enforcement`` allows: Observe writes nothing on a node, and a deletion is the gravest write."""
    return ReapingMode.LIVE if enforcement is Enforcement.ENFORCE else ReapingMode.DRY_RUN


def mildest(*modes: ReapingMode) -> ReapingMode:
    """The mildest of ``modes``: a bound can make reaping milder, never sharper."""
    return min(modes, key=_MILDEST_FIRST.index)
