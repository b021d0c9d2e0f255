"""May this one node be gone for good? Three answers, and only *stale* may lead to a deletion.

The contract's rules (§3.2), each in order; the first that fails answers:

 1. Runtime label ``agent`` and backend label of the agent profile.
 2. A host label, and a name that begins with it and a dash.
 3. Not the control plane's own host (``selfHost``).
 4. No control-plane and no master role, whatever the label's value.
 5. A Ready condition exists; the first one counts.
 6. Its status is False or Unknown.
 7. Its transition time can be read.
 8. It lies longer ago than ``grace``, strictly.

Ours, which can only make fewer nodes stale:

 9. Not terminating, and not annotated ``outpost.dhnt.io/keep``.
10. Not our own node.
11. The identity is not in conflict, neither runtime nor backend is contested, and the host that the agent was
    started with, where its arguments tell one, is that of its label: ``pi-zero-1`` may be of host ``pi`` or not.
12. The transition does not lie before the node's creation, nor in the year 1 or 1970.
13. All other witnesses are older than ``grace`` too: creation, the Lease, and the API server's own stamps on
    the Ready condition and on the Lease. An unreadable Lease is no answer; an absent one no objection.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from clusterconform.contract.facts import NodeFacts
from clusterconform.contract.names import (
    BACKEND_LABEL,
    CONTROL_PLANE_ROLES,
    HOST_LABEL,
    KEEP_ANNOTATION,
    RUNTIME_LABEL,
)
from clusterconform.contract.plan import BACKEND_MARK, RUNTIME_MARK
from clusterconform.contract.profile import NodeClass
from clusterconform.contract.reaping import Agents
from clusterconform.contract.verdicts import IdentityKind, NodeVerdict, Reason
from clusterconform.contract.witness import FreshNode, LeaseFacts
from clusterconform.decisions.identity import host_in_args

_DEAD_WORDS: Final = frozenset({"False", "Unknown"})
_IMPOSSIBLE_YEARS: Final = frozenset({1, 1970})


class Outcome(StrEnum):
    """The three answers."""

    STALE = "stale"
    LIVE = "live"
    UNDETERMINED = "undetermined"


@dataclass(frozen=True, slots=True, kw_only=True)
class Staleness:
    """The answer for one node.

    Attributes:
        outcome: Stale, live or undetermined.
        reason: The word for it.
        message: One clause for a person.
        since: Since when all that is known says dead; None unless stale.
        until: When the answer may change by time alone; None where it will not.
    """

    outcome: Outcome
    reason: Reason
    message: str
    since: datetime | None = None
    until: datetime | None = None


def is_eligible(node: NodeFacts, agents: Agents) -> bool:
    """Rules 1-4: whether the node counts among those that could be reaped (the contract's scope)."""
    return _first_objection(node, agents, _ELIGIBILITY) is None


def dead_since(node: NodeFacts, agents: Agents, now: datetime) -> datetime | None:
    """Rules 5-8 on an eligible node: since when it is not Ready, or None; the contract's count of stale."""
    return None if _first_objection(node, agents, _DEATH) or _is_within_grace(node, agents, now) else _since(node)


def is_from_the_future(node: NodeFacts, agents: Agents, now: datetime) -> bool:
    """Whether the Ready transition of an eligible node, of any status, lies too far ahead."""
    tolerance = timedelta(seconds=agents.policy.future_tolerance.seconds)
    return node.ready is not None and node.ready.transition is not None and node.ready.transition > now + tolerance


def judge(node: NodeFacts, verdict: NodeVerdict, agents: Agents, now: datetime) -> Staleness:
    """Rules 1-12: what the node itself says; the witnesses of rule 13 are heard on a live read (``confirm``)."""
    objection = _first_objection(node, agents, (*_ELIGIBILITY, *_OURS)) or _identity(verdict)
    objection = objection or _first_objection(node, agents, _DEATH)
    if objection is not None:
        return objection
    if _is_within_grace(node, agents, now):
        return _live(Reason.WITHIN_GRACE, "not Ready for less than grace", _since(node), agents)
    told = host_in_args(node)
    if told is not None and told != node.labels.get(HOST_LABEL):
        return undetermined(Reason.IDENTITY_CONFLICT, f"its host label is not {told}, which it was started with")
    impossible = _impossible_transition(node)
    if impossible is not None:
        return impossible
    return Staleness(
        outcome=Outcome.STALE,
        reason=Reason.STALE,
        message="not Ready for longer than grace",
        since=_since(node),
    )


def confirm(
    stale: Staleness, node: FreshNode, lease: LeaseFacts | None, *, agents: Agents, now: datetime
) -> Staleness:
    """Rule 13 on a node that ``judge`` called ``stale``.

    Args:
        stale: Its answer.
        node: The node as a live GET shows it.
        lease: The Lease, None where there is none.
        agents: The policy.
        now: Wall clock.
    """
    witnesses = [
        ("it was created", node.facts.created_at),
        ("the API server took a write of its Ready condition", node.ready_stamp),
    ]
    if agents.policy.lease_witness and lease is not None:
        witnesses += [
            ("its Lease was renewed", lease.renewed),
            ("the API server took a write of its Lease", lease.stamp),
        ]
    heard = [(what, at) for what, at in witnesses if at is not None]
    for what, at in heard:
        if now - at <= agents.grace:
            return _live(Reason.WITNESS_LIVES, f"{what} within grace", at, agents)
    since = max([at for _, at in heard] + ([stale.since] if stale.since else []))
    return Staleness(outcome=Outcome.STALE, reason=Reason.STALE, message=stale.message, since=since)


def undetermined(reason: Reason, message: str) -> Staleness:
    """No answer, and so no deletion."""
    return Staleness(outcome=Outcome.UNDETERMINED, reason=reason, message=message)


def _live(reason: Reason, message: str, at: datetime | None, agents: Agents) -> Staleness:
    try:
        until = at + agents.grace if at is not None else None
    except OverflowError:  # a kubelet may say that it is the year 9999
        until = None
    return Staleness(outcome=Outcome.LIVE, reason=reason, message=message, until=until)


def _since(node: NodeFacts) -> datetime | None:
    return node.ready.transition if node.ready is not None else None


def _is_within_grace(node: NodeFacts, agents: Agents, now: datetime) -> bool:
    since = _since(node)
    return since is None or now - since <= agents.grace


_Rule = Callable[[NodeFacts, Agents], "Staleness | None"]


def _first_objection(node: NodeFacts, agents: Agents, rules: tuple[_Rule, ...]) -> Staleness | None:
    return next((objection for rule in rules if (objection := rule(node, agents)) is not None), None)


def _is_agent(node: NodeFacts, agents: Agents) -> Staleness | None:
    labels = node.labels
    if labels.get(RUNTIME_LABEL) == NodeClass.AGENT and labels.get(BACKEND_LABEL) == agents.backend:
        return None
    return undetermined(Reason.NOT_AN_AGENT, f"not labelled as an agent of backend {agents.backend}")


def _has_its_hosts_name(node: NodeFacts, _: Agents) -> Staleness | None:
    host = node.labels.get(HOST_LABEL, "")
    if host and node.name.startswith(f"{host}-"):
        return None
    return undetermined(Reason.HOST_NAME_MISMATCH, f"the name does not begin with host {host}-")


def _is_not_self_host(node: NodeFacts, agents: Agents) -> Staleness | None:
    host = agents.policy.self_host
    if host and node.labels.get(HOST_LABEL) == host:
        return undetermined(Reason.SELF_HOST, f"host {host} is the control plane's own")
    return None


def _has_no_role(node: NodeFacts, _: Agents) -> Staleness | None:
    roles = sorted(role for role in CONTROL_PLANE_ROLES if role in node.labels)
    return undetermined(Reason.CONTROL_PLANE, f"carries {', '.join(roles)}") if roles else None


def _is_not_terminating(node: NodeFacts, _: Agents) -> Staleness | None:
    return undetermined(Reason.TERMINATING, "its deletion is under way") if node.terminating else None


def _is_not_kept(node: NodeFacts, _: Agents) -> Staleness | None:
    if KEEP_ANNOTATION in node.annotations:
        return undetermined(Reason.KEPT, f"annotated {KEEP_ANNOTATION}")
    return None


def _is_not_our_own(node: NodeFacts, agents: Agents) -> Staleness | None:
    if agents.own_node and node.name == agents.own_node:
        return undetermined(Reason.OWN_NODE, "the operator runs on it")
    return None


def _has_ready(node: NodeFacts, _: Agents) -> Staleness | None:
    return None if node.ready is not None else undetermined(Reason.NO_READY_CONDITION, "no Ready condition")


def _is_not_ready(node: NodeFacts, _: Agents) -> Staleness | None:
    status = node.ready.status if node.ready is not None else ""
    if status in _DEAD_WORDS:
        return None
    if status == "True":
        return Staleness(outcome=Outcome.LIVE, reason=Reason.NODE_READY, message="Ready")
    return undetermined(Reason.NO_READY_CONDITION, f"Ready is {status[:20]!r}, which is no status")


def _is_datable(node: NodeFacts, _: Agents) -> Staleness | None:
    return None if _since(node) is not None else undetermined(Reason.UNDATABLE, "no transition time")


_ELIGIBILITY: Final[tuple[_Rule, ...]] = (_is_agent, _has_its_hosts_name, _is_not_self_host, _has_no_role)
_DEATH: Final[tuple[_Rule, ...]] = (_has_ready, _is_not_ready, _is_datable)
_OURS: Final[tuple[_Rule, ...]] = (_is_not_terminating, _is_not_kept, _is_not_our_own)


def _identity(verdict: NodeVerdict) -> Staleness | None:
    if verdict.identity.kind is not IdentityKind.MANAGED:
        return undetermined(Reason.IDENTITY_CONFLICT, "its evidence contradicts its labels")
    contested = {RUNTIME_MARK, BACKEND_MARK} & set(verdict.contested)
    if contested:
        return undetermined(Reason.CONTESTED, f"another writer keeps changing {', '.join(sorted(contested))}")
    return None


def _impossible_transition(node: NodeFacts) -> Staleness | None:
    since = _since(node)
    if since is None:
        return undetermined(Reason.UNDATABLE, "no transition time")
    if since.year in _IMPOSSIBLE_YEARS:
        return undetermined(Reason.UNDATABLE, f"its transition lies in the year {since.year}")
    if node.created_at is not None and since < node.created_at:
        return undetermined(Reason.UNDATABLE, "its transition lies before its creation")
    return None
