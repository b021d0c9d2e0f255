"""One Lease in memory, an unreliable way to it, and processes that can be stopped in the middle of a step.

For virtual time (``effects_time``). The Lease behaves as the real one: tests/e2e/test_leadership.py asks the API
server the same questions.
"""

import asyncio
import copy
import itertools
import json
from collections.abc import Callable, Coroutine, Generator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from builders import START
from effects_time import LoopClock

from clusterconform.contract.lease import LEASE, LEASE_PATH, LEASES_PATH, LeaseTimings, Term
from clusterconform.contract.request import Request
from clusterconform.contract.times import Moment
from clusterconform.effects.cluster import Cluster
from clusterconform.effects.elector import Elector, LeadershipLostError
from clusterconform.effects.errors import ApiError, ConflictError, NotFoundError, UnreachableError

Json = dict[str, Any]
WAY = 0.01


class LeaseStore:
    """The API server's side.

    Attributes:
        raw: The Lease as it stands; None where there is none.
        writes: Every write that changed it, as method and holder.
        deaf: Whether it answers a PUT with the Lease as it is, as after an admission that undoes every change.
    """

    def __init__(self) -> None:
        self.raw: Json | None = None
        self.writes: list[tuple[str, str | None]] = []
        self.deaf = False
        self._numbers = itertools.count(1)

    def answer(self, method: str, path: str, body: Json | None) -> Json:
        """Carry one request out, wholly or not at all."""
        if method == "POST" and path == LEASES_PATH and body is not None:
            if self.raw is not None:
                raise ConflictError("already exists")
            return self._store(
                "POST", {**body, "metadata": {**body["metadata"], "uid": f"uid-{next(self._numbers)}"}}
            )
        assert path == LEASE_PATH, path
        if method == "GET":
            if self.raw is None:
                raise NotFoundError("not found")
            return copy.deepcopy(self.raw)
        assert method == "PUT"
        assert body is not None
        return self._replace(body)

    def _replace(self, body: Json) -> Json:
        asked = body["metadata"]
        if self.raw is None:
            if "uid" in asked:
                raise ConflictError("Precondition failed: UID in precondition: ..., UID in object meta: ")
            return self.answer("POST", LEASES_PATH, body)
        known = self.raw["metadata"]
        if asked.get("uid", known["uid"]) != known["uid"] or asked["resourceVersion"] != known["resourceVersion"]:
            raise ConflictError("the object has been modified")
        if body == self.raw or self.deaf:
            return copy.deepcopy(self.raw)
        return self._store("PUT", body)

    def _store(self, method: str, body: Json) -> Json:
        self.raw = copy.deepcopy(body)
        self.raw["metadata"]["resourceVersion"] = str(next(self._numbers))
        self.writes.append((method, self.holder))
        return copy.deepcopy(self.raw)

    @property
    def holder(self) -> str | None:
        spec = (self.raw or {}).get("spec")
        return spec.get("holderIdentity") if isinstance(spec, dict) else None

    @property
    def spec(self) -> Json:
        assert self.raw is not None
        found: Json = self.raw["spec"]
        return found

    def edit(self, change: Callable[[Json], object]) -> None:
        """Let somebody else change it, or make it."""
        if self.raw is None:
            metadata = {"name": LEASE, "uid": f"uid-{next(self._numbers)}"}
            self.raw = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
        body = copy.deepcopy(self.raw)
        change(body)
        self._store("edit", body)

    def edit_spec(self, **fields: Any) -> None:
        self.edit(lambda body: body.update(spec={**(body.get("spec") or {}), **fields}))

    def delete(self) -> None:
        self.raw = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What becomes of one request.

    Attributes:
        there: Seconds until it is carried out; None for never.
        back: Seconds until the answer arrives after that; None for never.
        error: What arrives instead of the answer.
        junk: Whether what arrives is no JSON.
    """

    there: float | None = WAY
    back: float | None = WAY
    error: type[ApiError] | None = None
    junk: bool = False


FINE = Fate()
LOST = Fate(there=None, error=UnreachableError)
CUT = Fate(error=UnreachableError)
DEAF = Fate(there=None, back=None)
MUTE = Fate(back=None)


class LeaseCluster(Cluster):
    """The way of one process to the store.

    Attributes:
        fates: One for each request in turn; then all is fine.
        always: While set, the fate of every request.
        sent: Methods of the requests that were sent, each with the seconds that it was given.
    """

    def __init__(self, store: LeaseStore) -> None:
        self.store = store
        self.fates: Iterator[Fate] = iter(())
        self.always: Fate | None = None
        self.sent: list[tuple[str, float]] = []
        self.server_date: tuple[datetime, Moment] | None = None

    async def send(self, request: Request, *, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        assert timeout is not None, "the election tells how long it can wait"
        fate = self.always or next(self.fates, FINE)
        self.sent.append((request.method, timeout))
        arrived: asyncio.Future[bytes | ApiError] = asyncio.get_running_loop().create_future()
        self._set_out(request, fate, arrived)
        try:
            async with asyncio.timeout(timeout):
                answer = await arrived
        except TimeoutError as error:
            raise UnreachableError("TimeoutError") from error
        if isinstance(answer, ApiError):
            raise answer
        return answer

    def _set_out(self, request: Request, fate: Fate, arrived: "asyncio.Future[bytes | ApiError]") -> None:
        # Not in the sender's task: what is on its way arrives, whatever becomes of the one who sent it.
        loop = asyncio.get_running_loop()
        body = None if request.body is None else json.loads(json.dumps(request.body))
        error = None if fate.error is None else fate.error("lost on the way")

        def deliver(answer: bytes | ApiError) -> None:
            if not arrived.done():
                arrived.set_result(answer)

        def carry_out() -> None:
            answer = self._answer(request, body)
            if fate.back is not None:
                loop.call_later(fate.back, deliver, b"<html>" if fate.junk else error or answer)

        if fate.there is not None:
            loop.call_later(fate.there, carry_out)
        elif fate.back is not None:
            loop.call_later(fate.back, deliver, error or UnreachableError("lost on the way"))

    def _answer(self, request: Request, body: Json | None) -> bytes | ApiError:
        try:
            return json.dumps(self.store.answer(request.method, request.path, body)).encode()
        except ApiError as error:
            return error


class OwnClock(LoopClock):
    """A process's clocks: its uptime counts from its own start, and its wall clock says what it likes.

    Attributes:
        ahead: Seconds by which the wall clock is ahead.
        stopped: What the wall clock says for ever; None while it goes.
    """

    def __init__(self, ahead: float = 0.0) -> None:
        super().__init__()
        self.ahead = ahead
        self.stopped: datetime | None = None

    def moment(self) -> Moment:
        at = START + timedelta(seconds=asyncio.get_running_loop().time() - 1000.0 + self.ahead)
        return Moment(wall=(self.stopped or at).astimezone(UTC), uptime=self.uptime())


class Freezing:
    """Awaits a coroutine, and makes no step of it while it is frozen: SIGSTOP.

    Timers that run out meanwhile, and answers that arrive, are met afterwards.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, None], stepped: Callable[[], None]) -> None:
        self._coroutine, self._stepped = coroutine, stepped
        self._running = asyncio.Event()
        self._running.set()

    def freeze(self) -> None:
        self._running.clear()

    def thaw(self) -> None:
        self._running.set()

    def __await__(self) -> Generator[Any, None, None]:
        cancelled: asyncio.CancelledError | None = None
        while True:
            while not self._running.is_set():
                try:
                    yield from self._running.wait().__await__()
                except asyncio.CancelledError as error:
                    cancelled = error
            try:
                step = self._coroutine.send(None) if cancelled is None else self._coroutine.throw(cancelled)
            except StopIteration:
                return
            finally:
                self._stepped()
            cancelled = None
            try:
                yield step
            except asyncio.CancelledError as error:
                cancelled = error


class Process:
    """A process that stands by, leads, and begins anew under another name when it has lost.

    Attributes:
        clock: Its clocks.
        cluster: Its way to the Lease.
        elector: Its elector of this life.
        terms: Its terms so far.
        lost: Why it lost each of them.
    """

    def __init__(
        self,
        store: LeaseStore,
        name: str,
        timings: LeaseTimings | None = None,
        *,
        ahead: float = 0.0,
        stepped: Callable[[], None] = lambda: None,
    ) -> None:
        self.clock, self.cluster = OwnClock(ahead), LeaseCluster(store)
        self._name, self._lives, self._timings = name, itertools.count(1), timings or LeaseTimings()
        self.terms: list[Term] = []
        self.lost: list[str] = []
        self._stepped = stepped
        self.start()

    @property
    def leads(self) -> bool:
        return self.elector.valid_for(0)

    def start(self) -> None:
        """Begin anew."""
        self.elector = self._new_elector()
        self._life = Freezing(self._live(), self._stepped)
        self._task = asyncio.ensure_future(self._life)

    def _new_elector(self) -> Elector:
        return Elector(self.cluster, self.clock, f"{self._name}_{next(self._lives)}", self._timings)

    async def _live(self) -> None:
        while True:
            self.terms.append(await self.elector.acquire())
            try:
                await self.elector.keep()
            except LeadershipLostError as lost:
                self.lost.append(str(lost))
                assert not self.elector.valid_for(0)
            self.elector = self._new_elector()

    def freeze(self) -> None:
        self._life.freeze()

    def thaw(self) -> None:
        self._life.thaw()

    async def kill(self) -> None:
        """SIGKILL: nothing is released, and nobody asks this elector any more."""
        self.thaw()
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled() and (error := self._task.exception()) is not None:
            raise error
        self.elector = self._new_elector()

    async def stop(self) -> None:
        """SIGTERM: release in order."""
        elector = self.elector
        await self.kill()
        await elector.release()
