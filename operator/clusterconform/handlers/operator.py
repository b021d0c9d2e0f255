"""The operator, put together: who is told what, in which order things start, how they end."""

import asyncio
import contextlib
import logging
import platform
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import kopf
from aiohttp import web

from clusterconform.contract.lease import LeaseTimings, Term
from clusterconform.contract.settings import Bound
from clusterconform.effects.clock import Clock
from clusterconform.effects.cluster import Cluster
from clusterconform.effects.connection import Connection
from clusterconform.effects.elector import Elector, LeadershipLostError, new_identity
from clusterconform.effects.events import EventRecorder
from clusterconform.effects.ledger import Ledger
from clusterconform.effects.metrics import Metrics
from clusterconform.effects.stream import NodeStream
from clusterconform.handlers import preflight, watching
from clusterconform.handlers.agent_report import AgentReport
from clusterconform.handlers.cache import Cache
from clusterconform.handlers.health import Health
from clusterconform.handlers.nodes import NodeReconciler
from clusterconform.handlers.pinning import PinningCheck
from clusterconform.handlers.probes import ProbeKeeper
from clusterconform.handlers.reaping import Reaper
from clusterconform.handlers.resync import Resync
from clusterconform.handlers.status import StatusReporter
from clusterconform.handlers.streaming import StreamingVerifier

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How this process runs.

    Attributes:
        kubeconfig: A kubeconfig file; None for the usual places.
        context: A context of that file; None for its current one.
        bound: The upper bound over all profiles.
        host: Where to listen for health and metrics.
        port: On which port; 0 for any free one.
        slim_stream: Whether the node stream is cut down; False changes speed only.
        lease: How long leadership lasts.
        node_name: The node on which we run; empty when unknown.
        nodegc: The environment's OUTPOST_NODEGC, which can make reaping milder.
    """

    kubeconfig: Path | None = None
    context: str | None = None
    bound: Bound = Bound.OBSERVE
    host: str = "127.0.0.1"
    port: int = 8080
    slim_stream: bool = True
    lease: LeaseTimings = field(default_factory=LeaseTimings)
    node_name: str = ""
    nodegc: str = ""


async def operate(settings: Settings) -> None:
    """Stand by, lead, and run until SIGINT or SIGTERM.

    Raises:
        LeadershipLostError: Another leads, or may soon: this process must begin anew.
        ConnectionConfigError: No usable kubeconfig.
        NotReadyError: Something is missing in the cluster that only a person can bring.
        OSError: The port is taken.
    """
    stop = asyncio.Event()
    _stop_on_signals(stop)
    connection = Connection(settings.kubeconfig, settings.context)
    await connection.open()
    clock, metrics = Clock(), Metrics()
    metrics.build.info({"version": version("clusterconform"), "python": platform.python_version()})
    # Two clients, since the election must go on while everything else is fenced off; and it waits, where the API
    # server asks for it, only as long as leaves time for another try.
    election = Cluster(
        connection, metrics, clock, may_write=lambda _: True, longest_wait=settings.lease.longest_write
    )
    elector = Elector(election, clock, new_identity(), settings.lease)
    cluster = Cluster(
        connection,
        metrics,
        clock,
        may_write=lambda seconds: elector.valid_for(seconds) and not stop.is_set(),
        write_seconds=settings.lease.longest_write,
    )
    parts = _Operator(
        settings, connection=connection, cluster=cluster, clock=clock, metrics=metrics, elector=elector
    )
    try:
        async with _closed_at_the_end(cluster, elector, election), _until(stop):
            await parts.run(stop)
    except LeadershipLostError:
        # Who is asked to end while leadership is being lost ends: a process begun anew would not know of it.
        if not stop.is_set():
            raise
    log.info("stopped")


class _Operator:
    """The parts, and who is told what."""

    def __init__(
        self,
        settings: Settings,
        *,
        connection: Connection,
        cluster: Cluster,
        clock: Clock,
        metrics: Metrics,
        elector: Elector,
    ) -> None:
        self.settings, self.connection, self.cluster, self.clock = settings, connection, cluster, clock
        self.metrics, self.elector = metrics, elector
        self.reaper: Reaper | None = None
        self.cache = Cache()
        self.stream = NodeStream(
            metrics,
            clock.uptime,
            slim=settings.slim_stream,
            observe=watching.taker_of(self.cache, self._node_due),
        )
        self.events = EventRecorder(cluster, clock, metrics, socket.gethostname())
        self.resync = Resync(
            cache=self.cache,
            cluster=cluster,
            clock=clock,
            node_due=self._node_due,
            catalogue_changed=self.everything_due,
        )
        self.status = StatusReporter(
            cache=self.cache,
            cluster=cluster,
            clock=clock,
            metrics=metrics,
            complete=lambda: self.resync.synced_at is not None,
            catalogue_changed=self.everything_due,
            standing=lambda backend: self.reaper.standing(backend) if self.reaper else None,
            agents=lambda backend: self.report.standing(backend),  # noqa: PLW0108 - the report is made below
        )
        self.nodes = NodeReconciler(
            cache=self.cache,
            cluster=cluster,
            clock=clock,
            stream=self.stream,
            events=self.events,
            metrics=metrics,
            bound=settings.bound,
            changed=self.status.due,
        )
        self._look_after_agents()
        self.health = Health(clock=clock, stream=self.stream, resync=self.resync, elector=elector, metrics=metrics)
        elector.tell = self.health.told

    def _look_after_agents(self) -> None:
        roll = self.nodes.roll
        self.pinning = PinningCheck(roll=roll, cluster=self.cluster, changed=self.status.due)
        self.probes = ProbeKeeper(
            cache=self.cache,
            roll=roll,
            cluster=self.cluster,
            bound=self.settings.bound,
            node_due=self._node_due,
            changed=self.status.due,
        )
        self.streaming = StreamingVerifier(
            roll=roll, cluster=self.cluster, clock=self.clock, metrics=self.metrics.agents, changed=self.status.due
        )
        self.report = AgentReport(
            roll=roll,
            keeper=self.probes,
            verifier=self.streaming,
            pinning=self.pinning,
            metrics=self.metrics.agents,
        )

    def _node_due(self, name: str) -> None:
        self.nodes.queue.add(name)

    def everything_due(self) -> None:
        """All nodes and profiles are due: the picture is complete, or what profiles say has changed."""
        for name in self.cache.names():
            self.nodes.queue.add(name)
        for name in self.cache.profiles():
            self.status.due(name)
        self.probes.daemonset()
        self.pinning.wake()

    async def run(self, stop: asyncio.Event) -> None:
        """Serve health at once, wait for the cluster and for leadership, then work for ever."""
        sessions = watching.Sessions(self.connection, self.stream)

        async def registry() -> kopf.OperatorRegistry:
            return watching.registry_of(
                cache=self.cache,
                login=sessions.login,
                node_due=self._node_due,
                profile_due=self.status.due,
                catalogue_changed=self.everything_due,
                probes=self.probes if await self.probes.may_watch() else None,
            )

        async with _served(self.health.app(), self.settings) as port:
            fields = {"server": self.connection.server, "bound": self.settings.bound, "port": port}
            log.info("started", extra={"fields": fields})
            await preflight.check(self.cluster)
            self.reaper = self._reaper(await self.elector.acquire())
            lost: BaseException | None = None
            try:
                await self._lead(registry, sessions, self.reaper, stop)
            except* LeadershipLostError as errors:
                # Outside of this block, or it would be wrapped into a group again.
                (lost, *_) = errors.exceptions
            if lost is not None:
                raise lost

    def _reaper(self, term: Term) -> Reaper:
        return Reaper(
            cache=self.cache,
            nodes=self.nodes,
            cluster=self.cluster,
            clock=self.clock,
            events=self.events,
            metrics=self.metrics.reaping,
            ledger=Ledger(self.cluster, term),
            bound=self.settings.bound,
            word=self.settings.nodegc,
            own_node=self.settings.node_name,
            synced_at=lambda: self.resync.synced_at,
            hears=self.health.hears,
            clock_difference=self.elector.clock_difference,
            changed=self.status.due,
        )

    async def _lead(
        self,
        registry: Callable[[], Awaitable[kopf.OperatorRegistry]],
        sessions: watching.Sessions,
        reaper: Reaper,
        stop: asyncio.Event,
    ) -> None:
        async with asyncio.TaskGroup() as tasks:
            # Kopf waits at its end for tasks that began after it did, so ours begin before.
            for work in (
                self.elector.keep(),
                self.nodes.queue.run(),
                self.status.run(self.nodes),
                self.events.run(),
                self._keep_complete(),
                reaper.run(),
            ):
                tasks.create_task(work)
            tasks.create_task(
                watching.watch(registry, sessions, lambda: _stop_on_signals(stop), self.resync.profiles_served)
            )

    async def _keep_complete(self) -> None:
        await self.resync.first()
        self.nodes.may_act.set()
        fields = {
            "nodes": len(self.cache),
            "profiles": len(self.cache.profiles()),
            "bound": self.settings.bound,
        }
        log.info("synced", extra={"fields": fields})
        self.everything_due()
        async with asyncio.TaskGroup() as tasks:
            # What concludes from nodes and profiles begins when both are known.
            for work in (self.resync.run(), self.probes.run(), self.pinning.run(), self.streaming.run()):
                tasks.create_task(work)


@contextlib.asynccontextmanager
async def _served(app: web.Application, settings: Settings) -> AsyncIterator[int]:
    """Serve ``app`` during the block; gives the port, which matters where any free one was asked for."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, settings.host, settings.port).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def _closed_at_the_end(cluster: Cluster, elector: Elector, election: Cluster) -> AsyncIterator[None]:
    """End in order; outside of ``_until``, so that a late signal does not end the ending."""
    try:
        yield
    finally:
        await cluster.close()
        # After all work has stopped: the next one leads at once.
        await elector.release()
        await election.close()


@contextlib.asynccontextmanager
async def _until(stop: asyncio.Event) -> AsyncIterator[None]:
    """Cancel the block when ``stop`` is set, and end quietly then."""
    block = asyncio.current_task()

    async def wait() -> None:
        await stop.wait()
        if block is not None:
            block.cancel()

    waiter = asyncio.create_task(wait())
    try:
        yield
    except asyncio.CancelledError:
        if not stop.is_set():
            raise
    finally:
        waiter.cancel()


def _stop_on_signals(stop: asyncio.Event) -> None:
    # Again after each start of Kopf, which installs handlers of its own.
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
