"""The blocks of README and docs that need a cluster, run one after another by somebody at a shell.

docs/install.md has a walk of its own (test_install.py), and its steps with Helm one in test_chart.py.
"""

import json
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from docs_blocks import block
from operators import NODES, PROFILES, ROOT, OperatorProcess, World, operator
from shell import Shell

from clusterconform.sandbox.builder import Builder
from clusterconform.sandbox.control_plane import ControlPlane
from clusterconform.sandbox.nodes import agent_name, agent_node, virtual_node

AGENT, VIRTUAL = agent_name("elm", 0), "oak-vk-podman"
FENCED = "ValidatingAdmissionPolicy 'clusterconform-fence-delete' with binding"


@pytest.fixture
def plane(builder: Builder) -> Iterator[ControlPlane]:
    with ControlPlane(builder, audit=True) as plane:
        plane.start_controller_manager()
        yield plane


@contextmanager
def started(command: str, plane: ControlPlane) -> Iterator[OperatorProcess]:
    """The operator as ``command`` starts it: with its flags, in the background."""
    program, run, *flags = shlex.split(command)
    assert (program, run) == (".venv/bin/clusterconform", "run")
    assert flags[:2] == ["--kubeconfig", "~/.kube/config"]
    with operator(plane.kubeconfig, *flags[2:]) as process:
        yield process


@pytest.mark.timeout(400)
def test_the_blocks_that_need_a_cluster_do_what_the_pages_say(plane: ControlPlane, tmp_path: Path) -> None:
    world, shell = World(plane), Shell(plane.kubeconfig, tmp_path)
    at = datetime.now(UTC)  # noqa: TID251 - the programs live in real time
    drifted = virtual_node("oak", "vk-podman", now=at)
    drifted["metadata"]["labels"]["outpost.dhnt.io/runtime"] = "agent"
    for raw in (drifted, agent_node("elm", now=at)):
        world.admin.create(NODES, raw)

    apply, look = block("README.md", "kubectl apply -f crds/runtimeprofiles.yaml").splitlines()
    shell.run(apply)
    world.until(lambda: world.admin.answers(PROFILES), "the CRD is served")
    with started(look, plane):
        world.until(lambda: not world.gone(f"{PROFILES}/vk-podman"), "the profiles are seeded")
        shell.run("kubectl apply -f -", block("README.md", "apiVersion: outpost.dhnt.io/v1alpha1"))
        world.until(lambda: world.profile_condition("vk-wasm", "Accepted")[0] == "True", "a further backend")
        answer = json.loads(shell.run(block("docs/simulate.md", "kubectl get nodes,pods,leases,rtp")))
    assert {node["name"]: len(node["requests"]) > 0 for node in answer["nodes"]} == {AGENT: True, VIRTUAL: True}
    assert "vk-wasm" in [profile["name"] for profile in answer["profiles"]]
    assert (world.labels(VIRTUAL)["runtime"], world.condition(VIRTUAL)) == ("agent", ("", ""))

    with started(block("README.md", ".venv/bin/clusterconform run --kubeconfig ~/.kube/config --bound"), plane):
        world.until_condition(VIRTUAL, "True", "Conforms", seconds=60)
        ledger = block("docs/reaping.md", "kubectl get configmap -n clusterconform-system clusterconform-ledger")
        world.until(lambda: shell.end(ledger).returncode == 0, "the ledger is there", seconds=60)
        assert yaml.safe_load(shell.run(ledger))["metadata"]["name"] == "clusterconform-ledger"
        refused = _end_of(shell, block("docs/reaping.md", "clusterconform reap NODE"))
        assert (refused.returncode, "would not be reaped" in refused.stderr) == (1, True)

    _fence(shell, world)
    shell.run(block("docs/addresses.md", "kubectl apply -f deploy/overlays/pinned-addresses/pinning.yaml"))
    assert world.profile("k3s")["spec"]["addressReconcile"]["mode"] == "Pinned"

    shows, does = block("docs/cli.md", "clusterconform prune").splitlines()
    assert "nothing was written; say --yes" in shell.run(shows)
    assert world.condition(VIRTUAL) != ("", "")
    shell.run(does)
    assert world.condition(VIRTUAL) == ("", "")

    kustomization = block("docs/install.md", "# kustomization.yaml")
    overlay = tmp_path / "own"
    overlay.mkdir()
    (overlay / "clusterconform").symlink_to(ROOT)
    (overlay / "kustomization.yaml").write_text(kustomization.replace("path/to/clusterconform", "clusterconform"))
    built = shell.run(f"kubectl kustomize {overlay} --load-restrictor LoadRestrictionsNone")
    assert "image: registry.example.com/clusterconform:0.1.0" in built


def _fence(shell: Shell, world: World) -> None:
    """docs/fence.md: put in force, asked in both ways, taken away."""
    shell.run(block("docs/fence.md", "kubectl apply -f deploy/base/admission.yaml"))
    ask = block("docs/fence.md", "kubectl --as")
    world.until(lambda: FENCED in _end_of(shell, ask).stderr, "the fence is in force")
    request, body = block("docs/fence.md", "DELETE /api/v1/nodes/NODE").splitlines()
    method, path = request.replace("NODE", AGENT).split()
    uid = world.node(AGENT)["metadata"]["uid"]
    account = "system:serviceaccount:clusterconform-system:clusterconform"
    raw = f"kubectl --as {account} {method.lower()} --raw {path} -f -"
    done = shell.end(raw, body.replace("ITS UID", uid))
    assert (done.returncode != 0, FENCED in done.stderr) == (True, True), done.stderr
    shell.run(block("docs/fence.md", "kubectl delete -f deploy/base/admission.yaml"))
    world.until(lambda: FENCED not in _end_of(shell, ask).stderr, "it is out of force")


def _end_of(shell: Shell, lines: str) -> subprocess.CompletedProcess[str]:
    return shell.end(lines.replace("NODE", AGENT))
