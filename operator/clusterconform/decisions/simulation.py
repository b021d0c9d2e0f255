"""What the operator would do with a world: its own decisions, replayed until the world is at rest.

The requests are those of ``requests.requests_of``, applied to the object in memory as the API server would
apply them, and the next decision is made on the result, at the time at which the operator would look again.
There is no second path: what is simulated is what is sent.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from clusterconform.contract.facts import UnreadableNodeError
from clusterconform.contract.memory import NodeMemory
from clusterconform.contract.names import CONFORMANT_CONDITION
from clusterconform.contract.plan import Plan
from clusterconform.contract.profile import ProfileObject
from clusterconform.contract.request import JSON_PATCH, Json, Request
from clusterconform.contract.times import Duration, Moment, format_time, parse_time
from clusterconform.contract.verdicts import Catalogue, IdentityKind, NodeVerdict, Reason
from clusterconform.decisions import addresses, planning
from clusterconform.decisions.gate import accept
from clusterconform.decisions.looking import Look, look_at
from clusterconform.decisions.rehearsal import Rehearsal, Scene, staleness_of
from clusterconform.decisions.requests import requests_of
from clusterconform.decisions.sandbox import Runtime
from clusterconform.decisions.staleness import Staleness, undetermined
from clusterconform.decisions.world import (
    UnusableWorldError,
    World,
    as_stored,
    facts_of,
    items_in,
    name_of,
    read_ledger_object,
    read_world,
)

__all__ = ["UnusableWorldError", "World", "read_ledger_object", "read_world", "simulate"]

# Repair, endpoint, probe, ten seconds clean, condition: some looks bring any node to rest; more would be a defect.
_LOOKS: Final = 12


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
    facts = [facts_of(name_of(manifest), manifest) for manifest in world.nodes]
    looks = look_at(world, facts, catalogue, now)
    judged = [(look.facts, look.decision.verdict) for look in looks]
    answers = staleness_of(judged, catalogue, now)
    answer = {
        "now": format_time(now.wall),
        "nodes": [_node(look, catalogue, now, answers) for look in looks],
        "profiles": [_profile(profile, catalogue) for profile in world.profiles],
        "diagnostics": [
            addresses.diagnostics(look.facts, look.decision.address)
            for look in sorted(looks, key=lambda look: look.facts.name)
            if look.decision.address.endpoint is not None
        ],
    }
    rehearsal = Rehearsal(world.nodes, world.leases, world.ledger)
    try:
        if passes is None:
            return {**answer, "reaping": rehearsal.play(Scene(moment=now), catalogue, judged)}
        return {**answer, "passes": [_play(rehearsal, step, now, catalogue) for step in passes]}
    except UnreadableNodeError as error:
        raise UnusableWorldError(str(error)) from error


def _play(rehearsal: Rehearsal, step: Any, default: Moment, catalogue: Catalogue) -> Mapping[str, Any]:
    """One pass of a scenario: ``{now, uptime, nodes?, fresh?, faults?, restart?}``."""
    if not isinstance(step, Mapping):
        raise UnusableWorldError("a pass must be a JSON object")
    moment = read_moment(step, default)
    nodes, fresh, faults = (step.get(field) for field in ("nodes", "fresh", "faults"))
    if nodes is not None:
        listed = [as_stored(where, item) for where, item in items_in([{"kind": "NodeList", "items": nodes}])]
        rehearsal.nodes = {name_of(manifest): manifest for manifest in listed}
    answers = {name: _fresh(name, manifest) for name, manifest in _map_of("fresh", fresh).items()}
    for kind, status in _map_of("faults", faults).items():
        if not isinstance(status, int) or isinstance(status, bool):
            raise UnusableWorldError(f"faults.{kind} must be an HTTP status, not {status!r}")
    scene = Scene(
        moment=moment, fresh=answers, faults=_map_of("faults", faults), restarted=bool(step.get("restart"))
    )
    return {"now": format_time(moment.wall), "reaping": rehearsal.play(scene, catalogue)}


def _map_of(name: str, value: Any) -> Mapping[str, Any]:
    if value is not None and not isinstance(value, Mapping):
        raise UnusableWorldError(f"{name} must be a JSON object, not {value!r}")
    return value or {}


def _fresh(name: str, manifest: Any) -> Mapping[str, Any] | None:
    if manifest is not None and not isinstance(manifest, Mapping):
        raise UnusableWorldError(f"fresh.{name} must be a Node or null, not {manifest!r}")
    return None if manifest is None else as_stored(f"fresh {name}", {"kind": "Node", **manifest})


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


def _node(look: Look, catalogue: Catalogue, now: Moment, answers: Mapping[str, Staleness]) -> Mapping[str, Any]:
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
        "endpoint": addresses.as_values(look.decision.address),
        "probe": _probe(look),
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


def _probe(look: Look) -> Mapping[str, Any]:
    verdict = look.around.probe
    if verdict is None:
        return {"verdict": Runtime.NONE.value, "cause": look.unprobed.reason.value, "held": False}
    return {"verdict": verdict.runtime.value, "cause": verdict.cause.reason.value, "held": verdict.held}


def _until_rest(look: Look, catalogue: Catalogue, now: Moment) -> list[Request]:
    name, node, decision, requests = look.facts.name, look.facts, look.decision, list[Request]()
    wall = now.wall  # probes are judged as they are now: that their grace ends is no work of ours
    manifest = as_stored(name, look.manifest) if decision.plan or decision.recheck_after is not None else {}
    for _ in range(_LOOKS):
        memory = _carried_out(decision.memory, decision.plan, now)
        for request in requests_of(node, decision.plan):
            apply(manifest, request)
            requests.append(request)
        if decision.plan.marks is None and decision.recheck_after is None:
            return requests  # a condition at the most, and that is the last word
        if not decision.plan and decision.recheck_after is not None:
            now = now.later(decision.recheck_after)
        node = facts_of(name, manifest)
        # A node that was taken for a virtual one may be an agent by now.
        look.agents.observe(node)
        decision = planning.decide(node, catalogue, memory, now, look.agents.around(node, wall))
    raise RuntimeError(f"node {name} does not come to rest; this is a defect of clusterconform")


def _carried_out(memory: NodeMemory, plan: Plan, now: Moment) -> NodeMemory:
    if plan.marks:
        memory = planning.marks_written(memory, plan.marks, now)
    if plan.condition:
        memory = planning.condition_written(memory, plan.condition, now)
    if plan.endpoint and not plan.marks:
        memory = addresses.endpoint_written(memory, now.uptime)
    return memory


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
