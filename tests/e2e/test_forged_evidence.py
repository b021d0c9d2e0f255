"""Forgeries by a node's own credential, on a real API server: each is allowed to it, and reaches nobody else.

The same list on values, with every combination: tests/decisions/test_forged_evidence.py. What a client with the
operator's own token cannot do: test_fence.py.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pykube
import pytest
from operators import NODES, operator
from reaping_stage import Stage, staged

from clusterconform.sandbox.builder import Builder
from clusterconform.sandbox.nodes import agent_node, virtual_node

Json = dict[str, Any]
VICTIMS = ("oak", "elm")


class NodeCredential:
    """Sends what a kubelet could: requests with the credential of one node."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.name = name
        kubeconfig = stage.plane.kubeconfig_for(f"system:node:{name}", ["system:nodes"])
        self._api = pykube.HTTPClient(pykube.KubeConfig.from_file(str(kubeconfig)))
        stage.plane.at_end(self._api.session.close)

    def patch(self, change: Json, *, of: str = "", part: str = "") -> int:
        """The status code of a merge patch to its own node, or to another's."""
        headers = {"Content-Type": "application/merge-patch+json"}
        url = f"nodes/{of or self.name}{part}"
        answer = self._api.request("PATCH", version="v1", url=url, json=change, headers=headers)
        return int(answer.status_code)

    def delete(self, of: str) -> int:
        """The status code of a deletion."""
        return int(self._api.request("DELETE", version="v1", url=f"nodes/{of}").status_code)


@pytest.fixture(scope="module")
def play(builder: Builder) -> Iterator[Stage]:
    with staged(builder) as stage, operator(stage.account, "--bound", "enforce"):
        stage.settings()
        stage.alive(*VICTIMS)
        yield stage


def ours(stage: Stage, name: str) -> Json:
    """What the operator writes on a node, as it stands there."""
    node = stage.world.node(name)
    return {
        "labels": stage.world.labels(name),
        # Those of the node lifecycle controller come and go by themselves.
        "taints": [taint for taint in stage.world.taints(name) if not taint[0].startswith("node.kubernetes.io/")],
        "addresses": [one for one in node["status"]["addresses"] if one["type"] == "ExternalIP"],
        "port": node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"],
    }


def published(stage: Stage, name: str) -> bool:
    """Whether the node shows an endpoint of ours."""
    return any(one["type"] == "ExternalIP" for one in stage.world.node(name)["status"].get("addresses") or [])


@pytest.mark.timeout(400)
def test_a_nodes_own_credential_reaches_no_other_node(play: Stage) -> None:
    world, admin = play.world, play.plane.admin
    at = datetime.now(UTC)  # noqa: TID251 - the programs live in real time
    (victim, bystander) = [name for name in sorted(play.names()) if name.startswith(VICTIMS)]
    world.until(lambda: published(play, victim) and published(play, bystander), "both have their endpoints")
    before = {name: ours(play, name) for name in (victim, bystander)}

    # A silent virtual node of the victim's host, and an agent: the two forgers.
    twin = virtual_node("oak", "vk-podman", now=at, silent_since=at + timedelta(seconds=1))
    virtual = NodeCredential(play, admin.create(NODES, twin)["metadata"]["name"])
    agent = NodeCredential(play, admin.create(NODES, agent_node("ash", now=at))["metadata"]["name"])
    labels = {f"outpost.dhnt.io/{key}": value for key, value in (("runtime", "agent"), ("backend", "k3s"))}
    place = before[victim]["addresses"]
    port = {"kubeletEndpoint": {"Port": before[victim]["port"]}}
    ready = {"type": "Ready", "status": "Unknown", "reason": "x", "message": "x"}
    ready |= {"lastTransitionTime": "2020-01-01T00:00:00Z", "lastHeartbeatTime": "2020-01-01T00:00:00Z"}

    # Each is allowed: that is why no decision may rest on it.
    assert virtual.patch({"metadata": {"labels": {**labels, "type": None}}}) == 200
    assert agent.patch({"metadata": {"labels": {"outpost.dhnt.io/host": "oak"}}}) == 200
    assert agent.patch({"metadata": {"annotations": {"k3s.io/node-args": '["agent","--node-name","oak"]'}}}) == 200
    assert agent.patch({"status": {"addresses": place, "daemonEndpoints": port}}, part="/status") == 200
    assert agent.patch({"status": {"conditions": [ready]}}, part="/status") == 200
    # And these the API server refuses by itself.
    assert agent.patch({"metadata": {"labels": {"outpost.dhnt.io/host": "x"}}}, of=victim) == 403
    assert agent.patch({"spec": {"taints": [{"key": "example.com/x", "effect": "NoSchedule"}]}}) == 403
    assert agent.delete(victim) == 403
    assert agent.delete(agent.name) == 403

    # A dead agent that nobody disputes shows that passes with all of this in view took place.
    dead = play.dead("rowan")
    world.until(lambda: world.gone(f"{NODES}/{dead}"), "the dead one is reaped", seconds=150)
    assert play.deletions() == [dead]
    assert {virtual.name, agent.name, victim, bystander} <= play.names()
    world.until_condition(virtual.name, "False", "IdentityConflict")
    assert {name: ours(play, name) for name in (victim, bystander)} == before
    taken = [tuple(one["address"] for one in ours(play, name)["addresses"]) for name in (victim, agent.name)]
    assert taken[0] != taken[1]
