"""The probe's DaemonSet (contract §4.2), in our own namespace, and how it is kept.

Kept by full replacement, not by apply: foreign additions, such as the host's network, would survive that. The
API server fills in defaults and raises the generation only where the spec differs, so a replacement that changes
nothing is a no-op; from then on the generation alone tells whether anybody has changed the spec.
"""

from collections.abc import Mapping
from typing import Any, Final

from clusterconform.contract.names import (
    MANAGED_BY_LABEL,
    NAME_LABEL,
    NAMESPACE,
    PROBE_MANAGER,
    PROBE_NAME,
    RUNTIME_LABEL,
    UNAVAILABLE_TAINT_KEY,
)
from clusterconform.contract.profile import Enforcement, RuntimeProfile
from clusterconform.contract.request import JSON, Json, Request
from clusterconform.contract.settings import DEFAULT_PROBE_IMAGE, ProbeMode

DAEMONSETS_PATH: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
DAEMONSET_PATH: Final = f"{DAEMONSETS_PATH}/{PROBE_NAME}"
_LABELS: Final = {NAME_LABEL: PROBE_NAME, MANAGED_BY_LABEL: PROBE_MANAGER}
_SELECTOR: Final = {"matchLabels": {NAME_LABEL: PROBE_NAME}}
_NOBODY: Final = 65534


def is_wanted(profile: RuntimeProfile | None) -> bool | None:
    """Whether the DaemonSet shall be there; None where it is to be left as it is."""
    if profile is None or profile.runtime_probe is None or profile.enforcement is Enforcement.OBSERVE:
        return None
    return profile.runtime_probe.mode is not ProbeMode.OFF


def daemonset(image: str) -> Json:
    """The DaemonSet as it shall read; a blank ``image`` is the contract's."""
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": PROBE_NAME, "namespace": NAMESPACE, "labels": dict(_LABELS)},
        "spec": {
            "selector": {"matchLabels": dict(_SELECTOR["matchLabels"])},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%"}},
            "template": {"metadata": {"labels": {NAME_LABEL: PROBE_NAME}}, "spec": _pod(image)},
        },
    }


def _pod(image: str) -> Json:
    term = {"key": RUNTIME_LABEL, "operator": "NotIn", "values": ["virtual"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
        "tolerations": [
            {"key": UNAVAILABLE_TAINT_KEY, "operator": "Exists", "effect": "NoSchedule"},
            {"key": "node-role.kubernetes.io/master", "operator": "Exists", "effect": "NoSchedule"},
            {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"},
            {"key": "CriticalAddonsOnly", "operator": "Exists"},
        ],
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {
                "name": "probe",
                "image": image.strip() or DEFAULT_PROBE_IMAGE,
                "imagePullPolicy": "IfNotPresent",
                "resources": {
                    "requests": {"cpu": "1m", "memory": "4Mi"},
                    "limits": {"cpu": "10m", "memory": "16Mi"},
                },
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "runAsNonRoot": True,
                    "runAsUser": _NOBODY,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
    }


def creation(image: str) -> Request:
    """The request that makes it."""
    return Request(method="POST", path=DAEMONSETS_PATH, content_type=JSON, body=daemonset(image))


def removal(seen: Mapping[str, Any]) -> Request:
    """The request that takes the DaemonSet that was ``seen`` away, and its pods with it."""
    body = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": seen["metadata"]["uid"]},
        "propagationPolicy": "Background",
    }
    return Request(method="DELETE", path=DAEMONSET_PATH, content_type=JSON, body=body)


def replacement(seen: Mapping[str, Any], image: str) -> Request:
    """The request that puts every field back, on the version that was ``seen``; annotations of others stay."""
    body = daemonset(image)
    body["metadata"]["resourceVersion"] = seen["metadata"]["resourceVersion"]
    annotations = seen["metadata"].get("annotations")
    if annotations:
        body["metadata"]["annotations"] = annotations
    return Request(method="PUT", path=DAEMONSET_PATH, content_type=JSON, body=body)


def step(seen: Mapping[str, Any] | None, image: str, written: tuple[str, int, str] | None) -> Request | None:
    """What brings the DaemonSet that was ``seen`` to what it shall be; None where it is that.

    Args:
        seen: The object; None where there is none.
        image: The image that the profile names.
        written: Uid, generation and image of what our last write left; None where we have not written yet.
    """
    if seen is None:
        return creation(image)
    metadata = seen["metadata"]
    if metadata.get("deletionTimestamp"):
        return None
    if (seen.get("spec") or {}).get("selector") != _SELECTOR:
        return removal(seen)  # a selector cannot be changed
    if metadata.get("labels") == _LABELS and written == mark_of(seen, image):
        return None
    return replacement(seen, image)


def mark_of(seen: Mapping[str, Any], image: str) -> tuple[str, int, str]:
    """What tells whether anybody has changed ``seen`` since: its uid, its generation, and the image we want."""
    metadata = seen["metadata"]
    return str(metadata.get("uid")), int(metadata.get("generation") or 0), image
