"""Kopf: what it watches for us, and how it is kept from doing anything else.

Only ``@kopf.on.event`` is used: every other primitive of Kopf writes an annotation or a finalizer on the
object, and Nodes are not ours (measured: a textbook operator leaves an annotation on each of 5,000 nodes).
The handlers take what they are told into the cache and mark it as due; they return None, since Kopf would
patch a returned value into the status.
"""

import asyncio
import gc
import logging
import traceback
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from http import HTTPStatus
from typing import Any, Final, Protocol

import aiohttp
import kopf
from aiohttp import ClientHandlerType, ClientRequest, ClientResponse

from clusterconform.contract.facts import NodeView, UnreadableNodeError, read_node, view_node
from clusterconform.contract.names import API_VERSION, GROUP, NAMESPACE, PLURAL, PROBE_SELECTOR, VERSION
from clusterconform.contract.profile import Refusal, read_profile
from clusterconform.effects.connection import Connection
from clusterconform.effects.stream import NODES_PATH, NodeStream
from clusterconform.handlers.cache import Cache

log = logging.getLogger(__name__)

_FIRST_RESTART, _LAST_RESTART = 1.0, 60.0
# Kopf itself gives its tasks five seconds.
_PARTING_SECONDS: Final = 8.0
_PARTING_ROUNDS: Final = 5
_LOOK_SECONDS: Final = 5.0
_PROFILES_PATH: Final = f"/apis/{API_VERSION}/{PLURAL}"
_DELETED: Final = "DELETED"


class _NoDiffBase(kopf.AnnotationsDiffBaseStorage):
    """Kopf builds a diff base for each event even without a handler that needs one; a third of its CPU."""

    def build(self, **_: Any) -> Any:
        return {}

    def fetch(self, **_: Any) -> Any:
        return None


class ProbeEars(Protocol):
    """Whoever is told of probe pods and their DaemonSet."""

    def pod(self, kind: str, manifest: Mapping[str, Any]) -> None:
        """A probe pod was seen, or went."""

    def daemonset(self) -> None:
        """The DaemonSet was seen, or went."""


def registry_of(
    *,
    cache: Cache,
    login: Callable[[], Any],
    node_due: Callable[[str], None],
    profile_due: Callable[[str], None],
    catalogue_changed: Callable[[], None],
    probes: ProbeEars | None = None,
) -> kopf.OperatorRegistry:
    """The handlers.

    Args:
        cache: Takes what the watches bring.
        login: Makes the session that Kopf reads through.
        node_due: Told each node with news.
        profile_due: Told each profile with news.
        catalogue_changed: Told when the set of profiles, or what they say, changed.
        probes: Told of probe pods and of their DaemonSet; None where we may not watch them: a refused watch would
            end Kopf as a whole, and the watch of nodes with it.
    """
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def connect(**_: Any) -> Any:
        return await login()

    take = taker_of(cache, node_due)

    @kopf.on.event("", "v1", "nodes", registry=registry)
    async def node_event(event: Any, **_: Any) -> None:
        try:
            take(event["type"], view_node(event["object"]))
        except UnreadableNodeError:
            log.exception("a watch brought what is no node")

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)
    async def profile_event(event: Any, **_: Any) -> None:
        try:
            profile = read_profile(event["object"])
        except Refusal:
            log.exception("a watch brought what is no profile")
            return
        if event["type"] == _DELETED:
            changed = cache.drop_profile(profile.name, profile.uid)
        else:
            changed = cache.set_profile(profile)
        if changed:
            catalogue_changed()
        profile_due(profile.name)

    if probes is not None:
        _listen(registry, probes)
    return registry


def _listen(registry: kopf.OperatorRegistry, probes: ProbeEars) -> None:
    @kopf.on.event("", "v1", "pods", registry=registry)
    async def pod_event(event: Any, **_: Any) -> None:
        probes.pod(event["type"] or "", event["object"])

    @kopf.on.event("apps", "v1", "daemonsets", registry=registry)
    async def daemonset_event(**_: Any) -> None:
        probes.daemonset()


def taker_of(cache: Cache, node_due: Callable[[str], None]) -> Callable[[str, NodeView], None]:
    """Takes a Node of an event into ``cache``; whoever brings it, Kopf or the node stream."""

    def take(kind: str, view: NodeView) -> None:
        node = read_node(view)
        if cache.forget(node.name, node.uid) if kind == _DELETED else cache.observe(node):
            node_due(node.name)

    return take


def settings() -> kopf.OperatorSettings:
    """Kopf reads, and nothing else; see the reasons at each line."""
    chosen = kopf.OperatorSettings()
    chosen.peering.standalone = True  # its peering excludes nobody: no compare-and-swap
    chosen.scanning.disabled = True  # no watch of CRDs and namespaces: two rights and one fatal watcher less
    chosen.posting.enabled = False  # Events are ours, deduplicated and limited
    chosen.persistence.finalizer = f"{GROUP}/never-used"
    chosen.persistence.diffbase_storage = _NoDiffBase()
    chosen.watching.chunk_size = 500  # 250 MB at the peak instead of 415 for 5,000 nodes
    chosen.watching.server_timeout = 300
    chosen.watching.inactivity_timeout = 70  # bookmarks come each minute; a half-open connection ends here
    chosen.watching.connect_timeout = 5
    chosen.watching.label_selectors["", "v1", "pods"] = PROBE_SELECTOR  # on the server's side: nobody else's pods
    chosen.networking.request_timeout = 60
    chosen.networking.connect_timeout = 5
    chosen.networking.error_backoffs = [1, 1, 2, 3, 5, 8, 13, 21] + [30] * 8  # about 5 minutes
    chosen.queueing.worker_limit = None
    return chosen


class _Gone:
    """Stands in for the content of a watch that was refused with HTTP 410: the ERROR event that says so.

    Everything but the way in which Kopf reads is passed on: a response closes its content.
    """

    def __init__(self, content: Any) -> None:
        self._content = content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, _: int) -> AsyncIterator[bytes]:
        yield b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n'


class Sessions:
    """Makes the sessions through which Kopf reads, and closes what Kopf leaves open."""

    def __init__(self, connection: Connection, stream: NodeStream) -> None:
        """Read over ``connection`` through ``stream``."""
        self._connection, self._stream = connection, stream
        self._open: list[aiohttp.ClientSession] = []
        self._asked: set[str] = set()

    async def login(self) -> kopf.AiohttpSession:
        """A session with the credentials of now; Kopf asks again when they are refused."""
        await self._connection.open()
        session = self._connection.session(self._note, self._stream)
        self._open = [*(seen for seen in self._open if not seen.closed), session]
        return kopf.AiohttpSession(server=self._connection.server, aiohttp_session=session)

    async def _note(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        self._asked.add(request.url.path)
        response = await handler(request)
        if response.status == HTTPStatus.GONE and request.url.query.get("watch") == "true":
            # Kopf dies of the status, and lists again at an event that says the same.
            response.status = HTTPStatus.OK
            content: Any = _Gone(response.content)
            response.content = content
        return response

    def lack_profiles(self) -> bool:
        """Whether Kopf watches nodes and no profiles.

        What a cluster serves it asks once, when it starts, and it begins all its watches then: what is missing
        afterwards stays missing.
        """
        return NODES_PATH in self._asked and _PROFILES_PATH not in self._asked

    async def close(self) -> None:
        """Close what is still open: a Kopf that was cut short closes nothing."""
        for session in self._open:
            await session.close()
        self._asked.clear()


async def watch(
    registry: Callable[[], Awaitable[kopf.OperatorRegistry]],
    sessions: Sessions,
    after_start: Callable[[], None],
    profiles_served: Callable[[], Awaitable[bool]],
) -> None:
    """Run Kopf for ever, reading through ``sessions``; ``after_start`` is called each time it has started.

    What is watched is asked of ``registry`` at each start: rights may have come or gone meanwhile.

    Its watchers raise on answers that a cluster gives in bad hours: an ERROR event, minutes of 403 or 5xx, a
    removed CRD. Then it is started anew, with a pause that doubles and one line in the log; the cache and the
    resync go on meanwhile. Where it found no RuntimeProfiles to watch, since their CRD was not there, it is
    started anew as soon as ``profiles_served`` says that it is there again.
    """
    pause = _FIRST_RESTART
    asyncio.get_running_loop().set_exception_handler(_heard)
    # A generator that Kopf left behind (see there) may be collected when no loop is left to close it in.
    warnings.filterwarnings("ignore", r"coroutine method '\w+' of '\w+_watch' was never awaited", RuntimeWarning)
    while True:
        started = asyncio.get_running_loop().time()
        try:
            try:
                await _run_kopf(await registry(), after_start, _overtaken(sessions, profiles_served))
            finally:
                await sessions.close()
            log.warning("the watches ended")
        except Exception as error:  # noqa: BLE001 - whatever Kopf dies of, the watch must come back
            log.warning("the watches failed", extra={"fields": {"error": str(error) or repr(error)}})
        if asyncio.get_running_loop().time() - started > _LAST_RESTART:
            pause = _FIRST_RESTART
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LAST_RESTART)


def _heard(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Pass an error of a callback on, but for two of Kopf's that say nothing.

    A watch that is told to stop while its request is under way asks for the current task, of which a callback has
    none; it stops all the same (kopf 1.45, clients/api.py, request_cancel_callback). And a watcher that is
    cancelled between two events leaves its generators behind; they are closed all at once, and the outer one finds
    the inner one closing already (clients/watching.py, infinite_watch).
    """
    error = context.get("exception")
    names = {frame.name for frame in traceback.extract_tb(error.__traceback__)} if error is not None else set()
    stopped = isinstance(error, AssertionError) and "request_cancel_callback" in names
    closing = isinstance(error, RuntimeError) and "infinite_watch" in names
    if not stopped and not closing:
        loop.default_exception_handler(context)


async def _overtaken(sessions: Sessions, profiles_served: Callable[[], Awaitable[bool]]) -> None:
    """Wait until there is a kind to watch that was not there when Kopf started."""
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        if sessions.lack_profiles() and await profiles_served() and sessions.lack_profiles():
            log.info("RuntimeProfiles can be watched now")
            return


async def _run_kopf(
    registry: kopf.OperatorRegistry, after_start: Callable[[], None], overtaken: Coroutine[Any, Any, None]
) -> None:
    """Run Kopf until one of its tasks ends or it is overtaken, and make sure that it ends as a whole.

    It may not by itself: a watch whose session was closed waits for credentials that nobody brings any more.
    """
    lookout = asyncio.create_task(overtaken, name="lookout")
    # At its end Kopf cancels every task that it is not told to leave alone, ours included.
    ours = asyncio.all_tasks()
    try:
        # One namespace: probe pods are watched in ours alone. Nodes and profiles have none and are all watched.
        roots = await kopf.spawn_tasks(
            registry=registry, settings=settings(), namespaces=[NAMESPACE], standalone=True
        )
        after_start()
        runner = asyncio.create_task(kopf.run_tasks(roots, ignored=ours), name="kopf")
        await asyncio.wait([runner, *roots, lookout], return_when=asyncio.FIRST_COMPLETED)
        if not lookout.done():
            await asyncio.wait([runner], timeout=_PARTING_SECONDS)
    finally:
        await _end_all_but(ours - {lookout})
        await _close_generators()
    for task in [runner, *roots, lookout]:
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            raise error


async def _end_all_but(ours: set[asyncio.Task[Any]]) -> None:
    for _ in range(_PARTING_ROUNDS):
        left = asyncio.all_tasks() - ours - {task for task in [asyncio.current_task()] if task is not None}
        if not left:
            return
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=1.0)


async def _close_generators() -> None:
    """Have what Kopf's watchers left behind closed now: once the loop has ended, nobody would any more."""
    gc.collect()
    for _ in range(_PARTING_ROUNDS):
        await asyncio.sleep(0)
