"""``explain`` on the demo's fleet tells what the operator then does."""

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from operators import NODES, PROFILES, ROOT, World, install, operator

from clusterconform.cli.demo.population import populate
from clusterconform.cli.demo.shipped import apply_file
from clusterconform.cli.main import main
from clusterconform.effects.clock import Clock
from clusterconform.sandbox.control_plane import ControlPlane

SIZE = 40


def explained(plane: ControlPlane) -> dict[str, Any]:
    """By node, what ``explain --all`` says."""
    arguments = ["explain", "--all", "-o", "json", "--kubeconfig", str(plane.kubeconfig)]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    return {row["node"]: row for row in json.loads(done.stdout)}


def patched(world: World, part: str) -> dict[str, set[str]]:
    """By node, what was written to it so far: ``marks`` (the node itself) or the fields of its status."""
    entries = [
        entry
        for entry in world.requests()
        if entry["verb"] == "patch"
        and entry.get("objectRef", {}).get("resource") == "nodes"
        and entry["responseStatus"]["code"] == 200
        and entry["objectRef"].get("subresource", "") == part
    ]
    names: dict[str, set[str]] = {}
    for entry in entries:
        names.setdefault(entry["objectRef"]["name"], set()).add(entry["requestURI"].partition("?")[2])
    return names


def shown(row: dict[str, Any], kind: str) -> bool:
    return any(words.startswith(f"{kind}: ") for words in row["wouldWrite"])


def came_true(world: World, name: str, words: str) -> bool:
    """Whether the node is now as one line of what would be written said."""
    node = world.node(name)
    kind, _, what = words.partition(": ")
    if kind == "endpoint":
        (address,) = [seen["address"] for seen in node["status"]["addresses"] if seen["type"] == "ExternalIP"]
        return (
            what == f"the kubelet is at {address}:{node['status']['daemonEndpoints']['kubeletEndpoint']['Port']}"
        )
    assert kind == "marks", words
    mark, wanted = what.partition(" is ")[0], what.rpartition(", not ")[2]
    if mark.startswith("taint "):
        return (mark.removeprefix("taint "), wanted.removeprefix("="), "NoSchedule") in world.taints(name)
    return bool(node["metadata"]["labels"].get(mark) == wanted)


def test_on_the_demos_fleet_explain_tells_what_the_operator_then_does(bare: ControlPlane, tmp_path: Path) -> None:
    world = install(bare)
    for name in ("rbac.yaml", "admission.yaml"):
        apply_file(bare.admin, ROOT / "deploy" / "base" / name)
    account = bare.service_account_kubeconfig("clusterconform-system", "clusterconform")
    people = populate(SIZE, now=Clock().moment().wall)
    for manifest in (*people.agents, *people.virtual):
        bare.admin.create(NODES, manifest)
    with operator(account):  # it seeds the profiles, and writes no node
        world.until(lambda: len(bare.admin.get(PROFILES)["items"]) == 4, "the profiles are seeded")
    told = explained(bare)
    assert patched(world, "") == {}
    assert patched(world, "status") == {}
    would_mark = {name for name, row in told.items() if shown(row, "marks")}
    assert len(would_mark) == people.unlabelled + 1  # and the virtual node without its taint
    would_address = {name for name, row in told.items() if shown(row, "endpoint")}
    with operator(account, "--bound", "enforce"):
        world.until(
            lambda: all(world.condition(name) == ("True", "Conforms") for name in told), "all conform", seconds=90
        )
        assert set(patched(world, "")) == would_mark
        # An apply with our name is the condition; a patch without one is the endpoint.
        written = patched(world, "status")
        assert {name for name, queries in written.items() if "" in queries} == would_address
        untrue = {
            (name, words)
            for name, row in told.items()
            for words in row["wouldWrite"]
            if not came_true(world, name, words)
        }
        assert untrue == set()
        after = explained(bare)
        # Nobody was to be reaped, and everybody is still there.
        assert [name for name, row in told.items() if row["reaping"]["candidate"]] == []
        assert after.keys() == told.keys()
    assert {name: row["wouldWrite"] for name, row in after.items() if row["wouldWrite"]} == {}
    assert all(row["conformant"] for row in after.values())
