"""The status of the profiles: at most one write per profile and five seconds, and none without a change."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from clusterconform.contract.names import API_VERSION, FIELD_MANAGER, KIND, PLURAL
from clusterconform.contract.profile import ProfileObject, Refusal, read_profile
from clusterconform.contract.request import APPLY_PATCH, Request
from clusterconform.decisions.agent_standing import AgentStanding
from clusterconform.decisions.standing import Standing
from clusterconform.decisions.summary import Judged, node_counts, own_part, status_of
from clusterconform.effects.clock import Clock
from clusterconform.effects.cluster import Cluster, decoded
from clusterconform.effects.errors import ApiError, NotFoundError
from clusterconform.effects.metrics import Metrics
from clusterconform.handlers.cache import Cache
from clusterconform.handlers.nodes import NodeReconciler

log = logging.getLogger(__name__)

PERIOD_SECONDS: Final = 5.0
# A drift is repaired within milliseconds: without the pause a status would say for five seconds what was.
_PAUSE_SECONDS: Final = 0.5
# A cold start over 5,000 nodes takes less; until then a status that still holds is left as it is.
_QUIET_SECONDS: Final = 8.0


class StatusReporter:
    """Writes what is known of each profile's nodes into its status."""

    def __init__(
        self,
        *,
        cache: Cache,
        cluster: Cluster,
        clock: Clock,
        metrics: Metrics,
        complete: Callable[[], bool],
        catalogue_changed: Callable[[], None],
        standing: Callable[[str], Standing | None],
        agents: Callable[[str], AgentStanding | None],
    ) -> None:
        """Report on the profiles of ``cache``.

        Args:
            cache: What is known.
            cluster: The API client.
            clock: The time.
            metrics: Gets the counts.
            complete: Tells whether all nodes are known.
            catalogue_changed: Told when the answer to a write brought an edit.
            standing: Where reaping by a profile stands.
            agents: Where the agents of a profile stand.
        """
        self._standing, self._agents = standing, agents
        self._cache, self._cluster, self._clock, self._metrics = cache, cluster, clock, metrics
        self._complete, self._catalogue_changed = complete, catalogue_changed
        self._started = clock.uptime()
        self._due: dict[str, float] = {}
        self._written: dict[str, float] = {}
        self._pruned: set[str] = set()
        self._wakeup = asyncio.Event()

    def due(self, name: str) -> None:
        """What is known of the nodes of profile ``name``, or the profile itself, has changed."""
        self._due.setdefault(name, self._clock.uptime())
        self._wakeup.set()

    async def run(self, nodes: NodeReconciler) -> None:
        """Report, for ever, on the verdicts of ``nodes``."""
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            soonest = min((self._wait(name) for name in self._due), default=0.0)
            if soonest > 0:
                # Once for all that becomes due meanwhile: each node of a mass drift is news.
                await asyncio.sleep(soonest)
            ready = {name for name in self._due if self._wait(name) <= 0}
            self._due = {name: since for name, since in self._due.items() if name not in ready}
            if ready:
                await self._report(ready, nodes)
            if self._due:
                self._wakeup.set()

    def _wait(self, name: str) -> float:
        """Seconds until profile ``name`` may be written: the period, and a moment for what is healed at once."""
        earliest = max(self._written.get(name, -PERIOD_SECONDS) + PERIOD_SECONDS, self._due[name] + _PAUSE_SECONDS)
        return earliest - self._clock.uptime()

    async def _report(self, names: set[str], nodes: NodeReconciler) -> None:
        judged: dict[str, list[Judged]] = {name: [] for name in names}
        for name, verdict in nodes.verdicts.items():
            profile, node = verdict.identity.profile, self._cache.node(name)
            if profile is not None and profile.backend in judged and node is not None:
                failure = nodes.failures.get(name)
                judged[profile.backend].append(
                    Judged(node=node, verdict=verdict, failure=failure.message if failure else "")
                )
        complete = self._complete()
        for name in sorted(names):
            profile_object = self._cache.profiles().get(name)
            if profile_object is None:
                continue
            if self._is_too_early(nodes, complete=complete):
                self.due(name)
            else:
                # Also where nothing turns out to be written: working it out costs a look at each node.
                self._written[name] = self._clock.uptime()
                await self._write(profile_object, judged[name], complete=complete)
        self._count(nodes)

    def _is_too_early(self, nodes: NodeReconciler, *, complete: bool) -> bool:
        """Whether news would only be that we have just started: the next moment would take it back."""
        if complete:
            return any(name not in nodes.verdicts for name in self._cache.names())
        return self._clock.uptime() - self._started < _QUIET_SECONDS

    def _count(self, nodes: NodeReconciler) -> None:
        self._metrics.nodes.clear()
        for (profile, reason), count in node_counts(nodes.verdicts.values()).items():
            self._metrics.nodes.labels(profile, reason).set(count)

    async def _write(self, profile: ProfileObject, judged: list[Judged], *, complete: bool) -> None:
        refusal = self._cache.catalogue.refusals.get(profile.name)
        now = self._clock.moment().wall
        standing = None if refusal else self._standing(profile.name)
        agents = None if refusal else self._agents(profile.name)
        status = status_of(profile, refusal, judged, complete=complete, now=now, standing=standing, agents=agents)
        if own_part(profile.status) == status:
            return
        try:
            answer = decoded(await self._cluster.send(_request(profile, status)))
            stored = read_profile(answer if isinstance(answer, dict) else {})
        except NotFoundError:
            return
        except (ApiError, Refusal) as error:
            fields = {"profile": profile.name, "error": str(error)}
            log.warning("status not written", extra={"fields": fields})
            self.due(profile.name)
            return
        if self._cache.set_profile(stored):
            self._catalogue_changed()
        self._compare(stored, status)

    def _compare(self, stored: ProfileObject, status: Mapping[str, Any]) -> None:
        """A schema that lacks a field prunes it silently (bug case B41): say so, once."""
        shown = own_part(stored.status)
        lost = sorted(field for field, value in status.items() if shown.get(field) != value)
        if lost and stored.name not in self._pruned:
            self._pruned.add(stored.name)
            fields = {"profile": stored.name, "fields": ",".join(lost)}
            log.warning("the API server did not store the whole status", extra={"fields": fields})


def _request(profile: ProfileObject, status: Mapping[str, Any]) -> Request:
    body = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": profile.name, "uid": profile.uid},
        "status": dict(status),
    }
    path = f"/apis/{API_VERSION}/{PLURAL}/{profile.name}/status?fieldManager={FIELD_MANAGER}&force=true"
    return Request(method="PATCH", path=path, content_type=APPLY_PATCH, body=body)
