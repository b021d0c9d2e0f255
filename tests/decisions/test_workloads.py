"""W1 and W2: where a pod can go, and what it may ask for there."""

from typing import Any

import pytest
from builders import Json

from clusterconform.contract.matrix import MATRIX
from clusterconform.contract.names import BACKEND_LABEL, PROVIDER_TAINT_KEY, RUNTIME_LABEL
from clusterconform.contract.workload import POD_SPECS, UnreadableWorkloadError, view_pod_spec
from clusterconform.decisions.workloads import judge_pod

PROFILES = list(MATRIX.values())
EXEC: Json = {"exec": {"command": ["/bin/alive"]}}
HTTP: Json = {"httpGet": {"port": 80}}
EVERYTHING: Json = {"tolerations": [{"operator": "Exists"}]}
PROVIDER: Json = {"tolerations": [{"key": PROVIDER_TAINT_KEY, "operator": "Exists"}]}


def broken(**spec: Any) -> list[tuple[str, str]]:
    """Rule and field of what the pod with ``spec`` breaks."""
    seen = view_pod_spec({"spec": spec}, ("spec",))
    assert seen is not None
    return [(breach.rule, ".".join(map(str, breach.path))) for breach in judge_pod(seen, PROFILES)]


def required(*terms: Any) -> Json:
    """A required node affinity of ``terms``, each a list of (key, operator, values)."""
    written = [
        {
            "matchExpressions": [
                {"key": key, "operator": operator, "values": values} for key, operator, values in term
            ]
        }
        for term in terms
    ]
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": written}}
    return {"affinity": {"nodeAffinity": rule}}


ONLY_VIRTUAL: dict[str, Json] = {
    "runtime": {"nodeSelector": {RUNTIME_LABEL: "virtual"}},
    "backend": {"nodeSelector": {BACKEND_LABEL: "vk-ollama"}},
    "type": {"nodeSelector": {"type": "virtual-kubelet"}},
    "its name": {"nodeSelector": {"kubernetes.io/hostname": "laptop-vk-podman"}},
    "affinity": required([(BACKEND_LABEL, "In", ["vk-podman", "vk-native"])]),
    "two terms": required([(RUNTIME_LABEL, "In", ["virtual"])], [(BACKEND_LABEL, "In", ["vk-podman"])]),
    "not an agent, yet labelled": required([(RUNTIME_LABEL, "Exists", None), (BACKEND_LABEL, "NotIn", ["k3s"])]),
    "with a wish of its own": {"nodeSelector": {RUNTIME_LABEL: "virtual", "outpost.dhnt.io/gpu": "true"}},
}
ELSEWHERE_TOO: dict[str, Json] = {
    "anything": {},
    "agents": {"nodeSelector": {RUNTIME_LABEL: "agent"}},
    "not an agent, so unlabelled ones too": required([(RUNTIME_LABEL, "NotIn", ["agent"])]),
    "one of two terms": required([(RUNTIME_LABEL, "In", ["virtual"])], [("kubernetes.io/arch", "In", ["arm64"])]),
    "a backend without a profile": {"nodeSelector": {BACKEND_LABEL: "vk-docker"}},
    "an agent by name": {"nodeSelector": {"kubernetes.io/hostname": "pi-4c7adeb6"}},
    "a node by name": {"nodeName": "laptop-vk-podman"},
    "terms that match nothing": required(),
    "an empty term": required([]),
    "a number where a word is": required([(RUNTIME_LABEL, "Gt", ["3"])]),
}


@pytest.mark.parametrize("spec", ONLY_VIRTUAL.values(), ids=ONLY_VIRTUAL.keys())
def test_w1_a_pod_only_for_virtual_nodes_must_tolerate_their_taint(spec: Json) -> None:
    assert broken(**spec) == [("W1", "tolerations")]
    assert broken(**spec, **PROVIDER) == []
    assert broken(**spec, **EVERYTHING) == []


@pytest.mark.parametrize("spec", ELSEWHERE_TOO.values(), ids=ELSEWHERE_TOO.keys())
def test_w1_a_pod_that_can_go_elsewhere_or_nowhere_is_not_told(spec: Json) -> None:
    assert broken(**spec) == []


@pytest.mark.parametrize(
    ("toleration", "enough"),
    [
        ({"key": PROVIDER_TAINT_KEY, "operator": "Exists"}, True),
        ({"key": PROVIDER_TAINT_KEY, "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": PROVIDER_TAINT_KEY, "operator": "Equal", "value": "outpost"}, True),
        ({"key": PROVIDER_TAINT_KEY, "value": "outpost", "effect": "NoSchedule"}, True),
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": PROVIDER_TAINT_KEY, "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": PROVIDER_TAINT_KEY, "operator": "Equal", "value": "azure"}, False),
        ({"key": PROVIDER_TAINT_KEY}, False),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "node.kubernetes.io/not-ready", "operator": "Exists"}, False),
        ({}, False),
    ],
)
def test_w1_a_toleration_counts_as_the_scheduler_counts_it(toleration: Json, enough: bool) -> None:
    found = broken(nodeSelector={RUNTIME_LABEL: "virtual"}, tolerations=[toleration, None])
    assert found == ([] if enough else [("W1", "tolerations")])


NEEDS: dict[str, tuple[Json, str]] = {
    "liveness": ({"containers": [{"livenessProbe": EXEC}]}, "containers.0.livenessProbe.exec"),
    "readiness": ({"containers": [{}, {"readinessProbe": EXEC}]}, "containers.1.readinessProbe.exec"),
    "startup": ({"initContainers": [{"startupProbe": EXEC}]}, "initContainers.0.startupProbe.exec"),
    "hook": ({"containers": [{"lifecycle": {"preStop": EXEC}}]}, "containers.0.lifecycle.preStop.exec"),
    "hostPath": ({"volumes": [{"emptyDir": {}}, {"hostPath": {"path": "/"}}]}, "volumes.1.hostPath"),
    "privileged": (
        {"containers": [{"securityContext": {"privileged": True}}]},
        "containers.0.securityContext.privileged",
    ),
}


@pytest.mark.parametrize(("spec", "path"), NEEDS.values(), ids=NEEDS.keys())
def test_w2_what_lands_on_virtual_nodes_needs_nothing_that_they_do_not_serve(spec: Json, path: str) -> None:
    assert broken(**spec, **EVERYTHING) == [("W2", path)]
    assert broken(**spec, **PROVIDER, nodeSelector={BACKEND_LABEL: "vk-podman"}) == [("W2", path)]
    assert broken(**spec, nodeName="laptop-vk-podman") == [("W2", path)]


@pytest.mark.parametrize(("spec", "path"), NEEDS.values(), ids=NEEDS.keys())
def test_w2_what_cannot_land_there_may_need_it(spec: Json, path: str) -> None:
    assert broken(**spec) == []
    assert broken(**spec, **EVERYTHING, nodeSelector={RUNTIME_LABEL: "agent"}) == []
    assert broken(**spec, **EVERYTHING, **required([(RUNTIME_LABEL, "NotIn", ["virtual"])])) == []
    assert broken(**spec, **EVERYTHING, nodeName="pi-4c7adeb6") == []


def test_w2_everything_that_it_needs_is_named() -> None:
    container = {"livenessProbe": EXEC, "readinessProbe": HTTP, "securityContext": {"privileged": True}}
    spec = {"containers": [container, None], "volumes": [None, {"hostPath": {}}]}
    assert [path for _, path in broken(**spec, **EVERYTHING)] == [
        "containers.0.livenessProbe.exec",
        "containers.0.securityContext.privileged",
        "volumes.1.hostPath",
    ]


def test_only_accepted_profiles_of_class_virtual_have_such_nodes() -> None:
    agents = [profile for profile in PROFILES if profile.node_class == "agent"]
    seen = view_pod_spec({"spec": {**EVERYTHING, "volumes": [{"hostPath": {}}]}}, ("spec",))
    assert seen is not None
    assert judge_pod(seen, agents) == []


@pytest.mark.parametrize("place", POD_SPECS.values(), ids=[kind for _, kind in POD_SPECS])
def test_a_template_is_found_where_its_kind_has_it(place: tuple[str, ...]) -> None:
    manifest: Any = {"nodeName": "here"}
    for part in reversed(place):
        manifest = {part: manifest}
    seen = view_pod_spec(manifest, place)
    assert seen is not None
    assert seen.node_name == "here"
    assert view_pod_spec({}, place) is None


def test_a_field_of_a_wrong_type_is_told_with_its_path() -> None:
    with pytest.raises(UnreadableWorkloadError, match=r"tolerations\[0\]"):
        view_pod_spec({"spec": {"tolerations": [7]}}, ("spec",))
