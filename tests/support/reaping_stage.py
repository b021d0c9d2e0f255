"""A control plane with everything that is shipped, a fleet that can die on it, and what reaping made of it."""

import itertools
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from operators import NODES, PROFILES, PROGRAM, ROOT, World, install

from clusterconform.cli.demo.shipped import apply_file
from clusterconform.contract.times import format_time, parse_time
from clusterconform.effects.clock import Clock
from clusterconform.sandbox.builder import Builder
from clusterconform.sandbox.command_lines import NodeLifecycle
from clusterconform.sandbox.control_plane import ControlPlane
from clusterconform.sandbox.fleet import Fleet
from clusterconform.sandbox.kwok import kept_alive
from clusterconform.sandbox.nodes import agent_name, agent_node

LEDGER = "/api/v1/namespaces/clusterconform-system/configmaps/clusterconform-ledger"
SHORT = {
    "grace": "1m",
    "interval": "10s",
    "settle": "0s",
    "minUptime": "0s",
    "maxDeletes": 100,
    "maxReapedPercentPerDay": 100,
}
HOSTS = ("alder", "birch", "cedar", "elm", "hazel", "larch")


def now() -> datetime:
    return Clock().moment().wall


@dataclass
class Stage:
    """A control plane with everything that is shipped, and a fleet."""

    plane: ControlPlane
    world: World
    fleet: Fleet
    account: Path

    def settings(self, **changes: Any) -> None:
        """Edit the agent profile as an operator would."""
        self.world.until(lambda: not self.world.gone(f"{PROFILES}/k3s"), "the profiles are seeded")
        self.plane.admin.patch(f"{PROFILES}/k3s", {"spec": {"nodeGC": {**SHORT, **changes}}})

    def dead(self, host: str, *, index: int = 0, **metadata: Any) -> str:
        """An agent that is missed from its first second on; its name."""
        at = now()
        raw = agent_node(host, index=index, now=at, silent_since=at + timedelta(seconds=2))
        for key, value in metadata.items():
            raw["metadata"][key] = {**raw["metadata"].get(key, {}), **value}
        name: str = self.plane.admin.create(NODES, raw)["metadata"]["name"]
        return name

    def alive(self, *hosts: str) -> list[str]:
        """Agents that kwok keeps alive; their names."""
        self.fleet.create_nodes(kept_alive(agent_node(host, now=now())) for host in hosts)
        names = [agent_name(host, 0) for host in hosts]
        self.fleet.await_ready(names)
        return names

    def names(self) -> set[str]:
        return {item["metadata"]["name"] for item in self.plane.admin.get(NODES)["items"]}

    def lines(self, event: str = "") -> list[Mapping[str, Any]]:
        """The ledger, or its lines of one event."""
        if self.world.gone(LEDGER):
            return []
        text = self.plane.admin.get(LEDGER)["data"]["ledger.jsonl"]
        lines = [msgspec.json.decode(line) for line in text.splitlines()]
        return [line for line in lines if event in {"", line["event"]}]

    def reap(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """What ``clusterconform reap`` does for the administrator."""
        return subprocess.run(
            [PROGRAM, "reap", "--kubeconfig", str(self.plane.kubeconfig), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

    def reaping(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.world.profile("k3s").get("status", {}).get("nodeGC", {})
        return found

    def held(self) -> dict[str, str]:
        return {entry["name"]: entry["reason"] for entry in self.reaping().get("held", [])}

    def allowed(self) -> tuple[str, str]:
        return self.world.profile_condition("k3s", "ReapingAllowed")

    def deletions(self) -> list[str]:
        """The nodes that our account has deleted, from the audit log; a mere dry run left its node there."""
        left = self.names()
        asked = [
            entry["objectRef"]["name"]
            for entry in self.world.requests()
            if entry["verb"] == "delete"
            and entry["objectRef"]["resource"] == "nodes"
            and entry["responseStatus"]["code"] < 300
            and entry["objectRef"]["name"] not in left
        ]
        return list(dict.fromkeys(asked))

    def events(self, reason: str) -> list[str]:
        """The nodes that Events of this reason on a profile tell of."""
        events = self.plane.admin.get("/api/v1/namespaces/default/events")["items"]
        told = [
            seen
            for seen in events
            if seen["reason"] == reason and seen["involvedObject"]["kind"] == "RuntimeProfile"
        ]
        return [seen["message"].split(":")[0].removeprefix("node ") for seen in told]

    @contextmanager
    def slow_kubelet(self, name: str) -> Iterator[None]:
        """A kubelet that lives and is not Ready, and whose clock is slow: node and Lease tell an old time.

        It moves a little, or the node lifecycle controller would miss it.
        """
        stood = self.world.node(name)["metadata"]["creationTimestamp"]
        began = parse_time(stood)
        assert began is not None
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": "kube-node-lease"},
            "spec": {"holderIdentity": name, "renewTime": stood.replace("Z", ".000000Z")},
        }
        self.plane.admin.create("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", lease)
        ended, beats = threading.Event(), itertools.count()

        def beat() -> None:
            while not ended.wait(2):
                ready = {
                    "type": "Ready",
                    "status": "False",
                    "reason": "KubeletNotReady",
                    "message": "slow",
                    "lastTransitionTime": stood,
                    "lastHeartbeatTime": format_time(began + timedelta(seconds=next(beats))),
                }
                self.plane.admin.request(
                    "PATCH",
                    f"{NODES}/{name}/status?fieldManager=k3s",
                    {"status": {"conditions": [ready]}},
                    content_type="application/strategic-merge-patch+json",
                )

        thread = threading.Thread(target=beat)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


@contextmanager
def staged(builder: Builder) -> Iterator[Stage]:
    """Such a control plane of one's own, with a node lifecycle controller that misses a node after 20 seconds."""
    with ControlPlane(builder, audit=True) as plane:
        plane.start_controller_manager(NodeLifecycle(monitor_period=1, monitor_grace_period=20))
        world = install(plane)
        for name in ("rbac.yaml", "admission.yaml"):
            apply_file(plane.admin, ROOT / "deploy" / "base" / name)
        fleet = Fleet(plane)
        fleet.start_kwok()
        account = plane.service_account_kubeconfig("clusterconform-system", "clusterconform")
        yield Stage(plane=plane, world=world, fleet=fleet, account=account)
