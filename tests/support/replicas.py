"""Two operators at once, each behind a proxy of its own: what befalls them, and what must hold all the same."""

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from http import HTTPStatus
from itertools import pairwise
from threading import Event
from typing import Any, Final

from operators import OperatorProcess
from proxy import Exchange, FaultProxy, Hold, Matches, When
from reaping_crashes import HASTY, Scene, is_a, kind_of, now

from clusterconform.contract.lease import LEASE, LEASE_PATH
from clusterconform.contract.names import LEDGER_CONFIGMAP, LEDGER_KEY, NAMESPACE, TERM_KEY
from clusterconform.decisions.ledger import LedgerEvent, read_ledger

# More renewals than fit into a Lease of HASTY.
_RENEWALS: Final = 15


class Kind(StrEnum):
    """What befalls an operator at one of its requests."""

    KILL = "kill"
    """It ends at once, and its connection with it."""
    PAUSE = "pause"
    """It stands still until another leads; what it had not sent by then is never sent."""
    CUT = "cut"
    """Its connection breaks."""


class Role(StrEnum):
    """Which of the two it is, as they stand before the first fault."""

    LEADER = "leader"
    STANDBY = "standby"


_REQUESTS: Final[Mapping[str, Matches]] = {
    "look": lambda exchange: (exchange.method, exchange.path) == ("GET", LEASE_PATH),
    "renewal": lambda exchange: (exchange.method, exchange.path) == ("PUT", LEASE_PATH),
    "claim": is_a("PUT ledger"),
    "node": is_a("GET node"),
    "witness": is_a("GET lease"),
    "deletion": is_a("DELETE node"),
}
_LINES: Final[Mapping[str, LedgerEvent]] = {"intention": LedgerEvent.INTENDED, "result": LedgerEvent.DELETED}
REQUESTS: Final = frozenset({*_REQUESTS, *_LINES})
"""By name. A standby's ``renewal`` is the one with which it takes the Lease, its ``claim`` its first write of the
ledger."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: what happens to whom, and at which end of which of its requests."""

    kind: Kind
    role: Role
    when: When
    request: str

    def __str__(self) -> str:
        return f"{self.kind} {self.role} {self.when.name.lower()} its {self.request}"


@dataclass
class Replica:
    """One of the two: its way to the API server, and its process of the moment."""

    proxy: FaultProxy
    process: OperatorProcess
    ended: bool = False
    frozen: bool = False

    @property
    def awake(self) -> bool:
        return not (self.ended or self.frozen)

    @property
    def leads(self) -> bool:
        return self.awake and self.process.metric("clusterconform_leader") == 1

    def end(self, number: signal.Signals) -> None:
        """Have it end by a signal; any other end is a fault of its own, and nothing starts it anew."""
        self.ended = True
        self.process.kill(number)

    def freeze(self) -> None:
        self.frozen = True
        self.process.kill(signal.SIGSTOP)


@dataclass
class _Armed:
    """A fault that waits for its request; each of a plan from the moment at which the one before happened."""

    fault: Fault
    replica: Replica
    then: "_Armed | None" = None
    since: datetime | None = None
    hit: Event = field(default_factory=Event)
    hold: Hold = field(default_factory=Hold)

    def matches(self, exchange: Exchange) -> bool:
        if self.since is None:
            return False
        if event := _LINES.get(self.fault.request):
            # Each pass writes the ledger once more at its end, whatever its last line is.
            return _tells(exchange, event, self.since)
        return _REQUESTS[self.fault.request](exchange)

    def arm(self) -> None:
        self.since = now()

    def call_off(self) -> None:
        self.since = None
        self.hold.release()

    def act(self, exchange: Exchange) -> None:
        if self.fault.kind is Kind.KILL:
            self.replica.end(signal.SIGKILL)
        elif self.fault.kind is Kind.PAUSE:
            self.replica.freeze()
        if self.then is not None:
            self.then.arm()
        self.hit.set()
        if self.fault.kind is Kind.PAUSE:
            self.hold(exchange)


def _tells(exchange: Exchange, event: LedgerEvent, since: datetime) -> bool:
    """Whether it writes a ledger whose last line is of ``event``, and later than ``since``."""
    if kind_of(exchange) != "PUT ledger":
        return False
    written = read_ledger(exchange.body["data"].get(LEDGER_KEY, ""))
    if not written or written[-1].line is None or written[-1].at is None:
        return False
    return written[-1].line.event == event and written[-1].at > since


class Pair:
    """The two, kept alive from fault to fault."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self._armed: list[_Armed] = []
        self.replicas = [Replica(proxy, self._started(proxy)) for proxy in (scene.first, scene.second)]

    @staticmethod
    def _started(proxy: FaultProxy) -> OperatorProcess:
        return OperatorProcess(proxy.kubeconfig, "--bound", "enforce", *HASTY)

    def whole(self) -> None:
        """Both run and are ready, one of them leads and has claimed the ledger, and no fault waits any more."""
        self.wake()
        self.revive()
        self.scene.world.until(self._settled, "one leads, has claimed the ledger, and both are ready", seconds=90)

    def _settled(self) -> bool:
        ready = all(replica.process.get("/readyz")[0] == HTTPStatus.OK for replica in self.replicas)
        if not ready or [replica.leads for replica in self.replicas].count(True) != 1:
            return False
        return self._is_claimed()

    def _is_claimed(self) -> bool:
        holder = self.scene.plane.admin.get(LEASE_PATH)["spec"]["holderIdentity"]
        return bool(holder) and _holder_of(self.scene.data()) == holder

    def revive(self) -> None:
        """Start anew whoever was ended."""
        for replica in self.replicas:
            if replica.ended:
                replica.process.wait()
                replica.process, replica.ended = self._started(replica.proxy), False

    def wake(self) -> None:
        """Let go on whoever stands still, and call off the faults that have not happened."""
        for armed in self._armed:
            armed.call_off()
        self._armed = []
        for replica in self.replicas:
            if replica.frozen and not replica.ended:
                replica.process.kill(signal.SIGCONT)
            replica.frozen = False

    def close(self) -> None:
        """End both."""
        self.wake()
        for replica in self.replicas:
            replica.process.stop()

    def one(self, role: Role) -> Replica:
        """The one that leads, or the other one."""
        leader, *others = sorted(self.replicas, key=lambda replica: not replica.leads)
        return leader if role is Role.LEADER else others[0]

    @contextmanager
    def struck(self, plan: Sequence[Fault]) -> Iterator[Callable[[], None]]:
        """Strike both with ``plan``; what the block calls waits until all of it has happened.

        Afterwards who stood still goes on, once another leads in its place, and who was killed is started anew.
        """
        roles = {role: self.one(role) for role in Role}
        self._armed = [_Armed(fault, roles[fault.role]) for fault in plan]
        for armed, then in pairwise(self._armed):
            armed.then = then
        for armed in self._armed:
            when = armed.fault.when
            cut = armed.fault.kind is not Kind.PAUSE or when is When.BEFORE
            armed.replica.proxy.at(armed.matches, armed.act, when=when, cut=cut)
        self._armed[0].arm()

        def await_all() -> None:
            for armed in self._armed:
                assert armed.hit.wait(60), f"never came: {armed.fault}"

        yield await_all
        leader, standby = roles[Role.LEADER], roles[Role.STANDBY]
        if leader.frozen and standby.awake:
            self.scene.world.until(lambda: standby.leads and self._is_claimed(), "the standby leads", seconds=60)
        if standby.frozen and leader.awake:
            self._await_renewals(leader.proxy)
        self.wake()
        self.revive()

    def _await_renewals(self, proxy: FaultProxy) -> None:
        """Wait for longer than a Lease lasts that nobody renews."""
        renewal = _REQUESTS["renewal"]
        most = len(proxy.seen(renewal)) + _RENEWALS
        self.scene.world.until(lambda: len(proxy.seen(renewal)) > most, "the leader goes on", seconds=60)

    def until_passed(self) -> None:
        """Wait until the one who leads has ended one more pass."""
        name = "clusterconform_reaping_passes_total"
        before = {id(replica.process): replica.process.metric(name) for replica in self.replicas}

        def passed() -> bool:
            return any(
                replica.leads and replica.process.metric(name) > before[id(replica.process)]
                for replica in self.replicas
            )

        self.scene.world.until(passed, "a pass has ended", seconds=60)


def _holder_of(data: Mapping[str, str]) -> str:
    number, _, rest = data.get(TERM_KEY, "").partition("/")
    return rest.rpartition("/")[0] if number else ""


def acted(scene: Scene) -> Iterator[tuple[str, str, str]]:
    """What the operators have done, in the API server's order: the deed, the one who did it, whose Lease it was.

    The deeds are writes to the ledger and deletions of nodes that the audit log shows as done. Who wrote the
    ledger stands in what was written; a deletion is the deed of whoever wrote last through the same proxy. The
    Lease is his whose name stood in it at that moment, by the same log; the bodies are the proxies'.
    """
    done = [(deed, entry) for entry in scene.world.requests() if (deed := _deed(entry))]
    sent: dict[str, tuple[FaultProxy, Exchange]] = {}

    def all_answered() -> bool:
        for proxy in (scene.first, scene.second):
            sent.update({exchange.audit: (proxy, exchange) for exchange in list(proxy.exchanges)})
        return all(entry["auditID"] in sent for _, entry in done)

    scene.world.until(all_answered, "the proxies have got the answers that the log tells of")
    last: dict[FaultProxy, str] = {}
    leader = ""
    for deed, entry in sorted(done, key=lambda pair: str(pair[1]["stageTimestamp"])):
        proxy, exchange = sent[entry["auditID"]]
        if deed == "lease":
            leader = str((exchange.body.get("spec") or {}).get("holderIdentity") or "")
            continue
        if deed == "ledger":
            last[proxy] = _holder_of(exchange.body["data"])
        yield f"{entry['verb']} {entry['objectRef'].get('name')}", last[proxy], leader


def _deed(entry: Mapping[str, Any]) -> str:
    """What an entry of the audit log is; empty where it is nothing of reaping or leadership, or was not done."""
    about, verb, code = entry.get("objectRef", {}), entry["verb"], entry["responseStatus"]["code"]
    if verb not in {"create", "update", "delete"} or code >= HTTPStatus.MULTIPLE_CHOICES:
        return ""
    if about["resource"] == "nodes" and verb == "delete":
        return "deletion"
    if about.get("namespace") != NAMESPACE:
        return ""
    if about["resource"] == "leases" and about.get("name", LEASE) == LEASE:
        return "lease"
    # The API server names an object that is created only in the answer.
    return "ledger" if about["resource"] == "configmaps" and about.get("name") == LEDGER_CONFIGMAP else ""


def check_holders(scene: Scene) -> None:
    """Whatever was done for reaping was done by the one whose name stood in the Lease, and no name came back.

    So no two terms' deeds are mixed, and no deed of an earlier term follows one of a later.
    """
    terms: list[str] = []
    for deed, who, leader in acted(scene):
        assert who == leader, f"{deed} by {who}, while {leader or 'nobody'} held the Lease"
        if not terms or terms[-1] != who:
            assert who not in terms, f"{deed} by {who}, after another's term"
            terms.append(who)
    assert terms
