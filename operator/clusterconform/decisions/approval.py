"""May a person approve the reaping of this node, and what would the approval change?

An approval overrides three guards for one node: ``MassStale``, ``DailyLimit`` and, where a mass outage was the
doubt, ``Untrusted``. It never overrides what the node, its Lease, the clock, the evidence or the budget say.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from clusterconform.contract.memory import EMPTY
from clusterconform.contract.profile import ProfileObject
from clusterconform.contract.reported import condition_of, reaping_of
from clusterconform.contract.settings import ReapingMode
from clusterconform.contract.times import Moment, format_time
from clusterconform.contract.witness import read_fresh_node, read_lease
from clusterconform.decisions import planning
from clusterconform.decisions.fleet import overrides
from clusterconform.decisions.gate import accept
from clusterconform.decisions.rehearsal import agents_of
from clusterconform.decisions.staleness import Outcome, confirm, judge


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """What an approval would lead to.

    Attributes:
        objection: Why the node would not be reaped all the same; empty where nothing is known against it.
        backend: Name of the profile that the approval is to be put on; empty without one.
        uid: Of the node.
        since: Since when all that is known says dead; None unless stale.
        held: The guard that refuses now, None where none does.
        held_message: Its words.
    """

    objection: str
    backend: str = ""
    uid: str = ""
    since: datetime | None = None
    held: str | None = None
    held_message: str = ""


def prospect(
    node: Mapping[str, Any], lease: Mapping[str, Any] | None, profiles: Iterable[ProfileObject], now: Moment
) -> Prospect:
    """What would become of an approval of ``node``.

    Args:
        node: The Node as JSON values.
        lease: Its Lease, None where there is none.
        profiles: All profiles, with their status.
        now: Now.

    Raises:
        UnreadableNodeError: A field of a wrong type.
    """
    known = list(profiles)
    catalogue = accept(known)
    agents = agents_of(catalogue)
    if agents is None:
        return Prospect(objection="there is no accepted profile of class agent")
    fresh = read_fresh_node(node)
    verdict = planning.decide(fresh.facts, catalogue, EMPTY, now).verdict
    answer = judge(fresh.facts, verdict, agents, now.wall)
    if answer.outcome is Outcome.STALE:
        heard = None if lease is None else read_lease(lease)
        answer = confirm(answer, fresh, heard, agents=agents, now=now.wall)
    if answer.outcome is not Outcome.STALE:
        until = f", at least until {format_time(answer.until)}" if answer.until else ""
        return Prospect(objection=f"{answer.reason}: {answer.message}{until}; no approval overrides this")
    status = next(profile.status for profile in known if profile.name == agents.backend)
    held, message = _held(status)
    return Prospect(
        objection=_objection(status, held, message),
        backend=agents.backend,
        uid=fresh.facts.uid,
        since=answer.since,
        held=held,
        held_message=message,
    )


def _held(status: Mapping[str, Any]) -> tuple[str | None, str]:
    seen = condition_of(status, "ReapingAllowed")
    if not seen or seen.get("status") == "True":
        return None, ""
    return str(seen.get("reason")), str(seen.get("message"))


def _objection(status: Mapping[str, Any], held: str | None, message: str) -> str:
    reaping = reaping_of(status)
    mode = reaping.get("mode")
    if mode is None:
        return "no operator has told yet what it reaps; is one running?"
    if mode != ReapingMode.LIVE:
        return f"reaping is {mode} by {reaping.get('limitedBy')}"
    if held is not None and not overrides(held, reaping.get("lastDoubt")):
        return f"{held}: {message}; no approval overrides this"
    return ""
