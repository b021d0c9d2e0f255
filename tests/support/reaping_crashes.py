"""A control plane on which operators crash: candidates that ripen together, and what must hold after each crash.

A node's transition cannot lie before its creation, and no grace is shorter than a minute: so all candidates are
made at once, each under a person's word to keep it, and a test takes that word back from those that it needs.
"""

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from operators import NODES, PROFILES, ROOT, OperatorProcess, World, install
from proxy import Exchange, FaultProxy, Matches, When

from clusterconform.cli.demo.shipped import apply_file
from clusterconform.contract.lease import LEASE_PATH
from clusterconform.contract.names import (
    KEEP_ANNOTATION,
    LEASES_NAMESPACE,
    LEDGER_CONFIGMAP,
    LEDGER_KEY,
    NAMESPACE,
    SERVICE_ACCOUNT,
)
from clusterconform.decisions.ledger import LedgerEvent, LedgerLine, read_ledger, spent_since
from clusterconform.effects.clock import Clock
from clusterconform.sandbox.builder import Builder
from clusterconform.sandbox.control_plane import ControlPlane
from clusterconform.sandbox.nodes import agent_node, virtual_node

Json = dict[str, Any]

LEDGER: Final = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{LEDGER_CONFIGMAP}"
# A busy machine must not cost a leader its place where that is not what a test is about.
PATIENT: Final = ("--retry-period", "500ms")
HASTY: Final = ("--lease-duration", "6s", "--renew-deadline", "4.5s", *PATIENT)
WINDOW: Final = timedelta(hours=1)
MOST: Final = 100
# No addresses and no marks of a probe, so that what is read of a node is read by a pass.
_QUIET: Final[Json] = {
    "addressReconcile": {"mode": "Off"},
    "runtimeProbe": {"mode": "Off"},
}
_SETTINGS: Final[Json] = {
    "grace": "1m",
    "interval": "10s",
    "settle": "0s",
    "minUptime": "0s",
    "maxDeletes": MOST,
    "maxReapedPercentPerDay": 100,
    "maxStalePercent": 100,
}
_RIPE: Final = timedelta(seconds=62)


def now() -> datetime:
    return Clock().moment().wall


def kind_of(exchange: Exchange) -> str:
    """What a request of a pass is for; empty for one of anything else."""
    method, path = exchange.method, exchange.path
    if path == LEDGER:
        return f"{method} ledger"
    if path.startswith(f"{NODES}/") and path.count("/") == NODES.count("/") + 1:
        if method == "PATCH":
            return ""  # its identity, which is not a pass's business
        dry = method == "DELETE" and "dryRun" in (exchange.body or {})
        return "try" if dry else f"{method} node"
    return "GET lease" if f"/namespaces/{LEASES_NAMESPACE}/leases/" in path else ""


def of_a_pass(exchange: Exchange) -> bool:
    return kind_of(exchange) != ""


def is_a(kind: str) -> Matches:
    return lambda exchange: kind_of(exchange) == kind


def is_line(event: LedgerEvent) -> Matches:
    """A swap whose last line is of ``event``."""

    def matches(exchange: Exchange) -> bool:
        if kind_of(exchange) != "PUT ledger":
            return False
        entries = read_ledger(exchange.body["data"].get(LEDGER_KEY, ""))
        return bool(entries) and entries[-1].line is not None and entries[-1].line.event == event

    return matches


@dataclass
class Scene:
    """The control plane, two ways to it, and who must survive.

    Attributes:
        first, second: Proxies before the API server, each for one operator.
        uids: The uid of every node that was made.
        survivors: Names of those that nothing may delete.
    """

    plane: ControlPlane
    world: World
    first: FaultProxy
    second: FaultProxy
    uids: dict[str, str] = field(default_factory=dict)
    survivors: set[str] = field(default_factory=set)
    born: datetime = field(default_factory=now)
    _fresh: list[str] = field(default_factory=list)

    def make(self, raw: Json) -> str:
        stored = self.plane.admin.create(NODES, raw)
        name: str = stored["metadata"]["name"]
        self.uids[name] = stored["metadata"]["uid"]
        return name

    def populate(self, candidates: int) -> None:
        """Everybody at once."""
        at = now()
        dead = at + timedelta(seconds=2)

        def ghost(host: str, index: int = 0, **metadata: Json) -> str:
            raw = agent_node(host, index=index, now=at, silent_since=dead)
            for key, value in metadata.items():
                raw["metadata"][key] |= value
            return self.make(raw)

        self.survivors = {
            self.make(agent_node("alive", now=at)),
            self.make(virtual_node("ghost", "vk-podman", now=at, silent_since=dead)),
            ghost("kept", annotations={KEEP_ANNOTATION: "for ever"}),
            ghost("master", labels={"node-role.kubernetes.io/control-plane": ""}),
            ghost("stranger", labels={"outpost.dhnt.io/host": "somebody"}),
        }
        kept = {KEEP_ANNOTATION: "until it is needed"}
        self._fresh = [ghost("ghost", number, annotations=kept) for number in range(candidates)]
        self.born = now()

    def ripen(self) -> None:
        """Wait until all that look dead have been dead for long enough."""
        self.world.until(lambda: now() - self.born > _RIPE, "the dead have been dead for a minute", seconds=90)

    def take(self, count: int) -> list[str]:
        """Fresh candidates; they are left alone again by ``leave``."""
        taken, self._fresh = self._fresh[:count], self._fresh[count:]
        assert len(taken) == count, "too few candidates were made"
        for name in taken:
            self.world.patch(name, {"metadata": {"annotations": {KEEP_ANNOTATION: None}}})
        return taken

    def leave(self, names: Sequence[str]) -> None:
        """Keep those that are still there from all that follows."""
        for name in self.left(names):
            self.world.patch(name, {"metadata": {"annotations": {KEEP_ANNOTATION: "no longer needed"}}})

    def left(self, names: Sequence[str]) -> list[str]:
        present = {item["metadata"]["name"] for item in self.plane.admin.get(NODES)["items"]}
        return [name for name in names if name in present]

    def allow(self, more: int) -> None:
        """Let the budget allow ``more`` deletions than are spent; the rest of the settings is as always."""
        spec = {"nodeGC": {**_SETTINGS, "maxDeletes": min(self.spent() + more, MOST)}}
        self.plane.admin.patch(f"{PROFILES}/k3s", {"spec": spec})

    def data(self) -> dict[str, str]:
        data: dict[str, str] = self.plane.admin.get(LEDGER)["data"]
        return data

    def lines(self, names: Sequence[str]) -> list[LedgerLine]:
        """The ledger's lines on these nodes."""
        found = [entry.line for entry in read_ledger(self.data()[LEDGER_KEY])]
        return [line for line in found if line is not None and line.node in names]

    def told(self, names: Sequence[str]) -> list[tuple[str, int]]:
        """Events of those lines, each with its node's place in ``names``."""
        return [(line.event, names.index(line.node)) for line in self.lines(names)]

    def spent(self) -> int:
        return spent_since(read_ledger(self.data().get(LEDGER_KEY, "")), now() - WINDOW)

    def deletions(self) -> list[Any]:
        """The deletions that the API server has carried out for our account, from the audit log."""
        return [
            entry
            for entry in self.world.requests()
            if entry["verb"] == "delete"
            and entry["objectRef"]["resource"] == "nodes"
            and entry["responseStatus"]["code"] < 300
        ]

    def swaps(self) -> list[Any]:
        """The writes to the ledger that the API server has carried out for our account, from the audit log."""
        return [
            entry
            for entry in self.world.requests()
            if entry["verb"] in {"create", "update"}
            and entry["objectRef"].get("name") == LEDGER_CONFIGMAP
            and entry["responseStatus"]["code"] < 300
        ]

    def check(self) -> None:
        """Nobody was deleted wrongly, and the ledger tells the truth or errs on the side of spent budget."""
        present = {
            item["metadata"]["name"]: item["metadata"]["uid"] for item in self.plane.admin.get(NODES)["items"]
        }
        assert {name: present.get(name) for name in self.survivors} == {
            name: self.uids[name] for name in self.survivors
        }
        gone = {name for name in self.uids if name not in present}
        deleted = [entry["objectRef"]["name"] for entry in self.deletions()]
        assert sorted(deleted) == sorted(gone), "each that went was deleted once, and by us"
        lines = self.lines(list(self.uids))
        written = {(line.node, line.uid) for line in lines if line.event == LedgerEvent.INTENDED}
        assert {(name, self.uids[name]) for name in gone} <= written, "each was written down before"
        assert {line.node for line in lines if line.event == LedgerEvent.DELETED} <= gone, (
            "no line claims too much"
        )
        assert self.spent() >= len(gone), "each that went is spent"

    @contextmanager
    def running(self, proxy: FaultProxy, lease: Sequence[str] = PATIENT) -> Iterator[OperatorProcess]:
        """An operator behind ``proxy``, which stops in order or was killed, and leaves the Lease to the next."""
        process = OperatorProcess(proxy.kubeconfig, "--bound", "enforce", *lease)
        try:
            yield process
        finally:
            if process.running:
                process.kill(signal.SIGCONT)
            process.stop()
            self.vacate()

    def killed(self, matches: Matches, *, nth: int = 1, when: When) -> OperatorProcess:
        """Run an operator up to that request, kill it there, and leave the Lease to the next."""
        with self.running(self.first) as process:
            self.first.at(matches, lambda _: process.kill(signal.SIGKILL), nth=nth, when=when, cut=True)
            assert process.wait(60) == -signal.SIGKILL, process.rubbish
        return process

    def vacate(self) -> None:
        """Nobody leads any more: the one who did is dead, and need not be waited for."""
        self.plane.admin.patch(LEASE_PATH, {"spec": {"holderIdentity": ""}})

    def until_passed(self, process: OperatorProcess, passes: int = 1) -> None:
        """Wait until ``process`` has ended so many passes."""
        name = "clusterconform_reaping_passes_total"
        self.world.until(lambda: process.metric(name) >= passes, f"{passes} passes have ended", seconds=60)

    def until_gone(self, names: Sequence[str], left: int = 0, seconds: float = 60) -> None:
        self.world.until(lambda: len(self.left(names)) == left, f"{left} of {names} are left", seconds=seconds)

    @contextmanager
    def mended(self) -> Iterator[None]:
        """Afterwards put the ledger back as it was, with every line that was written meanwhile."""
        before, begun = self.data(), (len(self.first.exchanges), len(self.second.exchanges))
        try:
            yield
        finally:
            swaps = [*self.first.exchanges[begun[0] :], *self.second.exchanges[begun[1] :]]
            done = [swap for swap in swaps if kind_of(swap) == "PUT ledger" and swap.status == HTTPStatus.OK]
            texts = [swap.body["data"].get(LEDGER_KEY, "") for swap in done]
            lines = [line for text in texts for line in text.splitlines() if '"node":"' in line]
            kept = dict.fromkeys([*before[LEDGER_KEY].splitlines(), *lines])
            self.put_ledger({**before, LEDGER_KEY: "".join(f"{line}\n" for line in kept)})

    def put_ledger(self, data: dict[str, str]) -> None:
        """Make the ledger anew with ``data``."""
        if not self.world.gone(LEDGER):
            self.plane.admin.delete(LEDGER)
        metadata = {"name": LEDGER_CONFIGMAP, "namespace": NAMESPACE}
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        self.plane.admin.create(LEDGER.rpartition("/")[0], manifest)


@contextmanager
def crashing(builder: Builder, directory: Path, *, candidates: int) -> Iterator[Scene]:
    """Such a control plane, installed and seeded, with its first ledger and nobody who leads."""
    with ControlPlane(builder, audit=True) as plane:
        world = install(plane)
        for name in ("rbac.yaml", "admission.yaml"):
            apply_file(plane.admin, ROOT / "deploy" / "base" / name)
        account = plane.service_account_kubeconfig(NAMESPACE, SERVICE_ACCOUNT)
        with (
            FaultProxy(account, directory, name="first") as first,
            FaultProxy(account, directory, name="second") as second,
        ):
            scene = Scene(plane=plane, world=world, first=first, second=second)
            scene.populate(candidates)
            with scene.running(first) as process:
                process.await_ready()
                world.until(lambda: not world.gone(LEDGER), "the first ledger is made")
            plane.admin.patch(f"{PROFILES}/k3s", {"spec": {**_QUIET, "nodeGC": _SETTINGS}})
            assert scene.data()["complete"] == "true"
            yield scene
