"""A fleet at rest, as manifests, and the requests that disturb and repair it.

Half of the nodes are agents, the others virtual nodes of the three backends. All carry what their profile
wants, our condition, and our annotation as after an earlier repair, so that each drift of the runtime label
costs exactly one patch of the same size, whoever repairs it.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import count, islice
from typing import Any, Final

import msgspec

from bench.client import Call
from clusterconform.contract.facts import NodeFacts, decode_node_list, read_node, view_node
from clusterconform.contract.matrix import AGENT_BACKEND, MATRIX
from clusterconform.contract.memory import NodeMemory
from clusterconform.contract.names import BACKEND_LABEL, MARKS_ANNOTATION, RUNTIME_LABEL
from clusterconform.contract.plan import RUNTIME_MARK
from clusterconform.contract.profile import manifest_of, read_profile
from clusterconform.contract.request import JSON, Request
from clusterconform.contract.settings import AddressReconcile
from clusterconform.contract.times import Moment
from clusterconform.contract.verdicts import Catalogue
from clusterconform.decisions.addresses import EXTERNAL_IP
from clusterconform.decisions.derivation import home_slot, kubelet_port, loopback, routing_name
from clusterconform.decisions.gate import accept
from clusterconform.decisions.planning import decide
from clusterconform.decisions.requests import condition_request, marks_request
from clusterconform.sandbox.nodes import KUBELET_PORT, agent_node, virtual_node

VIRTUAL_BACKENDS: Final = ("vk-podman", "vk-native", "vk-ollama")
NODES: Final = "/api/v1/nodes"
_LONG_CLEAN: Final = NodeMemory(clean_since=-3600.0)


def catalogue() -> Catalogue:
    """The built-in profiles, judged."""
    return accept([read_profile(manifest_of(row)) for row in MATRIX.values()])


def manifests(number: int, *, now: datetime) -> list[dict[str, Any]]:
    """Describe ``number`` nodes that conform and say so, agents with their endpoint."""
    profiles, moment = catalogue(), Moment(wall=now, uptime=0.0)
    hosts = list(islice(bases(), (number + 1) // 2))
    return [_at_rest(_node(index, hosts[index // 2], now), profiles, moment) for index in range(number)]


def agents(number: int, *, now: datetime, dead_each: int, dead_since: datetime) -> list[NodeFacts]:
    """Give ``number`` agents as decisions read them; each ``dead_each``-th is dead since ``dead_since``."""
    profiles, moment = catalogue(), Moment(wall=now, uptime=0.0)
    nodes = []
    for index in range(number):
        silent = dead_since if index % dead_each == 0 else None
        manifest = agent_node(f"host{index:05d}", index=index, now=now, silent_since=silent)
        manifest["metadata"]["uid"] = f"uid-{index}"
        nodes.append(read_node(view_node(_at_rest(manifest, profiles, moment))))
    return nodes


def bases() -> Iterator[str]:
    """Base names of which no two derive the same port or the same address, so that each can be published."""
    ports, slots = set[int](), set[int]()
    for number in count():
        base = f"host{number:05d}"
        port, slot = _port(base), home_slot(base)
        if port not in ports and slot not in slots:
            ports.add(port)
            slots.add(slot)
            yield base


def _port(base: str) -> int:
    settings = AddressReconcile()
    return kubelet_port(base, base=settings.port_base, slots=settings.port_slots)


def endpoint_status(node: Mapping[str, Any], *, published: bool) -> dict[str, Any]:
    """The part of an agent's status that says where its kubelet is, with or without its derived endpoint."""
    base = routing_name(read_node(view_node(node)))
    own = [seen for seen in node["status"]["addresses"] if seen["type"] != EXTERNAL_IP]
    ours = [{"type": EXTERNAL_IP, "address": loopback(home_slot(base))}]
    port = _port(base) if published else KUBELET_PORT
    return {
        "addresses": own + ours if published else own,
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }


def _node(index: int, host: str, now: datetime) -> dict[str, Any]:
    if index % 2 == 0:
        return agent_node(host, index=index // 2, now=now)
    return virtual_node(host, VIRTUAL_BACKENDS[index // 2 % len(VIRTUAL_BACKENDS)], now=now)


def _at_rest(manifest: dict[str, Any], profiles: Catalogue, moment: Moment) -> dict[str, Any]:
    manifest["metadata"]["annotations"][MARKS_ANNOTATION] = RUNTIME_MARK
    node = read_node(view_node(manifest))
    decision = decide(node, profiles, _LONG_CLEAN, moment)
    if decision.plan.marks is not None or decision.plan.condition is None:
        raise ValueError(f"node {node.name} was to conform, but {decision.verdict.findings}")
    entry = condition_request(node, decision.plan.condition).body["status"]["conditions"][0]
    manifest["status"]["conditions"].append(entry)
    if manifest["metadata"]["labels"][BACKEND_LABEL] == AGENT_BACKEND:
        manifest["status"] |= endpoint_status(manifest, published=True)
    return manifest


def right_labels(nodes: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """By node, the value that its runtime label should have."""
    return {
        node["metadata"]["name"]: "agent" if node["metadata"]["labels"][BACKEND_LABEL] == "k3s" else "virtual"
        for node in nodes
    }


def creations(nodes: Iterable[Mapping[str, Any]]) -> list[Call]:
    """The requests that create ``nodes``."""
    return [Call("POST", NODES, JSON, msgspec.json.encode(node)) for node in nodes]


def drifts(names: Iterable[str], value: str) -> list[Call]:
    """The requests that make the runtime label of the nodes ``value``."""
    body = msgspec.json.encode({"metadata": {"labels": {RUNTIME_LABEL: value}}})
    return [Call("PATCH", f"{NODES}/{name}", "application/merge-patch+json", body) for name in names]


def heartbeats(names: Iterable[str]) -> list[Call]:
    """The requests that move nothing but the heartbeat time of Ready, to the time of sending."""
    beat = {"status": {"conditions": [{"type": "Ready", "lastHeartbeatTime": "$NOW"}]}}
    kind, body = "application/strategic-merge-patch+json", msgspec.json.encode(beat)
    return [Call("PATCH", f"{NODES}/{name}/status", kind, body) for name in names]


def repairs(node_list: bytes, *, now: datetime) -> list[Call]:
    """The operator's own requests for a list of drifted nodes, by its own decisions, ready to be sent."""
    profiles, moment = catalogue(), Moment(wall=now, uptime=0.0)
    views, _ = decode_node_list(node_list)
    return [_repair(read_node(view), profiles, moment) for view in views]


def _repair(node: NodeFacts, profiles: Catalogue, moment: Moment) -> Call:
    plan = decide(node, profiles, NodeMemory(), moment).plan
    if plan.marks is None or plan.condition is not None:
        raise ValueError(f"node {node.name} was to need one patch, but the plan is {plan}")
    return _call(marks_request(node, plan.marks))


def _call(request: Request) -> Call:
    return Call(request.method, request.path, request.content_type, msgspec.json.encode(request.body))
