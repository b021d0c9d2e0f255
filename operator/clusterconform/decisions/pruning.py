"""What takes our marks off a node, for an uninstall: just those that our annotation lists, and what is ours alone.

Ours alone are our condition and the recorded endpoint, by which the pinning policy would go on. A published
address is left to the kubelet, which puts its own list back; it may be another publisher's by then.

Nothing else of the node is touched, and nothing at all if it is not as it was seen: the patch tests the uid, the
annotation and the list of taints. A mark of a kind that this version does not know stays, and the annotation with
it, so that the version that wrote it can take it back.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from clusterconform.contract.facts import NodeFacts, Taint, marks_listed
from clusterconform.contract.names import (
    CONFORMANT_CONDITION,
    ENDPOINT_ANNOTATION,
    K3S_EXTERNAL_IP_ANNOTATION,
    MARKS_ANNOTATION,
)
from clusterconform.contract.request import JSON_PATCH, Request
from clusterconform.decisions.derivation import is_ours
from clusterconform.decisions.requests import pointer, taint_value

_ENDPOINT_MARK: Final = f"annotation:{ENDPOINT_ANNOTATION}"
STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruning:
    """What is ours on one node.

    Attributes:
        node: Its name.
        marks: What would be taken off, sorted; ``condition`` among them.
        unknown: Listed marks of a kind that this version does not know.
        requests: What takes them off, in sending order.
    """

    node: str
    marks: tuple[str, ...]
    unknown: tuple[str, ...]
    requests: tuple[Request, ...]


def prune(node: NodeFacts, manifest: Json) -> Pruning | None:
    """What is ours on ``node``; None where nothing is.

    Args:
        node: What decisions read of it.
        manifest: The Node itself, since foreign labels and annotations of ours are not among the facts.
    """
    listed = (*marks_listed(node), *([_ENDPOINT_MARK] if ENDPOINT_ANNOTATION in node.annotations else []))
    known = {mark: parts for mark in listed if (parts := _parts(mark)) is not None}
    unknown = tuple(mark for mark in listed if mark not in known)
    requests = []
    marks = [mark for mark, parts in known.items() if _carries(node, manifest, parts)]
    if {MARKS_ANNOTATION, ENDPOINT_ANNOTATION} & node.annotations.keys():
        requests.append(_patch(node, manifest, list(known.values()), unknown))
    if node.conformant is not None:
        marks.append("condition")
        requests.append(_without_condition(node))
    if not requests:
        return None
    return Pruning(node=node.name, marks=tuple(sorted(marks)), unknown=unknown, requests=tuple(requests))


def _parts(mark: str) -> tuple[str, str] | None:
    kind, _, key = mark.partition(":")
    return (kind, key) if kind in {"label", "annotation", "taint"} and key else None


def _carries(node: NodeFacts, manifest: Json, parts: tuple[str, str]) -> bool:
    kind, key = parts
    if kind == "taint":
        return any(taint.key == key for taint in node.taints or ())
    return key in _map(manifest, f"{kind}s")


def _patch(node: NodeFacts, manifest: Json, known: Sequence[tuple[str, str]], unknown: tuple[str, ...]) -> Request:
    annotation = pointer("metadata", "annotations", MARKS_ANNOTATION)
    ops: list[Json] = [{"op": "test", "path": "/metadata/uid", "value": node.uid}] if node.uid else []
    seen = node.annotations.get(MARKS_ANNOTATION)
    ops.append({"op": "test", "path": annotation, "value": seen})
    keys = {key for kind, key in known if kind == "taint"}
    left = tuple(taint for taint in node.taints or () if taint.key not in keys or not _is_ours(taint))
    if node.taints is not None and len(left) < len(node.taints):
        ops.append({"op": "test", "path": "/spec/taints", "value": [taint_value(seen) for seen in node.taints]})
        ops.append({"op": "add", "path": "/spec/taints", "value": [taint_value(seen) for seen in left]})
    for kind, key in known:
        if kind != "taint" and key in _map(manifest, f"{kind}s"):
            path, left_over = pointer("metadata", f"{kind}s", key), _left_of(node, key)
            ops.append(
                {"op": "add", "path": path, "value": left_over} if left_over else {"op": "remove", "path": path}
            )
    if unknown:
        ops.append({"op": "add", "path": annotation, "value": ",".join(unknown)})
    elif seen is not None:
        ops.append({"op": "remove", "path": annotation})
    return Request(method="PATCH", path=f"/api/v1/nodes/{node.name}", content_type=JSON_PATCH, body=ops)


def _left_of(node: NodeFacts, key: str) -> str:
    """What stays of the value of ``key``: the real addresses beside ours in the annotation of k3s."""
    if key != K3S_EXTERNAL_IP_ANNOTATION:
        return ""
    entries = [entry.strip() for entry in node.annotations.get(key, "").split(",")]
    return ",".join(entry for entry in entries if entry and not is_ours(entry))


def _is_ours(taint: Taint) -> bool:
    # The effect in which we write all of our taints; another one of the same key is somebody else's.
    return taint.effect == "NoSchedule"


def _without_condition(node: NodeFacts) -> Request:
    """A strategic merge, since an apply that no longer names the condition would leave it (node-facts §13.6)."""
    body = {
        "metadata": {"uid": node.uid} if node.uid else {},
        "status": {"conditions": [{"type": CONFORMANT_CONDITION, "$patch": "delete"}]},
    }
    path = f"/api/v1/nodes/{node.name}/status"
    return Request(method="PATCH", path=path, content_type=STRATEGIC_MERGE_PATCH, body=body)


def _map(manifest: Json, name: str) -> Json:
    metadata = manifest.get("metadata")
    found = metadata.get(name) if isinstance(metadata, Mapping) else None
    return found if isinstance(found, Mapping) else {}
