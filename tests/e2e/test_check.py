"""One object, one verdict: of ``check``, of the API server, and of the operator.

Over the whole table of objects that the CRD is tried with (tests/data/crd).
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pykube
import pytest
import yaml
from click.testing import CliRunner

from clusterconform.cli.live import Live
from clusterconform.cli.main import main
from clusterconform.contract.names import API_VERSION, KIND, PLURAL
from clusterconform.contract.profile import read_profile
from clusterconform.decisions.gate import accept
from clusterconform.sandbox.control_plane import ControlPlane

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
