"""The parts put together, on a server of ours."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from builders import TAINT, agent, bare, virtual
from effects_api import CONFIGMAPS, CRDS, EVENTS, NAMESPACES, NODES, PROFILES, FakeApi, refusal
from effects_server import Served, kubeconfig, served
from effects_time import ManualClock

from clusterconform.contract.lease import LEASE_PATH, LeaseTimings
from clusterconform.contract.matrix import MATRIX
from clusterconform.contract.names import NAMESPACE, RUNTIME_LABEL
from clusterconform.contract.settings import Bound
from clusterconform.effects.clock import Clock
from clusterconform.effects.cluster import Cluster
from clusterconform.effects.connection import Connection
from clusterconform.effects.elector import Elector, LeadershipLostError, new_identity
from clusterconform.effects.metrics import Metrics
from clusterconform.handlers import resync
from clusterconform.handlers.operator import Settings, _Operator, operate

pytestmark = [
    pytest.mark.usefixtures("nothing_left_over"),
    # Kopf drops a worker that it was about to start when it is cancelled.
    pytest.mark.filterwarnings("ignore:coroutine 'worker' was never awaited:RuntimeWarning"),
]

CRD = yaml.safe_load((Path(__file__).parents[2] / "crds" / "runtimeprofiles.yaml").read_text())
AGENT, VIRTUAL = "pi-4c7adeb6", "laptop-vk-podman"


def cluster_with(*nodes: dict[str, Any]) -> FakeApi:
    """A cluster that lacks nothing, with ``nodes``."""
    api = FakeApi()
    api.put(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    api.put(CRDS, CRD)
    api.vacate()
    for raw in nodes:
        api.put(NODES, raw)
    return api


class Running:
    """An operator at work.

    Attributes:
        api: The objects.
        server: Where they are.
        operator: Its parts.
        clock: Its clock, if it stands still.
        caplog: What it says.
    """

    def __init__(
        self, server: Served, operator: _Operator, clock: Clock, caplog: pytest.LogCaptureFixture
    ) -> None:
        self.server, self.operator, self.clock, self.caplog = server, operator, clock, caplog
        self.api = server.api

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until ``condition`` holds."""
        async with asyncio.timeout(20):
            while not condition():  # noqa: ASYNC110 - what is waited for happens in a server and in tasks
                await asyncio.sleep(0.01)

    async def get(self, path: str) -> tuple[int, str]:
        """Ask the operator's own port."""
        (started,) = [record for record in self.caplog.records if record.message == "started"]
        port = started.fields["port"]  # type: ignore[attr-defined]
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as response:
            return response.status, await response.text()


@contextlib.asynccontextmanager
async def running(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, api: FakeApi, *, clock: Clock | None = None, **settings: Any
) -> AsyncIterator[Running]:
    """Run the operator while the body runs."""
    caplog.set_level("INFO", "clusterconform")
    async with served(api) as server:
        connection = Connection(kubeconfig(tmp_path / "config", server.url))
        await connection.open()
        metrics, clock = Metrics(), clock or Clock()
        cluster = Cluster(connection, metrics, clock, lambda _: True)
        elector = Elector(cluster, clock, new_identity(), LeaseTimings())
        operator = _Operator(
            Settings(port=0, **settings),
            connection=connection,
            cluster=cluster,
            clock=clock,
            metrics=metrics,
            elector=elector,
        )
        work = asyncio.create_task(operator.run(asyncio.Event()))
        try:
            yield Running(server, operator, clock, caplog)
        finally:
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await work
            await cluster.close()


async def test_under_the_observe_bound_no_node_is_written_and_profiles_are_seeded_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    api = cluster_with(agent(labels={RUNTIME_LABEL: None}), virtual(taints=[]), bare("n"))
    async with running(tmp_path, caplog, api) as here:
        await here.until(lambda: "k3s" in api.names(PROFILES) and "status" in api.get(PROFILES, "k3s"))
        await here.until(lambda: api.get(PROFILES, "k3s")["status"]["nodes"]["drifted"] == 1)
        assert (await here.get("/readyz"))[0] == 200
        assert (
            'clusterconform_nodes{profile="k3s",reason="RuntimeLabelDrifted"} 1.0'
            in (await here.get("/metrics"))[1]
        )
    assert set(api.names(PROFILES)) == set(MATRIX)
    assert api.writes(NODES) == []
    assert {sent.path.split("?")[0] for sent in api.writes() if sent.path.startswith("/api")} <= {
        CONFIGMAPS,
        f"{CONFIGMAPS}/clusterconform-state",
        EVENTS,
        PROFILES,
        LEASE_PATH,
    } | {f"{PROFILES}/{name}/status" for name in MATRIX}


async def test_under_the_enforce_bound_nodes_are_brought_to_their_contract(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    api = cluster_with(agent(labels={RUNTIME_LABEL: None}), virtual(taints=[]))
    async with running(tmp_path, caplog, api, bound=Bound.ENFORCE) as here:
        await here.until(lambda: api.get(NODES, VIRTUAL)["spec"].get("taints") == [TAINT])
        await here.until(lambda: RUNTIME_LABEL in api.get(NODES, AGENT)["metadata"]["labels"])
        await here.until(lambda: here.server.watching == 1)
        api.change(NODES, VIRTUAL, lambda raw: raw["spec"].pop("taints"))
        await here.until(lambda: api.get(NODES, VIRTUAL)["spec"].get("taints") == [TAINT])
    assert len(api.asked("PATCH", f"{NODES}/{VIRTUAL}")) == 2


@pytest.mark.parametrize("slim", [True, False])
async def test_what_is_written_is_the_same_with_and_without_the_slim_stream(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, slim: bool
) -> None:
    api = cluster_with(
        agent(labels={RUNTIME_LABEL: None}), virtual(taints=[]), agent("x", taints=[TAINT]), bare("n")
    )
    async with running(tmp_path, caplog, api, bound=Bound.ENFORCE, slim_stream=slim) as here:
        await here.until(lambda: len(api.writes(NODES)) == 5 and here.server.watching == 1)
    assert sorted(sent.path for sent in api.writes(NODES)) == [
        f"{NODES}/{VIRTUAL}",
        f"{NODES}/n/status",
        f"{NODES}/{AGENT}",
        f"{NODES}/{AGENT}/status",
        f"{NODES}/x/status",
    ]
    assert "kopf" not in json.dumps([api.get(NODES, name) for name in api.names(NODES)])


@pytest.mark.parametrize("slim", [True, False])
async def test_an_operator_whose_watch_is_open_is_alive(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, slim: bool
) -> None:
    """Five minutes after the first list, four before the next, and a heartbeat just came."""
    clock, api = ManualClock(0.0), cluster_with(agent())
    async with running(tmp_path, caplog, api, clock=clock, slim_stream=slim) as here:
        await here.until(lambda: here.operator.resync.synced_at is not None and here.server.watching == 1)
        clock.advance(360)
        api.change(NODES, AGENT, lambda raw: raw["metadata"]["labels"].update({RUNTIME_LABEL: "x"}))
        await here.until(lambda: here.operator.nodes.verdicts[AGENT].findings != ())
        assert await here.get("/livez") == (200, "ok\n")


async def test_nothing_is_remembered_of_nodes_that_are_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fleets come and go; a memory per node that ever was would grow for ever."""
    monkeypatch.setattr(resync, "PERIOD_SECONDS", 0.05)
    api = cluster_with(agent(), virtual(uid="uid-2"))
    async with running(tmp_path, caplog, api, bound=Bound.ENFORCE) as here:
        await here.until(lambda: len(here.operator.nodes._memories) == 2)
        await here.until(lambda: here.server.watching == 1)
        api.remove(NODES, AGENT)
        await here.until(lambda: here.operator.cache.node(AGENT) is None)
        lists = len(api.asked("GET", NODES))
        await here.until(lambda: len(api.asked("GET", NODES)) > lists + 2)
        assert set(here.operator.nodes._memories) == {VIRTUAL}


async def test_while_an_api_server_is_not_there_the_operator_is_alive_and_not_ready(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    api = cluster_with(agent())
    api.script("GET", f"{NAMESPACES}/{NAMESPACE}", refusal(503, "starting"), forever=True)
    async with running(tmp_path, caplog, api) as here:
        await here.until(lambda: any(record.message == "waiting for the API server" for record in caplog.records))
        assert (await here.get("/livez"))[0] == 200
        assert (await here.get("/readyz"))[0] == 503
        api.heal()
        await here.until(lambda: here.operator.resync.synced_at is not None)
        assert (await here.get("/readyz"))[0] == 200


async def test_no_node_is_written_while_the_lists_fail_although_the_watch_brings_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """B04, end to end: the profiles cannot be listed."""
    api = cluster_with(virtual(taints=[]))
    api.script("GET", PROFILES, refusal(500, "etcd is sad"), forever=True)
    async with running(tmp_path, caplog, api, bound=Bound.ENFORCE) as here:
        await here.until(lambda: len(here.operator.cache) == 1)
        await here.until(lambda: len(api.asked("GET", PROFILES)) >= 2)
        assert api.writes(NODES) == []
        assert (await here.get("/readyz"))[0] == 503


async def test_a_cancelled_operator_passes_the_cancellation_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    api = cluster_with()
    async with served(api) as server:
        settings = Settings(kubeconfig=kubeconfig(tmp_path / "config", server.url), port=0)
        work = asyncio.create_task(operate(settings))
        async with asyncio.timeout(20):
            while not server.watching:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work


@pytest.mark.parametrize("asked", ["never", "before", "while it ends"])
async def test_who_is_asked_to_end_while_leadership_is_lost_ends_and_does_not_begin_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """A process that was paused hears both at once; begun anew it would not know that it was asked."""
    stops: list[asyncio.Event] = []

    async def lose(_: _Operator, stop: asyncio.Event) -> None:
        stops.append(stop)
        if asked == "before":
            stop.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(5)
        raise LeadershipLostError("paused")

    async def release(_: Elector) -> None:
        if asked == "while it ends":
            stops[0].set()
            await asyncio.sleep(0.01)
        released.append(True)

    released: list[bool] = []
    monkeypatch.setattr(_Operator, "run", lose)
    monkeypatch.setattr(Elector, "release", release)
    settings = Settings(kubeconfig=kubeconfig(tmp_path / "config", "http://127.0.0.1:1"), port=0)
    with pytest.raises(LeadershipLostError) if asked == "never" else contextlib.nullcontext():
        await operate(settings)
    assert released == [True]


async def test_a_taken_port_is_an_os_error(tmp_path: Path) -> None:
    async with served(cluster_with()) as server:
        port = int(server.url.rpartition(":")[2])
        with pytest.raises(OSError, match="address already in use"):
            await operate(Settings(kubeconfig=kubeconfig(tmp_path / "config", server.url), port=port))
        assert server.seen == []
