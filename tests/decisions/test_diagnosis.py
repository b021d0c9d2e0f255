"""``doctor``: each check on a cluster in order, and on one in which it must find something and say what to do."""

from datetime import timedelta
from typing import Any

import pytest
from builders import START, TAINT, VIRTUAL_SPEC, Json, agent, conformant, manifest, ready, virtual

from clusterconform.contract.diagnosis import Access, Check, ClusterFacts, State
from clusterconform.contract.lease import read_lease
from clusterconform.contract.matrix import MATRIX
from clusterconform.contract.names import (
    HEARD_ANNOTATION,
    NAME_LABEL,
    NAMESPACE,
    PROBE_NAME,
    RESYNCED_ANNOTATION,
    RUNTIME_LABEL,
)
from clusterconform.contract.profile import manifest_of, read_profile
from clusterconform.contract.times import format_time
from clusterconform.decisions.diagnosis import CHECKS, diagnose, worst
from clusterconform.decisions.installation import needed_access, review_of
from clusterconform.decisions.streaming import cause_of, verified

POLICIES = [("ValidatingAdmissionPolicy", "fence"), ("ValidatingAdmissionPolicyBinding", "fence")]
PORT_23886 = ("worker-17", "worker-408")  # contract V5


def built_in(**changes: Json) -> list[Any]:
    """The built-in profiles as an operator has seen them; ``changes`` are laid over, by name with ``_``."""
    rows = []
    for row in MATRIX.values():
        raw = manifest_of(row)
        raw["metadata"] |= {"generation": 1, "creationTimestamp": "2026-07-01T00:00:00Z"}
        raw["status"] = {"observedGeneration": 1}
        for key, value in changes.get(row.backend.replace("-", "_"), {}).items():
            raw[key] = {**raw.get(key, {}), **value}
        rows.append(read_profile(raw))
    return rows


def ago(seconds: float) -> str:
    """A time as a Lease has it, so long before now."""
    return (START - timedelta(seconds=seconds)).isoformat(timespec="microseconds").replace("+00:00", "Z")


def lease(seconds_ago: float = 2, holder: str = "operator-1", *, acquired: float = 1e5, **told: Any) -> Any:
    """The operator's Lease, renewed and acquired so long ago; ``heard`` and ``resynced`` are told in it."""
    names = {"heard": HEARD_ANNOTATION, "resynced": RESYNCED_ANNOTATION}
    annotations = {names[key]: value if isinstance(value, str) else ago(value) for key, value in told.items()}
    spec = {"leaseDurationSeconds": 15, "renewTime": ago(seconds_ago), "acquireTime": ago(acquired)}
    metadata = {"name": "clusterconform", "uid": "u", "resourceVersion": "1", "annotations": annotations}
    return read_lease({"metadata": metadata, "spec": {**spec, "holderIdentity": holder}})


def facts(**changes: Any) -> ClusterFacts:
    """A cluster in order, but for ``changes``."""
    usual: Json = {
        "now": START,
        "local": START,
        "lease": lease(),
        "profiles": built_in(),
        "nodes": [agent(), virtual()],
        "policies": frozenset(POLICIES),
        "shipped_policies": POLICIES,
    }
    return ClusterFacts(**(usual | changes))


def of(name: str, **changes: Any) -> Check:
    """One check on such a cluster, after which all others still answer."""
    checks = diagnose(facts(**changes))
    assert tuple(check.name for check in checks) == CHECKS
    return next(check for check in checks if check.name == name)


def stamped(raw: Json, heartbeat: str, stamp: str) -> Json:
    """``raw`` whose kubelet says that it is ``heartbeat`` when the API server writes ``stamp``."""
    raw["status"]["conditions"][0]["lastHeartbeatTime"] = heartbeat
    raw["metadata"]["managedFields"] = [
        {
            "manager": "k3s",
            "subresource": "status",
            "time": stamp,
            "fieldsV1": {"f:status": {"f:conditions": {'k:{"type":"Ready"}': {}}}},
        }
    ]
    return raw


def probe_pod(node: str, status: str) -> Json:
    """A probe pod on ``node`` that has been there for an hour."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"probe-on-{node}",
            "namespace": NAMESPACE,
            "uid": "p",
            "labels": {NAME_LABEL: PROBE_NAME},
            "creationTimestamp": format_time(START - timedelta(hours=1)),
        },
        "spec": {"nodeName": node},
        "status": {
            "phase": "Pending",
            "conditions": [
                {"type": "Ready", "status": status, "lastTransitionTime": format_time(START - timedelta(hours=1))}
            ],
        },
    }


def daemon_set(spec: Json, **labels: str) -> Json:
    """A DaemonSet whose pods have ``spec``."""
    metadata = {"name": "shipper", "namespace": "logging", "labels": labels}
    return {"metadata": metadata, "spec": {"template": {"spec": spec}}}


CONTESTED = f"another writer keeps putting label:{RUNTIME_LABEL} back"
EVERYTHING: Json = {"tolerations": [{"operator": "Exists"}]}
MASS_STALE = {
    "conditions": [
        {"type": "ReapingAllowed", "status": "False", "reason": "MassStale", "message": "4 of 6 are stale"}
    ],
    "nodeGC": {"held": [{"name": f"n{index}"} for index in range(5)]},
}
K3S_CCM = agent(annotations={"k3s.io/internal-ip": "10.0.0.1"})
CLOUD = agent(annotations={"k3s.io/internal-ip": "10.0.0.1", "alpha.kubernetes.io/provided-node-ip": "10.0.0.1"})
CLOUD["metadata"]["managedFields"] = [
    {"manager": manager, "time": f"2026-08-01T11:59:0{second}Z", "fieldsV1": {"f:status": {f"f:{field}": {}}}}
    for second, (manager, field) in enumerate(
        [("us", "addresses"), ("k3s", "addresses"), ("kubelet", "conditions")]
    )
]
ENDPOINT = "127.0.226.242"  # of the agent in order
SERVICE_LB = [daemon_set({}, **{"svccontroller.k3s.cattle.io/svcname": "web"})]


def service(*addresses: Any) -> Json:
    """A Service that a load balancer publishes at ``addresses``."""
    ingress = [{"ip": address} for address in addresses]
    return {"metadata": {"namespace": "shop", "name": "web"}, "status": {"loadBalancer": {"ingress": ingress}}}


FOUND: dict[str, tuple[str, Json, State, str]] = {
    "no CRD": ("crd", {"crd_missing": None}, State.FAILING, "there is no CRD"),
    "an old CRD": ("crd", {"crd_missing": ["spec.adopt"]}, State.FAILING, "it lacks spec.adopt"),
    "a missing verb": (
        "permissions",
        {"denied": [Access("patch", "", "nodes", "status")]},
        State.FAILING,
        "may not patch nodes/status",
    ),
    "no policy": (
        "admission",
        {"policies": frozenset(POLICIES[:1])},
        State.FAILING,
        "missing: ValidatingAdmission",
    ),
    "no Lease": ("leader", {"lease": None}, State.FAILING, "no operator leads"),
    "a released Lease": ("leader", {"lease": lease(holder="")}, State.FAILING, "no operator leads"),
    "a paused leader": ("leader", {"lease": lease(60)}, State.FAILING, "has not renewed its Lease for 60 s"),
    "an edit unseen": (
        "stream",
        {"profiles": built_in(vk_podman={"metadata": {"generation": 2}})},
        State.FAILING,
        "RuntimeProfile vk-podman (generation 2, seen 1)",
    ),
    "an overdue pass": (
        "stream",
        {
            "profiles": built_in(
                k3s={"status": {"nodeGC": {"nextPass": format_time(START - timedelta(minutes=5))}}}
            )
        },
        State.FAILING,
        "300 s overdue",
    ),
    "a leader that heard nothing": (
        "stream",
        {"lease": lease(heard=133)},
        State.FAILING,
        "operator-1 tells that it has heard nothing of nodes for 131 s",
    ),
    "a leader that listed nothing": (
        "stream",
        {"lease": lease(heard=3, resynced=1203)},
        State.FAILING,
        "not listed all nodes and profiles for 1201 s",
    ),
    "a clock a minute off": ("clock", {"local": START + timedelta(minutes=1)}, State.WARNING, "60 s behind this"),
    "a clock an hour off": ("clock", {"local": START - timedelta(hours=1)}, State.FAILING, "3600 s ahead of this"),
    "a profile refused": (
        "profiles",
        {"profiles": [*built_in(), read_profile(manifest("vk-x", {**VIRTUAL_SPEC, "providerTaint": False}))]},
        State.FAILING,
        "RuntimeProfile vk-x is not accepted",
    ),
    "a virtual node with a kubelet": (
        "nodes",
        {"nodes": [virtual(port=10250)]},
        State.FAILING,
        "kubelet port 10250",
    ),
    "a node in conflict": ("nodes", {"nodes": [agent(taints=[TAINT])]}, State.FAILING, "claims backend k3s"),
    "a drift": ("nodes", {"nodes": [virtual(taints=[])]}, State.WARNING, "ProviderTaintDrifted: laptop-vk-podman"),
    "a contested label": (
        "contested",
        {
            "nodes": [
                virtual(labels={RUNTIME_LABEL: "x"}, conditions=[conformant("False", "Contested", CONTESTED)]),
            ]
        },
        State.FAILING,
        f"laptop-vk-podman: {CONTESTED}",
    ),
    "a port twice": (
        "ports",
        {"nodes": [agent(f"{base}-11111111", base) for base in PORT_23886]},
        State.FAILING,
        "23886",
    ),
    "k3s' cloud controller": ("addresses", {"nodes": [K3S_CCM]}, State.WARNING, "the cloud controller of k3s"),
    "a cloud controller": (
        "addresses",
        {"nodes": [CLOUD]},
        State.WARNING,
        "mode Status publishes is not among them; they were written last by k3s",
    ),
    "ServiceLB": ("addresses", {"daemon_sets": SERVICE_LB}, State.WARNING, "ServiceLB of k3s runs (shipper)"),
    "a Service at the endpoint of a kubelet": (
        "addresses",
        {"daemon_sets": SERVICE_LB, "services": [service(None, "10.0.0.1", ENDPOINT)]},
        State.FAILING,
        f"shop/web ({ENDPOINT})",
    ),
    "no pinning": (
        "admission",
        {
            "profiles": built_in(k3s={"spec": {"addressReconcile": {"mode": "Pinned"}}}),
            "pinning_policies": [("MutatingAdmissionPolicy", "pin")],
        },
        State.WARNING,
        "mode is Pinned, but missing: MutatingAdmissionPolicy pin",
    ),
    "a dead tunnel": (
        "paths",
        {"trials": {"pi-4c7adeb6": cause_of("dial tcp 127.0.226.242:23058: connect: connection refused")}},
        State.FAILING,
        "no way to the kubelet of pi-4c7adeb6: ConnectionRefused: dial tcp",
    ),
    "a node clock ahead": (
        "node-clocks",
        {"nodes": [stamped(agent(), "2026-08-01T12:09:00Z", "2026-08-01T11:59:00Z")]},
        State.FAILING,
        "the clock of pi-4c7adeb6 is 600 s ahead of",
    ),
    "a node clock behind": (
        "node-clocks",
        {"nodes": [stamped(agent(), "2026-08-01T10:59:00Z", "2026-08-01T11:59:00Z")]},
        State.FAILING,
        "is 3600 s behind",
    ),
    "a transition in the future": (
        "node-clocks",
        {"nodes": [_future := agent()]},
        State.FAILING,
        "is 1800 s ahead of",
    ),
    "a broken sandbox": (
        "runtimes",
        {"nodes": [agent()], "pods": [probe_pod("pi-4c7adeb6", "False")]},
        State.FAILING,
        "the container runtime of pi-4c7adeb6 does not run a pod",
    ),
    "a DaemonSet with hostPath": (
        "daemonsets",
        {"daemon_sets": [daemon_set({**EVERYTHING, "volumes": [{"hostPath": {}}]})]},
        State.FAILING,
        "DaemonSet logging/shipper can land on virtual nodes (vk-native, vk-ollama, vk-podman)",
    ),
    "a DaemonSet on virtual nodes": (
        "daemonsets",
        {"daemon_sets": [daemon_set(EVERYTHING)]},
        State.WARNING,
        "DaemonSet logging/shipper has a pod on every virtual node",
    ),
    "a held outage": (
        "reaping",
        {"profiles": built_in(k3s={"status": MASS_STALE})},
        State.WARNING,
        "MassStale: 4 of 6 are stale; held: n0, n1, n2 and 2 more",
    ),
}
_future["status"]["conditions"][0] = ready("False", lastTransitionTime="2026-08-01T12:30:00Z")


def test_a_cluster_in_order_is_told_so() -> None:
    assert [(check.name, check.state) for check in diagnose(facts())] == [(name, State.OK) for name in CHECKS]


@pytest.mark.parametrize(("name", "changes", "state", "words"), FOUND.values(), ids=FOUND.keys())
def test_a_fault_is_found_and_says_what_to_do(name: str, changes: Json, state: State, words: str) -> None:
    check = of(name, **changes)
    assert check.state is state
    (trouble,) = check.troubles
    assert words in trouble.message
    assert trouble.advice


@pytest.mark.parametrize(("name", "changes"), [row[:2] for row in FOUND.values()], ids=FOUND.keys())
def test_no_other_check_cries_for_it(name: str, changes: Json) -> None:
    failing = {check.name for check in diagnose(facts(**changes)) if check.state is State.FAILING}
    # A ServiceLB that tolerates nothing is no DaemonSet on virtual nodes; all others speak of one thing each.
    assert failing <= {name}


def test_every_check_has_a_fault_in_this_table() -> None:
    assert {row[0] for row in FOUND.values()} == set(CHECKS)


@pytest.mark.parametrize("name", CHECKS)
def test_what_could_not_be_read_is_unknown_and_never_ok(name: str) -> None:
    check = of(name, unread={name: "nodes is forbidden"})
    assert check.state is State.UNKNOWN
    assert check.troubles[0].message == "nodes is forbidden"


def test_the_worst_answer_counts() -> None:
    assert worst([]) is State.OK
    assert worst([State.WARNING, State.OK]) is State.WARNING
    assert worst([State.UNKNOWN, State.WARNING]) is State.UNKNOWN
    assert worst([State.UNKNOWN, State.FAILING]) is State.FAILING


SPARED: dict[str, tuple[str, Json]] = {
    "a node that is missed": (
        "node-clocks",
        {"nodes": [stamped(agent(), "2026-07-01T09:00:00Z", "2026-08-01T11:59:00Z")]},
    ),
    "a probe that starts": ("runtimes", {"nodes": [agent()], "pods": [probe_pod("pi-4c7adeb6", "True")]}),
    "a DaemonSet for agents": ("daemonsets", {"daemon_sets": [daemon_set({"volumes": [{"hostPath": {}}]})]}),
    "a DaemonSet that is none": ("daemonsets", {"daemon_sets": [daemon_set({"tolerations": 7})]}),
    "a pass that is late by seconds": (
        "stream",
        {
            "profiles": built_in(
                k3s={"status": {"nodeGC": {"nextPass": format_time(START - timedelta(seconds=20))}}}
            )
        },
    ),
    "a stream without a leader": (
        "stream",
        {"lease": None, "profiles": built_in(vk_podman={"metadata": {"generation": 2}})},
    ),
    "a leader that hears": ("stream", {"lease": lease(heard=131, resynced=1199)}),
    "a leader that told nothing": ("stream", {"lease": lease()}),
    "a leader that told rubbish": ("stream", {"lease": lease(heard="soon", resynced="")}),
    "what an earlier leader told": ("stream", {"lease": lease(acquired=60, heard=1e4, resynced=1e4)}),
    "a Service at an address of its own": ("addresses", {"services": [service("10.0.0.1"), {"metadata": {}}]}),
    "addresses that are off": (
        "addresses",
        {
            "profiles": built_in(k3s={"spec": {"addressReconcile": {"mode": "Off"}}}),
            "nodes": [K3S_CCM],
            "daemon_sets": SERVICE_LB,
        },
    ),
    "a guard that passes": (
        "reaping",
        {"profiles": built_in(k3s={"status": {"conditions": [{"type": "ReapingAllowed", "status": "True"}]}})},
    ),
    "a tunnel that works": ("paths", {"trials": {"pi-4c7adeb6": verified()}}),
    "a pinning that is not asked for": ("admission", {"pinning_policies": [("MutatingAdmissionPolicy", "pin")]}),
    "a clock that is seconds off": ("clock", {"local": START + timedelta(seconds=20)}),
}
SPARED["a node that is missed"][1]["nodes"][0]["status"]["conditions"][0]["status"] = "Unknown"


@pytest.mark.parametrize(("name", "changes"), SPARED.values(), ids=SPARED.keys())
def test_what_is_in_order_is_not_found(name: str, changes: Json) -> None:
    assert of(name, **changes).state is State.OK


def test_of_a_contested_mark_the_other_writer_is_named() -> None:
    raw = virtual(labels={RUNTIME_LABEL: "x"}, conditions=[conformant("False", "Contested", CONTESTED)])
    raw["metadata"]["managedFields"] = [
        {
            "manager": manager,
            "time": at,
            "fieldsV1": {"f:metadata": {"f:labels": {f"f:{label}": {}}}},
        }
        for manager, at, label in (
            ("clusterconform", "2026-08-01T11:50:00Z", RUNTIME_LABEL),
            ("label-bot", "2026-08-01T11:58:00Z", RUNTIME_LABEL),
            ("somebody", "2026-08-01T11:59:00Z", "other"),
        )
    ]
    (trouble,) = of("contested", nodes=[raw]).troubles
    assert "(last by label-bot)" in trouble.message


def test_the_rights_that_are_asked_for_are_those_of_the_shipped_roles() -> None:
    roles = [
        {"kind": "ServiceAccount", "metadata": {"name": "x"}},
        {
            "kind": "ClusterRole",
            "metadata": {"name": "x"},
            "rules": [{"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["get", "patch"]}],
        },
        {
            "kind": "Role",
            "metadata": {"name": "x", "namespace": "here"},
            "rules": [{"apiGroups": ["a"], "resources": ["b"], "resourceNames": ["c", "d"], "verbs": ["get"]}],
        },
    ]
    assert [str(access) for access in needed_access(roles)] == [
        "get nodes",
        "patch nodes",
        "get nodes/status",
        "patch nodes/status",
        "get b c in here",
        "get b d in here",
    ]
    assert review_of(Access("get", "a", "b", "", "here", "c"))["spec"]["resourceAttributes"] == {
        "verb": "get",
        "group": "a",
        "resource": "b",
        "namespace": "here",
        "name": "c",
    }
