"""What is applied to a cluster: that it is whole, that it asks for little, and that code and docs say the same."""

import re
import subprocess
from typing import Any, Final

import pytest
import yaml
from click.testing import CliRunner
from deployment import DEPLOY, OVERLAYS, ROOT, Json, objects_in, overlay_objects

from clusterconform.cli.main import main
from clusterconform.contract import names

OBSERVE: Final = overlay_objects("observe")
DEPLOYMENT: Final = OBSERVE["Deployment", names.NAMESPACE, "clusterconform"]
POD: Final[Json] = DEPLOYMENT["spec"]["template"]["spec"]
LABELS: Final = DEPLOYMENT["spec"]["template"]["metadata"]["labels"]
CONTAINER: Final[Json] = POD["containers"][0]


def test_every_manifest_of_the_base_is_in_every_overlay() -> None:
    base = "\n---\n".join(
        file.read_text() for file in sorted((DEPLOY / "base").glob("*.yaml")) if file.name != "kustomization.yaml"
    )
    for overlay in OVERLAYS:
        assert objects_in(base).keys() <= overlay_objects(overlay).keys()


def test_the_overlays_differ_by_the_bound_and_the_pinning_alone() -> None:
    observe, enforce, pinned = (overlay_objects(overlay) for overlay in OVERLAYS)
    assert observe.keys() == enforce.keys()
    differing = [key for key in observe if observe[key] != enforce[key]]
    assert differing == [("Deployment", names.NAMESPACE, "clusterconform")]
    written = yaml.safe_dump(observe[differing[0]]).replace("--bound=observe", "--bound=enforce")
    assert yaml.safe_load(written) == enforce[differing[0]]
    assert {key: item for key, item in pinned.items() if key in enforce} == enforce
    assert {kind for kind, _, _ in pinned.keys() - enforce.keys()} == {
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
    }


def test_the_crd_and_the_profiles_are_applied_apart() -> None:
    """Taking an overlay away must take no profile away."""
    kinds = {kind for overlay in OVERLAYS for kind, _, _ in overlay_objects(overlay)}
    assert not kinds & {"CustomResourceDefinition", names.KIND}


def test_nothing_shipped_is_or_reads_a_secret() -> None:
    for overlay in OVERLAYS:
        assert "secret" not in yaml.safe_dump_all(overlay_objects(overlay).values()).lower()


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_object_is_ours_by_its_label(overlay: str) -> None:
    for item in overlay_objects(overlay).values():
        assert item["metadata"]["labels"][names.NAME_LABEL] == "clusterconform"


# --- the Deployment -------------------------------------------------------------------------------------------


def test_the_command_line_is_one_that_the_program_takes() -> None:
    done = CliRunner().invoke(main, [*CONTAINER["args"], "--help"])
    assert done.exit_code == 0
    assert [word.partition("=")[0] for word in CONTAINER["args"]] == ["run", "--bound", "--listen"]
    for word in CONTAINER["args"][1:]:
        assert word.partition("=")[0] in done.output


def test_the_first_installation_observes() -> None:
    assert "--bound=observe" in CONTAINER["args"]


def test_the_operator_knows_its_node() -> None:
    (variable,) = CONTAINER["env"]
    assert variable["name"] == "NODE_NAME"
    assert variable["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"


def test_it_runs_as_nobody_with_a_root_that_cannot_be_written() -> None:
    assert POD["securityContext"]["runAsNonRoot"] is True
    assert POD["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC", "volumes"} & POD.keys()


def test_the_account_is_the_one_that_the_fence_and_the_rights_name() -> None:
    assert POD["serviceAccountName"] == names.SERVICE_ACCOUNT
    assert ("ServiceAccount", names.NAMESPACE, names.SERVICE_ACCOUNT) in OBSERVE


def matches(expression: Json, labels: Json) -> bool:
    """Whether a node with ``labels`` satisfies one expression of a node selector."""
    inside = labels.get(expression["key"]) in expression["values"]
    return inside if expression["operator"] == "In" else not inside


@pytest.mark.parametrize(
    ("labels", "welcome"),
    [
        ({"kubernetes.io/os": "linux"}, True),
        ({"kubernetes.io/os": "linux", names.RUNTIME_LABEL: "agent"}, True),
        ({"kubernetes.io/os": "linux", names.RUNTIME_LABEL: "virtual"}, False),
        ({"kubernetes.io/os": "linux", names.TYPE_LABEL: names.VIRTUAL_KUBELET_TYPE}, False),
    ],
)
def test_it_keeps_off_virtual_nodes(labels: Json, *, welcome: bool) -> None:
    (term,) = POD["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert all(matches(expression, labels) for expression in term["matchExpressions"]) is welcome


def test_it_does_not_tolerate_the_taint_of_virtual_nodes() -> None:
    assert names.PROVIDER_TAINT_KEY not in [toleration.get("key") for toleration in POD["tolerations"]]
    assert all("key" in toleration for toleration in POD["tolerations"])


def test_two_replicas_prefer_two_machines() -> None:
    assert DEPLOYMENT["spec"]["replicas"] == 2
    (preferred,) = POD["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert preferred["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    assert preferred["podAffinityTerm"]["labelSelector"]["matchLabels"].items() <= LABELS.items()
    assert "requiredDuringSchedulingIgnoredDuringExecution" not in POD["affinity"]["podAntiAffinity"]


def test_the_probes_ask_what_the_operator_answers() -> None:
    (port,) = CONTAINER["ports"]
    assert CONTAINER["args"][-1] == f"--listen=0.0.0.0:{port['containerPort']}"
    assert CONTAINER["livenessProbe"]["httpGet"] == {"path": "/livez", "port": port["name"]}
    assert CONTAINER["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": port["name"]}


def selector(kind: str, *path: str) -> Any:
    found: Any = OBSERVE[kind, names.NAMESPACE, "clusterconform"]
    for name in path:
        found = found[name]
    return found


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("Deployment", ("spec", "selector", "matchLabels")),
        ("PodDisruptionBudget", ("spec", "selector", "matchLabels")),
        ("NetworkPolicy", ("spec", "podSelector", "matchLabels")),
        ("Service", ("spec", "selector")),
    ],
)
def test_what_selects_the_operators_pods_selects_them(kind: str, path: tuple[str, ...]) -> None:
    assert selector(kind, *path)
    assert selector(kind, *path).items() <= LABELS.items()


def test_only_the_one_port_is_open() -> None:
    assert selector("NetworkPolicy", "spec", "policyTypes") == ["Ingress"]
    assert selector("NetworkPolicy", "spec", "ingress") == [{"ports": [{"port": "http", "protocol": "TCP"}]}]


# --- paths ----------------------------------------------------------------------------------------------------


def test_every_path_below_deploy_that_is_spoken_of_exists() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    spoken = {
        (name, path)
        for name in tracked.stdout.splitlines()
        if name.endswith((".md", ".py", ".yaml", ".toml")) and (ROOT / name).is_file() and name != "docs/ci.md"
        for path in re.findall(r"\bdeploy/[\w./-]*\w", (ROOT / name).read_text())
    }
    assert sorted((name, path) for name, path in spoken if not (ROOT / path).exists()) == []
