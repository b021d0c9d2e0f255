"""Agents that stand in line for endpoints, and what visiting them by age would give them."""

from collections.abc import Iterable
from typing import Any

from builders import bare, facts, ready

from clusterconform.contract.facts import NodeFacts
from clusterconform.contract.names import NODE_ARGS_ANNOTATION
from clusterconform.contract.verdicts import Reason
from clusterconform.decisions.allocation import AddressBook, Endpoint
from clusterconform.decisions.derivation import SLOTS, home_slot, kubelet_port, loopback, routing_name

PORTS = {"base": 21000, "slots": 9000}


def standing(
    name: str, *, born: int | None = 0, uid: str | None = None, base: str = "", is_ready: bool = True
) -> NodeFacts:
    """An agent born so many seconds after midnight."""
    raw = bare(name, uid=name if uid is None else uid)
    raw["metadata"]["creationTimestamp"] = None if born is None else _time(born)
    raw["status"]["conditions"] = [ready("True" if is_ready else "Unknown")]
    if base:
        raw["metadata"]["annotations"] = {NODE_ARGS_ANNOTATION: f'["agent","--node-name","{base}"]'}
    return facts(raw)


def _time(seconds: int) -> str:
    return f"2026-07-01T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"


def book_of(nodes: Iterable[NodeFacts], ports: Any = None) -> AddressBook:
    """A book that was told of ``nodes`` in this order."""
    wanted = ports or PORTS
    book = AddressBook(wanted["base"], wanted["slots"])
    for node in nodes:
        book.put(node)
    return book


def age(node: NodeFacts) -> tuple[Any, ...]:
    created = node.created_at
    return (created is None, created.timestamp() if created else 0.0, node.uid, node.name)


def by_age(nodes: Iterable[NodeFacts], ports: Any = None) -> dict[str, tuple[str, int, Reason | None]]:
    """Address, port and why withheld, of each of ``nodes``: visited by age, each takes the next free slot."""
    wanted = ports or PORTS
    taken: set[int] = set()
    open_ports: set[int] = set()
    answer: dict[str, tuple[str, int, Reason | None]] = {}
    seen = sorted(nodes, key=age)
    for node in seen:
        base = routing_name(node)
        port = kubelet_port(base, **wanted)
        if not _alive(node) and any(
            _alive(other) and age(other) > age(node) and routing_name(other) == base for other in seen
        ):
            answer[node.name] = ("", port, Reason.GHOST)
            continue
        slot = home_slot(base)
        while slot in taken:
            slot = (slot + 1) % SLOTS
        taken.add(slot)
        answer[node.name] = (loopback(slot), port, Reason.PORT_COLLISION if port in open_ports else None)
        open_ports.add(port)
    return answer


def _alive(node: NodeFacts) -> bool:
    return node.ready is not None and node.ready.status == "True"


def answers(book: AddressBook, nodes: Iterable[NodeFacts]) -> dict[str, tuple[str, int, Reason | None]]:
    """The same, as ``book`` tells it."""
    return {node.name: _told(book.endpoint(node.name)) for node in nodes}


def _told(endpoint: Endpoint | None) -> tuple[str, int, Reason | None]:
    assert endpoint is not None
    return endpoint.address, endpoint.port, endpoint.withheld.reason if endpoint.withheld else None
