"""The bound of the process, and the three blocks of settings of an agent profile, field by field.

Defaults are those of contract §3.1, §4.1 and §5; what is ours says so and names the value that switches it
off. Bounds are the CRD's: an agreement test holds both to the same verdicts.
"""

from enum import StrEnum
from typing import Annotated, Final

from msgspec import Meta, Struct

from clusterconform.contract.times import Duration

DEFAULT_PROBE_IMAGE: Final = "rancher/mirrored-pause:3.6"
LABEL_VALUE: Final = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?\Z"
_SECOND, _MINUTE, _HOUR = 1.0, 60.0, 3600.0

Percent = Annotated[int, Meta(ge=1, le=100)]


class Bound(StrEnum):
    """The upper bound of one process over all profiles: look, or act as far as the profiles say."""

    OBSERVE = "observe"
    ENFORCE = "enforce"


class ReapingMode(StrEnum):
    """Whether stale nodes are deleted, only named, or not looked for."""

    LIVE = "Live"
    DRY_RUN = "DryRun"
    OFF = "Off"


class ProbeMode(StrEnum):
    """Whether a probe verdict is put on the node, only reported, or not sought."""

    ENFORCE = "Enforce"
    OBSERVE = "Observe"
    OFF = "Off"


class AddressMode(StrEnum):
    """How a kubelet's address is published."""

    STATUS = "Status"
    PINNED = "Pinned"
    ANNOTATION = "Annotation"
    OFF = "Off"


def _within(block: Struct, field: str, low: float, high: float) -> None:
    duration: Duration = getattr(block, field)
    if not low <= duration.seconds <= high:
        wire = block.__struct_encode_fields__[block.__struct_fields__.index(field)]
        raise ValueError(f"{wire} must be between {_short(low)} and {_short(high)}, not {duration.text}")


def _short(seconds: float) -> str:
    for unit, length in (("h", _HOUR), ("m", _MINUTE)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:g}{unit}"
    return f"{seconds:g}s"


class NodeGC(Struct, frozen=True, kw_only=True, rename="camel"):
    """Reaping of stale agents.

    Attributes:
        mode: What may be done with a stale node.
        grace: How long a node is not Ready before it is stale; strictly longer is meant.
        max_deletes: Deletions per window at the most (1 to 100).
        interval: Cadence of the passes, and least length of the budget window.
        settle: Wait before the first pass of a leadership.
        min_uptime: Uptime in leadership below which nothing is deleted.
        max_stale_percent: Share of stale agents above which nothing is deleted; 100 switches it off.
        future_tolerance: How far ahead of our clock a node's evidence may lie.
        clock_jump_tolerance: How far the wall clock may run away from the monotonic one between passes.
        self_host: Host label of the control plane's own machine; its nodes are never candidates.
        max_reaped_percent_per_day: Ours: share of the fleet that may go in 24 h; 100 switches it off.
        reearn_trust: Ours: no deletion until a grace has passed since the last doubt; false switches it off.
        lease_witness: Ours: a renewed Lease vetoes; false switches it off.
        require_fence: Ours: the admission policy must be in force; false switches it off.
    """

    mode: ReapingMode = ReapingMode.LIVE
    grace: Duration = Duration("24h")
    max_deletes: Annotated[int, Meta(ge=1, le=100)] = 3
    interval: Duration = Duration("1h")
    settle: Duration = Duration("5m")
    min_uptime: Duration = Duration("1h")
    max_stale_percent: Percent = 50
    future_tolerance: Duration = Duration("5m")
    clock_jump_tolerance: Duration = Duration("10m")
    self_host: Annotated[str, Meta(max_length=63, pattern=LABEL_VALUE)] = ""
    max_reaped_percent_per_day: Percent = 25
    reearn_trust: bool = True
    lease_witness: bool = True
    require_fence: bool = True

    def __post_init__(self) -> None:
        """Refuse durations out of bounds.

        Raises:
            ValueError: With the field, its bounds and the value given.
        """
        # Below a minute the node lifecycle controller alone (50 s) could make a live node look stale.
        _within(self, "grace", _MINUTE, 8760 * _HOUR)
        _within(self, "interval", 10 * _SECOND, 168 * _HOUR)
        _within(self, "settle", 0, 24 * _HOUR)
        _within(self, "min_uptime", 0, 168 * _HOUR)
        _within(self, "future_tolerance", 0, 24 * _HOUR)
        _within(self, "clock_jump_tolerance", _SECOND, 24 * _HOUR)
        if self.interval.seconds > self.grace.seconds:
            raise ValueError("interval must not exceed grace")


class RuntimeProbe(Struct, frozen=True, kw_only=True, rename="camel"):
    """Probing of an agent's container runtime.

    Attributes:
        mode: What is done with a verdict.
        image: Image of the probe's one container.
        grace: Age of an unready probe pod before it counts.
        stabilization: How long a verdict holds before it is put on the node.
        max_unavailable_percent: Share of unavailable agents above which no further taint is set; 100 switches
            it off.
        include_unidentified: Whether nodes without our labels count as agents (contract §1.4).
    """

    mode: ProbeMode = ProbeMode.ENFORCE
    image: Annotated[str, Meta(min_length=1, max_length=512)] = DEFAULT_PROBE_IMAGE
    grace: Duration = Duration("2m")
    stabilization: Duration = Duration("30s")
    max_unavailable_percent: Annotated[int, Meta(ge=0, le=100)] = 50
    include_unidentified: bool = True

    def __post_init__(self) -> None:
        """Refuse durations out of bounds.

        Raises:
            ValueError: With the field, its bounds and the value given.
        """
        _within(self, "grace", _SECOND, 24 * _HOUR)
        _within(self, "stabilization", 0, _HOUR)


class AddressReconcile(Struct, frozen=True, kw_only=True, rename="camel"):
    """Publishing of an agent's kubelet address.

    Attributes:
        mode: How the address is published.
        port_base: First port of the derived range.
        port_slots: Number of ports in the range.
        include_unidentified: Whether nodes without our labels count as agents (contract §1.4).
        verify_streaming: Whether the path to the kubelet is proven by a log read.
    """

    mode: AddressMode = AddressMode.STATUS
    port_base: Annotated[int, Meta(ge=1024, le=65535)] = 21000
    port_slots: Annotated[int, Meta(ge=1, le=64512)] = 9000
    include_unidentified: bool = True
    verify_streaming: bool = True

    def __post_init__(self) -> None:
        """Refuse a range beyond the last port, or one that Kubernetes gives away as NodePorts.

        Raises:
            ValueError: With the reason.
        """
        end = self.port_base + self.port_slots
        if end > 65536:  # noqa: PLR2004 - ports are 16 bits
            raise ValueError("portBase + portSlots must not exceed 65536")
        if self.port_base < 32768 and end > 30000:  # noqa: PLR2004 - the default NodePort range
            raise ValueError("the ports overlap the NodePort range 30000-32767")
