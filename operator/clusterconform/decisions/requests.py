"""Plans as requests: method, path, content type and body, as values.

Why a JSON patch with tests and neither a resourceVersion nor server-side apply (node-facts §5): the tests
make it a compare-and-swap on just what the decision rests on, so it survives a kubelet's heartbeats (60 of 60
won under load, against 4 of 60 for a resourceVersion guard) and never loses another writer's taint; applying
taints would erase all others, since the list is atomic.
"""

from collections.abc import Mapping

from clusterconform.contract.facts import Address, NodeFacts, Taint
from clusterconform.contract.names import (
    BACKEND_LABEL,
    CONFORMANT_CONDITION,
    ENDPOINT_ANNOTATION,
    FIELD_MANAGER,
    MARKS_ANNOTATION,
)
from clusterconform.contract.plan import ConditionWrite, EndpointWrite, MarksPatch, Plan
from clusterconform.contract.request import APPLY_PATCH, JSON_PATCH, Json, Request
from clusterconform.contract.times import format_time


def requests_of(node: NodeFacts, plan: Plan) -> list[Request]:
    """The requests that carry ``plan`` out on ``node`` as it was seen, in sending order."""
    requests = []
    if plan.marks:
        requests.append(marks_request(node, plan.marks))
    if plan.condition:
        requests.append(condition_request(node, plan.condition))
    if plan.endpoint and not plan.marks:
        requests.append(endpoint_request(node, plan.endpoint))
    return requests


def marks_request(node: NodeFacts, marks: MarksPatch) -> Request:
    """The one patch of ``marks``: tests of what was seen, then the operations.

    Tested are the uid, the claim (the backend label), every label and the taint list that are changed; null
    where absent. A lost test answers 422 without causes, a real refusal 422 with causes.
    """
    ops = [_test("/metadata/uid", node.uid)] if node.uid else []
    if node.has_labels:
        # A null value reads as empty, which the API server's own JSON never shows; an absent key as null.
        keys = sorted({BACKEND_LABEL, *marks.labels})
        ops += [_test(pointer("metadata", "labels", key), node.labels.get(key)) for key in keys]
    else:
        ops += [_test("/metadata/labels", None), _add("/metadata/labels", {})]
    ops += _taint_ops(node, marks.taints)
    for key, value in sorted(marks.labels.items()):
        ops += _member_ops(pointer("metadata", "labels", key), value, present=key in node.labels)
    ops += _annotation_ops(node, {MARKS_ANNOTATION: ",".join(marks.listed) or None, **marks.annotations})
    return Request(method="PATCH", path=f"/api/v1/nodes/{node.name}", content_type=JSON_PATCH, body=ops)


def condition_request(node: NodeFacts, condition: ConditionWrite) -> Request:
    """The server-side apply of our condition; a list that is a map by type, so all others stay.

    The uid in the body keeps it from landing on a successor of the same name; on ``/status`` a missing node
    answers 404 and is not created.
    """
    entry = {
        "type": CONFORMANT_CONDITION,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        # Omitted times are stored as null, so both are given.
        "lastTransitionTime": format_time(condition.transition),
        "lastHeartbeatTime": format_time(condition.heartbeat),
    }
    metadata = {"name": node.name, "uid": node.uid} if node.uid else {"name": node.name}
    return Request(
        method="PATCH",
        path=f"/api/v1/nodes/{node.name}/status?fieldManager={FIELD_MANAGER}&force=true",
        content_type=APPLY_PATCH,
        body={"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"conditions": [entry]}},
    )


def endpoint_request(node: NodeFacts, endpoint: EndpointWrite) -> Request:
    """The patch of the node's status that publishes or withdraws its endpoint.

    A JSON patch with tests, since the list of addresses is declared as merged by type, which corrupts lists that
    hold a type twice. Tested are the uid, the claim and the list as it was seen. The annotation travels along:
    metadata in a write to ``/status`` is stored, and the admission policy acts on it in the same request.
    """
    ops = [_test("/metadata/uid", node.uid)] if node.uid else []
    if node.has_labels:
        ops.append(_test(pointer("metadata", "labels", BACKEND_LABEL), node.labels.get(BACKEND_LABEL)))
    else:
        ops.append(_test("/metadata/labels", None))
    if endpoint.addresses is not None:
        seen = None if node.addresses is None else [_address(address) for address in node.addresses]
        ops.append(_test("/status/addresses", seen))
        wanted = [_address(address) for address in endpoint.addresses]
        if wanted or seen:
            path = "/status/addresses"
            ops.append(_add(path, wanted) if wanted else {"op": "remove", "path": path})
    if endpoint.port is not None:
        ops.append(_add("/status/daemonEndpoints", {"kubeletEndpoint": {"Port": endpoint.port}}))
    if endpoint.pin is not None:
        ops += _annotation_ops(node, {ENDPOINT_ANNOTATION: endpoint.pin or None})
    path = f"/api/v1/nodes/{node.name}/status"
    return Request(method="PATCH", path=path, content_type=JSON_PATCH, body=ops)


def _address(address: Address) -> Mapping[str, str]:
    return {"type": address.type, "address": address.address}


def _taint_ops(node: NodeFacts, taints: tuple[Taint, ...] | None) -> list[Json]:
    if taints is None:
        return []
    seen = None if node.taints is None else [taint_value(taint) for taint in node.taints]
    test = _test("/spec/taints", seen)
    if taints:
        return [test, _add("/spec/taints", [taint_value(taint) for taint in taints])]
    return [test, {"op": "remove", "path": "/spec/taints"}]


def _annotation_ops(node: NodeFacts, wanted: Mapping[str, str | None]) -> list[Json]:
    changed = {key: value for key, value in wanted.items() if (node.annotations.get(key) or None) != value}
    if not changed:
        return []
    if not node.has_annotations:
        made = [_test("/metadata/annotations", None), _add("/metadata/annotations", {})]
        return [*made, *(_add(pointer("metadata", "annotations", key), value) for key, value in changed.items())]
    return [
        op
        for key, value in changed.items()
        for op in _member_ops(pointer("metadata", "annotations", key), value, present=key in node.annotations)
    ]


def _member_ops(path: str, value: str | None, *, present: bool) -> list[Json]:
    if value is not None:
        return [_add(path, value)]
    return [{"op": "remove", "path": path}] if present else []


def taint_value(taint: Taint) -> Mapping[str, str]:
    """``taint`` as it stands on the wire."""
    # As the API server writes it: empty value and null timeAdded are left out, or the test would fail.
    fields = {"key": taint.key, "value": taint.value, "effect": taint.effect, "timeAdded": taint.time_added}
    return {name: value for name, value in fields.items() if value}


def _test(path: str, value: Json) -> Json:
    return {"op": "test", "path": path, "value": value}


def _add(path: str, value: Json) -> Json:
    return {"op": "add", "path": path, "value": value}


def pointer(*parts: str) -> str:
    """The JSON pointer to the member that ``parts`` lead to."""
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)
