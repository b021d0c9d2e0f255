"""A fleet at a glance: what the operator last wrote down of each profile, who leads, and how old all that is."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from clusterconform.contract.lease import LeaseRecord
from clusterconform.contract.names import FIELD_MANAGER, HEARD_ANNOTATION, RESYNCED_ANNOTATION
from clusterconform.contract.profile import ProfileObject, Refusal
from clusterconform.contract.reported import condition_of, held_in, reaping_of
from clusterconform.contract.times import format_time, parse_time
from clusterconform.contract.writers import managed_fields

Json = Mapping[str, Any]

_COUNTS: Final = ("total", "conformant", "drifted", "conflicting", "contested", "notReady", "unidentified")
_OF_AGENTS: Final = {
    "probe": "ProbeHealthy",
    "addresses": "AddressesPublished",
    "streaming": "StreamingVerified",
}
# A clock that the API server's Date header gives has no fraction.
_ROUNDING: Final = timedelta(seconds=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """Who leads.

    Attributes:
        holder: Its identity; empty where nobody leads.
        renewed: When it last said so; None where it never did.
        alive: Whether its Lease has not run out.
    """

    holder: str
    renewed: datetime | None
    alive: bool


def leader_of(lease: LeaseRecord | None, now: datetime) -> Leader:
    """Who leads by ``lease``; None where there is none."""
    if lease is None or not lease.holder:
        return Leader(holder="", renewed=None, alive=False)
    renewed = parse_time(lease.renewed)
    alive = renewed is not None and now - renewed <= timedelta(seconds=lease.seconds) + _ROUNDING
    return Leader(holder=lease.holder, renewed=renewed, alive=alive)


def glance(
    manifests: Iterable[Json], objects: Iterable[ProfileObject], lease: LeaseRecord | None, now: datetime
) -> Json:
    """The fleet as JSON values.

    Args:
        manifests: The profiles as JSON values, for when their status was written.
        objects: The same profiles as values.
        lease: The operator's Lease; None where there is none.
        now: Wall clock of the API server.
    """
    seen = sorted(objects, key=lambda profile: profile.name)
    leader = leader_of(lease, now)
    return {
        "now": format_time(now),
        "profiles": [_profile(profile) for profile in seen],
        "reaping": next((row for profile in seen if (row := _reaping(profile)) is not None), None),
        "agents": next((row for profile in seen if (row := _agents(profile)) is not None), None),
        "leader": {
            "holder": leader.holder or None,
            "renewed": format_time(leader.renewed) if leader.renewed else None,
            "alive": leader.alive,
        },
        "lastResync": _told(lease, RESYNCED_ANNOTATION),
        "lastHeard": _told(lease, HEARD_ANNOTATION),
        "lastReport": _last_report(manifests),
    }


def _profile(profile: ProfileObject) -> Json:
    nodes = profile.status.get("nodes")
    counts = nodes if isinstance(nodes, Mapping) else {}
    contract = profile.contract
    readable = not isinstance(contract, Refusal)
    ready = condition_of(profile.status, "Ready")
    accepted = condition_of(profile.status, "Accepted")
    return {
        "name": profile.name,
        "class": contract.node_class.value if not isinstance(contract, Refusal) else None,
        "enforcement": contract.enforcement.value if not isinstance(contract, Refusal) else None,
        "accepted": accepted.get("status", "Unknown") if readable else "False",
        "ready": ready.get("status", "Unknown"),
        "reason": ready.get("reason", "EvidenceIncomplete"),
        "message": ready.get("message", "no operator has reported on it yet"),
        "nodes": {name: counts.get(name, 0) for name in _COUNTS},
        "held": len(held_in(profile.status)),
        "observed": profile.status.get("observedGeneration", 0) == profile.generation,
    }


def _reaping(profile: ProfileObject) -> Json | None:
    block = reaping_of(profile.status)
    allowed = condition_of(profile.status, "ReapingAllowed")
    if not block and not allowed:
        return None
    return {
        "profile": profile.name,
        "mode": block.get("mode"),
        "limitedBy": block.get("limitedBy"),
        "allowed": allowed.get("status", "Unknown"),
        "reason": allowed.get("reason"),
        "message": allowed.get("message"),
        "since": allowed.get("lastTransitionTime"),
        "eligible": block.get("eligible"),
        "stale": block.get("stale"),
        "held": [
            {key: row[key] for key in ("name", "reason", "until") if key in row} for row in held_in(profile.status)
        ],
        "reapedInWindow": block.get("reapedInWindow"),
        "budgetLeft": block.get("budgetLeft"),
        "trustedSince": block.get("trustedSince"),
        "lastPass": block.get("lastPass"),
        "nextPass": block.get("nextPass"),
    }


def _agents(profile: ProfileObject) -> Json | None:
    """What is told of all agents together: their probes, their addresses, the paths to their kubelets."""
    conditions = {name: condition_of(profile.status, kind) for name, kind in _OF_AGENTS.items()}
    if not any(conditions.values()):
        return None
    return {
        name: {
            "status": seen.get("status", "Unknown"),
            "reason": seen.get("reason"),
            "message": seen.get("message"),
            "since": seen.get("lastTransitionTime"),
        }
        for name, seen in conditions.items()
        if seen
    }


def _told(lease: LeaseRecord | None, annotation: str) -> str | None:
    at = None if lease is None else lease.told(annotation)
    return None if at is None else format_time(at)


def _last_report(manifests: Iterable[Json]) -> str | None:
    times = [
        at
        for manifest in manifests
        for entry in managed_fields(manifest)
        if entry.get("manager") == FIELD_MANAGER
        and entry.get("subresource") == "status"
        and (at := parse_time(entry.get("time"))) is not None
    ]
    return format_time(max(times)) if times else None
