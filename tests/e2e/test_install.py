"""docs/install.md, walked through: each block is run, and the operator's processes play its pods.

They run with the arguments of the Deployment as it is stored, under the shipped ServiceAccount.
"""

import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from docs_blocks import INSTALL, section
from operators import NODES, PROFILES, OperatorProcess, World
from shell import Shell

from clusterconform.sandbox.builder import Builder
from clusterconform.sandbox.control_plane import ControlPlane
from clusterconform.sandbox.nodes import agent_node, virtual_node

Json = dict[str, Any]

DEPLOYMENT: Final = "/apis/apps/v1/namespaces/clusterconform-system/deployments/clusterconform"


def blocks(title: str) -> list[str]:
    """The blocks of one section that are walked through."""
    return section(INSTALL, title)


class Walk(Shell):
    """Somebody at a shell, and the pods of the Deployment."""

    def __init__(self, plane: ControlPlane, place: Path) -> None:
        super().__init__(plane.kubeconfig, place)
        self.plane, self.world = plane, World(plane)
        self.pods: list[OperatorProcess] = []

    def section(self, title: str) -> list[str]:
        """Run the blocks of a section one after another; what each printed."""
        return [self.run(block) for block in blocks(title)]

    def roll_out(self) -> None:
        """Replace the processes by as many as the Deployment wants, with its arguments, one after another."""
        spec = self.plane.admin.get(DEPLOYMENT)["spec"]
        (container,) = spec["template"]["spec"]["containers"]
        account = self.plane.service_account_kubeconfig("clusterconform-system", "clusterconform")
        old, self.pods = self.pods, []
        for _ in range(spec["replicas"]):
            self.pods.append(OperatorProcess(account, *flags(container["args"])))
            self.pods[-1].await_ready()
            if old:
                assert old.pop(0).stop() == 0
        for process in old:
            assert process.stop() == 0

    def drifted(self, profile: str) -> int | None:
        """How many nodes of a profile have drifted by its status; None where it has none yet."""
        count: int | None = self.world.profile(profile).get("status", {}).get("nodes", {}).get("drifted")
        return count

    def leader(self) -> OperatorProcess:
        """The process that leads."""
        self.world.until(lambda: len(self._leading()) == 1, "one leads", seconds=60)
        return self._leading()[0]

    def _leading(self) -> list[OperatorProcess]:
        return [pod for pod in self.pods if pod.running and pod.metric("clusterconform_leader") == 1]

    def close(self) -> None:
        """Stop what still runs."""
        with ExitStack() as stack:
            for process in self.pods:
                stack.callback(process.stop)


def flags(arguments: Sequence[str]) -> list[str]:
    """The flags of the Deployment's container without the one that tells where to listen."""
    assert arguments[0] == "run"
    return [word for word in arguments[1:] if not word.startswith("--listen")]


@pytest.fixture
def walk(builder: Builder, tmp_path: Path) -> Iterator[Walk]:
    with ControlPlane(builder, audit=True) as plane:
        plane.start_controller_manager()
        walk = Walk(plane, tmp_path)
        try:
            yield walk
        finally:
            walk.close()


def marks(node: Json) -> Json:
    """What the operator may write on a node, addresses apart, and what it leaves behind if it leaves a trace."""
    conditions = [seen for seen in node["status"].get("conditions", []) if seen["type"] == "RuntimeConformant"]
    # The node lifecycle controller has a say too: taints and labels of its own come and go.
    taints = [taint for taint in node["spec"].get("taints", []) if "node.kubernetes.io" not in taint["key"]]
    labels = {key: value for key, value in node["metadata"]["labels"].items() if "kubernetes.io" not in key}
    annotations = {key for key in node["metadata"].get("annotations", {}) if "outpost" in key}
    return {"conditions": conditions, "taints": taints, "labels": labels, "annotations": annotations}


@pytest.mark.timeout(500)
def test_the_page_can_be_walked_through(walk: Walk) -> None:
    world, admin = walk.world, walk.plane.admin
    at = datetime.now(UTC)  # noqa: TID251 - the programs live in real time
    drifted = virtual_node("oak", "vk-podman", now=at)
    drifted["metadata"]["labels"].pop("outpost.dhnt.io/runtime")
    drifted["spec"]["taints"] = []
    names = [
        admin.create(NODES, raw)["metadata"]["name"]
        for raw in (drifted, virtual_node("ash", "vk-native", now=at), agent_node("elm", now=at))
    ]
    before = {name: marks(world.node(name)) for name in names}

    first, *looks = blocks("1. Look")
    walk.run(first)
    walk.roll_out()
    walk.leader()
    world.until(lambda: not world.gone(f"{PROFILES}/vk-podman"), "the profiles are seeded")
    world.until(lambda: walk.drifted("vk-podman") == 1, "it sees the drift")
    shown = [walk.run(block) for block in looks]
    assert "vk-podman" in shown[0]
    assert f"/api/v1/nodes/{drifted['metadata']['name']}" in shown[1]
    assert {name: marks(world.node(name)) for name in names} == before
    writes = [entry for name in names for entry in world.writes_to(name)]
    assert writes == []

    walk.section("2. Act")
    walk.roll_out()
    world.until_condition("oak-vk-podman", "True", "Conforms", seconds=60)
    assert world.labels("oak-vk-podman")["runtime"] == "virtual"

    (holder,) = walk.section("3. Lose the leader")
    assert holder
    lost = walk.leader()
    lost.kill(signal.SIGKILL)
    assert lost.wait() == -signal.SIGKILL
    world.label("oak-vk-podman", runtime="agent")
    world.until(lambda: world.labels("oak-vk-podman")["runtime"] == "virtual", "its heir repairs", seconds=60)
    walk.pods.remove(lost)
    assert walk.section("3. Lose the leader") not in ([holder], [""])

    walk.section("4. Upgrade")
    walk.roll_out()
    walk.leader()
    world.until_condition("oak-vk-podman", "True", "Conforms", seconds=60)

    scale, *rest = blocks("5. Uninstall")[0].splitlines()
    walk.run(scale)
    walk.roll_out()
    assert walk.pods == []
    for command in rest:
        walk.run(command)
    assert {name: marks(world.node(name)) for name in names} == before
    assert world.gone("/api/v1/namespaces/clusterconform-system")
    assert not admin.answers(PROFILES)
    left = walk.run("kubectl get clusterroles,clusterrolebindings,validatingadmissionpolicies -o name")
    left += walk.run("kubectl get validatingadmissionpolicybindings,roles,rolebindings -A -o name")
    assert "clusterconform" not in left
