"""A world in files: what ``kubectl get`` prints, as the values that decisions read."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clusterconform.contract.asks import LedgerText
from clusterconform.contract.facts import NodeFacts, UnreadableNodeError, read_node, view_node
from clusterconform.contract.matrix import MATRIX
from clusterconform.contract.names import (
    GROUP,
    KIND,
    LEASES_NAMESPACE,
    LEDGER_CONFIGMAP,
    LEDGER_KEY,
    NAMESPACE,
    TRUST_KEY,
)
from clusterconform.contract.objects import NotAnObjectError, objects_in, path_text
from clusterconform.contract.probe import ProbeFacts, UnreadablePodError, is_probe, read_probe
from clusterconform.contract.profile import ProfileObject, Refusal, manifest_of, read_profile
from clusterconform.contract.times import parse_time


class UnusableWorldError(ValueError):
    """The input is no world; the text says which object and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What ``kubectl get nodes,pods,leases,rtp -A -o json`` shows, cut down to what decisions read.

    Attributes:
        nodes: Nodes as JSON values, in input order.
        profiles: The profiles; the built-in ones where the input holds none.
        pods: The probe pods, in input order.
        leases: By node name, the Leases of nodes.
        ledger: The reaping ledger, None where the input holds none: empty and old.
    """

    nodes: Sequence[Mapping[str, Any]]
    profiles: Sequence[ProfileObject]
    pods: Sequence[ProbeFacts]
    leases: Mapping[str, Any]
    ledger: LedgerText | None


def read_world(documents: Iterable[Any]) -> World:
    """The world in ``documents``: objects and lists of objects, of any kinds; other kinds are passed over.

    Raises:
        UnusableWorldError: A document that is no object, a profile without a name, or a probe pod with a field of
            a type that no API server would accept.
    """
    nodes: list[Mapping[str, Any]] = []
    profiles: list[ProfileObject] = []
    pods: list[ProbeFacts] = []
    leases: dict[str, Any] = {}
    ledger: LedgerText | None = None
    for where, item in items_in(documents):
        kind, group = item.get("kind"), str(item.get("apiVersion") or "").rpartition("/")[0]
        if kind == "Node" and not group:
            nodes.append(as_stored(where, item))
        elif kind == "Pod" and not group and is_probe(item):
            pods.append(_probe(where, item))
        elif kind == KIND and group == GROUP:
            try:
                profiles.append(read_profile(item))
            except Refusal as refusal:
                raise UnusableWorldError(f"{where}: {refusal}") from refusal
        elif kind == "Lease" and _place(item)[0] == LEASES_NAMESPACE:
            leases[_place(item)[1]] = item
        elif kind == "ConfigMap" and _place(item) == (NAMESPACE, LEDGER_CONFIGMAP):
            ledger = read_ledger_object(item)
    profiles = profiles or [read_profile(manifest_of(row)) for row in MATRIX.values()]
    return World(nodes=nodes, profiles=profiles, pods=pods, leases=leases, ledger=ledger)


def read_ledger_object(manifest: Mapping[str, Any]) -> LedgerText:
    """The ledger in ``manifest``, a ConfigMap as JSON values."""
    data, metadata = manifest.get("data"), manifest.get("metadata")
    texts = data if isinstance(data, Mapping) else {}
    trust = texts.get(TRUST_KEY)
    return LedgerText(
        text=str(texts.get(LEDGER_KEY) or ""),
        trust=None if trust is None else str(trust),
        created_at=parse_time(metadata.get("creationTimestamp")) if isinstance(metadata, Mapping) else None,
    )


def _place(item: Mapping[str, Any]) -> tuple[str, str]:
    metadata = item.get("metadata")
    place = metadata if isinstance(metadata, Mapping) else {}
    return str(place.get("namespace") or ""), str(place.get("name") or "")


def name_of(manifest: Mapping[str, Any]) -> str:
    """The name in ``manifest``, a Node as it was taken into a world."""
    return str(manifest["metadata"]["name"])


def items_in(documents: Iterable[Any]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """The objects in ``documents``, each with the words that say where it stands.

    Raises:
        UnusableWorldError: A document that is no object.
    """
    for index, document in enumerate(documents):
        where = f"document {index + 1}"
        try:
            for path, item in objects_in(document):
                yield f"{where}, {path_text(path)}" if path else where, item
        except NotAnObjectError as error:
            place = f"{where}, {path_text(error.path)}" if error.path else where
            raise UnusableWorldError(f"{place}: {error.reason}") from error


def as_stored(where: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """``manifest`` as the API server would show it: maps and lists that are null or empty are not there.

    Everything that a request of ours can change is a copy.
    """
    metadata, spec = manifest.get("metadata"), manifest.get("spec")
    if not isinstance(metadata, Mapping) or not isinstance(metadata.get("name"), str) or not metadata["name"]:
        raise UnusableWorldError(f"{where}: metadata.name must be a name")
    stored = {**manifest, "metadata": dict(metadata), "spec": dict(spec) if isinstance(spec, Mapping) else {}}
    for field in ("labels", "annotations"):
        value = metadata.get(field)
        if not value:
            stored["metadata"].pop(field, None)
        elif isinstance(value, Mapping):
            stored["metadata"][field] = {key: "" if item is None else item for key, item in value.items()}
    taints = stored["spec"].get("taints")
    if not taints:
        stored["spec"].pop("taints", None)
    elif isinstance(taints, Sequence) and not isinstance(taints, str):
        stored["spec"]["taints"] = [
            {key: item for key, item in taint.items() if item not in (None, "")}
            for taint in taints
            if isinstance(taint, Mapping)
        ]
    stored["status"] = _status_as_stored(manifest.get("status"))
    return stored


def _status_as_stored(status: Any) -> dict[str, Any]:
    if not isinstance(status, Mapping):
        return {}
    stored = dict(status)
    addresses = status.get("addresses")
    if isinstance(addresses, Sequence) and not isinstance(addresses, str):
        stored["addresses"] = [
            {field: address.get(field) or "" for field in ("type", "address")}
            for address in addresses
            if isinstance(address, Mapping)
        ]
    if not stored.get("addresses"):
        stored.pop("addresses", None)
    return stored


def _probe(where: str, item: Mapping[str, Any]) -> ProbeFacts:
    try:
        return read_probe(item)
    except UnreadablePodError as error:
        raise UnusableWorldError(f"{where}: {error}") from error


def facts_of(name: str, manifest: Mapping[str, Any]) -> NodeFacts:
    """What decisions read of ``manifest``, the Node called ``name``.

    Raises:
        UnusableWorldError: A field of a type that no API server would accept.
    """
    try:
        return read_node(view_node(manifest))
    except UnreadableNodeError as error:
        raise UnusableWorldError(f"node {name}: {error}") from error
