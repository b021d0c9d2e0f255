"""A small fleet in which much is amiss, as an API server would show it: what the golden outputs are made of."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml
from builders import START, TAINT, Json, agent, conformant, ready, virtual
from stand_in import StandIn

from clusterconform.contract.lease import LEASE_PATH
from clusterconform.contract.matrix import MATRIX
from clusterconform.contract.names import (
    API_VERSION,
    BACKEND_LABEL,
    CRD_NAME,
    HEARD_ANNOTATION,
    LEASES_NAMESPACE,
    LEDGER_CONFIGMAP,
    LEDGER_KEY,
    MARKS_ANNOTATION,
    NAMESPACE,
    PLURAL,
    RESYNCED_ANNOTATION,
    RUNTIME_LABEL,
)
from clusterconform.contract.profile import manifest_of
from clusterconform.contract.times import format_time

ROOT = Path(__file__).parents[2]
CRD = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{CRD_NAME}"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
PROFILES = f"/apis/{API_VERSION}/{PLURAL}"
NODES = "/api/v1/nodes"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{LEASES_NAMESPACE}/leases"
LEDGER = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{LEDGER_CONFIGMAP}"


def before(**length: float) -> str:
    """A timestamp so long before now."""
    return format_time(START - timedelta(**length))


def after(**length: float) -> str:
    """A timestamp so long after now."""
    return format_time(START + timedelta(**length))


def written_by(manager: str, at: str, *path: str) -> Json:
    """An entry of managedFields."""
    fields: Json = {}
    for part in reversed(path):
        fields = {f"f:{part}": fields}
    return {"manager": manager, "operation": "Update", "time": at, "fieldsType": "FieldsV1", "fieldsV1": fields}


def dead(name: str, host: str, hours: float, **changes: Any) -> Json:
    """An agent that has been silent for so long."""
    raw = agent(name, host, **changes)
    raw["status"]["conditions"][0] = ready("Unknown", lastTransitionTime=before(hours=hours))
    return raw


def nodes() -> list[Json]:
    """Agents, alive and dead, and virtual nodes, good and bad."""
    contested = virtual(
        "vk-podman",
        "laptop",
        labels={RUNTIME_LABEL: "agent"},
        conditions=[
            conformant(
                "False",
                "Contested",
                f"another writer keeps putting label:{RUNTIME_LABEL} back",
                lastTransitionTime=before(minutes=12),
            )
        ],
        annotations={MARKS_ANNOTATION: f"label:{RUNTIME_LABEL}"},
    )
    contested["metadata"]["managedFields"] = [
        written_by("clusterconform", before(minutes=13), "metadata", "annotations", MARKS_ANNOTATION),
        written_by("label-bot", before(minutes=2), "metadata", "labels", RUNTIME_LABEL),
    ]
    rows = [
        agent("pi-4c7adeb6", "pi", conditions=[conformant()]),
        agent("oak-11111111", "oak", conditions=[conformant()]),
        dead("elm-22222222", "elm", 30),
        dead("ash-33333333", "ash", 40),
        dead("fir-44444444", "fir", 2),
        contested,
        virtual("vk-native", "laptop", port=10250),
        virtual(
            "vk-ollama", "desk", taints=[{**TAINT, "value": "old"}], annotations={MARKS_ANNOTATION: "x:unknown"}
        ),
        virtual("vk-docker", "desk"),
        agent("yew-55555555", "yew", taints=[TAINT]),
        virtual("vk-podman", "shed", labels={BACKEND_LABEL: None}),
    ]
    for number, raw in enumerate(rows):
        raw["metadata"]["uid"] = f"uid-{number}"
    return rows


def condition(kind: str, status: str, reason: str, message: str) -> Json:
    """A condition of a profile."""
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": 1,
        "lastTransitionTime": before(hours=3),
    }


def profiles() -> list[Json]:
    """The built-in profiles with the status that an operator gave them."""
    rows = []
    for row in MATRIX.values():
        raw = manifest_of(row)
        raw["metadata"] |= {
            "uid": f"uid-{row.backend}",
            "generation": 1,
            "creationTimestamp": before(days=30),
            "managedFields": [
                {**written_by("clusterconform", before(seconds=40), "status", "nodes"), "subresource": "status"}
            ],
        }
        raw["status"] = {
            "observedGeneration": 1,
            "nodes": {"total": 2, "conformant": 1, "drifted": 1, "conflicting": 0, "contested": 0, "notReady": 0},
            "conditions": [
                condition("Accepted", "True", "Accepted", "acts on its nodes"),
                condition("Ready", "False", "NodesNotConformant", "1 of 2 nodes do not conform: Contested"),
            ],
        }
        rows.append(raw)
    k3s, podman, *_ = rows
    podman["status"]["nodes"] |= {"contested": 1, "unidentified": 1}
    k3s["status"]["nodes"] = {
        "total": 6,
        "conformant": 5,
        "drifted": 0,
        "conflicting": 1,
        "contested": 0,
        "notReady": 3,
        "stale": 2,
    }
    message = "2 of 4 agents are stale, above 40 %"
    k3s["status"]["conditions"] = [
        condition("Accepted", "True", "Accepted", "acts on its nodes"),
        condition("ReapingAllowed", "False", "MassStale", message),
        condition("ProbeHealthy", "False", "RuntimeUnavailable", "1 of 5 runtimes do not run a pod"),
        condition("AddressesPublished", "True", "EndpointPublished", "5 of 5 agents show their endpoint"),
        condition("StreamingVerified", "Unknown", "NotTried", "2 of 5 agents were not tried yet"),
        condition("Ready", "False", "NodesNotConformant", "1 of 6 nodes do not conform: IdentityConflict"),
    ]
    k3s["status"]["nodeGC"] = {
        "mode": "Live",
        "limitedBy": "nodeGC.mode",
        "eligible": 4,
        "stale": 2,
        "reapedInWindow": 1,
        "budgetLeft": 2,
        "lastPass": before(minutes=20),
        "nextPass": after(minutes=40),
        "held": [
            {"name": "ash-33333333", "reason": "MassStale"},
            {"name": "elm-22222222", "reason": "MassStale", "until": after(hours=2)},
        ],
    }
    return rows


def lease(seconds_ago: float = 3) -> Json:
    """The operator's Lease."""
    told = {RESYNCED_ANNOTATION: before(minutes=4), HEARD_ANNOTATION: before(seconds=5)}
    return {
        "metadata": {
            "name": "clusterconform",
            "namespace": NAMESPACE,
            "uid": "u",
            "resourceVersion": "9",
            "annotations": told,
        },
        "spec": {
            "holderIdentity": "operator-7f9_1",
            "leaseDurationSeconds": 15,
            "leaseTransitions": 4,
            "renewTime": format_time(START - timedelta(seconds=seconds_ago)).replace("Z", ".000000Z"),
        },
    }


def ledger() -> Json:
    """The ledger, with one line that cannot be read."""
    rows: list[Json | str] = [
        {"at": before(days=3), "event": "intended", "node": "old-00000000", "uid": "u0"},
        {
            "at": before(days=3),
            "event": "deleted",
            "node": "old-00000000",
            "uid": "u0",
            "not_ready_since": before(days=5),
        },
        '{"at": "torn',
        {"at": before(hours=1), "event": "refused_mass_stale", "stale": 2, "scope": 4, "detail": "above 40 %"},
        {
            "at": before(minutes=30),
            "event": "skipped",
            "node": "elm-22222222",
            "uid": "uid-2",
            "detail": "it lives",
        },
    ]
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    return {
        "metadata": {"name": LEDGER_CONFIGMAP, "namespace": NAMESPACE, "uid": "l", "resourceVersion": "8"},
        "data": {LEDGER_KEY: "\n".join(lines) + "\n"},
    }


def daemon_set() -> Json:
    """A DaemonSet that tolerates everything and mounts a directory of the machine."""
    spec = {"tolerations": [{"operator": "Exists"}], "volumes": [{"name": "v", "hostPath": {"path": "/"}}]}
    return {"metadata": {"name": "shipper", "namespace": "logging"}, "spec": {"template": {"spec": spec}}}


def allowed(review: Json) -> Json:
    """The answer to a SubjectAccessReview: everything but writing conditions."""
    wanted = review["spec"]["resourceAttributes"]
    return {"status": {"allowed": (wanted["verb"], wanted.get("subresource")) != ("patch", "status")}}


def populate(server: StandIn) -> None:
    """Show the whole fleet."""
    server.put_all(PROFILES, profiles())
    server.put_all(NODES, nodes())
    server.put(LEASE_PATH, lease())
    server.put(LEDGER, ledger())
    server.put("/version", {"gitVersion": "v1.37.2"})
    server.put(CRD, yaml.safe_load((ROOT / "crds" / "runtimeprofiles.yaml").read_text()))
    for kind, name in (
        ("policies", "clusterconform-fence-delete"),
        ("policybindings", "clusterconform-fence-delete"),
    ):
        server.put(f"{ADMISSION}/validatingadmission{kind}/{name}", {"metadata": {"name": name}})
    server.answers[REVIEWS] = allowed
    server.put("/apis/apps/v1/namespaces/logging/daemonsets/shipper", daemon_set())
    node_lease = {"metadata": {"name": "elm-22222222"}, "spec": {"renewTime": before(hours=1)}}
    server.put(f"{LEASES}/elm-22222222", node_lease)
