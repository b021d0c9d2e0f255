"""A ``FakeApi`` behind a socket, with discovery and watches, and kubeconfigs that lead to it."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer
from effects_api import NODES, PROFILES, FakeApi, Reply

from clusterconform.contract.names import API_VERSION, PLURAL

_CRDS_VERSION: Final = "apiextensions.k8s.io/v1"


def _group(version: str) -> dict[str, Any]:
    name, _, number = version.partition("/")
    served = {"groupVersion": version, "version": number}
    return {"name": name, "versions": [served], "preferredVersion": served}


def _resource(plural: str, kind: str) -> dict[str, Any]:
    verbs = ["get", "list", "watch", "patch"]
    names = {"name": plural, "singularName": kind.lower(), "kind": kind}
    return {**names, "namespaced": False, "verbs": verbs}


# Kopf begins nothing before it knows namespaces and CRDs, even where it looks at neither.
_DISCOVERY: Final[dict[str, Any]] = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "groups": [_group(API_VERSION), _group(_CRDS_VERSION)]},
    "/api/v1": {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [_resource("nodes", "Node"), _resource("namespaces", "Namespace")],
    },
    f"/apis/{API_VERSION}": {
        "kind": "APIResourceList",
        "groupVersion": API_VERSION,
        "resources": [_resource(PLURAL, "RuntimeProfile")],
    },
    f"/apis/{_CRDS_VERSION}": {
        "kind": "APIResourceList",
        "groupVersion": _CRDS_VERSION,
        "resources": [_resource("customresourcedefinitions", "CustomResourceDefinition")],
    },
}


class Served:
    """The server.

    Attributes:
        api: Its objects.
        url: Where it is.
        seen: Method, path, User-Agent and Authorization of each request that reached it, watches included.
        users: Names in the client certificates of those requests, empty without one.
        watching: How many watches of nodes are open.
        watches: How many watches of profiles are open.
        mute: The path of watches that get no answer at all, not even a head.
        muted: How often such a one began to wait.
        hidden: Whether there is no kind RuntimeProfile, as without its CRD.
        refused: HTTP statuses with which the next watches of nodes are refused.
    """

    def __init__(self, api: FakeApi) -> None:
        self.api, self.url = api, ""
        self.seen: list[tuple[str, str, str, str]] = []
        self.users: list[str] = []
        self.watching, self.watches, self.mute, self.muted = 0, 0, "", 0
        self.hidden = False
        self.refused: list[int] = []
        self._news = asyncio.Event()
        self._lines: dict[str, bytes] = {}
        self._closing, self._ended = False, 0
        api.listeners.append(lambda *_: self._wake())

    def close_watches(self) -> None:
        """End all watches, now and for ever."""
        self._closing = True
        self._wake()

    def end_watches(self) -> None:
        """End those that are open now."""
        self._ended += 1
        self._wake()

    def say(self, path: str, line: bytes) -> None:
        """Send ``line`` to one watch of ``path``, the first that is open."""
        self._lines[path] = line
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        headers = request.headers
        agent, key = headers.get("User-Agent", ""), headers.get("Authorization", "")
        self.seen.append((request.method, request.path, agent, key))
        self.users.append(_user(request))
        if self.hidden and request.path.startswith(f"/apis/{API_VERSION}"):
            return web.json_response({"kind": "Status", "code": 404}, status=404)
        if request.path in _DISCOVERY:
            return web.json_response(_DISCOVERY[request.path])
        if request.query.get("watch") == "true" and request.path in {NODES, PROFILES}:
            return await self._watch(request)
        text = await request.text()
        body = json.loads(text) if text else None
        answer = self.api.answer(request.method, request.path_qs, headers.get("Content-Type", ""), body)
        return await _sent(request, answer)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        if request.path == NODES and self.refused:
            status = self.refused.pop(0)
            return web.json_response({"kind": "Status", "code": status}, status=status)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        while request.path == self.mute and not self._closing:
            self.muted += 1
            await self._news.wait()
        await response.prepare(request)
        seen = int(request.query.get("resourceVersion", "0"))
        self.watching += request.path == NODES
        self.watches += request.path == PROFILES
        ended = self._ended
        try:
            while not self._closing and self._ended == ended:
                news = self._news
                for version, kind, raw in self.api.history[request.path]:
                    if version > seen:
                        seen = version
                        await response.write(json.dumps({"type": kind, "object": raw}).encode() + b"\n")
                if request.path in self._lines:
                    await response.write(self._lines.pop(request.path))
                await news.wait()
        finally:
            self.watching -= request.path == NODES
            self.watches -= request.path == PROFILES
        return response


def _user(request: web.Request) -> str:
    certificate = request.transport.get_extra_info("peercert") if request.transport is not None else None
    names = [
        value for part in (certificate or {}).get("subject", ()) for key, value in part if key == "commonName"
    ]
    return "".join(names)


async def _sent(request: web.Request, answer: Reply) -> web.StreamResponse:
    if answer.hang:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.Event().wait()
        return web.Response(status=504)
    headers = {"Content-Type": "application/json", **answer.headers}
    if not answer.cut:
        return web.Response(status=answer.status, body=answer.body, headers=headers)
    response = web.StreamResponse(status=answer.status, headers=headers)
    response.content_length = 2 * len(answer.body) + 1
    await response.prepare(request)
    await response.write(answer.body)
    if request.transport is not None:
        request.transport.close()
    return response


@contextlib.asynccontextmanager
async def served(api: FakeApi, tls: ssl.SSLContext | None = None) -> AsyncIterator[Served]:
    """Serve ``api`` on a free port of this machine, with TLS if so wished."""
    here = Served(api)
    app = web.Application(client_max_size=2**24)
    app.router.add_route("*", "/{path:.*}", here.handle)
    server = TestServer(app, scheme="https" if tls else "http")
    options: dict[str, Any] = {"ssl": tls} if tls else {}
    await server.start_server(shutdown_timeout=0.1, **options)
    here.url = str(server.make_url("")).rstrip("/")
    try:
        yield here
    finally:
        here.close_watches()
        await server.close()


def kubeconfig(file: Path, server: str, *, user: Any = None, **changes: Any) -> Path:
    """Write a kubeconfig for ``server`` with one context, ``here``."""
    text = yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": server, **changes}}],
            "users": [{"name": "u", "user": {"token": "t0"} if user is None else user}],
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "here",
        }
    )
    file.write_text(text)
    return file
