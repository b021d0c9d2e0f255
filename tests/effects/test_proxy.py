"""The fault proxy that stands before a real API server in other tests."""

import asyncio
import base64
import contextlib
import json
import ssl
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest
from builders import agent
from effects_api import NODES, FakeApi, refusal
from effects_server import Served, served
from proxy import Exchange, FaultProxy, Reply, When

from clusterconform.contract.request import JSON, Request
from clusterconform.effects.clock import Clock
from clusterconform.effects.cluster import Cluster
from clusterconform.effects.connection import Connection
from clusterconform.effects.errors import BusyError, GoneError, NotFoundError, UnreachableError
from clusterconform.effects.metrics import Metrics
from clusterconform.sandbox.certificates import Authority

pytestmark = pytest.mark.usefixtures("nothing_left_over")

PATH = f"{NODES}/pi-1"
READ = Request(method="GET", path=PATH)


def delete(name: str) -> Request:
    """A deletion with both preconditions, whatever they are."""
    return Request(method="DELETE", path=f"{NODES}/{name}", content_type=JSON, body={})


def is_delete(exchange: Exchange) -> bool:
    return exchange.method == "DELETE"


def everything(_: Exchange) -> bool:
    return True


class Between:
    """A client, the proxy, and the server behind it."""

    def __init__(self, proxy: FaultProxy, cluster: Cluster, connection: Connection, server: Served) -> None:
        self.proxy, self.cluster, self.connection = proxy, cluster, connection
        self.server, self.api = server, server.api

    def arrived(self) -> list[str]:
        """What reached the server."""
        return [sent.method for sent in self.api.sent]


@contextlib.asynccontextmanager
async def between(directory: Path) -> AsyncIterator[Between]:
    """Two agents on a server with TLS, and a client that reaches it through the proxy."""
    authority = Authority.create("test", now=Clock().moment().wall - timedelta(minutes=1))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.server("api").write(directory, "server"))
    api = FakeApi()
    api.fenced = False
    for name in ("pi-1", "pi-2"):
        api.put(NODES, agent(name, uid=f"uid-{name}"))
    async with served(api, context) as server:
        trusted = {
            "server": server.url,
            "certificate-authority-data": base64.b64encode(authority.certificate).decode(),
        }
        account = directory / "account.json"
        account.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "c", "cluster": trusted}],
                    "users": [{"name": "u", "user": {"token": "t0"}}],
                    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                    "current-context": "c",
                }
            )
        )
        proxy = FaultProxy(account, directory, name="first")
        await asyncio.to_thread(proxy.__enter__)
        connection = Connection(proxy.kubeconfig)
        await connection.open()
        cluster = Cluster(connection, Metrics(), Clock(), may_write=lambda _: True)
        try:
            yield Between(proxy, cluster, connection, server)
        finally:
            await cluster.close()
            await asyncio.to_thread(proxy.__exit__, None, None, None)


async def test_requests_and_answers_pass_and_are_noted(tmp_path: Path) -> None:
    async with between(tmp_path) as here:
        assert (await here.cluster.get(PATH))["metadata"]["uid"] == "uid-pi-1"
        with pytest.raises(NotFoundError):
            await here.cluster.get(f"{NODES}/nobody?a=b%20c")
        await here.cluster.send(delete("pi-2"))
        assert here.proxy.exchanges == [
            Exchange(1, "GET", PATH, "", None, 200),
            Exchange(2, "GET", f"{NODES}/nobody", "a=b c", None, 404),
            Exchange(3, "DELETE", f"{NODES}/pi-2", "", {}, 200),
        ]
        assert here.proxy.seen(is_delete)[0].name == "pi-2"
        assert here.api.sent[1].query == {"a": "b c"}


async def test_who_asks_is_told_with_the_token_and_a_name_of_ours(tmp_path: Path) -> None:
    async with between(tmp_path) as here:
        await here.cluster.get(PATH)
        assert here.server.seen == [("GET", PATH, "clusterconform (first)", "Bearer t0")]


async def test_a_refusal_passes_with_its_headers(tmp_path: Path) -> None:
    async with between(tmp_path) as here:
        here.api.script("GET", PATH, refusal(429, Retry_After="7"))
        with pytest.raises(Exception, match="no") as refused:
            await here.cluster.get(PATH)
        assert getattr(refused.value, "retry_after", None) == 7.0


async def test_an_answer_is_noted_with_its_number_in_the_audit_log(tmp_path: Path) -> None:
    async with between(tmp_path) as here:
        here.api.script("GET", PATH, refusal(404, Audit_Id="a-7"))
        with pytest.raises(NotFoundError):
            await here.cluster.get(PATH)
        await here.cluster.get(PATH)
        assert [exchange.audit for exchange in here.proxy.exchanges] == ["a-7", ""]


async def test_a_watch_streams_line_by_line_and_is_no_exchange(tmp_path: Path) -> None:
    async with between(tmp_path) as here, here.connection.session() as session:
        url = f"{here.connection.server}{NODES}?watch=true&resourceVersion=0"
        async with session.get(url) as watch:
            lines = [json.loads(await watch.content.readline()) for _ in range(2)]
            assert [line["object"]["metadata"]["name"] for line in lines] == ["pi-1", "pi-2"]
            here.api.remove(NODES, "pi-2")
            assert json.loads(await watch.content.readline())["type"] == "DELETED"
        assert here.proxy.exchanges == []
        (noted,) = here.proxy.watched
        assert (noted.path, noted.is_watch, noted.status) == (NODES, True, 200)


async def test_a_request_that_is_cut_before_does_not_arrive(tmp_path: Path) -> None:
    async with between(tmp_path) as here:
        here.proxy.cut(is_delete, when=When.BEFORE)
        with pytest.raises(UnreachableError):
            await here.cluster.send(delete("pi-1"))
        assert here.arrived() == []
        await here.cluster.send(delete("pi-1"))
        assert here.arrived() == ["DELETE"]


async def test_a_request_whose_answer_is_cut_was_carried_out(tmp_path: Path) -> None:
    async with between(tmp_path) as here:
        here.proxy.cut(is_delete, when=When.AFTER)
        with pytest.raises(UnreachableError):
            await here.cluster.send(delete("pi-1"))
        assert here.api.names(NODES) == ["pi-2"]
        assert here.arrived() == ["DELETE"]
        assert here.proxy.exchanges[0].status == 200


@pytest.mark.parametrize("when", When)
async def test_the_kth_that_matches_is_met_once(tmp_path: Path, when: When) -> None:
    async with between(tmp_path) as here:
        met: list[tuple[int, int]] = []
        here.proxy.at(
            lambda exchange: exchange.name == "pi-1",
            lambda exchange: met.append((exchange.number, exchange.status)),
            nth=2,
            when=when,
        )
        for name in ("pi-1", "pi-2", "pi-1", "pi-1"):
            await here.cluster.get(f"{NODES}/{name}")
        assert met == [(3, 0 if when is When.BEFORE else 200)]


@pytest.mark.parametrize("when", When)
async def test_a_request_that_is_held_waits_while_others_pass(tmp_path: Path, when: When) -> None:
    async with between(tmp_path) as here:
        hold = here.proxy.hold(is_delete, when=when)
        held = asyncio.create_task(here.cluster.send(delete("pi-1")))
        exchange = await asyncio.to_thread(hold.wait, 5)
        assert exchange.name == "pi-1"
        assert here.arrived() == ([] if when is When.BEFORE else ["DELETE"])
        await here.cluster.get(f"{NODES}/pi-2")
        assert not held.done()
        hold.release()
        await held
        assert "pi-1" not in here.api.names(NODES)


async def test_what_is_held_goes_on_although_nobody_waits_for_it_any_more(tmp_path: Path) -> None:
    """As a request does that lies in the network."""
    async with between(tmp_path) as here:
        hold = here.proxy.hold(is_delete, when=When.BEFORE)
        with pytest.raises(UnreachableError):
            await here.cluster.send(delete("pi-1"), timeout=0.2)
        arrived = threading.Event()
        here.proxy.at(is_delete, lambda _: arrived.set(), when=When.AFTER)
        hold.release()
        assert await asyncio.to_thread(arrived.wait, 5)
        assert here.api.names(NODES) == ["pi-2"]


@pytest.mark.parametrize("when", When)
async def test_the_kth_that_matches_is_answered_by_the_proxy_without_or_with_its_effect(
    tmp_path: Path, when: When
) -> None:
    async with between(tmp_path) as here:
        here.proxy.answer(is_delete, Reply(429, "TooManyRequests", {"Retry-After": "7"}), nth=2, when=when)
        await here.cluster.send(delete("pi-1"))
        with pytest.raises(BusyError, match="the proxy says 429") as refused:
            await here.cluster.send(delete("pi-2"))
        assert refused.value.retry_after == 7.0
        assert here.api.names(NODES) == (["pi-2"] if when is When.BEFORE else [])
        assert [exchange.status for exchange in here.proxy.exchanges] == [200, 0 if when is When.BEFORE else 200]


async def test_each_that_matches_is_answered_for_as_long_as_the_block_lasts(tmp_path: Path) -> None:
    async with between(tmp_path) as here:
        with here.proxy.answering(lambda exchange: exchange.name == "pi-1", Reply(500)) as fault:
            for _ in range(2):
                with pytest.raises(UnreachableError):
                    await here.cluster.get(PATH)
            await here.cluster.get(f"{NODES}/pi-2")
        await here.cluster.get(PATH)
        assert (fault.met, here.arrived()) == (2, ["GET", "GET"])


async def test_one_that_is_slow_waits_alone(tmp_path: Path) -> None:
    async with between(tmp_path) as here:
        with here.proxy.slow(lambda exchange: exchange.name == "pi-1", 0.4):
            late = asyncio.create_task(here.cluster.get(PATH))
            await here.cluster.get(f"{NODES}/pi-2")
            assert not late.done()
            with pytest.raises(UnreachableError):
                await here.cluster.send(READ, timeout=0.1)
            await late


async def test_a_list_comes_in_pages_of_the_servers_own_and_its_last_one_is_told(tmp_path: Path) -> None:
    async with between(tmp_path) as here:
        here.api.put(NODES, agent("pi-3", uid="uid-pi-3"))
        here.proxy.page = 2
        pages = [json.loads(page)["items"] async for page in here.cluster.pages(NODES)]
        assert [len(page) for page in pages] == [2, 1]
        assert [(one.more, one.is_last_page) for one in here.proxy.exchanges] == [(True, False), (False, True)]
        last = Reply(410, "Expired")
        here.proxy.answer(lambda exchange: exchange.is_last_page, last, when=When.AFTER)
        got = []
        with pytest.raises(GoneError):
            got += [page async for page in here.cluster.pages(NODES)]
        assert [exchange.status for exchange in here.proxy.exchanges] == [200, 200, 200, 200]


def watching(here: Between) -> str:
    return f"{here.connection.server}{NODES}?watch=true&resourceVersion=0"


async def test_a_watch_that_is_cut_breaks_in_the_middle(tmp_path: Path) -> None:
    async with between(tmp_path) as here, here.connection.session() as session:
        async with session.get(watching(here)) as watch:
            await watch.content.readline()
            await asyncio.to_thread(here.proxy.cut_watches, lambda exchange: exchange.path == "/somewhere/else")
            await watch.content.readline()
            await asyncio.to_thread(here.proxy.cut_watches)
            with pytest.raises(aiohttp.ClientError):
                await watch.content.readline()
        assert (await here.cluster.get(PATH))["metadata"]["name"] == "pi-1"


@pytest.mark.parametrize(("reply", "code"), [(None, 410), (Reply(500), 500)])
async def test_a_watch_that_expires_ends_with_an_error_event(
    tmp_path: Path, reply: Reply | None, code: int
) -> None:
    async with between(tmp_path) as here, here.connection.session() as session:
        async with session.get(watching(here)) as watch:
            for _ in range(2):
                await watch.content.readline()
            await asyncio.to_thread(here.proxy.expire_watches, reply=reply)
            *_, last = (await watch.content.read()).splitlines()
        event = json.loads(last)
        assert (event["type"], event["object"]["code"]) == ("ERROR", code)


async def test_a_watch_is_answered_by_the_proxy_as_a_request_is(tmp_path: Path) -> None:
    async with between(tmp_path) as here, here.connection.session() as session:
        here.proxy.answer(lambda exchange: exchange.is_watch, Reply(410, "Expired"))
        async with session.get(watching(here)) as watch:
            assert watch.status == 410
            assert (await watch.json())["reason"] == "Expired"
        assert here.arrived() == []


async def test_what_is_frozen_is_silent_without_an_end_and_new_connections_are_as_good_as_ever(
    tmp_path: Path,
) -> None:
    async with between(tmp_path) as here, here.connection.session() as session:
        async with session.get(watching(here)) as watch:
            for _ in range(2):
                await watch.content.readline()
            await here.cluster.get(PATH)
            assert await asyncio.to_thread(here.proxy.freeze) == 2
            here.api.remove(NODES, "pi-2")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(watch.content.readline(), 0.5)
            with pytest.raises(UnreachableError):
                await here.cluster.send(READ, timeout=0.3)
            assert await here.cluster.send(READ, timeout=5)
            async with session.get(watching(here)) as other:
                assert json.loads(await other.content.readline())["object"]["metadata"]["name"] == "pi-1"
        assert here.arrived() == ["GET", "GET"]


async def test_a_server_that_is_gone_breaks_the_connection_and_one_that_is_back_answers(tmp_path: Path) -> None:
    async with between(tmp_path) as here:
        server, here.proxy._server = here.proxy._server, "https://127.0.0.1:1"
        with pytest.raises(UnreachableError):
            await here.cluster.send(READ)
        here.proxy._server = server
        assert await here.cluster.send(READ)


async def test_the_end_lets_go_of_what_is_held(tmp_path: Path) -> None:
    async with between(tmp_path) as here:
        hold = here.proxy.hold(everything, when=When.BEFORE)
        held = asyncio.create_task(here.cluster.send(READ))
        await asyncio.to_thread(hold.wait, 5)
    with contextlib.suppress(UnreachableError):
        await held
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("proxy")]
