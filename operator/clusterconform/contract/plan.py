"""What is to be written to a node, as values; ``decisions.requests`` turns them into requests.

A *mark* is one key that we may write on a node: ``label:<key>``, ``taint:<key>``, ``annotation:<key>``, or
``condition``. Marks are listed in our annotation, counted for contention and named in messages.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from clusterconform.contract.facts import Address, Taint
from clusterconform.contract.names import (
    BACKEND_LABEL,
    HOST_LABEL,
    K3S_EXTERNAL_IP_ANNOTATION,
    PROVIDER_TAINT_KEY,
    RUNTIME_LABEL,
    RUNTIME_READY_LABEL,
    UNAVAILABLE_REASON_ANNOTATION,
    UNAVAILABLE_TAINT_KEY,
)

RUNTIME_MARK: Final = f"label:{RUNTIME_LABEL}"
BACKEND_MARK: Final = f"label:{BACKEND_LABEL}"
HOST_MARK: Final = f"label:{HOST_LABEL}"
PROVIDER_TAINT_MARK: Final = f"taint:{PROVIDER_TAINT_KEY}"
RUNTIME_READY_MARK: Final = f"label:{RUNTIME_READY_LABEL}"
UNAVAILABLE_TAINT_MARK: Final = f"taint:{UNAVAILABLE_TAINT_KEY}"
UNAVAILABLE_REASON_MARK: Final = f"annotation:{UNAVAILABLE_REASON_ANNOTATION}"
PROBE_MARKS: Final = (RUNTIME_READY_MARK, UNAVAILABLE_TAINT_MARK, UNAVAILABLE_REASON_MARK)
K3S_EXTERNAL_IP_MARK: Final = f"annotation:{K3S_EXTERNAL_IP_ANNOTATION}"
CONDITION_MARK: Final = "condition"


@dataclass(frozen=True, slots=True, kw_only=True)
class MarksPatch:
    """Everything that one JSON patch changes on a node.

    Attributes:
        labels: Labels to set, or to take away where None.
        annotations: Annotations to set, or to take away where None; ours that lists the marks is not among them.
        taints: The whole list as it shall read; None leaves it alone.
        listed: The marks that our annotation shall list afterwards, sorted.
        marks: The marks that this patch writes or takes back, sorted.
        why: What it puts right, in one sentence.
    """

    labels: Mapping[str, str | None] = field(default_factory=dict)
    annotations: Mapping[str, str | None] = field(default_factory=dict)
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
class EndpointWrite:
    """The kubelet's endpoint as the node's status shall show it.

    Attributes:
        addresses: The whole list as it shall read; None leaves it alone.
        port: The kubelet port; None leaves it alone.
        pin: Our annotation as it shall read, empty to take it away; None leaves it alone.
        why: What it puts right, in one sentence.
    """

    addresses: tuple[Address, ...] | None = None
    port: int | None = None
    pin: str | None = None
    why: str = ""

    def __bool__(self) -> bool:
        """Whether there is anything to write."""
        return self.addresses is not None or self.port is not None or self.pin is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be written to one node, marks first; empty when nothing is needed.

    The endpoint is written only where no marks are: what it tests, such as the claim, may be among them.
    """

    marks: MarksPatch | None = None
    condition: ConditionWrite | None = None
    endpoint: EndpointWrite | None = None

    def __bool__(self) -> bool:
        """Whether there is anything to write."""
        return self.marks is not None or self.condition is not None or self.endpoint is not None
