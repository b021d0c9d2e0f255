"""An uninstall on a real API server: what we wrote is taken off, what was there before stays."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from operators import ROOT, World, install, operator

from clusterconform.cli.demo.shipped import apply_file
from clusterconform.cli.main import main
from clusterconform.sandbox.control_plane import ControlPlane

PROVIDER = ("virtual-kubelet.io/provider", "outpost", "NoSchedule")
MARKS = "outpost.dhnt.io/managed-marks"
FOREIGN: dict[str, Any] = {
    "labels": {"outpost.dhnt.io/backend": "vk-native", "example.com/zone": "a"},
    "annotations": {"example.com/note": "kept"},
    "taints": [{"key": "example.com/maintenance", "effect": "NoSchedule"}],
    "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "ExampleHealthy", "status": "True"}]},
}


def prune(plane: ControlPlane, *flags: str) -> Result:
    done = CliRunner().invoke(main, ["prune", "--kubeconfig", str(plane.kubeconfig), *flags])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


@pytest.fixture
def world(bare: ControlPlane) -> World:
    """A control plane of its own, since all nodes are pruned."""
    world = install(bare)
    for name in ("rbac.yaml", "admission.yaml"):
        apply_file(bare.admin, ROOT / "deploy" / "base" / name)
    return world


def test_an_uninstall_leaves_each_node_as_others_made_it(bare: ControlPlane, world: World) -> None:
    account = bare.service_account_kubeconfig("clusterconform-system", "clusterconform")
    before = world.create("mint-vk-native", **FOREIGN)
    # Without any sign of what it is, it would be given an address like an agent.
    untouched = world.create("sage", labels={"type": "virtual-kubelet"})
    with operator(account, "--bound", "enforce"):
        world.until_condition("mint-vk-native", "True", "Conforms")
        assert PROVIDER in world.taints("mint-vk-native")
        refused = prune(bare, "--yes")
        assert refused.exit_code == 1
        assert "leads and would put everything back" in refused.stderr
    shown = prune(bare)
    assert shown.exit_code == 0
    assert "mint-vk-native" in shown.stdout
    assert MARKS in world.node("mint-vk-native")["metadata"]["annotations"]
    done = prune(bare, "--yes")
    assert done.exit_code == 0, done.output
    after = world.node("mint-vk-native")
    for part in ("labels", "annotations"):
        assert after["metadata"][part] == before["metadata"][part]
    assert world.taints("mint-vk-native") == [("example.com/maintenance", "", "NoSchedule")] + [
        (taint["key"], taint.get("value", ""), taint["effect"])
        for taint in before["spec"]["taints"]
        if taint["key"].startswith("node.kubernetes.io/")
    ]
    assert [seen["type"] for seen in after["status"]["conditions"]] == ["Ready", "ExampleHealthy"]
    assert world.node("sage")["metadata"]["resourceVersion"] == untouched["metadata"]["resourceVersion"]
    assert prune(bare, "--yes").stdout == "no node carries a mark of ours\n"


def test_kubectl_finds_us_as_a_plugin() -> None:
    program = shutil.which("kubectl") or shutil.which("kubectl", path=sysconfig.get_path("scripts"))
    assert program is not None
    place = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [program, "conform", "matrix", "-o", "json"],
        env={**os.environ, "PATH": place},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == CliRunner().invoke(main, ["matrix", "-o", "json"]).stdout
