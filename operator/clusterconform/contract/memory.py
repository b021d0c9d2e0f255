"""What a decision remembers of a node between calls.

Timers, counters and baselines live here and not in handlers, so that ``simulate`` sees what the operator
sees. All times are uptimes (monotonic seconds, see ``Moment``). A restart forgets: every rule that uses this
errs on the side of fewer writes when it starts from nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMemory:
    """What is remembered of one node (one uid).

    Attributes:
        clean_since: When the node was first seen without findings, or None.
        drift_since: When a repairable drift was first seen, or None.
        repairs: By mark, when we wrote it, within the window of contention.
        contested: By mark, until when it is left alone.
        condition: Text of our condition as we last wrote it, or None.
        rejected: Ops of the patch that the API server refused for good, and its words; or None.
        endpoint_writes: When we wrote the endpoint, within the last minute.
        endpoint_rejected: The endpoint write that the API server refused for good, and its words; or None.
        probe: The probe's verdict, and since when it has been the same; None without one.
    """

    clean_since: float | None = None
    drift_since: float | None = None
    repairs: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    contested: Mapping[str, float] = field(default_factory=dict)
    condition: tuple[str, str, str] | None = None
    rejected: tuple[str, str] | None = None
    endpoint_writes: tuple[float, ...] = ()
    endpoint_rejected: tuple[str, str] | None = None
    probe: tuple[str, float] | None = None


EMPTY = NodeMemory()
