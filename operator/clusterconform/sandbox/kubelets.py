"""Real node agents: the kubelet without containers (kubemark's), and the stock virtual-kubelet.

Each runs with a credential of its own, as it would in a cluster. Both listen on all addresses of the machine,
on a
port of their own: neither has a flag against it.
"""

import json
import re
import shutil
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from clusterconform.sandbox.control_plane import ControlPlane
from clusterconform.sandbox.parts import VIRTUAL_KUBELET
from clusterconform.sandbox.programs import Program
from clusterconform.sandbox.waiting import wait_until

_REGISTERED_SECONDS: Final = 60.0
_VIRTUAL_KUBELETS: Final = "sandbox:virtual-kubelets"
_RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
# Kubemark's imitation of a container runtime listens in such a file, whatever TMPDIR says, and leaves it; the
# kubelet lives in such a directory, which its log names and nobody removes.
_TEMPORARY: Final = Path("/tmp")  # noqa: S108 - kubemark's choice
_RUNTIME_SOCKETS: Final = "kubelet_remote_*.sock"
_ROOT_DIRECTORY: Final = re.compile(rf"Using ({_TEMPORARY}/hollow-kubelet\.\w+) as root dir")


def start_hollow_kubelet(
    plane: ControlPlane,
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Program:
    """Start a kubelet without containers and wait until its node is registered.

    Args:
        plane: the control plane to join.
        name: name of the node.
        labels: what it registers with beside the usual ones.
        annotations: what k3s would add once the node is there.

    Raises:
        PartUnavailable: the program is nowhere and cannot be built.
        SandboxFailed: it ended, or the node did not appear in time.
    """
    command: list[str | Path] = [
        plane.builder.provide(plane.builder.kubernetes.kubelet),
        "--morph=kubelet",
        f"--name={name}",
        f"--kubeconfig={plane.kubeconfig_for(f'system:node:{name}', ['system:nodes'])}",
        "--use-host-image-service=false",
        f"--kubelet-port={plane.ports.take()}",
        "--kubelet-read-only-port=0",
    ]
    if labels:
        command.append("--node-labels=" + ",".join(f"{key}={value}" for key, value in labels.items()))
    room = plane.folder(f"kubelet-{name}")
    before = set(_TEMPORARY.glob(_RUNTIME_SOCKETS))
    kubelet = plane.programs.start(f"kubelet-{name}", command, environment={"TMPDIR": str(room)})

    def leave_nothing() -> None:
        kubelet.kill()
        _remove_dead(set(_TEMPORARY.glob(_RUNTIME_SOCKETS)) - before)
        for root in _ROOT_DIRECTORY.findall(kubelet.log.read_text(errors="replace")):
            shutil.rmtree(root, ignore_errors=True)

    # Before anything is waited for: the wait may be interrupted.
    plane.at_end(leave_nothing)
    _await_registration(plane, kubelet, name)
    if annotations:
        plane.admin.patch(f"/api/v1/nodes/{name}", {"metadata": {"annotations": dict(annotations)}})
    return kubelet


def start_virtual_kubelet(plane: ControlPlane, name: str) -> Program:
    """Start the stock virtual-kubelet with its mock provider and wait until its node is registered.

    Args:
        plane: the control plane to join.
        name: name of the node.

    Raises:
        PartUnavailable: the program is nowhere and cannot be built.
        SandboxFailed: it ended, or the node did not appear in time.
    """
    _admit_virtual_kubelets(plane)
    room = plane.folder(f"virtual-kubelet-{name}")
    certificate, key = plane.authority.server(name).write(room, "kubelet")
    authority = room / "ca.crt"
    authority.write_bytes(plane.authority.certificate)
    provider = room / "provider.json"
    provider.write_text(json.dumps({name: {"cpu": "8", "memory": "16Gi", "pods": "110"}}))
    user = f"sandbox:virtual-kubelet:{name}"
    kubelet = plane.programs.start(
        f"virtual-kubelet-{name}",
        [
            plane.builder.provide(VIRTUAL_KUBELET),
            f"--nodename={name}",
            f"--kubeconfig={plane.kubeconfig_for(user, [_VIRTUAL_KUBELETS])}",
            "--provider=mock",
            f"--provider-config={provider}",
            f"--metrics-addr=127.0.0.1:{plane.ports.take()}",
        ],
        environment={
            "APISERVER_CERT_LOCATION": str(certificate),
            "APISERVER_KEY_LOCATION": str(key),
            "APISERVER_CA_CERT_LOCATION": str(authority),
            "KUBELET_PORT": str(plane.ports.take()),
            "VKUBELET_POD_IP": "10.7.255.254",
            "TMPDIR": str(room),
        },
    )
    _await_registration(plane, kubelet, name)
    return kubelet


def _await_registration(plane: ControlPlane, kubelet: Program, name: str) -> None:
    wait_until(
        lambda: plane.admin.answers(f"/api/v1/nodes/{name}"),
        what=f"the node {name} is registered",
        seconds=_REGISTERED_SECONDS,
        programs=[kubelet],
    )


def _admit_virtual_kubelets(plane: ControlPlane) -> None:
    """Let virtual-kubelets do what they need (contract §6.3, and leases, which the stock command holds)."""
    role: dict[str, Any] = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": _VIRTUAL_KUBELETS},
        "rules": [
            _rule("", ["nodes"], "create get list watch update patch"),
            _rule("", ["nodes/status", "pods/status"], "update patch"),
            _rule("", ["pods"], "get list watch delete"),
            _rule("", ["configmaps", "secrets", "services"], "get list watch"),
            _rule("", ["events"], "create update patch"),
            _rule("coordination.k8s.io", ["leases"], "create get update patch"),
        ],
    }
    binding: dict[str, Any] = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": _VIRTUAL_KUBELETS},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": _VIRTUAL_KUBELETS,
        },
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": _VIRTUAL_KUBELETS}],
    }
    plane.admin.create_if_absent(f"{_RBAC}/clusterroles", role)
    plane.admin.create_if_absent(f"{_RBAC}/clusterrolebindings", binding)


def _rule(group: str, resources: list[str], verbs: str) -> dict[str, list[str]]:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs.split()}


def _remove_dead(sockets: Iterable[Path]) -> None:
    """Remove the sockets on which nobody listens any more."""
    for path in sockets:
        with socket.socket(socket.AF_UNIX) as caller:
            try:
                caller.connect(str(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
            except OSError:  # gone already, or not ours to judge
                continue
