"""Kopf watches for us, and does nothing else."""

import asyncio
import contextlib
import gc
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import kmock
import kopf
import pytest
from builders import AGENT_SPEC, Json, agent, manifest, virtual
from effects_api import NODES, PROFILES, FakeApi
from effects_lines import line
from effects_server import kubeconfig, served
from effects_time import run_virtually
from kmock import ResourceInfo

from clusterconform.contract.names import GROUP, PLURAL, VERSION
from clusterconform.effects.connection import Connection
from clusterconform.effects.metrics import Metrics
from clusterconform.effects.stream import ForeignWriteError, NodeStream
from clusterconform.handlers import watching
from clusterconform.handlers.cache import Cache

pytestmark = [
    pytest.mark.usefixtures("nothing_left_over"),
    # Kopf drops a worker that it was about to start when it is cancelled.
    pytest.mark.filterwarnings("ignore:coroutine 'worker' was never awaited:RuntimeWarning"),
]

AGENT = "pi-4c7adeb6"
CRDS = "apiextensions.k8s.io/v1/customresourcedefinitions"


class Told:
    """A registry, its cache, and what it told."""

    def __init__(self, login: Callable[[], Any] = lambda: None) -> None:
        self.cache = Cache()
        self.nodes, self.profiles, self.catalogue = list[str](), list[str](), 0
        self.news = asyncio.Event()
        self.registry = watching.registry_of(
            cache=self.cache,
            login=login,
            node_due=lambda name: self._told(self.nodes, name),
            profile_due=lambda name: self._told(self.profiles, name),
            catalogue_changed=self._catalogue_changed,
        )

    async def registered(self) -> kopf.OperatorRegistry:
        """The registry, as it is asked for at each start."""
        return self.registry

    def _told(self, into: list[str], name: str) -> None:
        into.append(name)
        self.news.set()

    def _catalogue_changed(self) -> None:
        self.catalogue += 1

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for what is told until ``condition`` holds."""
        async with asyncio.timeout(20):
            while not condition():
                self.news.clear()
                await self.news.wait()

    async def hand(self, handler: str, kind: str | None, raw: Json) -> object:
        """Give one event to a handler, as Kopf would; returns what it returns."""
        handlers: dict[str, Any] = {
            seen.id.rpartition(".")[2]: seen.fn for seen in self.registry._watching._handlers
        }
        result: Awaitable[object] = handlers[handler](event={"type": kind, "object": raw}, logger=None, patch=None)
        return await result


def with_images(name: str) -> Callable[[Json], None]:
    """The kubelet reports another image."""

    def change(raw: Json) -> None:
        raw["status"]["images"] = [{"names": [name]}]

    return change


def test_only_event_handlers_are_registered_and_only_for_nodes_and_profiles() -> None:
    """Every other kind of handler writes an annotation or a finalizer on its object."""
    registry = Told().registry
    for kind in ("_changing", "_spawning", "_indexing", "_webhooks"):
        assert getattr(registry, kind)._handlers == []
    assert [handler.id.rpartition(".")[2] for handler in registry._activities._handlers] == ["connect"]
    watched = [handler.selector for handler in registry._watching._handlers]
    assert [(seen.group, seen.version, seen.plural or seen.any_name) for seen in watched if seen] == [
        ("", "v1", "nodes"),
        (GROUP, VERSION, PLURAL),
    ]


@pytest.mark.parametrize("handler", ["node_event", "profile_event"])
@pytest.mark.parametrize("kind", [None, "ADDED", "MODIFIED", "DELETED"])
async def test_handlers_return_none_or_kopf_would_write_their_result(handler: str, kind: str | None) -> None:
    raw = agent() if handler == "node_event" else manifest("k3s", AGENT_SPEC)
    assert await Told().hand(handler, kind, raw) is None


@pytest.mark.parametrize("handler", ["node_event", "profile_event"])
@pytest.mark.parametrize(
    "raw", [{}, {"metadata": None}, {"metadata": {"name": 7}}, {"metadata": {"name": "n", "labels": 7}}]
)
async def test_what_is_neither_node_nor_profile_changes_nothing_about_nodes(handler: str, raw: Json) -> None:
    told = Told()
    assert await told.hand(handler, "MODIFIED", raw) is None
    assert len(told.cache) in {0, 1}


async def test_a_node_is_taken_and_due_when_there_is_news() -> None:
    told = Told()
    await told.hand("node_event", None, agent())
    await told.hand("node_event", "ADDED", agent())
    assert told.nodes == [AGENT]
    newer = agent()
    newer["metadata"]["resourceVersion"] = "8"
    await told.hand("node_event", "MODIFIED", newer)
    assert told.nodes == [AGENT, AGENT]


async def test_a_deleted_node_is_forgotten_and_due() -> None:
    told = Told()
    await told.hand("node_event", "ADDED", agent())
    await told.hand("node_event", "DELETED", agent(uid="a-former-life"))
    assert told.cache.node(AGENT) is not None
    await told.hand("node_event", "DELETED", agent())
    assert told.cache.node(AGENT) is None
    assert told.nodes == [AGENT, AGENT]


async def test_every_event_of_a_profile_makes_it_due_and_only_news_the_catalogue() -> None:
    told, raw = Told(), manifest("k3s", AGENT_SPEC, uid="u")
    for kind in (None, "ADDED", "MODIFIED"):
        await told.hand("profile_event", kind, raw)
    assert (told.profiles, told.catalogue) == (["k3s"] * 3, 1)
    await told.hand("profile_event", "DELETED", raw)
    assert (told.catalogue, told.cache.profiles()) == (2, {})


def test_the_settings_are_the_intended_ones() -> None:
    chosen = watching.settings()
    assert chosen.peering.standalone is True
    assert chosen.scanning.disabled is True
    assert chosen.posting.enabled is False
    assert chosen.persistence.finalizer == "outpost.dhnt.io/never-used"
    assert chosen.watching.chunk_size == 500
    assert chosen.watching.server_timeout == 300
    assert isinstance(chosen.watching.server_timeout, int)
    assert chosen.watching.inactivity_timeout == 70
    assert chosen.watching.connect_timeout == 5
    assert chosen.watching.initial_streaming is False
    assert chosen.networking.request_timeout == 60
    backoffs = list(chosen.networking.error_backoffs)  # type: ignore[arg-type]
    assert 250 < sum(backoffs) < 330
    assert chosen.queueing.worker_limit is None


def test_no_diff_of_anything_is_built_or_read() -> None:
    storage = watching.settings().persistence.diffbase_storage
    body = kopf.Body({"metadata": {"annotations": {"kopf.zalando.org/last-handled-configuration": "{}"}}})
    assert storage.build(body=body) == {}
    assert storage.fetch(body=body) is None


def test_settings_are_made_anew_for_each_start() -> None:
    assert watching.settings() is not watching.settings()


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("path", [NODES, f"{NODES}/{AGENT}", PROFILES, "/api/v1/namespaces/default/events"])
async def test_the_session_that_kopf_gets_refuses_every_write(tmp_path: Path, method: str, path: str) -> None:
    async with served(FakeApi()) as here:
        connection = Connection(kubeconfig(tmp_path / "config", here.url))
        session = await watching.Sessions(connection, NodeStream(Metrics(), lambda: 0.0)).login()
        async with session.aiohttp_session:
            with pytest.raises(ForeignWriteError, match=f"refused: {method} {path}"):
                await session.aiohttp_session.request(method, session.server + path, json={})
        assert here.seen == []


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_without_the_slim_stream_kopf_may_write_no_more_than_with_it(tmp_path: Path, method: str) -> None:
    """Taking the stream away changes speed only."""
    async with served(FakeApi()) as here:
        connection = Connection(kubeconfig(tmp_path / "config", here.url))
        session = await watching.Sessions(connection, NodeStream(Metrics(), lambda: 0.0, slim=False)).login()
        async with session.aiohttp_session:
            with pytest.raises(ForeignWriteError):
                await session.aiohttp_session.request(method, f"{session.server}{NODES}/{AGENT}", json={})
        assert here.seen == []


async def always() -> bool:
    """RuntimeProfiles are served."""
    return True


@contextlib.asynccontextmanager
async def watched(
    told: Told, sessions: watching.Sessions, profiles_served: Callable[[], Awaitable[bool]] = always
) -> AsyncIterator[None]:
    """Watch while the body runs."""
    watch = asyncio.create_task(watching.watch(told.registered, sessions, lambda: None, profiles_served))
    try:
        yield
    finally:
        watch.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watch


@contextlib.asynccontextmanager
async def watching_server(
    tmp_path: Path, api: FakeApi, *, slim: bool = True
) -> AsyncIterator[tuple[Told, NodeStream, Any]]:
    """Kopf at work on a server of ours."""
    async with served(api) as here:
        connection = Connection(kubeconfig(tmp_path / "config", here.url))
        stream = NodeStream(Metrics(), asyncio.get_running_loop().time, slim=slim)
        sessions = watching.Sessions(connection, stream)
        told = Told(sessions.login)
        async with watched(told, sessions):
            yield told, stream, here
            here.close_watches()


@pytest.mark.parametrize("slim", [True, False])
async def test_kopf_brings_lists_and_changes_and_writes_nothing(tmp_path: Path, slim: bool) -> None:
    api = FakeApi()
    api.page = 1
    api.put(NODES, agent())
    api.put(NODES, virtual())
    api.put(PROFILES, manifest("k3s", AGENT_SPEC))
    async with watching_server(tmp_path, api, slim=slim) as (told, _, here):
        await told.until(lambda: len(told.cache) == 2 and "k3s" in told.cache.profiles())
        api.change(NODES, AGENT, lambda raw: raw["metadata"]["labels"].pop("outpost.dhnt.io/runtime"))
        await told.until(lambda: "outpost.dhnt.io/runtime" not in getattr(told.cache.node(AGENT), "labels", {}))
        api.remove(NODES, "laptop-vk-podman")
        await told.until(lambda: told.cache.names() == [AGENT])
        api.put(NODES, virtual(uid="uid-2"))
        await told.until(lambda: len(told.cache) == 2)
        assert {method for method, *_ in here.seen} == {"GET"}
        assert {user for _, _, user, _ in here.seen} == {"clusterconform"}
    assert api.writes() == []
    assert "annotations" in api.get(NODES, AGENT)["metadata"]
    assert "kopf" not in json.dumps(api.get(NODES, AGENT))


async def test_heartbeats_reach_no_handler_and_the_stream_knows_that_it_lives(tmp_path: Path) -> None:
    api = FakeApi()
    api.put(NODES, agent())
    async with watching_server(tmp_path, api) as (told, stream, _):
        await told.until(lambda: len(told.cache) == 1)
        told.nodes.clear()
        for beat in range(20):
            api.change(NODES, AGENT, with_images(str(beat)))
        api.put(NODES, virtual())
        await told.until(lambda: len(told.cache) == 2)
        assert told.nodes == ["laptop-vk-podman"]
        assert stream.last_byte is not None
        assert stream.last_attempt is not None


@pytest.mark.long  # Kopf takes five to ten seconds to die
@pytest.mark.parametrize("mute", ["", PROFILES])
async def test_a_watch_that_dies_comes_back_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mute: str
) -> None:
    """An ERROR event that is no 410 ends Kopf; it is started anew, and lists again.

    Also where Kopf itself never comes to an end: its other watch is cut off with the session, and then waits
    for credentials that nobody brings any more.
    """
    api = FakeApi()
    api.put(NODES, agent())
    async with watching_server(tmp_path, api) as (told, _, here):
        here.mute = mute
        await told.until(lambda: len(told.cache) == 1)
        async with asyncio.timeout(10):
            while not here.watching or not (here.muted if mute else here.watches):  # noqa: ASYNC110 - see served()
                await asyncio.sleep(0.01)
        lists = len(api.asked("GET", NODES))
        here.say(NODES, line("ERROR", {"kind": "Status", "code": 500, "message": "etcd"}))
        async with asyncio.timeout(40):
            while len(api.asked("GET", NODES)) == lists:  # noqa: ASYNC110 - see served()
                await asyncio.sleep(0.05)
    said = [record.message for record in caplog.records if record.name == watching.__name__]
    assert said == ["the watches failed"]


async def test_410_lists_again_and_tells_of_what_vanished_meanwhile(tmp_path: Path) -> None:
    """Kopf itself reports no deletion that it missed."""
    api = FakeApi()
    api.put(NODES, agent())
    api.put(NODES, virtual())
    async with watching_server(tmp_path, api) as (told, _, here):
        await told.until(lambda: len(told.cache) == 2)
        history = api.history[NODES]
        api.history[NODES] = []
        here.say(NODES, line("ERROR", {"kind": "Status", "code": 410, "message": "too old"}))
        listeners, api.listeners = api.listeners, []
        api.remove(NODES, "laptop-vk-podman")
        api.history[NODES], api.listeners = history, listeners
        await told.until(lambda: told.cache.names() == [AGENT])
    assert told.nodes.count("laptop-vk-podman") == 2


async def test_a_watch_that_is_refused_with_410_lists_again_and_costs_no_new_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    api = FakeApi()
    api.put(NODES, agent())
    async with watching_server(tmp_path, api) as (told, _, here):
        await told.until(lambda: len(told.cache) == 1)
        lists, here.refused = len(api.asked("GET", NODES)), [410, 410, 410]
        here.end_watches()
        async with asyncio.timeout(40):
            while here.refused or not here.watching:  # noqa: ASYNC110 - see served()
                await asyncio.sleep(0.01)
        assert len(api.asked("GET", NODES)) == lists + 3
        api.put(NODES, virtual())
        await told.until(lambda: len(told.cache) == 2)
    assert [record.message for record in caplog.records if record.name == watching.__name__] == []


async def test_profiles_whose_crd_was_missing_are_watched_as_soon_as_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Kopf asks what there is to watch when it starts, and never again; nodes are watched meanwhile."""
    monkeypatch.setattr(watching, "_LOOK_SECONDS", 0.05)
    api, asked = FakeApi(), list[bool]()
    api.put(NODES, agent())
    api.put(PROFILES, manifest("k3s", AGENT_SPEC))
    async with served(api) as here:
        connection = Connection(kubeconfig(tmp_path / "config", here.url))
        sessions = watching.Sessions(connection, NodeStream(Metrics(), lambda: 0.0))
        told, here.hidden = Told(sessions.login), True

        async def profiles_served() -> bool:
            asked.append(not here.hidden)
            return not here.hidden

        async with watched(told, sessions, profiles_served):
            async with asyncio.timeout(20):
                while len(asked) < 3:  # noqa: ASYNC110 - see served()
                    await asyncio.sleep(0.01)
            assert (told.cache.names(), told.cache.profiles()) == ([AGENT], {})
            here.hidden = False
            await told.until(lambda: "k3s" in told.cache.profiles())
            api.change(PROFILES, "k3s", lambda raw: raw["spec"].update(enforcement="Observe"))
            await told.until(lambda: told.catalogue == 2)
            here.close_watches()
        assert asked.count(True) == 1
    said = [record.message for record in caplog.records if record.name == watching.__name__]
    assert said == ["the watches ended"]


class Kopf:
    """Stands in for Kopf's two functions; lives for the seconds it is given, one start each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *lives: float | Exception) -> None:
        self.lives, self.starts = list(lives), list[float]()
        monkeypatch.setattr(kopf, "spawn_tasks", self.spawn_tasks)
        monkeypatch.setattr(kopf, "run_tasks", self.run_tasks)

    async def spawn_tasks(self, **options: Any) -> list[Any]:
        self.starts.append(asyncio.get_running_loop().time())
        self.options = options
        return []

    async def run_tasks(self, _: Any, *, ignored: Any) -> None:
        self.ignored = ignored
        life = self.lives.pop(0) if self.lives else 1e9
        if isinstance(life, Exception):
            raise life
        await asyncio.sleep(life)

    @property
    def pauses(self) -> list[float]:
        """Seconds between starts."""
        return [round(later - earlier, 3) for earlier, later in pairwise(self.starts)]


async def watch_for(seconds: float, after_start: Callable[[], None] = lambda: None) -> None:
    """Watch for so long."""
    sessions = watching.Sessions(Connection(), NodeStream(Metrics(), lambda: 0.0))
    work = asyncio.create_task(watching.watch(Told().registered, sessions, after_start, always))
    await asyncio.sleep(seconds)
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await work


def test_watches_that_fail_are_started_anew_with_a_pause_that_doubles_to_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Kopf(monkeypatch, *[RuntimeError("403 for minutes")] * 9)
    run_virtually(watch_for(1000))
    assert seen.pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert [record.message for record in caplog.records] == ["the watches failed"] * 9


def test_watches_that_held_for_a_while_are_started_anew_at_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Kopf(monkeypatch, *[RuntimeError("x")] * 5, 3600.0)
    run_virtually(watch_for(10_000))
    assert seen.pauses == [1, 2, 4, 8, 16, 3601]
    assert caplog.records[-1].message == "the watches ended"


def test_signal_handlers_are_put_back_after_each_start(monkeypatch: pytest.MonkeyPatch) -> None:
    Kopf(monkeypatch, RuntimeError("x"), RuntimeError("y"))
    put_back = list[int]()
    run_virtually(watch_for(1000, lambda: put_back.append(1)))
    assert len(put_back) == 3


def test_tasks_that_are_not_kopfs_are_left_alone_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Kopf(monkeypatch)
    run_virtually(watch_for(10))
    assert len(seen.ignored) >= 2
    assert seen.options["namespaces"] == ["clusterconform-system"]  # of what has a namespace, ours alone
    assert seen.options["standalone"] is True


async def test_kopf_writes_nothing_to_a_server_that_is_not_ours(
    tmp_path: Path, kmock: kmock.KubernetesEmulator
) -> None:
    """The same against an emulator that knows nothing of us: what carries Kopf's session is a read."""
    kinds = {
        "v1/nodes": "Node",
        f"{GROUP}/{VERSION}/{PLURAL}": "RuntimeProfile",
        "v1/namespaces": "Namespace",
        CRDS: "CustomResourceDefinition",
    }
    for resource, kind in kinds.items():
        verbs = ["get", "list", "watch", "patch"]
        kmock.resources[resource] = ResourceInfo(kind=kind, namespaced=False, verbs=verbs)
    kmock.objects["v1/nodes", None, AGENT] = agent()
    kmock.objects[f"{GROUP}/{VERSION}/{PLURAL}", None, "k3s"] = manifest(
        "k3s", AGENT_SPEC, uid="u", resourceVersion="5"
    )
    connection = Connection(kubeconfig(tmp_path / "config", str(kmock.url)))
    sessions = watching.Sessions(connection, NodeStream(Metrics(), lambda: 0.0))
    told = Told(sessions.login)
    async with watched(told, sessions):
        await told.until(lambda: len(told.cache) == 1 and "k3s" in told.cache.profiles())
    for method in ("patch", "post", "put", "delete"):
        assert list(kmock[method]) == []
    assert len(list(kmock["get"])) >= 4


async def test_an_error_of_a_callback_is_heard_but_for_kopfs_empty_one(caplog: pytest.LogCaptureFixture) -> None:
    def request_cancel_callback() -> None:
        raise AssertionError

    def another() -> None:
        raise AssertionError("ours")

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(watching._heard)
    loop.call_soon(request_cancel_callback)
    loop.call_soon(another)
    await asyncio.sleep(0.01)
    (record,) = [record for record in caplog.records if record.name == "asyncio"]
    assert "another" in record.getMessage()


@pytest.mark.parametrize(
    ("name", "error", "heard"),
    [
        ("infinite_watch", RuntimeError("generator didn't stop after athrow()"), False),
        ("infinite_watch", ValueError("of another kind"), True),
        ("another_watch", RuntimeError("of somebody else"), True),
    ],
)
async def test_that_a_generator_of_kopfs_was_closing_already_is_no_error(
    name: str, error: Exception, heard: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def failing() -> None:
        raise error

    # Only the name of the frame tells whose it is.
    failing.__code__ = failing.__code__.replace(co_name=name)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(watching._heard)
    loop.call_soon(failing)
    await asyncio.sleep(0.01)
    assert [record.name for record in caplog.records] == (["asyncio"] if heard else [])


async def test_a_generator_that_was_left_behind_is_closed_while_there_is_a_loop() -> None:
    closed = asyncio.Event()

    async def events() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            closed.set()

    async def leave() -> None:
        left: list[object] = []
        stream = events()
        left += [left, stream]  # only the collector finds it
        assert await anext(stream) == 1

    gc.disable()
    try:
        await leave()
        assert not closed.is_set()
        await watching._close_generators()
        assert closed.is_set()
    finally:
        gc.enable()
