"""One object, one verdict: of ``check``, of the API server, and of the operator.

Over the whole table of objects that the CRD is tried with (tests/data/crd); and of a running operator, by what it
writes down, over those of them that can live side by side, and over nodes of every kind.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pykube
import pytest
import yaml
from click.testing import CliRunner
from operators import NODES, PROFILES, ROOT, World, install, operator

from clusterconform.cli.demo.shipped import apply_file
from clusterconform.cli.live import Live
from clusterconform.cli.main import main
from clusterconform.contract.names import API_VERSION, KIND, PLURAL
from clusterconform.contract.profile import read_profile
from clusterconform.decisions.gate import accept
from clusterconform.sandbox.control_plane import ControlPlane
from clusterconform.sandbox.nodes import agent_node, virtual_node

TABLES = Path(__file__).parents[1] / "data" / "crd"
ROWS = [
    row
    for name in ("accepted", "refused")
    for row in yaml.safe_load((TABLES / f"{name}.yaml").read_text())["rows"]
]


@pytest.fixture(scope="module")
def api(plane: ControlPlane, crd: None) -> Iterator[pykube.HTTPClient]:
    with Live(plane.kubeconfig) as cluster:  # which leaves no credentials in the shared temporary directory
        yield cluster._client()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["case"])
def test_check_api_server_and_operator_agree_on_a_profile(api: pykube.HTTPClient, row: dict[str, Any]) -> None:
    spec = row["spec"]
    name = row.get("name") or spec["backend"]
    document = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec}
    stored = api.post(version=API_VERSION, url=PLURAL, json=document, params={"dryRun": "All"})
    done = CliRunner().invoke(main, ["check", "-", "-o", "json"], input=json.dumps(document))
    assert (stored.status_code, done.exit_code) in {(201, 0), (422, 1)}, (stored.text, done.output)
    catalogue = accept([read_profile(document)])
    assert (name in catalogue.accepted) == (done.exit_code == 0)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["case"])
def test_a_complaint_names_a_field_that_the_api_server_names_too(
    api: pykube.HTTPClient, row: dict[str, Any]
) -> None:
    """Not each of them: our reading stops at the first value that it cannot read, and words differ."""
    spec = row["spec"]
    document = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": row.get("name") or spec["backend"]},
        "spec": spec,
    }
    stored = api.post(version=API_VERSION, url=PLURAL, json=document, params={"dryRun": "All"})
    done = CliRunner().invoke(main, ["check", "-", "-o", "json"], input=json.dumps(document))
    named = {finding["path"] for finding in json.loads(done.stdout)["findings"] if finding["severity"] == "error"}
    causes = stored.json()["details"]["causes"] if stored.status_code == 422 else []
    fields = {cause["field"] for cause in causes}
    # A block, or what is required in it: the API server names the field, our reading the block around it.
    strangers = [path for path in named if not any(field.startswith(path) for field in fields)]
    assert strangers == []


def _side_by_side() -> list[dict[str, Any]]:
    """The specs that the API server takes: the virtual ones each under a backend of its own, and one agent."""
    specs = []
    for number, row in enumerate(yaml.safe_load((TABLES / "accepted.yaml").read_text())["rows"]):
        spec = row["spec"]
        if spec["class"] == "virtual" and spec["backend"] == "vk-new":
            backend = f"vk-new-{number}"
            suffix = {"nodeNameSuffix": f"-{backend}"} if spec.get("nodeNameSuffix") else {}
            spec = {**spec, "backend": backend, **suffix}
        specs.append(spec)
    return list({spec["backend"]: spec for spec in specs}.values())


def _nodes() -> list[dict[str, Any]]:
    """Nodes of each kind: in order, drifted in a mark, lying about the kubelet, of two minds."""
    at = datetime.now(UTC)  # noqa: TID251 - the programs live in real time
    changes: dict[str, Any] = {
        "fine": lambda _: None,
        "label": lambda raw: raw["metadata"]["labels"].update({"outpost.dhnt.io/runtime": "agent"}),
        "taint": lambda raw: raw["spec"].update(taints=[]),
        "host": lambda raw: raw["metadata"]["labels"].pop("outpost.dhnt.io/host"),
        "port": lambda raw: raw["status"].update(daemonEndpoints={"kubeletEndpoint": {"Port": 10250}}),
        "liar": lambda raw: raw["spec"].update(providerID="k3s://liar"),
    }
    rows = [virtual_node(host, "vk-podman", now=at) for host in changes]
    for raw, change in zip(rows, changes.values(), strict=True):
        change(raw)
    confused = agent_node("ash", now=at)
    confused["metadata"]["labels"]["type"] = "virtual-kubelet"
    return [*rows, agent_node("elm", now=at), confused]


def _of_check(plane: ControlPlane) -> tuple[dict[str, bool], dict[str, str]]:
    """What ``check --cluster`` says: which profiles are accepted, and the first error of each node with one."""
    done = CliRunner().invoke(main, ["check", "--cluster", "-o", "json", "--kubeconfig", str(plane.kubeconfig)])
    assert done.exit_code in {0, 1}, done.output
    errors = [row for row in json.loads(done.stdout)["findings"] if row["severity"] == "error"]
    bad = {row["name"] for row in errors if row["kind"] == KIND}
    nodes: dict[str, str] = {}
    for row in errors:
        if row["kind"] == "Node":
            nodes.setdefault(row["name"], row["rule"])
    return {item["metadata"]["name"]: item["metadata"]["name"] not in bad for item in _profiles(plane)}, nodes


def _of_the_operator(plane: ControlPlane) -> tuple[dict[str, bool], dict[str, str]]:
    """The same by what the operator wrote into the statuses; of a profile that it has not seen, nothing."""
    accepted, nodes = dict[str, bool](), dict[str, str]()
    for item in _profiles(plane):
        status = item.get("status") or {}
        for condition in status.get("conditions") or ():
            if condition["type"] == "Accepted" and status["observedGeneration"] == item["metadata"]["generation"]:
                accepted[item["metadata"]["name"]] = condition["status"] == "True"
        nodes |= {sample["name"]: sample["reason"] for sample in status.get("samples") or ()}
    return accepted, nodes


def _profiles(plane: ControlPlane) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = plane.admin.get(PROFILES)["items"]
    return items


def test_the_running_operator_and_check_come_to_the_same_verdicts(bare: ControlPlane) -> None:
    world: World = install(bare)
    for name in ("rbac.yaml", "admission.yaml"):
        apply_file(bare.admin, ROOT / "deploy" / "base" / name)
    account = bare.service_account_kubeconfig("clusterconform-system", "clusterconform")
    nodes = [bare.admin.create(NODES, raw)["metadata"]["name"] for raw in _nodes()]
    with operator(account):
        world.until(lambda: len(_profiles(bare)) == 4, "the profiles are seeded")
        for spec in _side_by_side():
            manifest = {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "metadata": {"name": spec["backend"]},
                "spec": spec,
            }
            bare.admin.create(PROFILES, manifest)
        world.until(lambda: _of_the_operator(bare) == _of_check(bare), "both say the same", seconds=60)
        accepted, errors = _of_check(bare)
    # The agent profile that was seeded is older than any other.
    assert {name for name, well in accepted.items() if not well} == {"k3s-new"}
    assert len(accepted) > 10
    in_order = {name for name in nodes if name.startswith(("fine-", "elm-"))}
    assert errors.keys() == {*nodes} - in_order
    assert len({*errors.values()}) >= 4
