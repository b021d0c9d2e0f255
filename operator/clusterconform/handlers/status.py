"""The status of the profiles: at most one write per profile and five seconds, and none without a change."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from clusterconform.contract.names import API_VERSION, FIELD_MANAGER, KIND, PLURAL
from clusterconform.contract.profile import ProfileObject, read_profile
from clusterconform.contract.request import APPLY_PATCH, Request
from clusterconform.decisions.summary import Judged, node_counts, status_of
from clusterconform.effects.clock import Clock
from clusterconform.effects.cluster import Cluster
from clusterconform.effects.errors import ApiError, NotFoundError
from clusterconform.effects.metrics import Metrics
from clusterconform.handlers.cache import Cache
from clusterconform.handlers.nodes import NodeReconciler

log = logging.getLogger(__name__)

PERIOD_SECONDS: Final = 5.0


class StatusReporter:
    """Writes what is known of each profile's nodes into its status."""

    def __init__(
        self, *, cache: Cache, cluster: Cluster, clock: Clock, metrics: Metrics, complete: Callable[[], bool]
    ) -> None:
        """Report on the profiles of ``cache``; ``complete`` tells whether all nodes are known."""
        self._cache, self._cluster, self._clock, self._metrics = cache, cluster, clock, metrics
        self._complete = complete
        self._due: set[str] = set()
        self._written: dict[str, float] = {}
        self._pruned: set[str] = set()
        self._wakeup = asyncio.Event()

    def due(self, name: str) -> None:
        """What is known of the nodes of profile ``name``, or the profile itself, has changed."""
        self._due.add(name)
        self._wakeup.set()

    async def run(self, nodes: NodeReconciler) -> None:
        """Report, for ever, on the verdicts of ``nodes``."""
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            ready = {name for name in self._due if self._wait(name) <= 0}
            self._due -= ready
            await self._report(ready, nodes)
            if self._due:
                soonest = max(0.0, min(self._wait(name) for name in self._due))
                asyncio.get_running_loop().call_later(soonest, self._wakeup.set)

    def _wait(self, name: str) -> float:
        """Seconds until profile ``name`` may be written again."""
        return self._written.get(name, -PERIOD_SECONDS) + PERIOD_SECONDS - self._clock.uptime()

    async def _report(self, names: set[str], nodes: NodeReconciler) -> None:
        judged: dict[str, list[Judged]] = {name: [] for name in names}
        for name, verdict in nodes.verdicts.items():
            profile, node = verdict.identity.profile, self._cache.node(name)
            if profile is not None and profile.backend in judged and node is not None:
                failure = nodes.failures.get(name)
                judged[profile.backend].append(
                    Judged(node=node, verdict=verdict, failure=failure.message if failure else "")
                )
        for name in sorted(names):
            profile_object = self._cache.profiles().get(name)
            if profile_object is not None:
                await self._write(profile_object, judged[name])
        self._count(nodes)

    def _count(self, nodes: NodeReconciler) -> None:
        self._metrics.nodes.clear()
        for (profile, reason), count in node_counts(nodes.verdicts.values()).items():
            self._metrics.nodes.labels(profile, reason).set(count)

    async def _write(self, profile: ProfileObject, judged: list[Judged]) -> None:
        refusal = self._cache.catalogue.refusals.get(profile.name)
        status = status_of(profile, refusal, judged, complete=self._complete(), now=self._clock.moment().wall)
        if all(profile.status.get(field) == value for field, value in status.items()):
            return
        self._written[profile.name] = self._clock.uptime()
        fields = {"profile": profile.name}
        try:
            answer = msgspec.json.decode(await self._cluster.send(_request(profile, status)))
        except NotFoundError:
            return
        except ApiError as error:
            log.warning("status not written", extra={"fields": {**fields, "error": str(error)}})
            self.due(profile.name)
            return
        self._compare(profile.name, status, answer)

    def _compare(self, name: str, status: Mapping[str, Any], answer: Any) -> None:
        """A schema that lacks a field prunes it silently (bug case B41): say so, once."""
        self._cache.set_profile(read_profile(answer))
        stored = answer.get("status") or {}
        lost = sorted(field for field, value in status.items() if stored.get(field) != value)
        if lost and name not in self._pruned:
            self._pruned.add(name)
            fields = {"profile": name, "fields": ",".join(lost)}
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
