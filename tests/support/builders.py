"""Nodes and profiles for tests, as the API server would show them, and the values that are read from them.

A builder gives a raw object that is in order; a test then says what is different about its own. A label or an
annotation given as None is left out.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from clusterconform.contract import matrix
from clusterconform.contract.facts import NodeFacts, read_node, view_node
from clusterconform.contract.names import (
    API_VERSION,
    BACKEND_LABEL,
    CONFORMANT_CONDITION,
    HOST_LABEL,
    KIND,
    MARKS_ANNOTATION,
    NODE_ARGS_ANNOTATION,
    PROVIDER_TAINT_KEY,
    RUNTIME_LABEL,
)
from clusterconform.contract.profile import ProfileObject, Refusal, RuntimeProfile, manifest_of, read_profile
from clusterconform.contract.times import Moment
from clusterconform.contract.verdicts import Catalogue
from clusterconform.decisions.gate import accept

Json = dict[str, Any]

START = datetime(2026, 8, 1, 12, 0, tzinfo=UTC)
BORN = "2026-07-01T09:00:00Z"
TAINT = {"key": PROVIDER_TAINT_KEY, "value": "outpost", "effect": "NoSchedule"}
VIRTUAL_SPEC: Json = {
    "class": "virtual",
    "capabilities": ["pod-lifecycle", "termination-log-tail", "transient-app-route"],
}
AGENT_SPEC: Json = {
    "class": "agent",
    "capabilities": [
        "pod-lifecycle",
        "kubelet-log-stream",
        "kubelet-exec",
        "kubelet-attach",
        "kubelet-port-forward",
        "kubelet-stats",
    ],
}


def at(seconds: float) -> Moment:
    """The moment ``seconds`` after the start of a test's story."""
    return Moment(wall=START, uptime=1000.0).later(seconds)


def present(mapping: Mapping[str, Any]) -> Json:
    """``mapping`` without what is None."""
    return {key: value for key, value in mapping.items() if value is not None}


def node(
    name: str,
    *,
    uid: str = "uid-1",
    labels: Mapping[str, str | None] | None = None,
    annotations: Mapping[str, str | None] | None = None,
    taints: Sequence[Json] | None = None,
    conditions: Sequence[Json | None] = (),
    provider_id: str | None = None,
    kubelet_version: str = "v1.37.2",
    port: int | None = None,
    addresses: Sequence[Json | None] | None = None,
    deleted: str | None = None,
) -> Json:
    """A raw Node; a map or list given as None is absent."""
    endpoints = {"daemonEndpoints": {"kubeletEndpoint": {"Port": port}}} if port is not None else {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": present(
            {
                "name": name,
                "uid": uid,
                "resourceVersion": "7",
                "creationTimestamp": BORN,
                "deletionTimestamp": deleted,
                "labels": None if labels is None else present(labels),
                "annotations": None if annotations is None else present(annotations),
            }
        ),
        "spec": present({"providerID": provider_id, "taints": None if taints is None else list(taints)}),
        "status": {
            "conditions": [ready(), *conditions],
            "nodeInfo": {"kubeletVersion": kubelet_version},
            **endpoints,
            **({} if addresses is None else {"addresses": list(addresses)}),
        },
    }


def agent(name: str = "pi-4c7adeb6", host: str = "pi", **changes: Any) -> Json:
    """A raw k3s agent in order; ``labels`` and ``annotations`` are laid over the usual ones."""
    labels = {
        "kubernetes.io/hostname": name,
        RUNTIME_LABEL: "agent",
        BACKEND_LABEL: "k3s",
        HOST_LABEL: host,
        **changes.pop("labels", {}),
    }
    annotations = {
        NODE_ARGS_ANNOTATION: f'["agent","--node-name","{host}","--node-label","{HOST_LABEL}={host}"]',
        **changes.pop("annotations", {}),
    }
    usual: Json = {"provider_id": f"k3s://{name}", "kubelet_version": "v1.37.2+k3s1", "port": 10250}
    return node(name, labels=labels, annotations=annotations, **(usual | changes))


def virtual(backend: str = "vk-podman", host: str = "laptop", **changes: Any) -> Json:
    """A raw virtual node in order; ``labels`` and ``annotations`` are laid over the usual ones."""
    name = changes.pop("name", f"{host}-{backend}")
    labels = {
        "type": "virtual-kubelet",
        "kubernetes.io/hostname": name,
        RUNTIME_LABEL: "virtual",
        BACKEND_LABEL: backend,
        HOST_LABEL: host,
        **changes.pop("labels", {}),
    }
    annotations = {
        "virtual-kubelet.io/last-applied-node-status": "{}",
        **changes.pop("annotations", {}),
    }
    usual: Json = {"taints": [TAINT], "kubelet_version": "v0.1.0-vknode", "port": 0}
    return node(name, labels=labels, annotations=annotations, **(usual | changes))


def bare(name: str, **changes: Any) -> Json:
    """A raw Node that says nothing about itself."""
    return node(name, **({"labels": {}, "annotations": {}} | changes))


def address(kind: str, value: str) -> Json:
    """A raw address of a node."""
    return {"type": kind, "address": value}


def probe_pod(
    node: str | None = "pi-4c7adeb6", *, name: str = "", ready_status: str | None = "True", **parts: Any
) -> Json:
    """A raw probe pod; ``parts``: created, transition, deleted, waiting (its container's reason), affinity."""
    conditions = [{"type": "Ready", "status": ready_status, "lastTransitionTime": parts.get("transition")}]
    waiting = parts.get("waiting")
    state: Json = {"waiting": {"reason": waiting}} if waiting else {"running": {}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": present(
            {
                "name": name or f"dks-runtime-probe-{node}",
                "namespace": "clusterconform-system",
                "uid": f"uid-of-{name or node}",
                "resourceVersion": "7",
                "labels": {"app.kubernetes.io/name": "dks-runtime-probe"},
                "creationTimestamp": parts.get("created", BORN),
                "deletionTimestamp": parts.get("deleted"),
            }
        ),
        "spec": present({"nodeName": node, "affinity": parts.get("affinity")}),
        "status": {
            "conditions": conditions if ready_status is not None else [],
            "containerStatuses": [{"name": "probe", "state": state}],
        },
    }


def ready(status: str = "True", **changes: Any) -> Json:
    """A raw Ready condition."""
    return {
        "type": "Ready",
        "status": status,
        "reason": "KubeletReady",
        "message": "kubelet is posting ready status",
        "lastTransitionTime": BORN,
        "lastHeartbeatTime": BORN,
        **changes,
    }


def conformant(
    status: str = "True",
    reason: str | None = "Conforms",
    message: str | None = "as it was",
    **changes: Any,
) -> Json:
    """Our raw condition."""
    return {
        "type": CONFORMANT_CONDITION,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-07-02T10:00:00Z",
        "lastHeartbeatTime": "2026-07-02T10:00:00Z",
        **changes,
    }


def marks(*names: str) -> dict[str, str]:
    """The annotation that lists ``names`` as ours."""
    return {MARKS_ANNOTATION: ",".join(names)}


def facts(raw: Json) -> NodeFacts:
    """What is read from ``raw``."""
    return read_node(view_node(raw))


def manifest(name: str, spec: Json, **metadata: Any) -> Json:
    """A raw RuntimeProfile whose spec names its backend; ``spec`` may say otherwise."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name, **metadata},
        "spec": {"backend": name, **spec},
    }


def profile_object(name: str, spec: Json, **metadata: Any) -> ProfileObject:
    """The object that is read from such a manifest."""
    return read_profile(manifest(name, spec, **metadata))


def profile(name: str, **spec: Any) -> RuntimeProfile:
    """The profile of ``name``: agent for k3s, else virtual; ``spec`` is laid over the class's."""
    contract = profile_object(name, {**(AGENT_SPEC if name == "k3s" else VIRTUAL_SPEC), **spec}).contract
    if isinstance(contract, Refusal):
        raise contract
    return contract


def catalogue(*more: ProfileObject, **changed: Json) -> Catalogue:
    """The judged built-in profiles with fields of their specs changed (``vk_podman={…}``), and ``more``."""
    objects = []
    for row in matrix.MATRIX.values():
        spec = manifest_of(row)["spec"] | changed.get(row.backend.replace("-", "_"), {})
        objects.append(profile_object(row.backend, spec, creationTimestamp=BORN))
    return accept([*objects, *more])
