"""What each command prints of one small fleet, at 100 columns and as JSON: reviewed, and compared to the letter.

``make golden`` writes down what is printed now; the difference is what a reviewer reads.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import at
from click.testing import CliRunner
from golden_fleet import populate
from stand_in import StandIn, stand_in

from clusterconform.cli.main import main
from clusterconform.effects.clock import Clock

FOLDER = Path(__file__).parents[1] / "data" / "golden"
ROOT = Path(__file__).parents[2]
LIVE = {
    "status": ["status"],
    "explain-all": ["explain", "--all"],
    "explain-agent": ["explain", "pi-4c7adeb6"],
    "explain-contested": ["explain", "laptop-vk-podman"],
    "explain-held": ["explain", "ash-33333333"],
    "explain-witness": ["explain", "elm-22222222"],
    "explain-conflicting": ["explain", "yew-55555555"],
    "ledger": ["ledger"],
    "ledger-since": ["ledger", "--since", "24h"],
    "prune": ["prune"],
    "doctor": ["doctor"],
}
OFFLINE = {
    "check": ["check", "docs/examples"],
    "matrix": ["matrix"],
    "simulate": ["simulate", "docs/examples/nodes.yaml", "--now", "2026-08-01T12:00:00Z"],
}
# What has one form, or would be as long as the files that are shipped: a question, and the manifests.
SINGLE = {
    "reap-held.text": ["reap", "ash-33333333"],
    "reap-refused.text": ["reap", "laptop-vk-podman", "--yes"],
    "reap-refused.json": ["reap", "laptop-vk-podman", "--yes", "--output", "json"],
    "manifests.table": ["manifests", "--output", "table"],
    "manifests-by-name.table": ["manifests", "pinning", "profiles", "--output", "table"],
    "manifests-namespace.yaml": ["manifests", "namespace"],
    "manifests-namespace.json": ["manifests", "namespace", "--output", "json"],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    with stand_in(tmp_path_factory.mktemp("golden")) as server:
        populate(server)
        yield server


@pytest.fixture(autouse=True)
def this_machine_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clock is compared with the API server's, which stands still here; files are named from the root."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(Clock, "moment", lambda _: at(0))


def compare(name: str, printed: str) -> None:
    """Hold ``printed`` to what was reviewed; write it down where that is asked for."""
    file = FOLDER / name
    if os.environ.get("GOLDEN") == "write":
        FOLDER.mkdir(exist_ok=True)
        file.write_text(printed)
    assert printed == file.read_text()


def said(arguments: list[str]) -> str:
    """What is printed, on both ways out, on a terminal of 100 columns."""
    done = CliRunner(env={"COLUMNS": "100"}).invoke(main, arguments)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.output


@pytest.mark.parametrize("name", LIVE)
@pytest.mark.parametrize("output", ["table", "json"])
def test_what_is_printed_of_a_cluster(server: StandIn, name: str, output: str) -> None:
    flags = ["--kubeconfig", str(server.kubeconfig), "--output", output]
    compare(f"{name}.{output}", said([*LIVE[name], *flags]))


@pytest.mark.parametrize("name", OFFLINE)
@pytest.mark.parametrize("output", ["table", "json"])
def test_what_is_printed_without_one(name: str, output: str) -> None:
    compare(f"{name}.{output}", said([*OFFLINE[name], "--output", output]))


@pytest.mark.parametrize("name", SINGLE)
def test_what_is_printed_in_one_form(server: StandIn, name: str) -> None:
    flags = ["--kubeconfig", str(server.kubeconfig)] if SINGLE[name][0] == "reap" else []
    compare(name, said([*SINGLE[name], *flags]))


@pytest.mark.parametrize("name", [*LIVE, "simulate", "manifests", "manifests-by-name"])
def test_a_table_fits_100_columns(name: str) -> None:
    lines = (FOLDER / f"{name}.table").read_text().splitlines()
    assert [line for line in lines if len(line) > 100] == []


def test_no_golden_output_is_left_of_what_is_no_longer_printed() -> None:
    names = {f"{name}.{output}" for name in (*LIVE, *OFFLINE) for output in ("table", "json")}
    assert {file.name for file in FOLDER.iterdir()} == names | {*SINGLE}
