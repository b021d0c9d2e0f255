"""What is to be written to a node, as values; ``decisions.requests`` turns them into requests.

A *mark* is one key that we may write on a node: ``label:<key>``, ``taint:<key>``, or ``condition``. Marks are
listed in our annotation, counted for contention and named in messages.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from clusterconform.contract.facts import Taint
from clusterconform.contract.names import (
    BACKEND_LABEL,
    HOST_LABEL,
    PROVIDER_TAINT_KEY,
    RUNTIME_LABEL,
)

RUNTIME_MARK: Final = f"label:{RUNTIME_LABEL}"
BACKEND_MARK: Final = f"label:{BACKEND_LABEL}"
HOST_MARK: Final = f"label:{HOST_LABEL}"
PROVIDER_TAINT_MARK: Final = f"taint:{PROVIDER_TAINT_KEY}"
CONDITION_MARK: Final = "condition"


@dataclass(frozen=True, slots=True, kw_only=True)
class MarksPatch:
    """Everything that one JSON patch changes on a node.

    Attributes:
        labels: Labels to set.
        taints: The whole list as it shall read; None leaves it alone.
        listed: The marks that our annotation shall list afterwards, sorted.
        marks: The marks that this patch writes or takes back, sorted.
        why: What it puts right, in one sentence.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] | None = None
    listed: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionWrite:
    """Our condition as it shall read.

    Attributes:
        status: True, False or Unknown.
        reason: A word of the closed vocabulary.
        message: For a person.
        transition: lastTransitionTime; moves only with the status.
        heartbeat: lastHeartbeatTime; the time of the write.
    """

    status: str
    reason: str
    message: str
    transition: datetime
    heartbeat: datetime

    @property
    def text(self) -> tuple[str, str, str]:
        """What of it is compared with the node's."""
        return self.status, self.reason, self.message


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be written to one node, marks first; empty when nothing is needed."""

    marks: MarksPatch | None = None
    condition: ConditionWrite | None = None

    def __bool__(self) -> bool:
        """Whether there is anything to write."""
        return self.marks is not None or self.condition is not None
