"""Somebody who walks through docs/install.md: runs its blocks, and plays the pods that no container runs here.

They run with the arguments of the Deployment as it is stored, under its ServiceAccount.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from docs_blocks import INSTALL, section
from operators import OperatorProcess, World
from shell import Shell

from clusterconform.sandbox.control_plane import ControlPlane

Json = dict[str, Any]

DEPLOYMENT: Final = "/apis/apps/v1/namespaces/clusterconform-system/deployments/clusterconform"


class Walk(Shell):
    """Somebody at a shell, and the pods of the Deployment."""

    def __init__(self, plane: ControlPlane, place: Path, *programs: Path) -> None:
        """Stand at a shell at home in ``place``, where ``programs`` can be called beside the usual ones."""
        super().__init__(plane.kubeconfig, place, *programs)
        self.plane, self.world = plane, World(plane)
        self.pods: list[OperatorProcess] = []

    def section(self, title: str) -> list[str]:
        """Run the blocks of a section one after another; what each printed."""
        return [self.run(block) for block in section(INSTALL, title)]

    def roll_out(self) -> None:
        """Replace the processes by as many as the Deployment wants, with its arguments, one after another."""
        spec = self.plane.admin.get(DEPLOYMENT)["spec"]
        pod = spec["template"]["spec"]
        (container,) = pod["containers"]
        account = self.plane.service_account_kubeconfig("clusterconform-system", pod["serviceAccountName"])
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


def marks(node: Json) -> Json:
    """What the operator may write on a node, addresses apart, and what it leaves behind if it leaves a trace."""
    conditions = [seen for seen in node["status"].get("conditions", []) if seen["type"] == "RuntimeConformant"]
    # The node lifecycle controller has a say too: taints and labels of its own come and go.
    taints = [taint for taint in node["spec"].get("taints", []) if "node.kubernetes.io" not in taint["key"]]
    labels = {key: value for key, value in node["metadata"]["labels"].items() if "kubernetes.io" not in key}
    annotations = {key for key in node["metadata"].get("annotations", {}) if "outpost" in key}
    return {"conditions": conditions, "taints": taints, "labels": labels, "annotations": annotations}
