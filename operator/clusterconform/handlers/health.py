"""/livez, /readyz and /metrics on one port; nothing here writes."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from aiohttp import web
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from clusterconform.contract.lease import HEARING_SECONDS
from clusterconform.contract.names import HEARD_ANNOTATION, RESYNCED_ANNOTATION
from clusterconform.effects.clock import Clock
from clusterconform.effects.elector import Elector
from clusterconform.effects.metrics import Metrics
from clusterconform.effects.stream import NodeStream
from clusterconform.handlers.resync import Resync

# Kopf gives a silent watch 70 s and opens another; three times that with neither a byte nor an attempt means
# that nobody is watching any more.
DEAF_SECONDS: Final = 210.0


class Health:
    """Tells whether we are alive and ready."""

    def __init__(
        self, *, clock: Clock, stream: NodeStream, resync: Resync, elector: Elector, metrics: Metrics
    ) -> None:
        """Judge by ``stream``, ``resync`` and ``elector``."""
        self._clock, self._stream, self._resync, self._metrics = clock, stream, resync, metrics
        self._elector = elector
        metrics.leader.set_function(lambda: float(elector.valid_for(0)))
        metrics.stream_age.set_function(self.stream_age)
        metrics.synced_age.set_function(self._synced_age)

    def stream_age(self) -> float:
        """Seconds since the node stream brought a byte; -1 before the first."""
        return -1.0 if self._stream.last_byte is None else self._clock.uptime() - self._stream.last_byte

    def hears(self) -> bool:
        """Whether the node stream brought a byte lately: what it did not bring has not happened."""
        return 0 <= self.stream_age() < HEARING_SECONDS

    def told(self) -> dict[str, datetime]:
        """By annotation of the Lease, when everything was last listed and when nodes were last heard of."""
        now = self._clock.moment()
        moments = {RESYNCED_ANNOTATION: self._resync.synced_at, HEARD_ANNOTATION: self._stream.last_byte}
        return {
            name: now.wall - timedelta(seconds=now.uptime - at) for name, at in moments.items() if at is not None
        }

    def dead(self) -> str:
        """Why we are not alive; empty when we are.

        Waiting for an API server is no reason: a restart would only wait again.
        """
        signs = (self._stream.last_byte, self._stream.last_attempt, self._resync.synced_at)
        last = max((sign for sign in signs if sign is not None), default=None)
        silent = 0.0 if last is None else self._clock.uptime() - last
        return f"nobody has watched nodes for {silent:.0f} s" if silent > DEAF_SECONDS else ""

    def unready(self) -> str:
        """Why we are not ready; empty when we are: leading with all nodes known, or able to take over."""
        if self._elector.valid_for(0):
            return "" if self._resync.synced_at is not None else "nodes and profiles are not known yet"
        if self._elector.standby_healthy():
            return ""
        return f"standing by without a Lease: {self._elector.trouble or 'it was not read yet'}"

    def _synced_age(self) -> float:
        synced = self._resync.synced_at
        return -1.0 if synced is None else self._clock.uptime() - synced

    def app(self) -> web.Application:
        """The three paths as an application."""

        def answer(judge: Callable[[], str]) -> Callable[[web.Request], object]:
            async def handle(_: web.Request) -> web.Response:
                why = judge()
                return web.Response(status=503 if why else 200, text=(why or "ok") + "\n")

            return handle

        async def metrics(_: web.Request) -> web.Response:
            body = generate_latest(self._metrics.registry)
            return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

        app = web.Application()
        app.router.add_get("/livez", answer(self.dead))  # type: ignore[arg-type]
        app.router.add_get("/readyz", answer(self.unready))  # type: ignore[arg-type]
        app.router.add_get("/metrics", metrics)
        return app
