"""A mixed fleet on a control plane: imitated agents, virtual nodes, and one real one of each kind.

Imitated agents are kept alive by kwok, virtual nodes by ``Heartbeats``, the others by their own programs. So
each kind can be silenced in the way in which it falls silent in life.
"""

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Final

from clusterconform.sandbox.admin import RequestRefused
from clusterconform.sandbox.control_plane import ControlPlane
from clusterconform.sandbox.kubelets import start_hollow_kubelet, start_virtual_kubelet
from clusterconform.sandbox.kwok import KEPT_ALIVE, kept_alive, write_configuration
from clusterconform.sandbox.nodes import agent_name, agent_node, virtual_node, wire_time
from clusterconform.sandbox.parts import KWOK, VIRTUAL_KUBELET
from clusterconform.sandbox.programs import Program
from clusterconform.sandbox.waiting import wait_until

HOSTS: Final = ("alder", "birch", "cedar", "elm", "hazel", "larch", "maple", "rowan")
VIRTUAL_BACKENDS: Final = ("vk-podman", "vk-native", "vk-ollama")
STOCK_NODE: Final = "stock-virtual-kubelet"

_READY_SECONDS: Final = 120.0
_PING_SECONDS: Final = 10.0  # contract §6.2: how often a virtual node's status is patched
_CREATORS: Final = 8  # requests at a time; more are no faster on a small machine
_VIRTUAL_SHARE: Final = 5  # one node in five is virtual


class Heartbeats:
    """Keeps virtual nodes alive as contract §6.2 says: Ready is forced True, its transition is always now."""

    def __init__(self, plane: ControlPlane) -> None:
        """Prepare; the thread starts with the first node."""
        self._plane = plane
        self._names: set[str] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeats", daemon=True)

    def keep(self, names: Iterable[str]) -> None:
        """Keep these nodes alive from now on."""
        self._names = self._names | set(names)
        if not self._thread.is_alive() and not self._ended.is_set():
            self._thread.start()

    def silence(self, names: Iterable[str]) -> None:
        """Send no more heartbeats for these nodes."""
        self._names = self._names - set(names)

    def close(self) -> None:
        """End the thread. May be called again."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _beat(self) -> None:
        while not self._ended.is_set():
            for name in sorted(self._names):
                if self._ended.is_set():
                    return
                self._beat_once(name)
            self._ended.wait(_PING_SECONDS)

    def _beat_once(self, name: str) -> None:
        moment = wire_time(datetime.now(UTC))  # noqa: TID251 - a sandbox lives in real time
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "outpost vknode is ready",
            "lastHeartbeatTime": moment,
            "lastTransitionTime": moment,
        }
        try:
            self._plane.admin.request(
                "PATCH",
                f"/api/v1/nodes/{name}/status",
                {"status": {"conditions": [ready]}},
                content_type="application/strategic-merge-patch+json",
            )
        except (RequestRefused, OSError):
            # A deleted node is not made anew, and a silent API server is somebody's experiment: try next
            # time.
            return


class Fleet:
    """The nodes of a sandbox and what keeps them alive; all of it ends with the control plane."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.kwok: Program | None = None
        self.kwok_port: int | None = None
        self.heartbeats = Heartbeats(plane)
        plane.at_end(self.heartbeats.close)

    def start_kwok(self, *, broken: Collection[str] = ()) -> Program:
        """Start kwok, and wait until it is healthy; a running one is replaced.

        It keeps alive the nodes that were made by ``kept_alive``, and runs their pods. ``kwok_port`` is then
        the port on 127.0.0.1 where it answers, with TLS, for the kubelets of all its nodes.

        Args:
            broken: names of nodes on which pods never become ready.

        Raises:
            PartUnavailable: kwok is nowhere and cannot be built.
            SandboxFailed: it ended, or was not healthy in time.
        """
        if self.kwok is not None:
            self.kwok.kill()
        plane, room, port = self.plane, self.plane.folder("kwok"), self.plane.ports.take()
        certificate, key = plane.authority.server("kwok").write(room, "kwok")
        command = [
            str(plane.builder.provide(KWOK)),
            f"--config={write_configuration(room, broken=broken)}",
            f"--kubeconfig={plane.kubeconfig_for('sandbox:kwok', ['system:masters'])}",
            f"--server-address=127.0.0.1:{port}",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
            "--v=WARN",  # it would write a line for each renewal of each lease
        ]
        kwok = plane.programs.start("kwok", command, environment={"TMPDIR": str(room), "HOME": str(room)})
        plane.await_health(kwok, port)
        self.kwok, self.kwok_port = kwok, port
        return kwok

    def create_nodes(self, manifests: Iterable[Mapping[str, Any]], *, parallel: int = _CREATORS) -> None:
        """Create Node objects, ``parallel`` requests at a time.

        Raises:
            RequestRefused: the API server did not accept one of them.
        """
        with ThreadPoolExecutor(max_workers=parallel, thread_name_prefix="creator") as creators:
            for _ in creators.map(
                lambda manifest: self.plane.admin.create("/api/v1/nodes", dict(manifest)), manifests
            ):
                pass

    def start_hollow_kubelet(
        self,
        name: str,
        *,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> Program:
        """Start a real kubelet without containers (see ``kubelets.start_hollow_kubelet``)."""
        return start_hollow_kubelet(self.plane, name, labels=labels, annotations=annotations)

    def start_virtual_kubelet(self, name: str = STOCK_NODE) -> Program:
        """Start a stock virtual-kubelet (see ``kubelets.start_virtual_kubelet``)."""
        return start_virtual_kubelet(self.plane, name)

    def silence(self, names: Sequence[str]) -> None:
        """Let imitated agents and virtual nodes fall silent, as if their machines had been switched off."""
        self.heartbeats.silence(names)
        key, _ = KEPT_ALIVE
        for name in names:
            self.plane.admin.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {key: None}}})

    def revive(self, names: Sequence[str]) -> None:
        """Let imitated agents come back after ``silence`` (virtual nodes: ``heartbeats.keep``)."""
        key, value = KEPT_ALIVE
        for name in names:
            self.plane.admin.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {key: value}}})

    def ready(self) -> set[str]:
        """Give the names of all nodes whose Ready condition is True."""
        nodes = self.plane.admin.get("/api/v1/nodes?resourceVersion=0")["items"]
        return {node["metadata"]["name"] for node in nodes if _is_ready(node)}

    def await_ready(self, names: Iterable[str], *, seconds: float = _READY_SECONDS) -> None:
        """Wait until all these nodes are Ready.

        Raises:
            SandboxFailed: they are not after so many seconds, or a program of the sandbox has ended.
        """
        wanted = set(names)
        wait_until(
            lambda: wanted <= self.ready(),
            what=f"{len(wanted)} nodes are ready",
            seconds=seconds,
            programs=self.plane.programs.running,
            pause=0.2,
        )


def mixed_fleet(plane: ControlPlane, size: int = 40) -> Fleet:
    """Put a fleet on a control plane and wait until all of it is Ready.

    It consists of imitated agents, virtual nodes of all backends (about one node in five), one real kubelet
    without containers, which is labelled as an agent, and one stock virtual-kubelet, which knows nothing of
    our labels.

    Args:
        plane: a running control plane.
        size: number of nodes, at least 4.

    Raises:
        PartUnavailable: a program is nowhere and cannot be built.
        SandboxFailed: something ended, or the nodes were not ready in time.
    """
    plane.builder.start([plane.builder.kubernetes.kubelet, KWOK, VIRTUAL_KUBELET])
    fleet = Fleet(plane)
    agents, virtual = fleet_manifests(size - 2, now=datetime.now(UTC))  # noqa: TID251 - a sandbox lives in real time
    fleet.create_nodes([*map(kept_alive, agents), *virtual])
    fleet.heartbeats.keep(node["metadata"]["name"] for node in virtual)
    fleet.start_kwok()
    model = agent_node("oak", now=datetime.now(UTC))["metadata"]  # noqa: TID251 - a sandbox lives in real time
    hollow = agent_name("oak", 0)
    fleet.start_hollow_kubelet(hollow, labels=_own_labels(model), annotations=model["annotations"])
    fleet.start_virtual_kubelet(STOCK_NODE)
    names = [node["metadata"]["name"] for node in (*agents, *virtual)]
    fleet.await_ready([*names, hollow, STOCK_NODE])
    return fleet


def fleet_manifests(size: int, *, now: datetime) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Describe ``size`` nodes spread over the hosts: agents, and one virtual node in five."""
    pairs = [(host, backend) for backend in VIRTUAL_BACKENDS for host in HOSTS]
    count = min(max(1, size // _VIRTUAL_SHARE), len(pairs))
    virtual = [virtual_node(host, backend, now=now) for host, backend in pairs[:count]]
    agents = [
        agent_node(base_name(index), HOSTS[index % len(HOSTS)], index=index, now=now)
        for index in range(size - count)
    ]
    return agents, virtual


def base_name(index: int) -> str:
    """The base name of the agent with this number: a host's second agent has one of its own.

    Two live agents of one base name would derive the same kubelet port.
    """
    host, turn = HOSTS[index % len(HOSTS)], index // len(HOSTS)
    return f"{host}-{turn + 1}" if turn else host


def _own_labels(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Keep the labels that a kubelet may register with: those outside of Kubernetes' own domains."""
    return {key: value for key, value in metadata["labels"].items() if "kubernetes.io/" not in key}


def _is_ready(node: Mapping[str, Any]) -> bool:
    conditions = node["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
