"""The Helm chart, rendered by the real helm: it gives what kustomize gives, and takes no unknown value."""

import json
import subprocess
from collections.abc import Callable
from typing import Any, Final

import pytest
import yaml
from deployment import DEPLOY, Json, objects_in, overlay_objects

from clusterconform.contract import names
from clusterconform.sandbox.builder import Builder
from clusterconform.sandbox.parts import HELM

Helm = Callable[..., subprocess.CompletedProcess[str]]

CHART: Final = DEPLOY / "chart"
VALUES: Final[Json] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: Final[Json] = json.loads((CHART / "values.schema.json").read_text())
DEPLOYMENT: Final = ("Deployment", names.NAMESPACE, "clusterconform")


@pytest.fixture(scope="module")
def helm(builder: Builder, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Runs helm, with no file of the user's own: ``helm(*args)``."""
    program, home = builder.provide(HELM), tmp_path_factory.mktemp("helm")

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, *args],
            env={"HOME": str(home), "PATH": ""},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    return run


@pytest.fixture(scope="module")
def rendered(helm: Helm) -> Callable[..., dict[tuple[str, str, str], Json]]:
    """The objects of the chart with some values: ``rendered(bound="enforce")``."""

    def render(**values: Any) -> dict[tuple[str, str, str], Json]:
        settings = [f"{name.replace('_', '.')}={json.dumps(value)}" for name, value in values.items()]
        done = helm("template", "release", str(CHART), *(word for one in settings for word in ("--set-json", one)))
        assert done.returncode == 0, done.stderr
        return objects_in(done.stdout)

    return render


Rendered = Callable[..., dict[tuple[str, str, str], Json]]


@pytest.mark.parametrize(
    ("overlay", "values"),
    [
        ("observe", {}),
        ("enforce", {"bound": "enforce"}),
        ("pinned-addresses", {"bound": "enforce", "pinnedAddresses": True}),
    ],
)
def test_the_chart_gives_what_kustomize_gives(overlay: str, values: Json, rendered: Rendered) -> None:
    assert rendered(**values) == overlay_objects(overlay)


def test_helm_finds_no_fault_with_it(helm: Helm) -> None:
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_values_change_what_they_say_and_nothing_else(rendered: Rendered) -> None:
    plain = rendered()
    changed = rendered(
        image={"repository": "example.com/clusterconform", "tag": "x", "pullPolicy": "Always"},
        nodegc="dry-run",
        imagePullSecrets=["pull"],
        replicas=3,
        resources={"limits": {"memory": "1Gi"}},
        nodeSelector={"disk": "ssd"},
        tolerations=[{"key": "example.com/x", "operator": "Exists"}],
    )
    assert [key for key in plain if plain[key] != changed[key]] == [DEPLOYMENT]
    before, after = plain[DEPLOYMENT]["spec"], changed[DEPLOYMENT]["spec"]
    assert after["replicas"] == 3
    pod, container = after["template"]["spec"], after["template"]["spec"]["containers"][0]
    assert container["image"] == "example.com/clusterconform:x"
    assert container["imagePullPolicy"] == "Always"
    assert container["resources"] == {"limits": {"memory": "1Gi"}}
    assert container["env"][-1] == {"name": "OUTPOST_NODEGC", "value": "dry-run"}
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    assert pod["nodeSelector"] == {"disk": "ssd"}
    assert pod["tolerations"] == [
        *before["template"]["spec"]["tolerations"],
        {"key": "example.com/x", "operator": "Exists"},
    ]
    assert pod["affinity"] == before["template"]["spec"]["affinity"]
    assert container["securityContext"] == before["template"]["spec"]["containers"][0]["securityContext"]


@pytest.mark.parametrize(
    "setting",
    [
        "bound=sharp",
        "nodegc=live",
        "pinnedAddresses=perhaps",
        "image.repository=",
        "image.digest=x",
        "replicas=0",
        "replicas=many",
        "namespace=elsewhere",
        "resources.cpu=1",
    ],
)
def test_a_value_that_is_none_is_refused(setting: str, helm: Helm) -> None:
    done = helm("template", "release", str(CHART), "--set", setting)
    assert done.returncode != 0
    assert "values don't meet the specifications of the schema" in done.stderr


def test_pinning_is_refused_where_the_cluster_has_no_such_policy(helm: Helm) -> None:
    done = helm("template", "release", str(CHART), "--set", "pinnedAddresses=true", "--kube-version", "1.34.0")
    assert done.returncode != 0
    assert "needs Kubernetes 1.36 or newer" in done.stderr


def test_every_value_is_documented_and_known_to_the_schema() -> None:
    text = (CHART / "values.yaml").read_text().splitlines()
    for name in VALUES:
        line = next(number for number, row in enumerate(text) if row.startswith(f"{name}:"))
        assert text[line - 1].startswith("# ") or text[line + 1].startswith("  # "), name
    assert VALUES.keys() == SCHEMA["properties"].keys() - {"global"}
    assert VALUES["image"].keys() == SCHEMA["properties"]["image"]["properties"].keys()


def test_the_chart_is_of_the_version_of_the_program() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    image = overlay_objects("observe")[DEPLOYMENT]["spec"]["template"]["spec"]["containers"][0]["image"]
    project = (DEPLOY.parent / "pyproject.toml").read_text()
    assert f'version = "{chart["version"]}"' in project
    assert chart["appVersion"] == chart["version"] == image.rpartition(":")[2]
