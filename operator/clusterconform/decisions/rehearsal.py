"""Reaping passes over a world in memory: drives the pass as the operator would, with files for an API.

World and memory are kept from pass to pass, so that a scenario can be played through: a node dies, the clock
jumps, the process restarts, the API server fails at one kind of request.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from clusterconform.contract.asks import (
    Answer,
    Ask,
    DeleteNode,
    Failed,
    LedgerText,
    ReadClock,
    ReadLedger,
    ReadNode,
    ReadNodeLease,
    SwapLedger,
    Trouble,
)
from clusterconform.contract.facts import NodeFacts
from clusterconform.contract.memory import EMPTY
from clusterconform.contract.profile import NodeClass
from clusterconform.contract.reaping import Agents, Fleet, Mode, ReapingMemory
from clusterconform.contract.settings import NodeGC, ReapingMode
from clusterconform.contract.times import Moment, format_time
from clusterconform.contract.verdicts import Catalogue, NodeVerdict, Reason
from clusterconform.contract.witness import read_fresh_node, read_lease
from clusterconform.decisions import planning
from clusterconform.decisions.fleet import survey
from clusterconform.decisions.ledger import as_values
from clusterconform.decisions.reaping import reap
from clusterconform.decisions.report import PassReport
from clusterconform.decisions.staleness import Staleness

_TROUBLES: Final = {404: Trouble.GONE, 409: Trouble.CHANGED, 403: Trouble.FORBIDDEN}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One pass of a scenario.

    Attributes:
        moment: When it begins.
        fresh: What a live GET answers instead of the world: a manifest, or None for 404.
        faults: Status code by kind of request: list, get, delete, ledger.
        restarted: Whether the process was restarted before it.
    """

    moment: Moment
    fresh: Mapping[str, Any] = field(default_factory=dict)
    faults: Mapping[str, int] = field(default_factory=dict)
    restarted: bool = False


class Rehearsal:
    """A world that passes are run on."""

    def __init__(
        self, nodes: Sequence[Mapping[str, Any]], leases: Mapping[str, Any], ledger: LedgerText | None
    ) -> None:
        """Begin with ``nodes`` as manifests, Leases by node name, and the ledger (None: empty and old)."""
        self.nodes = {str(manifest["metadata"]["name"]): manifest for manifest in nodes}
        self._leases = leases
        self._ledger = ledger or LedgerText(text="", trust=None, created_at=None)
        self._memory = ReapingMemory()

    def play(
        self, scene: Scene, catalogue: Catalogue, judged: Sequence[tuple[NodeFacts, NodeVerdict]] | None = None
    ) -> Mapping[str, Any]:
        """Run one pass and give what ``simulate`` prints of it; ``judged`` saves judging the nodes again."""
        if scene.restarted:
            self._memory = ReapingMemory()
        agents = agents_of(catalogue)
        if agents is None or agents.mode is ReapingMode.OFF:
            return _idle(Reason.NOT_LIVE, None)
        if "list" in scene.faults:
            return _idle(None, f"listing nodes: HTTP status {scene.faults['list']}")
        if judged is None:
            facts = [read_fresh_node(manifest).facts for manifest in self.nodes.values()]
            judged = [(node, planning.decide(node, catalogue, EMPTY, scene.moment).verdict) for node in facts]
        fleet = Fleet(
            nodes=judged,
            agents=agents,
            mode=Mode(agents.mode.value),
            trusted_seconds=self._trusted_seconds(scene.moment),
        )
        steps = reap(fleet, self._memory)
        answer: Answer = None
        while True:
            try:
                answer = self._answer(steps.send(answer), scene)
            except StopIteration as end:
                report: PassReport = end.value
                self._memory = report.memory
                return _printed(report)

    def _trusted_seconds(self, moment: Moment) -> float:
        return moment.uptime - (self._memory.last.uptime if self._memory.last else 0.0)

    def _answer(self, ask: Ask, scene: Scene) -> Answer:
        match ask:
            case ReadClock():
                answer: Answer = scene.moment
            case ReadLedger():
                answer = _fault(scene, "ledger") or self._ledger
            case SwapLedger():
                answer = _fault(scene, "ledger")
                if answer is None:
                    self._ledger = replace(self._ledger, text=ask.text, trust=ask.trust)
            case ReadNode():
                answer = _fault(scene, "get") or self._read(ask.name, scene)
            case ReadNodeLease():
                lease = self._leases.get(ask.name)
                answer = Failed(Trouble.GONE) if lease is None else read_lease(lease)
            case DeleteNode():
                answer = _fault(scene, "delete") or self._delete(ask)
            case _:
                answer = True  # the fence: files have no admission policy that could be missing
        return answer

    def _read(self, name: str, scene: Scene) -> Answer:
        manifest = scene.fresh[name] if name in scene.fresh else self.nodes.get(name)
        return Failed(Trouble.GONE) if manifest is None else read_fresh_node(manifest)

    def _delete(self, ask: DeleteNode) -> Answer:
        if self.nodes.pop(ask.name, None) is None:
            return Failed(Trouble.GONE)
        return None


def agents_of(catalogue: Catalogue) -> Agents | None:
    """Who may be reaped by the accepted agent profile; None where there is none."""
    for profile in catalogue.accepted.values():
        if profile.node_class is NodeClass.AGENT and profile.subject_to_node_gc:
            policy = profile.node_gc or NodeGC()
            return Agents(backend=profile.backend, policy=policy, enforcement=profile.enforcement)
    return None


def staleness_of(
    judged: Sequence[tuple[NodeFacts, NodeVerdict]], catalogue: Catalogue, moment: Moment
) -> Mapping[str, Staleness]:
    """By name, what the nodes themselves say; empty without an agent profile."""
    agents = agents_of(catalogue)
    return survey(judged, agents, moment.wall).answers if agents else {}


def _fault(scene: Scene, kind: str) -> Failed | None:
    status = scene.faults.get(kind)
    if status is None:
        return None
    refused = Trouble.REFUSED if status < 500 else Trouble.UNKNOWN  # noqa: PLR2004 - the class of the server's faults
    return Failed(_TROUBLES.get(status, refused), f"HTTP status {status}")


def _idle(refused: Reason | None, error: str | None) -> Mapping[str, Any]:
    facts = {"scope": 0, "stale": 0, "future": 0}
    return {"refused": refused, "error": error, "deleted": [], "held": [], "facts": facts, "ledger": []}


def _printed(report: PassReport) -> Mapping[str, Any]:
    found = report.survey
    return {
        "refused": report.refused.value if report.refused else None,
        "error": report.error,
        "deleted": list(report.deleted),
        "held": [
            {
                "name": held.name,
                "reason": held.reason.value,
                "until": format_time(held.until) if held.until else None,
            }
            for held in report.held
        ],
        "facts": {"scope": found.scope, "stale": found.stale, "future": found.future},
        "ledger": as_values(report.lines),
    }
