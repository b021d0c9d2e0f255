"""Node objects as they really look, as plain JSON-able dicts: what a fleet is made of.

An agent has what a k3s agent's kubelet and k3s itself write, at the usual size (about 4.7 kB); a virtual node
has what contract §6.1 says. Both come without ``metadata.resourceVersion`` and the like: they are to be
created. k3s' own finalizer is left out, since no k3s server is there that would take it off again.
"""

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from clusterconform.contract.names import (
    BACKEND_LABEL,
    GROUP,
    HOST_LABEL,
    K3S_PROVIDER_ID_PREFIX,
    NODE_ARGS_ANNOTATION,
    PROVIDER_TAINT_EFFECT,
    PROVIDER_TAINT_KEY,
    PROVIDER_TAINT_VALUE,
    RUNTIME_LABEL,
    TYPE_LABEL,
    VIRTUAL_KUBELET_ANNOTATION_PREFIX,
    VIRTUAL_KUBELET_TYPE,
)

AGENT_BACKEND: Final = "k3s"
K3S_VERSION: Final = "v1.36.2+k3s1"
VIRTUAL_VERSION: Final = "v0.1.0-vknode"
KUBELET_PORT: Final = 10250

_UPTIME: Final = timedelta(hours=36)  # how long ago a healthy node became ready
_MEMORY_KI: Final = 16273408
_DISK_KI: Final = 489620264
_IMAGES: Final = (
    ("docker.io/rancher/mirrored-library-traefik", "3.6.2", 53414012),
    ("docker.io/rancher/mirrored-metrics-server", "v0.8.1", 23219804),
    ("docker.io/rancher/mirrored-coredns-coredns", "1.14.1", 22874690),
    ("docker.io/rancher/local-path-provisioner", "v0.0.34", 20604153),
    ("docker.io/rancher/klipper-lb", "v0.4.13", 5020426),
    ("docker.io/rancher/mirrored-library-busybox", "1.37.0", 2222260),
    ("docker.io/rancher/mirrored-pause", "3.6", 301463),
)


def agent_name(base: str, index: int) -> str:
    """Give the name under which an agent registers: ``base``, a hyphen, an id of eight hexadecimal digits.

    The id stands for the one that k3s keeps on the machine; here it follows from ``base`` and ``index``.
    """
    return f"{base}-{_digest(base, index)[:8]}"


def agent_node(
    base: str,
    host: str | None = None,
    *,
    index: int = 0,
    now: datetime,
    silent_since: datetime | None = None,
) -> dict[str, Any]:
    """Describe the Node of a k3s agent.

    Args:
        base: the name given to the agent; the node's name is ``agent_name(base, index)``.
        host: value of the host label; the base name if None.
        index: tells apart agents of one base name, and gives each its addresses (0 to 65535).
        now: the moment of its last heartbeat, with a time zone.
        silent_since: since when the control plane misses it (all conditions Unknown); None if it is healthy.
    """
    host = host or base
    name = agent_name(base, index)
    address = f"10.7.{index // 256}.{index % 256}"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": _agent_labels(name, host),
            "annotations": _agent_annotations(name, base, host, address),
        },
        "spec": {
            "podCIDR": f"10.{42 + index // 256 % 128}.{index % 256}.0/24",
            "podCIDRs": [f"10.{42 + index // 256 % 128}.{index % 256}.0/24"],
            "providerID": f"{K3S_PROVIDER_ID_PREFIX}{name}",
        },
        "status": _agent_status(name, address, now, silent_since),
    }


def virtual_node_name(host: str, backend: str) -> str:
    """Give the name of the virtual node of a backend on a host (contract §6.1)."""
    return f"{host}-{backend}"


def virtual_node(
    host: str,
    backend: str,
    *,
    now: datetime,
    silent_since: datetime | None = None,
    extra_labels: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Describe a virtual node as it registers itself (contract §6.1).

    Args:
        host: value of the host label, and first part of the node's name.
        backend: value of the backend label, and second part of the name.
        now: the moment of its last heartbeat, with a time zone.
        silent_since: since when the control plane misses it (Ready is Unknown); None if it is healthy.
        extra_labels: labels to add or to override.
    """
    name = virtual_node_name(host, backend)
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        TYPE_LABEL: VIRTUAL_KUBELET_TYPE,
        HOST_LABEL: host,
        RUNTIME_LABEL: "virtual",
        BACKEND_LABEL: backend,
        **(extra_labels or {}),
    }
    resources = {"cpu": "8", "memory": f"{_MEMORY_KI}Ki", "pods": "110"}
    if backend == "vk-ollama":
        labels |= {f"{GROUP}/gpu": "true", f"{GROUP}/gpu-kind": "nvidia", f"{GROUP}/gpu-model": "RTX-4070"}
        resources |= {"dhnt.io/vram": str(12 * 1024**3), "nvidia.com/gpu": "1"}
    status = _virtual_status(name, resources, now, silent_since)
    applied = VIRTUAL_KUBELET_ANNOTATION_PREFIX + "last-applied-"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {
                f"{applied}node-status": _compact(status),
                f"{applied}object-meta": _compact({"name": name, "labels": labels}),
            },
        },
        "spec": {
            "taints": [{"key": PROVIDER_TAINT_KEY, "value": PROVIDER_TAINT_VALUE, "effect": PROVIDER_TAINT_EFFECT}]
        },
        "status": status,
    }


def wire_time(moment: datetime) -> str:
    """Write a moment as the API does: UTC, whole seconds."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _agent_labels(name: str, host: str) -> dict[str, str]:
    return {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/instance-type": "k3s",
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "k3s",
        RUNTIME_LABEL: "agent",
        BACKEND_LABEL: AGENT_BACKEND,
        HOST_LABEL: host,
    }


def _agent_annotations(name: str, base: str, host: str, address: str) -> dict[str, str]:
    arguments = [
        "agent",
        "--server",
        "https://127.0.0.1:6443",
        "--token",
        "********",
        "--node-name",
        base,
        "--node-label",
        f"{HOST_LABEL}={host}",
        "--node-label",
        f"{RUNTIME_LABEL}=agent",
        "--node-label",
        f"{BACKEND_LABEL}={AGENT_BACKEND}",
        "--with-node-id",
        "--disable-apiserver-lb",
        "--snapshotter",
        "fuse-overlayfs",
        "--kubelet-arg",
        "feature-gates=KubeletInUserNamespace=true",
        "--kubelet-arg",
        "cgroups-per-qos=false",
    ]
    return {
        "alpha.kubernetes.io/provided-node-ip": address,
        "flannel.alpha.coreos.com/backend-data": _compact({"VNI": 1, "VtepMAC": _mac(name)}),
        "flannel.alpha.coreos.com/backend-type": "vxlan",
        "flannel.alpha.coreos.com/kube-subnet-manager": "true",
        "flannel.alpha.coreos.com/public-ip": address,
        "k3s.io/hostname": name,
        "k3s.io/internal-ip": address,
        NODE_ARGS_ANNOTATION: _compact(arguments),
        "k3s.io/node-config-hash": _digest("config", name).upper(),
        "k3s.io/node-env": "{}",
        "node.alpha.kubernetes.io/ttl": "0",
        "volumes.kubernetes.io/controller-managed-attach-detach": "true",
    }


def _agent_status(name: str, address: str, now: datetime, silent_since: datetime | None) -> dict[str, Any]:
    capacity = {
        "cpu": "8",
        "ephemeral-storage": f"{_DISK_KI}Ki",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
        "memory": f"{_MEMORY_KI}Ki",
        "pods": "110",
    }
    return {
        "addresses": [
            {"type": "InternalIP", "address": address},
            {"type": "Hostname", "address": name},
        ],
        "allocatable": capacity | {"ephemeral-storage": str(_DISK_KI * 1024 * 95 // 100)},
        "capacity": capacity,
        "conditions": _agent_conditions(now, silent_since),
        "daemonEndpoints": {"kubeletEndpoint": {"Port": KUBELET_PORT}},
        "features": {"supplementalGroupsPolicy": True},
        "images": [
            {"names": [f"{image}@sha256:{_digest(image)}", f"{image}:{tag}"], "sizeBytes": size}
            for image, tag, size in _IMAGES
        ],
        "nodeInfo": {
            "architecture": "amd64",
            "bootID": _uuid("boot", name),
            "containerRuntimeVersion": "containerd://2.2.1-k3s1",
            "kernelVersion": "6.12.57+deb13-amd64",
            "kubeProxyVersion": "",
            "kubeletVersion": K3S_VERSION,
            "machineID": _digest("machine", name)[:32],
            "operatingSystem": "linux",
            "osImage": "Debian GNU/Linux 13 (trixie)",
            "systemUUID": _uuid("system", name),
        },
        "runtimeHandlers": [
            {"name": "", "features": {"recursiveReadOnlyMounts": True, "userNamespaces": True}},
            {"name": "runc", "features": {"recursiveReadOnlyMounts": True, "userNamespaces": True}},
        ],
    }


def _agent_conditions(now: datetime, silent_since: datetime | None) -> list[dict[str, str]]:
    healthy = (
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    )
    if silent_since is None:
        return [_condition(*words, heartbeat=now, transition=now - _UPTIME) for words in healthy]
    return [_condition(kind, *_SILENCE, heartbeat=silent_since, transition=silent_since) for kind, *_ in healthy]


_SILENCE: Final = ("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")


def _virtual_status(
    name: str, resources: dict[str, str], now: datetime, silent_since: datetime | None
) -> dict[str, Any]:
    ready = ("True", "KubeletReady", "outpost vknode is ready") if silent_since is None else _SILENCE
    moment = silent_since or now
    return {
        "capacity": resources,
        "allocatable": resources,
        # A virtual node's transition is as fresh as its heartbeat: every push sets both (contract §6.2).
        "conditions": [_condition("Ready", *ready, heartbeat=moment, transition=moment)],
        "addresses": [{"type": "Hostname", "address": name}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
        "nodeInfo": {
            "architecture": "amd64",
            "bootID": "",
            "containerRuntimeVersion": "",
            "kernelVersion": "",
            "kubeProxyVersion": "",
            "kubeletVersion": VIRTUAL_VERSION,
            "machineID": "",
            "operatingSystem": "linux",
            "osImage": "",
            "systemUUID": "",
        },
    }


def _condition(
    kind: str, status: str, reason: str, message: str, *, heartbeat: datetime, transition: datetime
) -> dict[str, str]:
    return {
        "type": kind,
        "status": status,
        "lastHeartbeatTime": wire_time(heartbeat),
        "lastTransitionTime": wire_time(transition),
        "reason": reason,
        "message": message,
    }


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _digest(*words: object) -> str:
    return hashlib.sha256("/".join(map(str, words)).encode()).hexdigest()


def _mac(name: str) -> str:
    digits = _digest("mac", name)[:10]
    return ":".join(["02", *(digits[at : at + 2] for at in range(0, 10, 2))])


def _uuid(*words: str) -> str:
    digits = _digest(*words)
    return "-".join([digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:32]])
