"""``Cluster`` in front of a ``FakeApi``, without HTTP."""

import asyncio
from collections.abc import Callable

import msgspec
from effects_api import FakeApi

from clusterconform.contract.request import Request
from clusterconform.effects.cluster import Cluster
from clusterconform.effects.errors import FencedError, UnreachableError, error_of
from clusterconform.effects.metrics import Metrics

LATENCY = 0.001


class FakeCluster(Cluster):
    """Sends to ``api``; each request takes a millisecond there and one back.

    Attributes:
        api: Where requests go.
        fence: Whether we may write a request that may take so many seconds; may be replaced.
    """

    def __init__(self, api: FakeApi, metrics: Metrics, fence: Callable[[float], bool] = lambda _: True) -> None:
        self.api, self.fence, self._counted = api, fence, metrics
        self.server_date = None

    async def close(self) -> None:
        """There are no sockets."""

    async def send(self, request: Request, *, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        timeout = 10.0 if timeout is None else timeout
        if request.method != "GET" and not self.fence(timeout):
            raise FencedError(f"not sent: {request.method} {request.path}")
        body = None if request.body is None else msgspec.json.decode(msgspec.json.encode(request.body))
        await asyncio.sleep(LATENCY)
        answer = self.api.answer(request.method, request.path, request.content_type, body)
        await asyncio.sleep(timeout if answer.hang else LATENCY)
        if answer.hang or answer.cut:
            raise UnreachableError("TimeoutError" if answer.hang else "connection closed")
        self._counted.requests.labels(request.method, str(answer.status)).inc()
        if answer.status < 400:
            return answer.body
        status = msgspec.json.decode(answer.body)
        raise error_of(answer.status, status, answer.headers.get("Retry-After"))
