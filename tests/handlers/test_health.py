"""/livez, /readyz and /metrics."""

import contextlib
import math
import re
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from aiohttp.test_utils import TestClient, TestServer
from builders import START, agent, facts, virtual
from effects_api import FakeApi
from effects_cluster import FakeCluster
from effects_time import ManualClock

from clusterconform.contract.lease import LeaseTimings
from clusterconform.contract.names import HEARD_ANNOTATION, RESYNCED_ANNOTATION
from clusterconform.effects.elector import Elector
from clusterconform.effects.metrics import Metrics
from clusterconform.effects.stream import NodeStream
from clusterconform.handlers.cache import Cache
from clusterconform.handlers.health import DEAF_SECONDS, Health
from clusterconform.handlers.resync import Resync

pytestmark = pytest.mark.usefixtures("nothing_left_over")


class Watched:
    """Health and what it judges by; the clock stands at 1000 s of uptime."""

    def __init__(self) -> None:
        self.clock, self.metrics, self.cache = ManualClock(), Metrics(), Cache()
        self.stream = NodeStream(self.metrics, self.clock.uptime)
        self.resync = Resync(
            cache=self.cache,
            cluster=FakeCluster(FakeApi(), self.metrics),
            clock=self.clock,
            node_due=lambda _: None,
            catalogue_changed=lambda: None,
        )
        self.elector = Elector(FakeCluster(FakeApi(), self.metrics), self.clock, "me", LeaseTimings())
        self.health = Health(
            clock=self.clock,
            stream=self.stream,
            resync=self.resync,
            elector=self.elector,
            metrics=self.metrics,
        )

    def lead(self) -> None:
        """Lead from now on and for ever."""
        self.elector._valid_until = math.inf

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[TestClient]:  # type: ignore[type-arg]
        """A client of the three paths."""
        async with TestClient(TestServer(self.health.app())) as client:
            yield client

    def metric(self, name: str) -> float | None:
        """The value that /metrics would show."""
        return self.metrics.registry.get_sample_value(name)


@pytest.mark.parametrize("uptime", [0.0, DEAF_SECONDS, 1e6])
def test_waiting_for_an_api_server_is_no_reason_to_be_restarted(uptime: float) -> None:
    watched = Watched()
    watched.clock.now = ManualClock(uptime).now
    assert watched.health.dead() == ""
    assert watched.health.unready() != ""


@pytest.mark.parametrize("sign", ["last_byte", "last_attempt"])
@pytest.mark.parametrize(
    ("silent", "alive"), [(0, True), (70, True), (DEAF_SECONDS, True), (DEAF_SECONDS + 1, False)]
)
def test_B39_liveness_fails_when_nobody_has_watched_for_long(sign: str, silent: float, alive: bool) -> None:
    watched = Watched()
    setattr(watched.stream, sign, watched.clock.uptime())
    watched.clock.advance(silent)
    assert (watched.health.dead() == "") is alive


def test_B39_a_new_attempt_is_a_sign_of_life_while_bytes_stay_away() -> None:
    watched = Watched()
    watched.stream.last_byte = watched.clock.uptime()
    watched.clock.advance(10_000)
    watched.stream.last_attempt = watched.clock.uptime()
    assert watched.health.dead() == ""


def test_ready_is_a_leader_who_has_been_complete_once() -> None:
    watched = Watched()
    watched.lead()
    assert watched.health.unready() == "nodes and profiles are not known yet"
    watched.resync.synced_at = watched.clock.uptime()
    watched.clock.advance(1e6)
    assert watched.health.unready() == ""


def test_ready_is_a_standby_that_could_take_over_and_no_other() -> None:
    watched = Watched()
    assert watched.health.unready() == "standing by without a Lease: it was not read yet"
    watched.elector._well_at = watched.clock.uptime()
    assert watched.health.unready() == ""
    watched.clock.advance(15)
    watched.elector.trouble = "no answer"
    assert watched.health.unready() == "standing by without a Lease: no answer"


def test_who_leads_is_a_metric() -> None:
    watched = Watched()
    assert watched.metric("clusterconform_leader") == 0
    watched.lead()
    assert watched.metric("clusterconform_leader") == 1


@pytest.mark.parametrize(("silent", "hears"), [(0, True), (129, True), (130, False)])
def test_a_stream_that_was_silent_for_two_bookmarks_proves_nothing(silent: float, hears: bool) -> None:
    watched = Watched()
    assert not watched.health.hears()
    watched.stream.last_byte = watched.clock.uptime()
    watched.clock.advance(silent)
    assert watched.health.hears() is hears


def test_the_ages_of_stream_and_list_are_shown_and_are_minus_one_before_the_first() -> None:
    watched = Watched()
    ages = ("clusterconform_node_stream_age_seconds", "clusterconform_sync_age_seconds")
    assert [watched.metric(age) for age in ages] == [-1.0, -1.0]
    watched.stream.last_byte = watched.resync.synced_at = watched.clock.uptime()
    watched.clock.advance(7)
    assert [watched.metric(age) for age in ages] == [7.0, 7.0]


def test_what_the_lease_tells_is_when_everything_was_listed_and_nodes_were_heard_of() -> None:
    watched = Watched()
    assert watched.health.told() == {}
    watched.stream.last_byte = watched.clock.uptime()
    watched.clock.advance(7)
    watched.resync.synced_at = watched.clock.uptime()
    watched.clock.advance(0.5)
    assert watched.health.told() == {
        HEARD_ANNOTATION: START,
        RESYNCED_ANNOTATION: START + timedelta(seconds=7),
    }


async def test_the_two_probes_answer_200_or_503_with_the_reason() -> None:
    watched = Watched()
    watched.lead()
    async with watched.client() as client:
        for path, status, text in (
            ("/livez", 200, "ok\n"),
            ("/readyz", 503, "nodes and profiles are not known yet\n"),
        ):
            async with client.get(path) as response:
                assert (response.status, await response.text()) == (status, text)
        watched.resync.synced_at = watched.stream.last_byte = watched.clock.uptime()
        async with client.get("/readyz") as response:
            assert (response.status, await response.text()) == (200, "ok\n")
        watched.clock.advance(DEAF_SECONDS + 1)
        async with client.get("/livez") as response:
            assert (response.status, await response.text()) == (503, "nobody has watched nodes for 211 s\n")


async def test_metrics_are_in_the_format_of_prometheus() -> None:
    watched = Watched()
    async with watched.client() as client, client.get("/metrics") as response:
        assert response.status == 200
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert "# TYPE clusterconform_nodes gauge" in await response.text()


@pytest.mark.parametrize("path", ["/", "/healthz", "/metrics/"])
async def test_there_is_nothing_else(path: str) -> None:
    async with Watched().client() as client, client.get(path) as response:
        assert response.status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics"])
async def test_nothing_can_be_written(path: str, method: str) -> None:
    async with Watched().client() as client, client.request(method, path) as response:
        assert response.status == 405


async def test_no_label_names_a_node() -> None:
    """Or each node would be a time series of its own."""
    watched = Watched()
    for raw in (agent(), virtual()):
        watched.cache.observe(facts(raw))
    async with watched.client() as client, client.get("/metrics") as response:
        text = await response.text()
    assert "pi-4c7adeb6" not in text
    labels = {
        name for line in text.splitlines() if not line.startswith("#") for name in re.findall(r'(\w+)="', line)
    }
    assert labels <= {
        *("profile", "reason", "method", "code", "write", "outcome", "fate", "version", "python"),
        *("mode", "status"),
    }
    families = [
        family for family in watched.metrics.registry.collect() if family.name.startswith("clusterconform")
    ]
    assert len(families) == len(vars(watched.metrics)) - 3 + sum(
        len(vars(part)) for part in (watched.metrics.reaping, watched.metrics.agents)
    )
    assert all(family.documentation.endswith(".") for family in families)
