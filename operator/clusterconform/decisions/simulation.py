"""What the operator would do with a world: its own decisions, replayed until the world is at rest.

The requests are those of ``requests.requests_of``, applied to the object in memory as the API server would
apply them, and the next decision is made on the result, at the time at which the operator would look again.
There is no second path: what is simulated is what is sent.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jsonpatch

from clusterconform.contract.facts import NodeFacts, UnreadableNodeError, read_node, view_node
from clusterconform.contract.matrix import MATRIX
from clusterconform.contract.memory import EMPTY, NodeMemory
from clusterconform.contract.names import CONFORMANT_CONDITION, GROUP, KIND
from clusterconform.contract.plan import Plan
from clusterconform.contract.profile import ProfileObject, Refusal, manifest_of, read_profile
from clusterconform.contract.request import JSON_PATCH, Json, Request
from clusterconform.contract.times import Moment, format_time
from clusterconform.contract.verdicts import Catalogue, IdentityKind, NodeVerdict, Reason
from clusterconform.decisions import planning
from clusterconform.decisions.gate import accept
from clusterconform.decisions.requests import requests_of

# Repair, ten seconds clean, condition: three looks bring any node to rest; more would be a defect.
_LOOKS: Final = 8


class UnusableWorldError(ValueError):
    """The input is no world; the text says which object and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What ``kubectl get nodes,pods,leases,rtp -A -o json`` shows, cut down to what decisions read.

    Attributes:
        nodes: Nodes as JSON values, in input order.
        profiles: The profiles; the built-in ones where the input holds none.
    """

    nodes: Sequence[Mapping[str, Any]]
    profiles: Sequence[ProfileObject]


def read_world(documents: Iterable[Any]) -> World:
    """The world in ``documents``: objects and lists of objects, of any kinds; other kinds are passed over.

    Raises:
        UnusableWorldError: A document that is no object, or a profile without a name.
    """
    nodes: list[Mapping[str, Any]] = []
    profiles: list[ProfileObject] = []
    for where, item in _items(documents):
        kind, group = item.get("kind"), str(item.get("apiVersion") or "").rpartition("/")[0]
        if kind == "Node" and not group:
            nodes.append(_as_stored(where, item))
        elif kind == KIND and group == GROUP:
            try:
                profiles.append(read_profile(item))
            except Refusal as refusal:
                raise UnusableWorldError(f"{where}: {refusal}") from refusal
    return World(
        nodes=nodes, profiles=profiles or [read_profile(manifest_of(row)) for row in MATRIX.values()]
    )


def simulate(world: World, now: Moment) -> Mapping[str, Any]:
    """The answer that ``clusterconform simulate`` prints, as JSON values.

    Raises:
        UnusableWorldError: A node with a field of a type that no API server would accept.
    """
    catalogue = accept(world.profiles)
    return {
        "now": format_time(now.wall),
        "nodes": [_node(manifest, catalogue, now) for manifest in world.nodes],
        "profiles": [_profile(profile, catalogue) for profile in world.profiles],
    }


def apply(manifest: Json, request: Request) -> None:
    """Apply one of our own ``request`` to ``manifest`` in place, as the API server would.

    Raises:
        jsonpatch.JsonPatchException: A lost test, or a path that is not there.
    """
    if request.content_type == JSON_PATCH:
        # The library takes a test of an absent member for an error; the API server takes it for null.
        ops = [op for op in request.body if not (op["op"] == "test" and op["value"] is None)]
        # A map that an operation adds is written to by the next ones: into a copy, not into the request.
        ops = [{**op, "value": {}} if op.get("value") == {} else op for op in ops]
        jsonpatch.JsonPatch(ops).apply(manifest, in_place=True)
        return
    wanted = request.body["status"]["conditions"][0]
    status = manifest.get("status") or {}
    conditions = [
        wanted if seen.get("type") == CONFORMANT_CONDITION else seen
        for seen in status.get("conditions") or ()
        if seen is not None
    ]
    manifest["status"] = {
        **status,
        "conditions": conditions if wanted in conditions else [*conditions, wanted],
    }


def _items(documents: Iterable[Any]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    for index, document in enumerate(documents):
        where = f"document {index + 1}"
        if document is None:
            continue
        if not isinstance(document, Mapping):
            raise UnusableWorldError(f"{where}: must be a Kubernetes object, not {type(document).__name__}")
        if str(document.get("kind") or "").endswith("List") or (
            "items" in document and "kind" not in document
        ):
            kind = str(document.get("kind") or "").removesuffix("List")
            for position, item in enumerate(document.get("items") or ()):
                if not isinstance(item, Mapping):
                    raise UnusableWorldError(f"{where}, items[{position}]: must be a Kubernetes object")
                # A typed list leaves kind and apiVersion to its head.
                head = {"kind": kind, "apiVersion": document.get("apiVersion")} if kind else {}
                yield f"{where}, items[{position}]", {**head, **item}
        else:
            yield where, document


def _as_stored(where: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
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
    return stored


def _node(manifest: Mapping[str, Any], catalogue: Catalogue, now: Moment) -> Mapping[str, Any]:
    name = manifest["metadata"]["name"]
    node = _facts(name, manifest)
    verdict = planning.decide(node, catalogue, EMPTY, now).verdict
    requests = _until_rest(_as_stored(name, manifest), catalogue, now)
    profile = verdict.identity.profile
    owned = verdict.identity.kind in {IdentityKind.MANAGED, IdentityKind.CONFLICTING}
    return {
        "name": name,
        "profile": profile.backend if profile is not None and owned else None,
        "identity": verdict.identity.kind.value,
        "conformant": verdict.conformant,
        "reasons": _reasons(verdict),
        "requests": [
            {
                "method": request.method,
                "path": request.path,
                "contentType": request.content_type,
                "body": request.body,
            }
            for request in requests
        ],
    }


def _until_rest(manifest: dict[str, Any], catalogue: Catalogue, now: Moment) -> list[Request]:
    name, memory, requests = manifest["metadata"]["name"], EMPTY, list[Request]()
    for _ in range(_LOOKS):
        node = _facts(name, manifest)
        decision = planning.decide(node, catalogue, memory, now)
        memory = _carried_out(decision.memory, decision.plan, now)
        for request in requests_of(node, decision.plan):
            apply(manifest, request)
            requests.append(request)
        if decision.plan:
            continue
        if decision.recheck_after is None:
            return requests
        now = now.later(decision.recheck_after)
    raise RuntimeError(f"node {name} does not come to rest; this is a defect of clusterconform")


def _carried_out(memory: NodeMemory, plan: Plan, now: Moment) -> NodeMemory:
    if plan.marks:
        memory = planning.marks_written(memory, plan.marks, now)
    if plan.condition:
        memory = planning.condition_written(memory, plan.condition, now)
    return memory


def _facts(name: str, manifest: Mapping[str, Any]) -> NodeFacts:
    try:
        return read_node(view_node(manifest))
    except UnreadableNodeError as error:
        raise UnusableWorldError(f"node {name}: {error}") from error


def _reasons(verdict: NodeVerdict) -> list[str]:
    return list(dict.fromkeys(finding.reason.value for finding in verdict.findings))


def _profile(profile: ProfileObject, catalogue: Catalogue) -> Mapping[str, Any]:
    refusal = catalogue.refusals.get(profile.name)
    reason = refusal.reason if refusal else Reason.ACCEPTED
    return {"name": profile.name, "accepted": refusal is None, "reason": reason.value}
