"""What kwok is told to do: which nodes it keeps alive, and how their heartbeats, pods and logs look.

kwok touches only nodes with the label ``KEPT_ALIVE``: take it off, and the node falls silent. It has to be a
label: kwok could select by annotation too, but then it never lets go of a node that it once held.
"""

import json
from collections.abc import Collection, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

KEPT_ALIVE: Final = ("kwok.x-k8s.io/node", "fake")

# A kubelet's own figures: the lease it holds, and how often it writes a status that says nothing new.
_LEASE_SECONDS: Final = 40
_REPORT_MILLISECONDS: Final = 300_000
_REPORT_JITTER_MILLISECONDS: Final = 330_000
# More at once than kwok's default of four, so that thousands of nodes are up within a minute; leases stay at
# four, or they would crowd out everybody else on a small machine.
_STAGE_PARALLELISM: Final = 16
_LEASE_PARALLELISM: Final = 4

_HEALTHY: Final = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)
_READINESS: Final = '.status.conditions.[] | select( .type == "Ready" ) | .status'
_LOG_LINE: Final = "2026-01-01T00:00:00.000000000Z stdout F this agent is imitated, its log is real\n"


def kept_alive(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Give a copy of a Node manifest with the label that makes kwok keep the node alive."""
    kept = deepcopy(dict(manifest))
    key, value = KEPT_ALIVE
    kept["metadata"].setdefault("labels", {})[key] = value
    return kept


def write_configuration(folder: Path, *, broken: Collection[str] = ()) -> Path:
    """Write kwok's configuration and the log that all its containers share, and give the former's path.

    Args:
        folder: where to.
        broken: names of nodes on which pods never become ready, as if their container sandbox failed.
    """
    log = folder / "container.log"
    log.write_text(_LOG_LINE)
    documents = [
        _options(),
        _node_revival(),
        _node_report(),
        _pod_start(broken),
        _POD_REMOVAL,
        _logs(log),
        _EXEC,
    ]
    path = folder / "kwok.yaml"
    path.write_text("---\n".join(json.dumps(document, indent=1) + "\n" for document in documents))
    return path


def _options() -> dict[str, Any]:
    key, value = KEPT_ALIVE
    return {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokConfiguration",
        "options": {
            "manageAllNodes": False,
            "manageNodesWithLabelSelector": f"{key}={value}",
            "enableDebuggingHandlers": True,  # what serves logs and exec
            "nodeLeaseDurationSeconds": _LEASE_SECONDS,
            "nodeLeaseParallelism": _LEASE_PARALLELISM,
            "nodePlayStageParallelism": _STAGE_PARALLELISM,
            "podPlayStageParallelism": _STAGE_PARALLELISM,
        },
    }


def _stage(
    name: str,
    kind: str,
    when: list[dict[str, Any]],
    then: dict[str, Any],
    delay: dict[str, int] | None = None,
) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "resourceRef": {"apiGroup": "v1", "kind": kind},
        "selector": {"matchExpressions": when},
        "next": then,
    }
    if delay is not None:
        spec["delay"] = delay
    return {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": {"name": name}, "spec": spec}


def _status(template: str) -> dict[str, Any]:
    return {"patches": [{"subresource": "status", "root": "status", "type": "strategic", "template": template}]}


def _node_revival() -> dict[str, Any]:
    """A node that is not ready becomes ready, with a fresh transition."""
    conditions = [
        {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": "{{ Now }}",
            "lastTransitionTime": "{{ Now }}",
        }
        for kind, status, reason, message in _HEALTHY
    ]
    return _stage(
        "node-revival",
        "Node",
        [{"key": _READINESS, "operator": "NotIn", "values": ["True"]}],
        _status(json.dumps({"conditions": conditions, "phase": "Running"})),
    )


def _node_report() -> dict[str, Any]:
    """A ready node repeats its conditions now and then; all that changes is the time of the heartbeat."""
    conditions = [{"type": kind, "lastHeartbeatTime": "{{ Now }}"} for kind, *_ in _HEALTHY]
    return _stage(
        "node-report",
        "Node",
        [{"key": _READINESS, "operator": "In", "values": ["True"]}],
        _status(json.dumps({"conditions": conditions})),
        {
            "durationMilliseconds": _REPORT_MILLISECONDS,
            "jitterDurationMilliseconds": _REPORT_JITTER_MILLISECONDS,
        },
    )


def _pod_start(broken: Collection[str]) -> dict[str, Any]:
    """A new pod runs at once, with all its containers ready."""
    when: list[dict[str, Any]] = [
        {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"},
        {"key": ".status.phase", "operator": "In", "values": ["Pending"]},
    ]
    if broken:
        when.append({"key": ".spec.nodeName", "operator": "NotIn", "values": sorted(broken)})
    return _stage("pod-start", "Pod", when, _status(_pod_template()))


def _pod_template() -> str:
    """Give the template of a running pod's status."""
    conditions = "".join(
        f'- {{type: {kind}, status: "True", lastTransitionTime: {{{{ Now | Quote }}}}}}\n'
        for kind in ("Initialized", "ContainersReady", "Ready")
    )
    running = (
        "- name: {{ .name | Quote }}\n"
        "  image: {{ .image | Quote }}\n"
        "  ready: true\n"
        "  started: true\n"
        "  restartCount: 0\n"
        "  state: {running: {startedAt: {{ Now | Quote }}}}\n"
    )
    return (
        "phase: Running\n"
        "startTime: {{ Now | Quote }}\n"
        f"conditions:\n{conditions}"
        f"containerStatuses:\n{{{{ range .spec.containers }}}}\n{running}{{{{ end }}}}\n"
    )


_POD_REMOVAL: Final = _stage(
    "pod-removal",
    "Pod",
    [{"key": ".metadata.deletionTimestamp", "operator": "Exists"}],
    {"delete": True},
)


def _logs(log: Path) -> dict[str, Any]:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "ClusterLogs",
        "metadata": {"name": "one-log-for-all"},
        "spec": {"logs": [{"logsFile": str(log)}]},
    }


_EXEC: Final = {
    "apiVersion": "kwok.x-k8s.io/v1alpha1",
    "kind": "ClusterExec",
    "metadata": {"name": "on-this-machine"},
    "spec": {"execs": [{"local": {}}]},
}
