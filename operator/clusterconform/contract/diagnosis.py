"""What ``doctor`` looks at and what it finds, as values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from clusterconform.contract.lease import LeaseRecord
from clusterconform.contract.profile import ProfileObject
from clusterconform.contract.verdicts import Finding

Json = Mapping[str, Any]


class State(StrEnum):
    """How one check ended."""

    OK = "ok"
    """Nothing was found."""

    WARNING = "warning"
    """Something that may be meant, or heals by itself."""

    FAILING = "failing"
    """Something that keeps the contract from holding."""

    UNKNOWN = "unknown"
    """What it needs could not be read."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing found.

    Attributes:
        message: What is wrong, in one sentence.
        advice: What to do about it.
        state: How bad it is.
    """

    message: str
    advice: str
    state: State = State.FAILING


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check with its answer.

    Attributes:
        name: Its name.
        state: The worst of what was found.
        troubles: What was found.
    """

    name: str
    state: State
    troubles: tuple[Trouble, ...] = ()


@dataclass(frozen=True, slots=True)
class Access:
    """One right that the operator needs.

    Attributes:
        verb: Such as ``list``.
        group: API group; empty for the core one.
        resource: Such as ``nodes``.
        subresource: Such as ``status``; empty without one.
        namespace: Empty for the whole cluster.
        name: Of the one object that it is needed for; empty for all.
    """

    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        """As a person says it."""
        what = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        named = f" {self.name}" if self.name else ""
        place = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {what}{named}{place}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """A cluster as ``doctor`` could read it.

    Attributes:
        now: The API server's time.
        local: This machine's time at the same moment.
        unread: By check, why what it needs could not be read.
        crd_missing: What the served CRD lacks; None where there is no CRD.
        denied: Rights that the shipped account lacks.
        lease: The operator's Lease; None where there is none.
        profiles: The profiles with their status.
        nodes: The nodes as JSON values.
        pods: Probe pods as JSON values.
        daemon_sets: All DaemonSets as JSON values.
        services: All Services as JSON values.
        policies: Kind and name of the admission policies and bindings that exist.
        shipped_policies: Kind and name of those that are shipped.
        pinning_policies: Kind and name of those that mode Pinned needs.
        trials: By node, what a try to reach its kubelet through the API server told.
    """

    now: datetime
    local: datetime
    unread: Mapping[str, str] = field(default_factory=dict)
    crd_missing: Sequence[str] | None = ()
    denied: Sequence[Access] = ()
    lease: LeaseRecord | None = None
    profiles: Sequence[ProfileObject] = ()
    nodes: Sequence[Json] = ()
    pods: Sequence[Json] = ()
    daemon_sets: Sequence[Json] = ()
    services: Sequence[Json] = ()
    policies: frozenset[tuple[str, str]] = frozenset()
    shipped_policies: Sequence[tuple[str, str]] = ()
    pinning_policies: Sequence[tuple[str, str]] = ()
    trials: Mapping[str, Finding] = field(default_factory=dict)
