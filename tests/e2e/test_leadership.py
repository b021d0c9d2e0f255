"""Leader election on a real API server: who leads, how it is handed on, and what the election leans on."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
import yaml
from operators import ROOT

from clusterconform.contract.lease import LEASE, LEASE_PATH, LeaseTimings, read_lease, unheld
from clusterconform.contract.request import Request
from clusterconform.effects.clock import Clock
from clusterconform.effects.cluster import Cluster
from clusterconform.effects.connection import Connection
from clusterconform.effects.elector import Elector, LeadershipLostError, new_identity
from clusterconform.effects.errors import ConflictError
from clusterconform.effects.metrics import Metrics
from clusterconform.sandbox.builder import Builder
from clusterconform.sandbox.control_plane import ControlPlane

TIMES = LeaseTimings(duration=6, deadline=4.5, retry=0.5)
NOW = datetime(2026, 8, 1, 12, 0, 0, 250000, tzinfo=UTC)


@asynccontextmanager
async def reach(plane: ControlPlane) -> AsyncIterator[Cluster]:
    """A client of one's own, whose fence is open."""
    connection = Connection(plane.kubeconfig)
    await connection.open()
    cluster = Cluster(connection, Metrics(), Clock(), may_write=lambda _: True)
    try:
        yield cluster
    finally:
        await cluster.close()


@asynccontextmanager
async def standing_by(plane: ControlPlane) -> AsyncIterator[Elector]:
    async with reach(plane) as cluster:
        yield Elector(cluster, Clock(), new_identity(), TIMES)


@pytest.fixture(scope="module")
def own(builder: Builder) -> Iterator[ControlPlane]:
    """A control plane of these tests' own, with our namespace: its API server is killed here."""
    with ControlPlane(builder) as plane:
        manifest = yaml.safe_load((ROOT / "deploy" / "base" / "namespace.yaml").read_text())
        plane.admin.create("/api/v1/namespaces", manifest)
        yield plane


@pytest.fixture
def plane(own: ControlPlane) -> ControlPlane:
    """That control plane, without a Lease."""
    if own.admin.answers(LEASE_PATH):
        own.admin.delete(LEASE_PATH)
    return own


def put(plane: ControlPlane, **spec: Any) -> None:
    """A Lease with this spec."""
    body = {**unheld().body, "spec": spec}
    plane.admin.create(LEASE_PATH.removesuffix(f"/{LEASE}"), body)


async def taken(elector: Elector, seconds: float) -> int:
    async with asyncio.timeout(seconds):
        return (await elector.acquire()).number


async def test_one_leads_and_when_it_pauses_the_other_takes_over_and_the_first_has_lost(
    plane: ControlPlane,
) -> None:
    put(plane, holderIdentity="")
    async with standing_by(plane) as first, standing_by(plane) as second:
        assert await taken(first, 3) == 1
        keeping = asyncio.create_task(first.keep())
        acquiring = asyncio.create_task(taken(second, 60))
        await asyncio.sleep(TIMES.duration + TIMES.retry)
        assert first.valid_for(TIMES.longest_write)
        assert not acquiring.done()
        assert second.standby_healthy()
        keeping.cancel()
        await asyncio.wait([keeping])
        assert await acquiring == 2
        assert not first.valid_for(0)
        assert second.valid_for(TIMES.longest_write)
        with pytest.raises(LeadershipLostError, match="not renewed"):
            await first.keep()
        difference = second.clock_difference()
        assert difference is not None
        assert -2 < difference < 1


async def test_a_released_lease_is_taken_at_the_next_look(plane: ControlPlane) -> None:
    put(plane, holderIdentity="")
    async with standing_by(plane) as first, standing_by(plane) as second:
        assert await taken(first, 3) == 1
        acquiring = asyncio.create_task(taken(second, TIMES.duration))
        await asyncio.sleep(TIMES.retry)
        await first.release()
        assert plane.admin.get(LEASE_PATH)["spec"]["holderIdentity"] == ""
        assert await asyncio.wait_for(acquiring, 3) == 2


async def test_without_a_lease_one_is_made_and_one_of_two_leads_once_it_stood_for_the_duration(
    plane: ControlPlane,
) -> None:
    async with standing_by(plane) as first, standing_by(plane) as second:
        began = asyncio.get_running_loop().time()
        racing = [asyncio.create_task(taken(elector, 30)) for elector in (first, second)]
        await asyncio.wait(racing, return_when=asyncio.FIRST_COMPLETED)
        assert asyncio.get_running_loop().time() - began >= TIMES.duration
        assert [first.valid_for(0), second.valid_for(0)].count(True) == 1
        for task in racing:
            task.cancel()
        await asyncio.wait(racing)


async def test_an_api_server_that_is_gone_for_longer_than_the_deadline_costs_the_leader_its_place(
    plane: ControlPlane,
) -> None:
    put(plane, holderIdentity="")
    async with standing_by(plane) as first, standing_by(plane) as second:
        await taken(first, 3)
        keeping = asyncio.create_task(first.keep())
        acquiring = asyncio.create_task(taken(second, 90))
        await asyncio.to_thread(plane.kill_api_server)
        with pytest.raises(LeadershipLostError, match="not renewed"):
            await asyncio.wait_for(keeping, TIMES.deadline + 1)
        assert not first.valid_for(0)
        await asyncio.to_thread(plane.start_api_server)
        assert await acquiring == 2


async def test_a_deleted_lease_is_noticed_and_not_made_again_by_the_renewal(plane: ControlPlane) -> None:
    put(plane, holderIdentity="")
    async with standing_by(plane) as first:
        await taken(first, 3)
        await asyncio.to_thread(plane.admin.delete, LEASE_PATH)
        with pytest.raises(LeadershipLostError, match="the Lease was deleted"):
            await asyncio.wait_for(first.keep(), TIMES.deadline + 1)
        assert not plane.admin.answers(LEASE_PATH)


async def test_what_the_election_leans_on(plane: ControlPlane) -> None:
    """The same answers as those of the Lease in memory that the other tests use."""
    async with reach(plane) as cluster:

        async def ask(request: Request) -> Any:
            return msgspec.json.decode(await cluster.send(request))

        created = read_lease(await ask(unheld()))
        assert (created.holder, created.renewed, created.transitions) == (None, "", 0)
        with pytest.raises(ConflictError):
            await ask(unheld())
        held = read_lease(await ask(created.held("a", number=1, duration=15, now=NOW)))
        assert (held.holder, held.renewed, held.seconds, held.transitions) == (
            "a",
            "2026-08-01T12:00:00.250000Z",
            15,
            1,
        )
        assert held.uid == created.uid
        assert held.version != created.version
        with pytest.raises(ConflictError):
            await ask(created.held("b", number=1, duration=15, now=NOW))
        same = Request(method="PUT", path=LEASE_PATH, content_type="application/json", body=held.raw)
        assert read_lease(await ask(same)).version == held.version
        released = read_lease(await ask(held.released(NOW)))
        assert released.holder == ""
        assert released.renewed == "2026-08-01T12:00:00.250001Z"
        await ask(Request(method="DELETE", path=LEASE_PATH))
        with pytest.raises(ConflictError):
            await ask(released.held("a", number=2, duration=15, now=NOW))
        anew = read_lease(await ask(unheld()))
        assert anew.uid != created.uid
        with pytest.raises(ConflictError):
            await ask(released.held("a", number=2, duration=15, now=NOW))
