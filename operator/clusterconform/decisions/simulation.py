"""What the operator would do with a world: its own decisions, replayed until the world is at rest.

The requests are those of ``requests.requests_of``, applied to the object in memory as the API server would
apply them, and the next decision is made on the result, at the time at which the operator would look again.
There is no second path: what is simulated is what is sent.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from clusterconform.contract.asks import LedgerText
from clusterconform.contract.facts import NodeFacts, UnreadableNodeError, read_node, view_node
from clusterconform.contract.matrix import MATRIX
from clusterconform.contract.memory import EMPTY, NodeMemory
from clusterconform.contract.names import (
    CONFORMANT_CONDITION,
    GROUP,
    KIND,
    LEASES_NAMESPACE,
    LEDGER_CONFIGMAP,
    LEDGER_KEY,
    NAMESPACE,
    TRUST_KEY,
)
from clusterconform.contract.objects import NotAnObjectError, objects_in, path_text
from clusterconform.contract.plan import Plan
from clusterconform.contract.profile import ProfileObject, Refusal, manifest_of, read_profile
from clusterconform.contract.request import JSON_PATCH, Json, Request
from clusterconform.contract.times import Duration, Moment, format_time, parse_time
from clusterconform.contract.verdicts import Catalogue, IdentityKind, NodeVerdict, Reason
from clusterconform.decisions import planning
from clusterconform.decisions.gate import accept
from clusterconform.decisions.rehearsal import Rehearsal, Scene, staleness_of
from clusterconform.decisions.requests import requests_of
from clusterconform.decisions.staleness import Staleness, undetermined

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
        leases: By node name, the Leases of nodes.
        ledger: The reaping ledger, None where the input holds none: empty and old.
    """

    nodes: Sequence[Mapping[str, Any]]
    profiles: Sequence[ProfileObject]
    leases: Mapping[str, Any]
    ledger: LedgerText | None


def read_world(documents: Iterable[Any]) -> World:
    """The world in ``documents``: objects and lists of objects, of any kinds; other kinds are passed over.

    Raises:
        UnusableWorldError: A document that is no object, or a profile without a name.
    """
    nodes: list[Mapping[str, Any]] = []
    profiles: list[ProfileObject] = []
    leases: dict[str, Any] = {}
    ledger: LedgerText | None = None
    for where, item in _items(documents):
        kind, group = item.get("kind"), str(item.get("apiVersion") or "").rpartition("/")[0]
        if kind == "Node" and not group:
            nodes.append(_as_stored(where, item))
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
    return World(nodes=nodes, profiles=profiles, leases=leases, ledger=ledger)


def simulate(world: World, now: Moment, passes: Sequence[Any] | None = None) -> Mapping[str, Any]:
    """The answer that ``clusterconform simulate`` prints, as JSON values.

    Args:
        world: What to judge.
        now: When.
        passes: Reaping passes to play one after the other, as JSON values; None for one at ``now``.

    Raises:
        UnusableWorldError: A node with a field of a type that no API server would accept, or a pass that is none.
    """
    catalogue = accept(world.profiles)
    facts = [_facts(_name(manifest), manifest) for manifest in world.nodes]
    first = [planning.decide(node, catalogue, EMPTY, now) for node in facts]
    judged = [(node, decision.verdict) for node, decision in zip(facts, first, strict=True)]
    answers = staleness_of(judged, catalogue, now)
    looks = zip(world.nodes, facts, first, strict=True)
    answer = {
        "now": format_time(now.wall),
        "nodes": [_node(_Look(*look), catalogue, now, answers) for look in looks],
        "profiles": [_profile(profile, catalogue) for profile in world.profiles],
    }
    rehearsal = Rehearsal(world.nodes, world.leases, world.ledger)
    try:
        if passes is None:
            return {**answer, "reaping": rehearsal.play(Scene(moment=now), catalogue, judged)}
        return {**answer, "passes": [_play(rehearsal, step, now, catalogue) for step in passes]}
    except UnreadableNodeError as error:
        raise UnusableWorldError(str(error)) from error


@dataclass(frozen=True, slots=True)
class _Look:
    """A node with the first decision on it."""

    manifest: Mapping[str, Any]
    facts: NodeFacts
    decision: planning.Decision


def _play(rehearsal: Rehearsal, step: Any, default: Moment, catalogue: Catalogue) -> Mapping[str, Any]:
    """One pass of a scenario: ``{now, uptime, nodes?, fresh?, faults?, restart?}``."""
    if not isinstance(step, Mapping):
        raise UnusableWorldError("a pass must be a JSON object")
    moment = read_moment(step, default)
    nodes, fresh, faults = (step.get(field) for field in ("nodes", "fresh", "faults"))
    if nodes is not None:
        listed = [_as_stored(where, item) for where, item in _items([{"kind": "NodeList", "items": nodes}])]
        rehearsal.nodes = {_name(manifest): manifest for manifest in listed}
    answers = {
        name: None if manifest is None else _as_stored(f"fresh {name}", {"kind": "Node", **manifest})
        for name, manifest in (fresh or {}).items()
    }
    scene = Scene(moment=moment, fresh=answers, faults=faults or {}, restarted=bool(step.get("restart")))
    return {"now": format_time(moment.wall), "reaping": rehearsal.play(scene, catalogue)}


def read_moment(step: Mapping[str, Any], default: Moment) -> Moment:
    """The moment in ``now`` and ``uptime`` of ``step``, each of ``default`` where it is not given.

    Raises:
        UnusableWorldError: One of them is none.
    """
    wall = default.wall if step.get("now") is None else parse_time(step["now"])
    if wall is None:
        raise UnusableWorldError(f"now must be a time such as 2026-08-01T12:00:00Z, not {step['now']!r}")
    uptime = step.get("uptime")
    return Moment(wall=wall, uptime=default.uptime if uptime is None else read_uptime(uptime))


def read_uptime(value: Any) -> float:
    """Seconds of uptime, given as a number or a duration such as ``1h30m``.

    Raises:
        UnusableWorldError: It is neither, or negative.
    """
    try:
        seconds = Duration(value).seconds if isinstance(value, str) and value[-1:].isalpha() else float(value)
    except (TypeError, ValueError):
        seconds = -1.0
    if isinstance(value, bool) or not 0 <= seconds < float("inf"):
        raise UnusableWorldError(f"uptime must be seconds or a duration such as 1h30m, not {value!r}")
    return seconds


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


def _name(manifest: Mapping[str, Any]) -> str:
    return str(manifest["metadata"]["name"])


class LostTestError(ValueError):
    """A ``test`` of one of our patches does not hold on the object that it was built on: a defect of ours."""


def apply(manifest: Json, request: Request) -> None:
    """Apply one of our own ``request`` to ``manifest`` in place, as the API server would.

    Our patches test, add and remove members of maps, and nothing else; the JSON patch library takes a test of an
    absent member for an error, where the API server takes it for null, and is ten times as slow.

    Raises:
        LostTestError: A lost test.
        KeyError: A path that is not there.
    """
    if request.content_type == JSON_PATCH:
        for op in request.body:
            _apply_op(manifest, op)
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


def _apply_op(manifest: Json, op: Mapping[str, Any]) -> None:
    *parents, member = (part.replace("~1", "/").replace("~0", "~") for part in op["path"].split("/")[1:])
    target = manifest
    for name in parents:
        target = target[name]
    if op["op"] == "test":
        if target.get(member) != op["value"]:
            raise LostTestError(f"{op['path']} is not {op['value']!r}")
    elif op["op"] == "add":
        # A map that is added is written to by the next ones: into a copy, not into the request.
        target[member] = {} if op["value"] == {} else op["value"]
    else:
        del target[member]


def _items(documents: Iterable[Any]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    for index, document in enumerate(documents):
        where = f"document {index + 1}"
        try:
            for path, item in objects_in(document):
                yield f"{where}, {path_text(path)}" if path else where, item
        except NotAnObjectError as error:
            place = f"{where}, {path_text(error.path)}" if error.path else where
            raise UnusableWorldError(f"{place}: {error.reason}") from error


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


def _node(look: _Look, catalogue: Catalogue, now: Moment, answers: Mapping[str, Staleness]) -> Mapping[str, Any]:
    name, verdict = look.facts.name, look.decision.verdict
    requests = _until_rest(look, catalogue, now)
    profile = verdict.identity.profile
    owned = verdict.identity.kind in {IdentityKind.MANAGED, IdentityKind.CONFLICTING}
    return {
        "name": name,
        "profile": profile.backend if profile is not None and owned else None,
        "identity": verdict.identity.kind.value,
        "conformant": verdict.conformant,
        "reasons": _reasons(verdict),
        "staleness": _staleness(answers.get(name)),
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


def _until_rest(look: _Look, catalogue: Catalogue, now: Moment) -> list[Request]:
    name, node, decision, requests = look.facts.name, look.facts, look.decision, list[Request]()
    manifest = _as_stored(name, look.manifest) if decision.plan or decision.recheck_after is not None else {}
    for _ in range(_LOOKS):
        memory = _carried_out(decision.memory, decision.plan, now)
        for request in requests_of(node, decision.plan):
            apply(manifest, request)
            requests.append(request)
        if decision.plan.marks is None and decision.recheck_after is None:
            return requests  # a condition at the most, and that is the last word
        if not decision.plan and decision.recheck_after is not None:
            now = now.later(decision.recheck_after)
        node = _facts(name, manifest)
        decision = planning.decide(node, catalogue, memory, now)
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


def _staleness(answer: Staleness | None) -> Mapping[str, Any]:
    answer = answer or undetermined(Reason.NOT_AN_AGENT, "no profile of class agent is accepted")
    since = format_time(answer.since) if answer.since else None
    return {"outcome": answer.outcome.value, "reason": answer.reason.value, "since": since}


def _reasons(verdict: NodeVerdict) -> list[str]:
    return list(dict.fromkeys(finding.reason.value for finding in verdict.findings))


def _profile(profile: ProfileObject, catalogue: Catalogue) -> Mapping[str, Any]:
    refusal = catalogue.refusals.get(profile.name)
    reason = refusal.reason if refusal else Reason.ACCEPTED
    return {"name": profile.name, "accepted": refusal is None, "reason": reason.value}
