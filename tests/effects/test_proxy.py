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

import pytest
from builders import agent
from effects_api import NODES, FakeApi, refusal
from effects_server import Served, served
from proxy import Exchange, FaultProxy, When

from clusterconform.contract.request import JSON, Request
from clusterconform.effects.clock import Clock
from clusterconform.effects.cluster import Cluster
from clusterconform.effects.connection import Connection
from clusterconform.effects.errors import NotFoundError, UnreachableError
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
        assert here.proxy.watches == 1


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
