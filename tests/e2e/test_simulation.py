"""What simulate says is what the API server accepts, and it brings the fleet to rest."""

import json
import subprocess
from datetime import UTC, datetime
from typing import Any

from operators import NODES, PROFILES, PROGRAM, World, install

from clusterconform.contract.matrix import MATRIX
from clusterconform.contract.profile import manifest_of
from clusterconform.sandbox.control_plane import ControlPlane
from clusterconform.sandbox.nodes import agent_node, virtual_node

NOW = datetime.now(UTC)  # noqa: TID251 - the programs live in real time


def _simulate(world: World) -> dict[str, Any]:
    nodes, profiles = (world.admin.get(path) for path in (NODES, PROFILES))
    command = [str(PROGRAM), "simulate", "-"]
    text = json.dumps({"kind": "List", "apiVersion": "v1", "items": [*_items(nodes), *_items(profiles)]})
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _items(listed: dict[str, Any]) -> list[dict[str, Any]]:
    """The items as kubectl prints them: each with the kind that a list leaves to its head."""
    kind, version = listed["kind"].removesuffix("List"), listed["apiVersion"]
    return [{**item, "kind": kind, "apiVersion": version} for item in listed["items"]]


def test_the_requests_replayed_bring_the_fleet_to_rest_and_a_second_simulation_is_empty(
    bare: ControlPlane,
) -> None:
    # No controllers: their taints would come and go between reading and writing.
    world = install(bare)
    for profile in MATRIX.values():
        world.admin.create(PROFILES, manifest_of(profile))
    _drifted_fleet(world)
    first = _simulate(world)
    asked = [request for node in first["nodes"] for request in node["requests"]]
    assert len(asked) >= 10
    for request in asked:
        body, kind = request["body"], request["contentType"]
        world.admin.request(request["method"], request["path"], body, content_type=kind)
    second = _simulate(world)
    assert [request for node in second["nodes"] for request in node["requests"]] == []
    verdicts = {node["name"]: node["conformant"] for node in second["nodes"]}
    assert verdicts.pop("liar") is False
    assert verdicts.pop("stranger") is False
    assert all(verdicts.values()), verdicts


def _drifted_fleet(world: World) -> None:
    for index in range(3):
        agent = agent_node(f"birch{index}", index=index, now=NOW)
        agent["metadata"]["labels"]["outpost.dhnt.io/runtime"] = "virtual"
        world.admin.create(NODES, agent)
        virtual = virtual_node(f"birch{index}", "vk-podman", now=NOW)
        virtual["spec"]["taints"] = [{"key": "example.com/other", "effect": "NoExecute"}]
        world.admin.create(NODES, virtual)
    world.create("oak-vk-native", labels={"outpost.dhnt.io/backend": "vk-native"})
    world.create("liar", labels={"outpost.dhnt.io/backend": "vk-podman"}, provider_id="k3s://liar")
    world.create("stranger")
