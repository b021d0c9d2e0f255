"""The fakes of these tests do what they stand in for."""

import asyncio
import json
import time
from typing import Any

import aiohttp
import pytest
from builders import TAINT, agent, facts, virtual
from effects_api import CONFIGMAPS, NODES, PROFILES, FakeApi, Reply, Sent, refusal, reply
from effects_cluster import FakeCluster
from effects_lines import Content, line
from effects_server import served
from effects_time import EverythingWaitsError, LoopClock, ManualClock, in_virtual_time, run_virtually

from clusterconform.contract.matrix import MATRIX
from clusterconform.contract.plan import MarksPatch
from clusterconform.contract.profile import manifest_of, read_profile
from clusterconform.contract.request import APPLY_PATCH, JSON_PATCH, Request
from clusterconform.decisions.requests import marks_request
from clusterconform.effects import errors
from clusterconform.effects.metrics import Metrics

AGENT = "pi-4c7adeb6"
PATH = f"{NODES}/{AGENT}"


def api_with_agent() -> FakeApi:
    """One agent."""
    api = FakeApi()
    api.put(NODES, agent())
    return api


def test_a_day_passes_in_no_time() -> None:
    began = time.monotonic()
    run_virtually(asyncio.sleep(24 * 3600))
    assert time.monotonic() - began < 1


def test_virtual_time_passes_as_much_as_was_slept() -> None:
    async def slept() -> list[float]:
        clock = LoopClock()
        at = [clock.uptime()]
        for seconds in (1.5, 0, 10):
            await asyncio.sleep(seconds)
            at.append(clock.uptime())
        assert clock.moment().uptime == clock.uptime()
        return at

    assert run_virtually(slept()) == pytest.approx([0, 1.5, 1.5, 11.5])


def test_timeouts_work_in_virtual_time() -> None:
    async def waits() -> None:
        async with asyncio.timeout(60):
            await asyncio.sleep(61)

    with pytest.raises(TimeoutError):
        run_virtually(waits())


def test_waiting_for_nothing_is_found_at_once() -> None:
    async def stuck() -> None:
        await asyncio.Event().wait()

    with pytest.raises(EverythingWaitsError):
        run_virtually(stuck())


def test_a_task_left_over_fails_a_test() -> None:
    async def careless() -> None:
        task = asyncio.create_task(asyncio.sleep(1000))
        await asyncio.sleep(0)
        assert not task.done()

    with pytest.raises(AssertionError, match="left over"):
        run_virtually(careless())


def test_a_manual_clock_moves_both_clocks_and_only_when_told() -> None:
    clock = ManualClock()
    before = clock.moment()
    assert clock.moment() == before
    clock.advance(5)
    assert clock.moment() == before.later(5)
    assert clock.uptime() == before.uptime + 5


def test_versions_grow_with_each_change_and_only_then() -> None:
    api = FakeApi()
    first = api.put(NODES, agent())["metadata"]["resourceVersion"]
    assert api.put(NODES, agent())["metadata"]["resourceVersion"] == first
    changed = api.change(NODES, AGENT, lambda raw: raw["metadata"]["labels"].update(a="b"))
    assert int(changed["metadata"]["resourceVersion"]) == int(first) + 1


def test_generations_grow_with_the_spec_alone() -> None:
    api = FakeApi()
    row = manifest_of(MATRIX["k3s"])
    assert api.put(PROFILES, row)["metadata"]["generation"] == 1
    api.change(PROFILES, "k3s", lambda raw: raw.update(status={"a": 1}))
    assert api.get(PROFILES, "k3s")["metadata"]["generation"] == 1
    api.change(PROFILES, "k3s", lambda raw: raw["spec"].update(enforcement="Observe"))
    assert api.get(PROFILES, "k3s")["metadata"]["generation"] == 2


def test_changes_are_told_and_kept_in_order() -> None:
    api, told = FakeApi(), list[tuple[str, str]]()
    api.listeners.append(lambda _, kind, raw: told.append((kind, raw["metadata"]["name"])))
    api.put(NODES, agent())
    api.change(NODES, AGENT, lambda raw: raw["spec"].update(taints=[TAINT]))
    api.remove(NODES, AGENT)
    assert told == [("ADDED", AGENT), ("MODIFIED", AGENT), ("DELETED", AGENT)]
    assert [kind for _, kind, _ in api.history[NODES]] == ["ADDED", "MODIFIED", "DELETED"]


def test_what_is_given_and_what_is_stored_are_apart() -> None:
    api, raw = FakeApi(), agent()
    api.put(NODES, raw)
    raw["metadata"]["labels"].clear()
    assert api.get(NODES, AGENT)["metadata"]["labels"]


def test_a_patch_is_a_compare_and_swap() -> None:
    api = api_with_agent()
    node = facts(api.get(NODES, AGENT))
    request = marks_request(node, MarksPatch(labels={"outpost.dhnt.io/runtime": "x"}, listed=("m",)))
    api.change(NODES, AGENT, lambda raw: raw["metadata"]["labels"].update({"outpost.dhnt.io/runtime": "y"}))
    assert api.answer("PATCH", request.path, JSON_PATCH, request.body).status == 422
    assert api.get(NODES, AGENT)["metadata"]["labels"]["outpost.dhnt.io/runtime"] == "y"
    again = marks_request(facts(api.get(NODES, AGENT)), MarksPatch(labels={"outpost.dhnt.io/runtime": "x"}))
    assert api.answer("PATCH", again.path, JSON_PATCH, again.body).status == 200
    assert api.get(NODES, AGENT)["metadata"]["labels"]["outpost.dhnt.io/runtime"] == "x"


def test_an_apply_cannot_land_on_another_life() -> None:
    api = api_with_agent()
    body = {"metadata": {"name": AGENT, "uid": "other"}, "status": {"conditions": []}}
    assert api.answer("PATCH", f"{PATH}/status", APPLY_PATCH, body).status == 409


def test_a_put_with_an_old_version_is_a_conflict() -> None:
    api = FakeApi()
    stored = api.put(CONFIGMAPS, {"metadata": {"name": "c"}, "data": {"a": "b"}})
    api.change(CONFIGMAPS, "c", lambda raw: raw["data"].update(a="c"))
    assert api.answer("PUT", f"{CONFIGMAPS}/c", "", stored).status == 409


@pytest.mark.parametrize(("method", "status"), [("GET", 404), ("PATCH", 404), ("PUT", 404)])
def test_an_absent_object_is_404(method: str, status: int) -> None:
    assert FakeApi().answer(method, PATH, "", {}).status == status


def test_creating_what_is_there_is_a_conflict() -> None:
    api = api_with_agent()
    assert api.answer("POST", NODES, "", agent()).status == 409
    assert api.answer("POST", NODES, "", virtual()).status == 201


def test_lists_come_in_pages() -> None:
    api = FakeApi()
    for number in range(5):
        api.put(NODES, virtual(host=str(number)))
    pages, target = 0, f"{NODES}?limit=2"
    while target:
        page = json.loads(api.answer("GET", target, "", None).body)
        pages += 1
        more = page["metadata"].get("continue")
        target = f"{NODES}?limit=2&continue={more}" if more else ""
    assert pages == 3


def test_scripted_answers_come_once_each_and_the_last_for_ever_if_so_wished() -> None:
    api = api_with_agent()
    api.script("GET", PATH, refusal(500), refusal(404))
    assert [api.answer("GET", PATH, "", None).status for _ in range(3)] == [500, 404, 200]
    api.script("GET", PATH, refusal(503), forever=True)
    assert [api.answer("GET", PATH, "", None).status for _ in range(3)] == [503, 503, 503]
    api.heal()
    assert api.answer("GET", PATH, "", None).status == 200
    assert len(api.asked("GET", PATH)) == 7


def test_hooks_are_called_around_what_is_carried_out() -> None:
    api, seen = api_with_agent(), list[str]()
    api.before = lambda sent: seen.append(f"before {sent.method}")
    api.after = lambda sent: seen.append(f"after {sent.method}")
    api.answer("GET", PATH, "", None)
    assert seen == ["before GET", "after GET"]


@in_virtual_time
async def test_the_cluster_without_http_raises_what_the_real_one_does() -> None:
    api = api_with_agent()
    cluster = FakeCluster(api, Metrics())
    assert (await cluster.get(PATH))["metadata"]["name"] == AGENT
    for answer, kind in (
        (refusal(422), errors.ConflictError),
        (refusal(422, causes=1), errors.RejectedError),
        (refusal(403), errors.ForbiddenError),
        (refusal(429, Retry_After="7"), errors.BusyError),
        (Reply(hang=True), errors.UnreachableError),
        (Reply(cut=True), errors.UnreachableError),
    ):
        api.script("GET", PATH, answer)
        with pytest.raises(kind):
            await cluster.get(PATH)
    cluster.fence = lambda _: False
    with pytest.raises(errors.FencedError):
        await cluster.send(Request(method="PATCH", path=PATH, body=[]))
    assert api.writes() == []


async def test_the_server_answers_as_the_api_does_and_notes_who_asked() -> None:
    api = api_with_agent()
    async with served(api) as server, aiohttp.ClientSession() as session:
        async with session.get(server.url + PATH, headers={"Authorization": "Bearer x"}) as response:
            assert (await response.json())["metadata"]["name"] == AGENT
        async with session.post(server.url + NODES, json=virtual()) as response:
            assert response.status == 201
        assert [(method, path, key) for method, path, _, key in server.seen] == [
            ("GET", PATH, "Bearer x"),
            ("POST", NODES, ""),
        ]
    assert api.sent[0] == Sent("GET", PATH, {}, "", None)


async def test_the_server_streams_what_happened_since_a_version_and_then_what_happens() -> None:
    api = api_with_agent()
    async with (
        served(api) as server,
        aiohttp.ClientSession() as session,
        session.get(f"{server.url}{NODES}?watch=true&resourceVersion=0") as response,
    ):
        assert b'"ADDED"' in await response.content.readline()
        assert server.watching == 1
        api.remove(NODES, AGENT)
        assert b'"DELETED"' in await response.content.readline()
        server.say(NODES, b"anything\n")
        assert await response.content.readline() == b"anything\n"
        server.close_watches()
        assert await response.content.readline() == b""
    assert server.watching == 0


@pytest.mark.parametrize("answer", [Reply(cut=True, body=b"half"), Reply(hang=True)])
async def test_the_server_breaks_off_or_hangs_as_told(answer: Reply) -> None:
    api = api_with_agent()
    api.script("GET", PATH, answer)
    timeout = aiohttp.ClientTimeout(total=0.2)
    async with served(api) as server, aiohttp.ClientSession(timeout=timeout) as session:
        with pytest.raises((aiohttp.ClientPayloadError, TimeoutError)):
            async with session.get(server.url + PATH) as response:
                await response.read()


@in_virtual_time
async def test_a_content_comes_in_the_given_pieces_or_whole() -> None:
    content: Any = Content([b"ab", b"c"])
    assert [chunk async for chunk in content.iter_chunked(1)] == [b"ab", b"c"]
    assert await content.read() == b"abc"
    assert line("ADDED", {}) == b'{"type":"ADDED","object":{}}\n'


def test_profiles_are_stored_so_that_they_read_as_the_matrix_has_them() -> None:
    api = FakeApi()
    for row in MATRIX.values():
        api.put(PROFILES, manifest_of(row))
        assert read_profile(api.get(PROFILES, row.backend)).contract == row
    assert reply({}).status == 200
