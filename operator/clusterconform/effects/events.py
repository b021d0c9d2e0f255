"""Events about Nodes and profiles: deduplicated, rate-limited, never in the way.

The Python clients have no event recorder, so the two rules of client-go's are kept here (node-facts §9): the
same thing about the same object is said once per ten minutes, and a burst is followed by a trickle. Dropped
ones are counted; the log has every line anyway.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from clusterconform.contract.names import FIELD_MANAGER
from clusterconform.contract.request import JSON, Request
from clusterconform.contract.times import format_time
from clusterconform.effects.clock import Clock
from clusterconform.effects.cluster import Cluster
from clusterconform.effects.errors import ApiError
from clusterconform.effects.metrics import Metrics

log = logging.getLogger(__name__)

# Events of cluster-scoped objects live in namespace default; kubectl describe looks for them there.
EVENTS_NAMESPACE: Final = "default"
_SILENCE_SECONDS: Final = 600.0
_BURST: Final = 25
_PER_SECOND: Final = 1.0
_MESSAGE_LENGTH: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class EventNote:
    """What an Event says.

    Attributes:
        reference: The involvedObject: apiVersion, kind, name and the real uid, or describe will not show it.
        type: Normal or Warning.
        reason: A word of the closed vocabulary.
        message: One sentence.
    """

    reference: Mapping[str, str]
    type: str
    reason: str
    message: str


class EventRecorder:
    """Posts Events in the background."""

    def __init__(self, cluster: Cluster, clock: Clock, metrics: Metrics, identity: str) -> None:
        """Post through ``cluster`` as ``identity`` (the reporting instance)."""
        self._cluster, self._clock, self._metrics, self._identity = cluster, clock, metrics, identity
        self._queue: asyncio.Queue[EventNote] = asyncio.Queue(maxsize=_BURST)
        self._said: dict[tuple[str, str, str], float] = {}
        self._tokens, self._filled_at = float(_BURST), clock.uptime()
        self._count = 0

    def note(self, event: EventNote) -> None:
        """Post ``event`` soon, unless it was said lately or the limit is reached; never waits."""
        now = self._clock.uptime()
        key = (event.reference.get("uid", ""), event.reason, event.message)
        if now - self._said.get(key, -_SILENCE_SECONDS) < _SILENCE_SECONDS:
            return
        self._tokens = min(_BURST, self._tokens + (now - self._filled_at) * _PER_SECOND)
        self._filled_at = now
        if self._tokens < 1 or self._queue.full():
            self._metrics.events_dropped.inc()
            return
        self._tokens -= 1
        self._said = {said: at for said, at in self._said.items() if now - at < _SILENCE_SECONDS}
        self._said[key] = now
        self._queue.put_nowait(event)

    async def run(self) -> None:
        """Post what is queued, for ever; an Event that cannot be posted is lost with a line in the log."""
        while True:
            event = await self._queue.get()
            try:
                await self._cluster.send(self._request(event))
            except ApiError as error:
                log.warning("event not posted", extra={"fields": {"reason": event.reason, "error": str(error)}})

    def _request(self, event: EventNote) -> Request:
        self._count += 1
        moment = self._clock.moment()
        at = format_time(moment.wall)
        suffix = f"{int(moment.wall.timestamp() * 1e6):x}.{self._count:x}"
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{event.reference['name'][:200].rstrip('-.')}.{suffix}",
                "namespace": EVENTS_NAMESPACE,
            },
            "involvedObject": dict(event.reference),
            "type": event.type,
            "reason": event.reason,
            "message": event.message[:_MESSAGE_LENGTH],
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
            "source": {"component": FIELD_MANAGER},
            "reportingComponent": FIELD_MANAGER,
            "reportingInstance": self._identity,
        }
        path = f"/api/v1/namespaces/{EVENTS_NAMESPACE}/events"
        return Request(method="POST", path=path, content_type=JSON, body=body)
