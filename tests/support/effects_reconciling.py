"""A ``NodeReconciler`` at work in a small world: its API server, its cache, its watch."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import msgspec
from builders import Json
from effects_api import NODES, PROFILES, FakeApi
from effects_cluster import FakeCluster
from effects_time import LoopClock

from clusterconform.contract.facts import decode_node, read_node, view_node
from clusterconform.contract.matrix import MATRIX
from clusterconform.contract.profile import manifest_of, read_profile
from clusterconform.contract.settings import Bound
from clusterconform.effects.events import EventNote, EventRecorder
from clusterconform.effects.metrics import Metrics
from clusterconform.effects.stream import NodeStream
from clusterconform.handlers.cache import Cache
from clusterconform.handlers.nodes import NodeReconciler


class Notebook(EventRecorder):
    """Keeps Events instead of posting them."""

    def __init__(self) -> None:
        self.notes: list[EventNote] = []

    def note(self, event: EventNote) -> None:
        self.notes.append(event)

    def reasons(self) -> list[str]:
        """The reasons, in order."""
        return [note.reason for note in self.notes]


class World:
    """Everything around a reconciler.

    Attributes:
        api: The API server.
        cluster: Our client of it.
        cache: What we know.
        stream: The node stream through which the watch comes.
        changed: The profiles whose numbers were said to have changed, in order.
        woken: How many lines of the watch got through the stream.
        watch_delay: Seconds until the watch tells of a change; an answer takes one millisecond.
    """

    def __init__(
        self, *raw_nodes: Json, bound: Bound = Bound.ENFORCE, synced: bool = True, addresses: str = "Off"
    ) -> None:
        self.api, self.metrics, self.clock = FakeApi(), Metrics(), LoopClock()
        self.cluster = FakeCluster(self.api, self.metrics)
        self.cache, self.stream = Cache(), NodeStream(self.metrics, self.clock.uptime)
        self.events, self.changed, self.woken = Notebook(), list[str](), 0
        self.watch_delay = 0.002
        self.nodes = NodeReconciler(
            cache=self.cache,
            cluster=self.cluster,
            clock=self.clock,
            stream=self.stream,
            events=self.events,
            metrics=self.metrics,
            bound=bound,
            changed=self.changed.append,
        )
        for profile in MATRIX.values():
            raw_profile = manifest_of(profile)
            if "addressReconcile" in raw_profile["spec"]:
                raw_profile["spec"]["addressReconcile"] = {"mode": addresses}
            self.api.put(PROFILES, raw_profile)
            self.cache.set_profile(read_profile(self.api.get(PROFILES, profile.backend)))
        for raw in raw_nodes:
            stored = self.api.put(NODES, raw)
            self.stream.note(view_node(stored))
            self.cache.observe(read_node(view_node(stored)))
            self.nodes.queue.add(stored["metadata"]["name"])
        self.api.listeners.append(self._watch)
        if synced:
            self.nodes.may_act.set()

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Let the workers work while the body runs."""
        work = asyncio.create_task(self.nodes.queue.run())
        try:
            yield
        finally:
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await work
            for name in self.cache.names():
                self.nodes.queue.forget(name)

    def change(self, name: str, change: Callable[[Json], object]) -> None:
        """Let somebody else change a node; the watch tells of it."""
        self.api.change(NODES, name, change)

    def node(self, name: str) -> Json:
        """A node as it now stands."""
        return self.api.get(NODES, name)

    def condition(self, name: str) -> tuple[str, str] | None:
        """Status and reason of our condition."""
        for seen in self.node(name)["status"]["conditions"]:
            if seen["type"] == "RuntimeConformant":
                return seen["status"], seen["reason"]
        return None

    def count(self, metric: str, **labels: str) -> float:
        """The value of a metric, 0 where it has none."""
        return self.metrics.registry.get_sample_value(metric, labels) or 0.0

    def refresh_profiles(self) -> None:
        """Take the profiles as they now stand, and look at every node again."""
        names = self.api.names(PROFILES)
        self.cache.set_profiles(read_profile(self.api.get(PROFILES, name)) for name in names)
        for profile in [seen for seen in self.cache.profiles().values() if seen.name not in names]:
            self.cache.drop_profile(profile.name, profile.uid)
        for name in self.cache.names():
            self.nodes.queue.add(name)

    def _watch(self, collection: str, kind: str, raw: Json) -> None:
        if collection == NODES:
            line = msgspec.json.encode({"type": kind, "object": raw})
            asyncio.get_running_loop().call_later(self.watch_delay, self._line, line)

    def _line(self, line: bytes) -> None:
        slim, _ = self.stream.slim_line(line)
        if not slim:
            return
        self.woken += 1
        event = msgspec.json.decode(slim)
        node = read_node(decode_node(msgspec.json.encode(event["object"])))
        gone = event["type"] == "DELETED"
        if self.cache.forget(node.name, node.uid) if gone else self.cache.observe(node):
            self.nodes.queue.add(node.name)
