"""A control plane around which things break, and what must hold of the operator on it meanwhile and afterwards.

The fleet lives of nothing: no program renews or misses its nodes, so every write to one is the operator's. Of
its dead agents one is reaped as soon as it may be, which spends the budget; the others are stale from then on and
held by nothing but what the operator remembers. A fault that makes it forget costs a node, and is seen.
"""

import itertools
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from operators import CRDS, NODES, PROFILES, PROGRAM, ROOT, OperatorProcess, World, install
from proxy import Exchange, FaultProxy

from clusterconform.cli.demo.shipped import apply_file
from clusterconform.contract.lease import LEASE_PATH
from clusterconform.contract.names import (
    APPROVE_ANNOTATION,
    CRD_NAME,
    KEEP_ANNOTATION,
    LEDGER_CONFIGMAP,
    NAMESPACE,
    SERVICE_ACCOUNT,
    STATE_CONFIGMAP,
)
from clusterconform.effects.clock import Clock
from clusterconform.sandbox.builder import Builder
from clusterconform.sandbox.control_plane import ControlPlane
from clusterconform.sandbox.nodes import agent_node, virtual_node

Json = dict[str, Any]

CRD: Final = f"{CRDS}/{CRD_NAME}"
LEDGER: Final = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{LEDGER_CONFIGMAP}"
STATE: Final = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{STATE_CONFIGMAP}"
# A busy machine must not cost the leader its place where that is not what a test is about.
PATIENT: Final = ("--retry-period", "500ms")
_SETTINGS: Final[Json] = {
    "grace": "1m",
    "interval": "10s",
    "settle": "0s",
    "minUptime": "0s",
    "maxDeletes": 1,
    "maxReapedPercentPerDay": 100,
    "maxStalePercent": 100,
}
_DEAD: Final = 4
_DRIFTERS: Final = 44
_RIPE: Final = timedelta(seconds=62)


def now() -> datetime:
    return Clock().moment().wall


def of_lease(exchange: Exchange) -> bool:
    return exchange.path == LEASE_PATH


def but_the_lease(exchange: Exchange) -> bool:
    return not of_lease(exchange)


def of_nodes(exchange: Exchange) -> bool:
    """A list or a watch of all nodes."""
    return exchange.path == NODES


def is_marks(exchange: Exchange) -> bool:
    """A write of labels and taints."""
    return exchange.method == "PATCH" and exchange.path.rpartition("/")[0] == NODES


@dataclass
class Scene:
    """The control plane, the operator on it, and who must survive.

    Attributes:
        proxy: Between the two.
        process: The operator; another one after ``restart``.
        uids: The uid of every node that was made at the beginning.
        survivors: Names of those that nothing may delete.
        dead: Names of those of which one may go.
        drifters: Virtual nodes, each for one drift: a mark that comes back three times is contested.
        drifted: Those of them that did.
        forgiven: How many requests need not have been allowed.
    """

    plane: ControlPlane
    world: World
    proxy: FaultProxy
    process: OperatorProcess
    settings: Json
    uids: dict[str, str]
    survivors: set[str]
    dead: list[str]
    drifters: Iterator[str]
    born: datetime = field(default_factory=now)
    forgiven: int = 0
    drifted: set[str] = field(default_factory=set)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    # --- what is seen ------------------------------------------------------------------------------------------

    def present(self) -> dict[str, str]:
        """The uids of all nodes by their names."""
        items = self.plane.admin.get(NODES)["items"]
        return {item["metadata"]["name"]: item["metadata"]["uid"] for item in items}

    def writes(self) -> list[Any]:
        """The writes to Nodes that the API server has carried out for our account, from the audit log."""
        return [
            entry
            for entry in self.world.requests()
            if entry.get("objectRef", {}).get("resource") == "nodes"
            and entry["verb"] not in {"get", "list", "watch"}
            and entry["responseStatus"]["code"] < HTTPStatus.MULTIPLE_CHOICES
        ]

    def reaping(self) -> Json:
        found: Json = self.world.profile("k3s").get("status", {}).get("nodeGC", {})
        return found

    def held(self) -> list[str]:
        """What holds each of the dead that is still there."""
        entries = self.reaping().get("held", [])
        return [entry["reason"] for entry in entries if entry["name"] in self.dead]

    def allowed(self) -> tuple[str, str]:
        return self.world.profile_condition("k3s", "ReapingAllowed")

    def is_settled(self) -> bool:
        """Whether all that the operator keeps to a profile is said to conform: nothing is left to be written."""
        items = self.plane.admin.get(NODES)["items"]
        said = {item["metadata"]["name"]: _condition(item) for item in items}
        kept = [name for name in said if name.startswith(("yew", "alive", "late"))]
        return all(said[name] == "True" for name in kept) and not {"False", "Unknown"} & set(said.values())

    # --- what must hold ----------------------------------------------------------------------------------------

    def check(self) -> None:
        """Nobody was deleted who should live, no virtual node got an address, and no right was missing."""
        present = self.present()
        assert {name: present.get(name) for name in self.survivors} == {
            name: self.uids[name] for name in self.survivors
        }
        gone = [name for name in self.dead if present.get(name) != self.uids[name]]
        assert len(gone) <= 1, "the budget allowed one"
        for exchange in self.proxy.exchanges:
            if exchange.path.startswith(f"{NODES}/") and "-vk-" in exchange.path:
                assert "addresses" not in str(exchange.body), exchange
        asked = self.world.requests()[self.forgiven :]
        refused = [
            (entry["verb"], entry["requestURI"])
            for entry in asked
            if entry["responseStatus"]["code"] == HTTPStatus.FORBIDDEN and entry["verb"] != "delete"
        ]
        assert refused == [], refused

    def forgive(self) -> None:
        """An API server that has just started refuses what it has not read the rights for yet."""
        self.forgiven = len(self.world.requests())

    @contextmanager
    def unharmed(self) -> Iterator[str]:
        """What must hold of a fault that lies in the block: gives a node that may be made to drift meanwhile.

        When the fault is over the operator is as good as before: what drifted during it is repaired, and what
        drifts after it, with one write each and none to any other node; a pass is made and told in the status;
        and nobody is gone.
        """
        during, after = next(self.drifters), next(self.drifters)
        begun = len(self.writes())
        yield during
        self.until_repaired(during)
        self.drift(after)
        self.until_repaired(after)
        self.until_passed()
        self.check()
        written = [entry["objectRef"]["name"] for entry in self.writes()[begun:]]
        assert written == [name for name in (during, after) if name in self.drifted], written

    def drift(self, name: str) -> None:
        """Somebody makes a virtual node an agent."""
        self.drifted.add(name)
        self.world.label(name, runtime="agent")

    def until_repaired(self, name: str, seconds: float = 90) -> None:
        self.world.until(
            lambda: self.world.labels(name)["runtime"] == "virtual", f"{name} is repaired", seconds=seconds
        )

    def until_passed(self, seconds: float = 90) -> None:
        """Wait until a reaping pass that began after now stands in the status.

        A pass is due at once when somebody approves a node; here one that nobody has ever seen.
        """
        before = self.reaping().get("lastPass", "")
        approved = f"nobody-{next(self._numbers)}/no-uid"
        change = {"metadata": {"annotations": {APPROVE_ANNOTATION: approved}}}
        self.plane.admin.patch(f"{PROFILES}/k3s", change)
        self.world.until(
            lambda: self.reaping().get("lastPass", "") > before, "a pass stands in the status", seconds=seconds
        )

    def ripen(self) -> None:
        """Wait until one of the dead is reaped and the others are held by the spent budget."""
        self.world.until(lambda: now() - self.born > _RIPE, "the dead have been dead for a minute", seconds=90)
        held = ["BudgetSpent"] * (len(self.dead) - 1)
        self.world.until(lambda: self.held() == held, "one is reaped, the others are held")
        self.check()

    # --- what is done ------------------------------------------------------------------------------------------

    def newcomer(self) -> None:
        """A node comes without its marks, gets them, and goes."""
        name = f"guest{next(self._numbers)}-vk-native"
        self.world.create(name, labels={"outpost.dhnt.io/backend": "vk-native"})
        self.world.until(
            # Watches that broke in an unusual way several times in a minute rest for a minute.
            lambda: self.world.labels(name).get("runtime") == "virtual",
            f"{name} is marked",
            seconds=240,
        )
        self.plane.admin.delete(f"{NODES}/{name}")

    def expel(self) -> None:
        """Whoever led is dead and need not be waited for."""
        self.plane.admin.patch(LEASE_PATH, {"spec": {"holderIdentity": ""}})

    def restart(self, meanwhile: Callable[[], None] = lambda: None, *, ready: bool = True) -> None:
        """Stop the operator in order, and start another."""
        assert self.process.stop() == 0, self.process.rubbish
        meanwhile()
        self.process = OperatorProcess(self.proxy.kubeconfig, "--bound", "enforce", *PATIENT)
        if ready:
            self.process.await_ready()

    def configure(self) -> None:
        """Edit the agent profile as the tests need it, once it is there."""
        self.world.until(lambda: not self.world.gone(f"{PROFILES}/k3s"), "the profiles are there")
        spec = {"nodeGC": self.settings, "runtimeProbe": {"mode": "Off"}}
        self.plane.admin.patch(f"{PROFILES}/k3s", {"spec": spec})


def _condition(item: Json) -> str:
    for seen in item["status"].get("conditions") or []:
        if seen["type"] == "RuntimeConformant":
            return str(seen["status"])
    return ""


def _populate(plane: ControlPlane) -> tuple[dict[str, str], set[str], list[str], list[str]]:
    """Everybody at once: uids by name, survivors, the dead, those that may drift."""
    at, uids = now(), dict[str, str]()
    silent = at + timedelta(seconds=2)

    def make(raw: Json, **metadata: Json) -> str:
        for key, value in metadata.items():
            raw["metadata"][key] |= value
        stored = plane.admin.create(NODES, raw)["metadata"]
        uids[stored["name"]] = stored["uid"]
        return str(stored["name"])

    def ghost(host: str, **metadata: Json) -> str:
        return make(agent_node(host, now=at, silent_since=silent), **metadata)

    survivors = {
        *(make(agent_node(f"alive{number}", now=at)) for number in range(3)),
        make(virtual_node("ghost", "vk-podman", now=at, silent_since=silent)),
        ghost("kept", annotations={KEEP_ANNOTATION: "for ever"}),
        ghost("master", labels={"node-role.kubernetes.io/control-plane": ""}),
        ghost("stranger", labels={"outpost.dhnt.io/host": "somebody"}),
    }
    drifters = [make(virtual_node(f"yew{number}", "vk-podman", now=at)) for number in range(_DRIFTERS)]
    return uids, survivors | set(drifters), [ghost(f"late{number}") for number in range(_DEAD)], drifters


@contextmanager
def chaotic(
    builder: Builder,
    directory: Path,
    *,
    lease: Sequence[str] = PATIENT,
    program: Sequence[str | Path] = (PROGRAM,),
    **changes: Any,
) -> Iterator[Scene]:
    """Such a control plane with an operator that enforces, everything settled; ``changes`` are to ``nodeGC``."""
    with ControlPlane(builder, audit=True) as plane:
        world = install(plane)
        for name in ("rbac.yaml", "admission.yaml"):
            apply_file(plane.admin, ROOT / "deploy" / "base" / name)
        account = plane.service_account_kubeconfig(NAMESPACE, SERVICE_ACCOUNT)
        with FaultProxy(account, directory, name="operator") as proxy:
            uids, survivors, dead, drifters = _populate(plane)
            process = OperatorProcess(proxy.kubeconfig, "--bound", "enforce", *lease, program=program)
            scene = Scene(
                plane=plane,
                world=world,
                proxy=proxy,
                process=process,
                settings={**_SETTINGS, **changes},
                uids=uids,
                survivors=survivors,
                dead=dead,
                drifters=iter(drifters),
            )
            try:
                process.await_ready()
                scene.configure()
                world.until(scene.is_settled, "all is settled", seconds=60)
                yield scene
            finally:
                if scene.process.running:
                    scene.process.kill(signal.SIGCONT)
                code = scene.process.stop()
            assert (code, scene.process.rubbish) == (0, []), (code, scene.process.rubbish)
            # Kopf tells at length of what it gave up, before it is started anew.
            own = [line for line in scene.process.lines if not line["logger"].startswith("kopf.")]
            bad = [line for line in own if "exception" in line]
            assert not bad, bad
