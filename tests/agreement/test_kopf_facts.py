"""What the node stream leans on in Kopf 1.45, pinned against the installed one.

1. Lists are read as ``await response.json()``, which reads ``response.content.read()``.
2. Watches are read through ``response.content.iter_chunked``.

Where one of these tests fails after an update of Kopf, the stream has to be looked at again before anything else.
"""

import asyncio
import json
import logging
import tomllib
from collections.abc import AsyncIterator
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import kopf
import pytest
from aiohttp import ClientHandlerType, ClientRequest, ClientResponse
from builders import Json, agent, virtual
from effects_api import NODES, FakeApi
from effects_lines import line
from effects_server import served
from kopf._cogs.clients import auth, fetching, watching
from kopf._cogs.structs import credentials, references

from clusterconform.effects.metrics import Metrics
from clusterconform.effects.stream import NodeStream

log: Any = logging.getLogger(__name__)
RESOURCE = references.Resource(group="", version="v1", plural="nodes", kind="Node", namespaced=False)
PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


class Content:
    """A response's content that notes in which ways it is read; everything else is the original's."""

    def __init__(self, content: aiohttp.StreamReader, ways: list[str]) -> None:
        self.content, self.ways = content, ways

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("read", "iter", "__aiter")):
            self.ways.append(name)
        return getattr(self.content, name)

    async def read(self) -> bytes:
        self.ways.append("read")
        return await self.content.read()

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        self.ways.append("iter_chunked")
        async for chunk in self.content.iter_chunked(size):
            yield chunk


class Noting:
    """A middleware that puts such a content in place of every successful answer's."""

    def __init__(self) -> None:
        self.ways: list[str] = []

    async def __call__(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        response = await handler(request)
        content: Any = Content(response.content, self.ways)
        response.content = content
        return response


class Kopf:
    """Kopf's real functions on a session of ours."""

    def __init__(self, server: str, middleware: Any) -> None:
        self.session = aiohttp.ClientSession(middlewares=(middleware,))
        login = kopf.AiohttpSession(server=server, aiohttp_session=self.session)
        auth.vault_var.set(credentials.Vault({credentials.VaultKey("us"): login}))
        self.settings = kopf.OperatorSettings()
        self.settings.watching.chunk_size = 1

    async def listed(self) -> list[Any]:
        """What a list brings."""
        pages = fetching.fetch_objs(settings=self.settings, resource=RESOURCE, namespace=None, logger=log)
        return [item async for items, _ in pages for item in items]

    async def watched(self, since: str, count: int) -> list[Any]:
        """The first events that a watch brings."""
        stopper: asyncio.Future[Any] = asyncio.Future()
        stream = watching.watch_objs(
            settings=self.settings, resource=RESOURCE, namespace=None, since=since, operator_pause_waiter=stopper
        )
        events = []
        async for event in stream:
            events.append(event)
            if len(events) == count:
                stopper.set_result(None)
        return events


@pytest.mark.parametrize("name", ["fetch_objs", "continuous_watch", "watch_objs"])
def test_the_functions_that_these_facts_are_about_are_still_there(name: str) -> None:
    assert callable(getattr(fetching if name == "fetch_objs" else watching, name))


async def test_lists_are_read_as_json_which_reads_the_content_whole() -> None:
    api, noting = FakeApi(), Noting()
    api.put(NODES, agent())
    api.put(NODES, virtual())
    async with served(api) as server:
        reader = Kopf(server.url, noting)
        async with reader.session:
            assert len(await reader.listed()) == 2
    assert noting.ways == ["read", "read"]


async def test_pages_after_the_first_are_asked_for_with_a_continue_token() -> None:
    """By this the stream knows where a list begins."""
    api = FakeApi()
    api.put(NODES, agent())
    api.put(NODES, virtual())
    async with served(api) as server:
        reader = Kopf(server.url, Noting())
        async with reader.session:
            await reader.listed()
    assert ["continue" in sent.query for sent in api.asked("GET", NODES)] == [False, True]


async def test_watches_are_read_in_chunks_and_in_no_other_way() -> None:
    api, noting = FakeApi(), Noting()
    api.put(NODES, agent())
    api.put(NODES, virtual())
    async with served(api) as server:
        reader = Kopf(server.url, noting)
        async with reader.session:
            events = await reader.watched("100", 2)
        server.close_watches()
    assert [event["type"] for event in events] == ["ADDED", "ADDED"]
    assert noting.ways == ["iter_chunked"]


async def test_a_line_without_a_resource_version_moves_the_place_to_resume_at_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The DELETED lines of vanished nodes have none; a bookmark has its own."""
    asked: list[str | None] = []
    lines: list[list[Json]] = [
        [
            {"type": "DELETED", "object": {"metadata": {"name": "gone"}}},
            {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}},
        ],
        [{"type": "DELETED", "object": {"metadata": {"name": "gone"}}}],
        [{"type": "ERROR", "object": {"code": 410}}],
    ]

    async def watch_objs(*, since: str | None, **_: Any) -> AsyncIterator[Json]:
        asked.append(since)
        for event in lines.pop(0):
            yield event

    async def fetch_objs(**_: Any) -> AsyncIterator[tuple[list[Json], str]]:
        yield [], "5"

    monkeypatch.setattr(watching, "watch_objs", watch_objs)
    monkeypatch.setattr(fetching, "fetch_objs", fetch_objs)
    waiter: Any = SimpleNamespace(done=lambda: False)
    settings = kopf.OperatorSettings()
    stream = watching.continuous_watch(
        settings=settings, resource=RESOURCE, namespace=None, operator_pause_waiter=waiter
    )
    events = [event async for event in stream]
    assert asked == ["5", "9", "9"]
    assert len(events) == 4


async def test_through_the_slim_stream_kopf_reads_the_same_nodes() -> None:
    """Both facts at once, with the stream itself in the place of what only notes."""
    api = FakeApi()
    api.put(NODES, agent())
    async with served(api) as server:
        reader = Kopf(server.url, NodeStream(Metrics(), lambda: 0.0))
        async with reader.session:
            (listed,) = await reader.listed()
            api.put(NODES, virtual())
            (event,) = await reader.watched("101", 1)
        server.close_watches()
    assert listed["metadata"]["name"] == "pi-4c7adeb6"
    assert "images" not in json.dumps(listed)
    assert event["object"]["metadata"]["name"] == "laptop-vk-podman"
    assert line("ADDED", event["object"])


def test_kopf_is_of_the_version_that_these_facts_were_seen_in() -> None:
    installed = tuple(int(part) for part in version("kopf").split(".")[:3])
    assert (1, 45, 2) <= installed < (1, 46, 0)
    assert "kopf>=1.45.2,<1.46" in PROJECT["dependencies"]
