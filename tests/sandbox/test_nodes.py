"""Node manifests look like the real thing."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clusterconform.sandbox.fleet import HOSTS, fleet_manifests
from clusterconform.sandbox.kwok import KEPT_ALIVE, kept_alive
from clusterconform.sandbox.nodes import agent_name, agent_node, virtual_node

NOW = datetime(2026, 8, 1, 12, tzinfo=UTC)


def wire_size(manifest: dict[str, Any]) -> int:
    return len(json.dumps(manifest, separators=(",", ":")))


def ready(manifest: dict[str, Any]) -> dict[str, str]:
    (condition,) = (one for one in manifest["status"]["conditions"] if one["type"] == "Ready")
    return dict(condition)


@pytest.mark.parametrize("index", [0, 1, 255, 256, 4999])
def test_an_agent_has_the_usual_size(index: int) -> None:
    assert 4500 < wire_size(agent_node("pi", index=index, now=NOW)) < 5000


def test_manifests_are_json() -> None:
    for manifest in (agent_node("pi", now=NOW), virtual_node("pi", "vk-podman", now=NOW)):
        assert json.loads(json.dumps(manifest)) == manifest


def test_an_agents_name_is_its_base_and_eight_hexadecimal_digits() -> None:
    assert re.fullmatch(r"pi-[0-9a-f]{8}", agent_name("pi", 0))


def test_an_agents_name_follows_from_base_and_index() -> None:
    names = [agent_name("pi", index) for index in range(1000)]
    assert len(set(names)) == 1000
    assert names == [agent_name("pi", index) for index in range(1000)]


def test_an_agent_carries_the_marks_of_its_backend_and_host() -> None:
    labels = agent_node("pi", "garage", now=NOW)["metadata"]["labels"]
    assert labels["outpost.dhnt.io/runtime"] == "agent"
    assert labels["outpost.dhnt.io/backend"] == "k3s"
    assert labels["outpost.dhnt.io/host"] == "garage"


def test_an_agents_arguments_begin_with_agent_and_hold_its_base_name_split() -> None:
    node = agent_node("pi", "garage", now=NOW)
    arguments = json.loads(node["metadata"]["annotations"]["k3s.io/node-args"])
    assert arguments[0] == "agent"
    assert arguments[arguments.index("--node-name") + 1] == "pi"
    assert "outpost.dhnt.io/host=garage" in arguments


def test_an_agent_is_known_as_k3s() -> None:
    node = agent_node("pi", now=NOW)
    assert node["spec"]["providerID"] == f"k3s://{node['metadata']['name']}"
    assert node["status"]["nodeInfo"]["kubeletVersion"] == "v1.36.2+k3s1"
    assert node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] == 10250
    assert [one["type"] for one in node["status"]["addresses"]] == ["InternalIP", "Hostname"]


def test_agents_have_addresses_of_their_own() -> None:
    nodes = [agent_node("pi", index=index, now=NOW) for index in range(1000)]
    assert len({node["status"]["addresses"][0]["address"] for node in nodes}) == 1000
    assert len({node["spec"]["podCIDR"] for node in nodes}) == 1000


def test_a_healthy_agent_became_ready_long_ago() -> None:
    condition = ready(agent_node("pi", now=NOW))
    assert condition["status"] == "True"
    assert condition["lastHeartbeatTime"] == "2026-08-01T12:00:00Z"
    assert condition["lastTransitionTime"] < condition["lastHeartbeatTime"]


@pytest.mark.parametrize(
    "make", [lambda **at: agent_node("pi", **at), lambda **at: virtual_node("pi", "vk", **at)]
)
def test_a_silent_node_is_unknown_since_then(make: Any) -> None:
    condition = ready(make(now=NOW, silent_since=NOW - timedelta(hours=25)))
    assert (condition["status"], condition["reason"]) == ("Unknown", "NodeStatusUnknown")
    assert condition["lastTransitionTime"] == "2026-07-31T11:00:00Z"


def test_a_virtual_node_registers_as_the_contract_says() -> None:
    node = virtual_node("pi", "vk-podman", now=NOW)
    assert node["metadata"]["name"] == "pi-vk-podman"
    assert node["metadata"]["labels"] == {
        "kubernetes.io/hostname": "pi-vk-podman",
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "type": "virtual-kubelet",
        "outpost.dhnt.io/host": "pi",
        "outpost.dhnt.io/runtime": "virtual",
        "outpost.dhnt.io/backend": "vk-podman",
    }
    assert node["spec"]["taints"] == [
        {"key": "virtual-kubelet.io/provider", "value": "outpost", "effect": "NoSchedule"}
    ]
    status = node["status"]
    assert status["nodeInfo"]["kubeletVersion"] == "v0.1.0-vknode"
    assert status["addresses"] == [{"type": "Hostname", "address": "pi-vk-podman"}]
    assert status["daemonEndpoints"]["kubeletEndpoint"]["Port"] == 0
    assert [one["type"] for one in status["conditions"]] == ["Ready"]
    assert ready(node)["message"] == "outpost vknode is ready"


def test_a_virtual_node_remembers_what_it_applied() -> None:
    node = virtual_node("pi", "vk-podman", now=NOW)
    annotations = node["metadata"]["annotations"]
    assert json.loads(annotations["virtual-kubelet.io/last-applied-node-status"]) == node["status"]
    applied = json.loads(annotations["virtual-kubelet.io/last-applied-object-meta"])
    assert applied["labels"] == node["metadata"]["labels"]


def test_extra_labels_override_those_of_a_virtual_node() -> None:
    labels = virtual_node("pi", "vk", now=NOW, extra_labels={"outpost.dhnt.io/host": "x"})["metadata"]["labels"]
    assert labels["outpost.dhnt.io/host"] == "x"


def test_keeping_a_node_alive_marks_a_copy() -> None:
    node = agent_node("pi", now=NOW)
    key, value = KEPT_ALIVE
    assert kept_alive(node)["metadata"]["labels"][key] == value
    assert key not in node["metadata"]["labels"]


@pytest.mark.parametrize("size", [2, 10, 38, 5000])
def test_a_fleet_has_the_wanted_size_and_both_kinds(size: int) -> None:
    agents, virtual = fleet_manifests(size, now=NOW)
    names = {node["metadata"]["name"] for node in (*agents, *virtual)}
    assert len(names) == size
    assert agents
    assert virtual


def test_a_fleet_spreads_over_the_hosts() -> None:
    agents, virtual = fleet_manifests(60, now=NOW)
    for nodes in (agents, virtual):
        assert {node["metadata"]["labels"]["outpost.dhnt.io/host"] for node in nodes} == set(HOSTS)
