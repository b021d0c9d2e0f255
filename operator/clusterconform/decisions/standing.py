"""Where reaping stands, for the profile's status: what may be done, what holds it, and until when."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from clusterconform.contract.profile import Enforcement
from clusterconform.contract.reaping import mildest, mode_of_enforcement, mode_of_word
from clusterconform.contract.settings import Bound, NodeGC, ReapingMode
from clusterconform.contract.times import format_time
from clusterconform.contract.verdicts import Finding, Reason
from clusterconform.decisions.report import PassReport

HELD: Final = 20
# Below it even a reboot with an update can look like a death.
_SHORT_GRACE: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mandate:
    """What reaping may do, and who says so.

    Attributes:
        mode: The mildest of all that have a word in it.
        by: Whose word that is; the profile's where it wants no more than the others allow.
    """

    mode: ReapingMode
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LastPass:
    """A pass that has ended.

    Attributes:
        report: What it did.
        mode: What it was allowed to do.
        at: When it began.
        approved: The node that it knew to be approved by a person, as name and uid, or None.
    """

    report: PassReport
    mode: ReapingMode
    at: datetime
    approved: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where reaping stands.

    Attributes:
        mandate: What it may do now.
        policy: The settings in force.
        last: The last pass of this leadership, or None.
        next_at: When the next one is due; None before that is known.
    """

    mandate: Mandate
    policy: NodeGC
    last: LastPass | None
    next_at: datetime | None


def mandate_of(
    profile: ReapingMode, word: str, bound: Bound, enforcement: Enforcement = Enforcement.ENFORCE
) -> Mandate:
    """What reaping may do: a bound can make it milder, never sharper (contract §3.7, M1).

    Args:
        profile: ``nodeGC.mode``.
        word: The environment's ``OUTPOST_NODEGC``; empty asks for nothing.
        bound: The bound of the process.
        enforcement: ``spec.enforcement``: a profile that only observes deletes nothing.
    """
    words = {
        "nodeGC.mode": profile,
        "spec.enforcement": mode_of_enforcement(enforcement),
        "OUTPOST_NODEGC": mode_of_word(word),
        "--bound": ReapingMode.LIVE if bound is Bound.ENFORCE else ReapingMode.DRY_RUN,
    }
    mode = mildest(*words.values())
    return Mandate(mode=mode, by=next(name for name, said in words.items() if said is mode))


def reaping_status(standing: Standing) -> Mapping[str, Any]:
    """``status.nodeGC`` as JSON values."""
    status: dict[str, Any] = {
        "mode": standing.mandate.mode.value,
        "limitedBy": standing.mandate.by,
        "settings": _settings(standing),
    }
    if standing.next_at is not None:
        status["nextPass"] = format_time(standing.next_at)
    if standing.last is None:
        return status
    report, at = standing.last.report, standing.last.at
    status |= {
        "lastPass": format_time(at),
        "eligible": report.survey.scope,
        "stale": report.survey.stale,
        "reapedInWindow": report.spent,
        "budgetLeft": report.budget_left,
    }
    if standing.last.approved is not None:
        # Whoever approved waits for the pass that knew of it, and for no earlier one.
        status["approved"] = "/".join(standing.last.approved)
    if report.deleted:
        status["deleted"] = list(report.deleted[:HELD])
    held_nodes = (*report.held, *report.survey.undecided)
    if held_nodes:
        status["held"] = [
            {
                "name": held.name,
                "reason": held.reason.value,
                **({"until": format_time(held.until)} if held.until else {}),
            }
            for held in held_nodes[:HELD]
        ]
    grace = standing.policy.grace.seconds
    if report.trust.is_earned(grace):
        over = report.trust.seconds - (grace if report.trust.cause else 0.0)
        status["trustedSince"] = format_time(at - timedelta(seconds=over))
    elif report.trust.cause is not None:
        status["lastDoubt"] = report.trust.cause.value
    return status


def reaping_allowed(standing: Standing) -> tuple[str, Finding]:
    """The condition ``ReapingAllowed``: its status, and the guard that refuses as its reason."""
    mandate, last = standing.mandate, standing.last
    if mandate.mode is ReapingMode.OFF:
        return "False", Finding(Reason.NOT_LIVE, f"off by {mandate.by}: no agent is looked at")
    if last is None:
        finding = Finding(Reason.EVIDENCE_INCOMPLETE, "this leader has made no pass yet")
        return "Unknown", _with_mode(finding, mandate)
    report = last.report
    if report.error is not None and report.error_reason is not None:
        return "False", Finding(report.error_reason, report.error)
    guard = report.standing
    # That a person approved one node frees no other.
    refused = guard.refused or guard.others
    if refused is not None:
        until = f", at least until {format_time(guard.until)}" if guard.until else ""
        return "False", _with_mode(Finding(refused, f"{guard.message}{until}"), mandate)
    finding = Finding(Reason.GUARDS_PASS, f"no guard holds reaping{_warning(standing.policy)}")
    if mandate.mode is ReapingMode.DRY_RUN:
        rehearsed = report.deleted if last.mode is ReapingMode.DRY_RUN else ()
        would = f"; it would have deleted {', '.join(rehearsed[:HELD])}" if rehearsed else ""
        return "False", Finding(
            Reason.NOT_LIVE, f"dry run by {mandate.by}: nothing is deleted; {finding.message}{would}"
        )
    return "True", finding


def _with_mode(finding: Finding, mandate: Mandate) -> Finding:
    if mandate.mode is ReapingMode.LIVE:
        return finding
    return replace(finding, message=f"{finding.message}; besides, it is a dry run by {mandate.by}")


def _warning(policy: NodeGC) -> str:
    if policy.grace.seconds >= _SHORT_GRACE.total_seconds():
        return ""
    return f"; warning: with a grace of {policy.grace.text} a machine that reboots slowly may lose its Node"


def _settings(standing: Standing) -> Mapping[str, Any]:
    fields = msgspec.to_builtins(standing.policy, enc_hook=lambda value: value.text)
    # Absent rather than empty: an empty text would say that some host is called so.
    return {name: value for name, value in fields.items() if value != "" and name != "mode"}
