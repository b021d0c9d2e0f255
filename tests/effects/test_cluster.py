"""The API client: the fence, the count, and what becomes of every bad answer."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from builders import agent, virtual
from effects_api import NODES, PROFILES, FakeApi, Reply, Sent, refusal, reply
from effects_cluster import FakeCluster
from effects_server import Served, kubeconfig, served
from effects_time import ManualClock, in_virtual_time

from clusterconform.contract.request import APPLY_PATCH, JSON, JSON_PATCH, Request
from clusterconform.effects import errors
from clusterconform.effects.cluster import Cluster, answered
from clusterconform.effects.connection import Connection
from clusterconform.effects.metrics import Metrics

pytestmark = pytest.mark.usefixtures("nothing_left_over")

AGENT = agent()
PATH = f"{NODES}/{AGENT['metadata']['name']}"
PATCH = Request(
    method="PATCH",
    path=PATH,
    content_type=JSON_PATCH,
    body=[{"op": "test", "path": "/metadata/uid", "value": "uid-1"}],
)
WRITES = [
    Request(method=method, path=PATH, content_type=JSON, body={}) for method in ("PATCH", "POST", "PUT", "DELETE")
]


class Here:
    """A server, and a client of it."""

    def __init__(self, server: Served, cluster: Cluster, metrics: Metrics, config: Path) -> None:
        self.server, self.cluster, self.metrics, self.config = server, cluster, metrics, config
        self.api = server.api

    def counted(self, method: str, code: str) -> float:
        """How many such requests the metric shows."""
        labels = {"method": method, "code": code}
        return self.metrics.registry.get_sample_value("clusterconform_api_requests_total", labels) or 0.0


@contextlib.asynccontextmanager
async def here(
    tmp_path: Path,
    may_write: Callable[[float], bool] = lambda _: True,
    clock: ManualClock | None = None,
    longest: float | None = None,
) -> AsyncIterator[Here]:
    """One agent on a server, and a client of it."""
    api = FakeApi()
    api.put(NODES, AGENT)
    async with served(api) as server:
        config = kubeconfig(tmp_path / "config", server.url)
        connection = Connection(config)
        await connection.open()
        metrics = Metrics()
        options = {} if longest is None else {"longest_wait": longest}
        cluster = Cluster(connection, metrics, clock or ManualClock(), may_write, **options)
        try:
            yield Here(server, cluster, metrics, config)
        finally:
            await cluster.close()


async def test_a_request_goes_out_as_it_was_built(tmp_path: Path) -> None:
    async with here(tmp_path) as world:
        body = {"status": {"conditions": [], "naïve": "ü"}}
        query = "fieldManager=clusterconform&force=true"
        world.api.script("PATCH", f"{PATH}/status", Reply(body=b"answer"))
        request = Request(method="PATCH", path=f"{PATH}/status?{query}", content_type=APPLY_PATCH, body=body)
        assert await world.cluster.send(request) == b"answer"
        asked = {"fieldManager": "clusterconform", "force": "true"}
        assert world.api.sent == [Sent("PATCH", f"{PATH}/status", asked, APPLY_PATCH, body)]


async def test_reads_have_no_body_and_answers_are_json(tmp_path: Path) -> None:
    async with here(tmp_path) as world:
        assert (await world.cluster.get(PATH))["metadata"]["uid"] == "uid-1"
        assert world.api.sent == [Sent("GET", PATH, {}, "", None)]


@pytest.mark.parametrize("request_", WRITES, ids=[request.method for request in WRITES])
async def test_with_the_fence_shut_no_write_is_sent_at_all(tmp_path: Path, request_: Request) -> None:
    async with here(tmp_path, lambda _: False) as world:
        with pytest.raises(errors.FencedError, match=PATH):
            await world.cluster.send(request_)
        assert world.server.seen == []


async def test_with_the_fence_shut_reads_go_on(tmp_path: Path) -> None:
    async with here(tmp_path, lambda _: False) as world:
        assert await world.cluster.get(PATH)


async def test_the_fence_is_asked_again_before_a_second_attempt(tmp_path: Path) -> None:
    """It may shut while the credentials are read again."""
    answers = [True, False]
    async with here(tmp_path, lambda _: answers.pop(0)) as world:
        world.api.script("PATCH", PATH, refusal(401))
        with pytest.raises(errors.FencedError):
            await world.cluster.send(PATCH)
        assert len(world.api.sent) == 1


async def test_the_fence_is_told_how_long_the_request_may_take(tmp_path: Path) -> None:
    asked: list[float] = []

    def may_write(seconds: float) -> bool:
        asked.append(seconds)
        return True

    async with here(tmp_path, may_write) as world:
        await world.cluster.send(PATCH)
        await world.cluster.send(PATCH, timeout=2.5)
        await world.cluster.get(PATH)
    assert asked == [10.0, 2.5]


@pytest.mark.parametrize(
    ("header", "date"),
    [
        ("Sat, 01 Aug 2026 12:00:07 GMT", datetime(2026, 8, 1, 12, 0, 7, tzinfo=UTC)),
        ("Sat, 01 Aug 2026 14:00:07 +0200", datetime(2026, 8, 1, 12, 0, 7, tzinfo=UTC)),
        ("garbage", None),
        ("", None),
        ("Sat, 99 Aug 2026 12:00:07 GMT", None),
        ("Sat, 01 Aug 2026 12:00:07 -0000", datetime(2026, 8, 1, 12, 0, 7, tzinfo=UTC)),
    ],
)
async def test_the_clock_of_the_api_server_is_noted_with_the_moment_of_its_answer(
    tmp_path: Path, header: str, date: datetime | None
) -> None:
    """A time without a zone would blow up in the first comparison."""
    async with here(tmp_path) as world:
        world.api.script("GET", PATH, Reply(headers={"Date": header}))
        assert world.cluster.server_date is None
        await world.cluster.get(PATH)
        expected = None if date is None else (date, ManualClock().moment())
        assert world.cluster.server_date == expected


async def test_requests_are_counted_by_method_and_code(tmp_path: Path) -> None:
    async with here(tmp_path) as world:
        await world.cluster.send(PATCH)
        for status in (404, 404, 500):
            world.api.script("GET", PATH, refusal(status))
            with pytest.raises(errors.ApiError):
                await world.cluster.get(PATH)
        counts = [("PATCH", "200", 1), ("GET", "404", 2), ("GET", "500", 1), ("GET", "200", 0)]
        assert [world.counted(method, code) for method, code, _ in counts] == [count for *_, count in counts]


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (refusal(403, "not you"), errors.ForbiddenError, "not you"),
        (refusal(409, "stale"), errors.ConflictError, "stale"),
        (refusal(422, "test failed"), errors.ConflictError, "test failed"),
        (refusal(422, "bad value", causes=2), errors.RejectedError, "bad value"),
        (refusal(503, "starting"), errors.UnreachableError, "starting"),
        (Reply(status=502, body=b"<h1>Bad Gateway</h1>\n"), errors.UnreachableError, "<h1>Bad Gateway</h1>"),
        (Reply(status=500, body=b""), errors.UnreachableError, "HTTP status 500"),
        (Reply(status=403, body=b"\xff\xfe"), errors.ForbiddenError, "\ufffd\ufffd"),
        (Reply(status=404, body=b"[]"), errors.NotFoundError, "HTTP status 404"),
        (Reply(status=400, body=b'"text"'), errors.RejectedError, "HTTP status 400"),
    ],
)
async def test_an_answer_that_is_no_success_becomes_our_error(
    tmp_path: Path, answer: Reply, kind: type[Exception], text: str
) -> None:
    async with here(tmp_path) as world:
        world.api.script("PATCH", PATH, answer)
        with pytest.raises(kind) as told:
            await world.cluster.send(PATCH)
        assert type(told.value) is kind
        assert str(told.value) == text


async def test_a_long_page_of_a_proxy_is_told_in_a_few_words(tmp_path: Path) -> None:
    async with here(tmp_path) as world:
        world.api.script("GET", PATH, Reply(status=502, body=b"x" * 100_000))
        with pytest.raises(errors.UnreachableError) as told:
            await world.cluster.get(PATH)
        assert len(str(told.value)) <= 200


async def test_429_carries_the_time_to_wait(tmp_path: Path) -> None:
    async with here(tmp_path) as world:
        world.api.script("GET", PATH, refusal(429, "slow down", Retry_After="3"))
        with pytest.raises(errors.BusyError) as told:
            await world.cluster.get(PATH)
        assert told.value.retry_after == 3.0


async def test_no_request_of_a_kind_goes_out_before_the_time_that_the_server_asked_for(tmp_path: Path) -> None:
    clock = ManualClock()
    async with here(tmp_path, clock=clock) as world:
        world.api.put(NODES, virtual())
        other = Request(method="GET", path=f"{NODES}/laptop-vk-podman")
        world.api.script("GET", PATH, refusal(429, "slow down", Retry_After="3"))
        with pytest.raises(errors.BusyError, match="slow down"):
            await world.cluster.get(PATH)
        clock.advance(1)
        with pytest.raises(errors.BusyError, match=r"^not sent, .* to wait: GET v1/nodes/NAME$") as told:
            await world.cluster.send(other)
        assert told.value.retry_after == 2.0
        await world.cluster.send(PATCH)
        assert [page async for page in world.cluster.pages(NODES)]
        clock.advance(2)
        await world.cluster.send(other)
        assert [sent.method for sent in world.api.sent] == ["GET", "PATCH", "GET", "GET"]


async def test_a_server_in_trouble_is_waited_for_as_a_busy_one_is(tmp_path: Path) -> None:
    async with here(tmp_path) as world:
        world.api.script("GET", PATH, refusal(503, "starting", Retry_After="1"))
        with pytest.raises(errors.UnreachableError):
            await world.cluster.get(PATH)
        with pytest.raises(errors.BusyError):
            await world.cluster.get(PATH)


@pytest.mark.parametrize(("longest", "wait"), [(None, 300.0), (5.0, 5.0)])
async def test_a_wait_has_an_end_whatever_the_server_asks_for(
    tmp_path: Path, longest: float | None, wait: float
) -> None:
    clock = ManualClock()
    async with here(tmp_path, clock=clock, longest=longest) as world:
        world.api.script("GET", PATH, refusal(429, Retry_After="999999999"))
        with pytest.raises(errors.BusyError):
            await world.cluster.get(PATH)
        clock.advance(wait - 0.5)
        with pytest.raises(errors.BusyError):
            await world.cluster.get(PATH)
        clock.advance(0.5)
        await world.cluster.get(PATH)


async def test_without_an_answer_in_time_the_server_is_unreachable(tmp_path: Path) -> None:
    async with here(tmp_path) as world:
        world.api.script("PATCH", PATH, Reply(hang=True))
        with pytest.raises(errors.UnreachableError) as told:
            await world.cluster.send(PATCH, timeout=0.05)
        assert str(told.value)
        assert world.counted("PATCH", "none") == 1


async def test_a_body_that_breaks_off_makes_the_server_unreachable(tmp_path: Path) -> None:
    async with here(tmp_path) as world:
        world.api.script("GET", PATH, Reply(body=b'{"metadata": {', cut=True))
        with pytest.raises(errors.UnreachableError):
            await world.cluster.get(PATH)


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"metadata": {'])
async def test_an_object_that_is_no_json_makes_the_server_unreachable(tmp_path: Path, body: bytes) -> None:
    """Whatever stands between us and the API server may answer 200 with a page of its own."""
    async with here(tmp_path) as world:
        world.api.script("GET", PATH, Reply(body=body))
        with pytest.raises(errors.UnreachableError):
            await world.cluster.get(PATH)


async def test_a_refused_connection_makes_the_server_unreachable(tmp_path: Path) -> None:
    async with here(tmp_path) as world:
        server = world.server.url
    connection = Connection(kubeconfig(tmp_path / "gone", server))
    await connection.open()
    cluster = Cluster(connection, Metrics(), ManualClock(), lambda _: True)
    try:
        with pytest.raises(errors.UnreachableError):
            await cluster.get(PATH)
    finally:
        await cluster.close()


async def test_401_reads_the_configuration_again_once(tmp_path: Path) -> None:
    async with here(tmp_path) as world:
        kubeconfig(world.config, world.server.url, user={"token": "t1"})
        world.api.script("GET", PATH, refusal(401))
        assert await world.cluster.get(PATH)
        assert [key for *_, key in world.server.seen] == ["Bearer t0", "Bearer t1"]


async def test_401_twice_is_the_servers_word(tmp_path: Path) -> None:
    async with here(tmp_path) as world:
        world.api.script("GET", PATH, refusal(401, "who are you"), forever=True)
        with pytest.raises(errors.UnauthorizedError, match="who are you"):
            await world.cluster.get(PATH)
        assert len(world.api.sent) == 2


async def test_401_with_a_configuration_that_has_become_unreadable_is_still_an_api_error(tmp_path: Path) -> None:
    """A kubeconfig that is being replaced must not end the tasks that only expect API errors."""
    async with here(tmp_path) as world:
        world.config.write_text("")
        world.api.script("GET", PATH, refusal(401, "who are you"))
        with pytest.raises(errors.ApiError):
            await world.cluster.get(PATH)


async def test_a_list_is_read_page_by_page_with_the_token_quoted(tmp_path: Path) -> None:
    async with here(tmp_path) as world:
        first = reply({"metadata": {"continue": "a+b/c=&d"}, "items": []})
        world.api.script("GET", NODES, first)
        world.api.script("GET", NODES, reply({"metadata": {}, "items": [1]}))
        pages = [page async for page in world.cluster.pages(NODES)]
        assert len(pages) == 2
        assert [sent.query for sent in world.api.sent] == [
            {"limit": "500"},
            {"limit": "500", "continue": "a+b/c=&d"},
        ]


async def test_the_pages_of_a_list_hold_everything_once(tmp_path: Path) -> None:
    async with here(tmp_path) as world:
        world.api.page = 2
        for number in range(4):
            world.api.put(NODES, virtual(host=f"h{number}"))
        pages = [page async for page in world.cluster.pages(NODES)]
        assert len(pages) == 3
        assert sum(page.count(b'"kind": "Node"') for page in pages) == 5


PAGE_OF_THREE = [
    (refusal(410, "the provided continue parameter is too old"), errors.GoneError),
    (refusal(500, "etcd"), errors.UnreachableError),
    (Reply(body=b""), errors.UnreachableError),
    (Reply(body=b"no JSON"), errors.UnreachableError),
    (Reply(body=b"[]"), errors.UnreachableError),
    (Reply(body=b'{"metadata": {"continue": 7}}'), errors.UnreachableError),
    (Reply(body=b'{"metadata": ', cut=True), errors.UnreachableError),
]


@pytest.mark.parametrize(("answer", "kind"), PAGE_OF_THREE)
async def test_a_list_that_breaks_on_page_three_ends_in_an_error_and_never_quietly(
    tmp_path: Path, answer: Reply, kind: type[errors.ApiError]
) -> None:
    async with here(tmp_path) as world:
        more = reply({"metadata": {"continue": "more"}, "items": []})
        world.api.script("GET", PROFILES, more, more, answer)
        pages = world.cluster.pages(PROFILES)
        assert [len(await anext(pages)) > 0 for _ in range(2)] == [True, True]
        with pytest.raises(kind):
            await anext(pages)


async def test_everything_is_closed_at_the_end(tmp_path: Path) -> None:
    async with here(tmp_path) as world:
        await world.cluster.get(PATH)
        session = world.cluster._session
    assert session.closed


@in_virtual_time
async def test_an_api_server_that_is_not_there_yet_is_waited_for_with_a_line_per_cause() -> None:
    api, told = FakeApi(), list[str]()
    api.put(NODES, AGENT)
    down, starting = refusal(503, "connection refused"), refusal(503, "starting")
    api.script("GET", PATH, *[down] * 10, *[starting] * 5, down)
    answer = await answered(FakeCluster(api, Metrics()), PATH, told.append)
    assert answer["metadata"]["uid"] == "uid-1"
    assert told == ["connection refused", "starting", "connection refused"]


@in_virtual_time
async def test_waiting_goes_on_for_ever_and_is_never_hot() -> None:
    api, told = FakeApi(), list[str]()
    api.script("GET", PATH, refusal(503, "down"), forever=True)
    waiting = asyncio.create_task(answered(FakeCluster(api, Metrics()), PATH, told.append))
    await asyncio.sleep(3600)
    assert not waiting.done()
    assert 200 < len(api.sent) < 300
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting


@in_virtual_time
async def test_an_api_server_that_is_busy_is_waited_for_too() -> None:
    api = FakeApi()
    api.put(NODES, AGENT)
    api.script("GET", PATH, refusal(429, "too many requests"))
    assert await answered(FakeCluster(api, Metrics()), PATH, lambda _: None)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(404, errors.NotFoundError), (403, errors.ForbiddenError), (401, errors.UnauthorizedError)],
)
def test_an_answer_that_waiting_will_not_change_is_passed_on(status: int, kind: type[errors.ApiError]) -> None:
    api = FakeApi()
    api.script("GET", PATH, refusal(status))

    @in_virtual_time
    async def ask() -> None:
        with pytest.raises(kind):
            await answered(FakeCluster(api, Metrics()), PATH, lambda _: None)

    ask()
    assert len(api.sent) == 1
