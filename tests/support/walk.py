"""Somebody who walks through docs/install.md: runs its blocks, and plays the pods that no container runs here.

They run with the arguments of the Deployment as it is stored, under its ServiceAccount.
"""

import os
import re
import subprocess
import sysconfig
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from deployment import kubectl_program
from operators import ROOT, OperatorProcess, World

from clusterconform.sandbox.control_plane import ControlPlane

Json = dict[str, Any]

PAGE: Final = (ROOT / "docs" / "install.md").read_text()
DEPLOYMENT: Final = "/apis/apps/v1/namespaces/clusterconform-system/deployments/clusterconform"


def blocks(title: str) -> list[str]:
    """The blocks of one section that are walked through."""
    section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    return re.findall(r"(?ms)^```sh\n(.*?)^```$", section)


class Walk:
    """Somebody at a shell, and the pods of the Deployment."""

    def __init__(self, plane: ControlPlane, place: Path, *programs: Path) -> None:
        """Stand at a shell at home in ``place``, where ``programs`` can be called beside the usual ones."""
        self.plane, self.world = plane, World(plane)
        folders = [sysconfig.get_path("scripts"), *(str(one.parent) for one in programs)]
        self._environment = {
            **os.environ,
            "PATH": os.pathsep.join([*folders, str(Path(kubectl_program()).parent), os.environ["PATH"]]),
            "KUBECONFIG": str(plane.kubeconfig),
            "HOME": str(place),
        }
        self.pods: list[OperatorProcess] = []

    def run(self, block: str) -> str:
        """What a block prints."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block],
            cwd=ROOT,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, f"{block}{done.stdout}{done.stderr}"
        return done.stdout

    def section(self, title: str) -> list[str]:
        """Run the blocks of a section one after another; what each printed."""
        return [self.run(block) for block in blocks(title)]

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
