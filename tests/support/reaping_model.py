"""The contract's collector (§3.2 to §3.6), line by line and by itself: nothing of ours is used here.

Three things differ from the reference, all on purpose: a 404 on the second read and a lost precondition go on
to the next node (§8.2 D7), a node whose deletion is under way does not count (D26), and the breaker compares
integers (§8.3).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

Json = dict[str, Any]

# What a request brings: an object or nothing, or one of these words.
GONE, CONFLICT, BROKEN = "gone", "conflict", "broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """§3.1."""

    grace: timedelta = timedelta(hours=24)
    max_deletes: int = 3
    interval: timedelta = timedelta(hours=1)
    min_uptime: float = 3600.0
    percent: int = 50
    floor: int = 2
    future: timedelta = timedelta(minutes=5)
    jump: timedelta = timedelta(minutes=10)
    self_host: str = ""


def time_of(text: Any) -> datetime | None:
    """A time as the API server takes it: with a zone."""
    if not isinstance(text, str) or "T" not in text:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at if at.tzinfo is not None else None


def label(node: Json, key: str) -> str:
    return (node["metadata"].get("labels") or {}).get(key) or ""


def first_ready(node: Json) -> Json | None:
    conditions = (node.get("status") or {}).get("conditions") or []
    return next((seen for seen in conditions if seen["type"] == "Ready"), None)


def own(node: Json) -> bool:
    """§3.2: who belongs to the k3s agents."""
    host = label(node, "outpost.dhnt.io/host")
    return (
        label(node, "outpost.dhnt.io/runtime") == "agent"
        and label(node, "outpost.dhnt.io/backend") == "k3s"
        and host != ""
        and node["metadata"]["name"].startswith(host + "-")
    )


def eligible(node: Json, limits: Limits) -> bool:
    """§3.2: who may be deleted at all."""
    labels = node["metadata"].get("labels") or {}
    if node["metadata"].get("deletionTimestamp") is not None:  # D26
        return False
    if limits.self_host and label(node, "outpost.dhnt.io/host") == limits.self_host:
        return False
    return (
        own(node)
        and "node-role.kubernetes.io/control-plane" not in labels
        and "node-role.kubernetes.io/master" not in labels
    )


def stale_since(node: Json, now: datetime, limits: Limits) -> datetime | None:
    """§3.2, candidate: since when, or None."""
    condition = first_ready(node)
    if not eligible(node, limits) or condition is None:
        return None
    since = time_of(condition.get("lastTransitionTime"))
    if condition["status"] not in ("False", "Unknown") or since is None:
        return None
    return since if now - since > limits.grace else None


def future(node: Json, now: datetime, limits: Limits) -> bool:
    """§3.2: whose evidence lies ahead."""
    condition = first_ready(node)
    since = time_of(condition.get("lastTransitionTime")) if condition is not None else None
    return eligible(node, limits) and since is not None and since > now + limits.future


@dataclass(slots=True, kw_only=True)
class Collector:
    """One process of the reference.

    Attributes:
        limits: §3.1.
        ledger: The lines; shared by the collectors of one ledger.
        memory: Times of own deletions.
        last: Wall clock and uptime of the last pass.
        refusal: The last refusal's signature.
    """

    limits: Limits
    ledger: list[Json] = field(default_factory=list)
    memory: list[datetime] = field(default_factory=list)
    last: tuple[datetime, float] | None = None
    refusal: str = ""

    def once(
        self,
        nodes: Iterable[Json],
        now: datetime,
        uptime: float,
        *,
        get: Callable[[str], Json | str],
        delete: Callable[[str, str], str | None],
        readable: bool = True,
    ) -> list[str]:
        """One pass (§3.3): the names of the nodes that went, in order."""
        limits = self.limits
        jumped = self._has_jumped(now, uptime)
        scope, ahead, found = self._count(nodes, now)
        # 5. Nothing to do.
        if not found and not ahead:
            return []
        # 6, 7, 8. Refusals that are written down.
        if jumped:
            return self._refuse(now, "refused_clock_skew", "jump")
        if ahead:
            return self._refuse(now, "refused_clock_skew", f"future {ahead}")
        if len(found) >= limits.floor and len(found) * 100 > limits.percent * scope:
            return self._refuse(now, "refused_mass_stale", f"{len(found)}/{scope}")
        # 9, 10, 11. Too young, or no ledger.
        if uptime < limits.min_uptime or not readable:
            return []
        # 12. The budget (§3.5): the two sources overlap and never add.
        remaining = limits.max_deletes - self._spent(now)
        return self._delete_oldest(sorted(found), now, remaining, get, delete)

    def _has_jumped(self, now: datetime, uptime: float) -> bool:
        # 2. The jump rule, and always a new baseline (§3.4).
        last, self.last = self.last, (now, uptime)
        if last is None:
            return False
        return (now - last[0]) - timedelta(seconds=uptime - last[1]) > self.limits.jump

    def _count(self, nodes: Iterable[Json], now: datetime) -> tuple[int, int, list[tuple[datetime, str, str]]]:
        # 4. The scope, who lies ahead, and the candidates.
        scope, ahead, found = 0, 0, []
        for node in nodes:
            if not eligible(node, self.limits):
                continue
            scope += 1
            since = stale_since(node, now, self.limits)
            if future(node, now, self.limits):
                ahead += 1
            elif since is not None:
                found.append((since, node["metadata"]["name"], node["metadata"]["uid"]))
        return scope, ahead, found

    def _spent(self, now: datetime) -> int:
        cutoff = now - self.limits.interval
        written = len([line for line in self.ledger if line["event"] == "deleted" and line["at"] > cutoff])
        return max(written, sum(at > cutoff for at in self.memory))

    def _delete_oldest(
        self,
        found: list[tuple[datetime, str, str]],
        now: datetime,
        remaining: int,
        get: Callable[[str], Json | str],
        delete: Callable[[str, str], str | None],
    ) -> list[str]:
        # 13, 14. Oldest first, then by name.
        gone: list[str] = []
        for since, name, uid in found:
            if len(gone) >= remaining:  # 14a
                return gone
            fresh = get(name)  # 14b
            if fresh == BROKEN:
                return gone
            if isinstance(fresh, str) or fresh["metadata"]["uid"] != uid:  # D7: gone; 14c: another one
                continue
            if stale_since(fresh, now, self.limits) is None:  # 14d
                continue
            outcome = delete(name, uid)  # 14f
            if outcome == BROKEN:
                return gone
            if outcome is not None:  # D7: gone or changed
                continue
            gone.append(name)  # 14g
            self.memory.append(now)
            line = {"at": now, "event": "deleted", "node": name, "uid": uid, "not_ready_since": since}
            self.ledger.append(line)
        return gone

    def _refuse(self, now: datetime, event: str, detail: str) -> list[str]:
        # §3.6: equal to the previous refusal, no line.
        if self.refusal != f"{event}|{detail}":
            self.refusal = f"{event}|{detail}"
            self.ledger.append({"at": now, "event": event, "detail": detail})
        return []
