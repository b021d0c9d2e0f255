"""Proves the path to each kubelet: reads one line of its probe pod's log through the API server.

A few at a time, spread over time; rules in ``decisions.streaming``. A GET, so nothing is written anywhere.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from clusterconform.contract.names import NAMESPACE
from clusterconform.contract.request import Request
from clusterconform.contract.verdicts import Finding, Reason
from clusterconform.decisions import streaming
from clusterconform.decisions.sandbox import Runtime
from clusterconform.decisions.streaming import Target, Trial
from clusterconform.effects.clock import Clock
from clusterconform.effects.cluster import Cluster
from clusterconform.effects.errors import ApiError, NotFoundError
from clusterconform.effects.metrics import AgentMetrics
from clusterconform.handlers.agents import AgentRoll

log = logging.getLogger(__name__)

IN_FLIGHT: Final = 4
_TICK_SECONDS: Final = 0.5
# Twenty a second at the most: 1,250 agents are through in about a minute, and 600 s of rest for each follow.
_PER_TICK: Final = 10
_READ_SECONDS: Final = 10.0
_GONE_SECONDS: Final = 10.0


class StreamingVerifier:
    """Tries each agent that has a Ready probe pod.

    Attributes:
        trials: By node, the last trial.
    """

    def __init__(
        self,
        *,
        roll: AgentRoll,
        cluster: Cluster,
        clock: Clock,
        metrics: AgentMetrics,
        changed: Callable[[str], None],
    ) -> None:
        """Try the agents of ``roll``.

        Args:
            roll: The agents, their probes and their endpoints.
            cluster: The API client.
            clock: The time.
            metrics: Counts trials.
            changed: Told the profile whose status has news.
        """
        self._roll, self._cluster, self._clock = roll, cluster, clock
        self._metrics, self._changed = metrics, changed
        self._busy: set[str] = set()
        self._resting: dict[str, float] = {}
        self.trials: dict[str, Trial] = {}

    @property
    def on(self) -> bool:
        """Whether the agent profile wants it."""
        agents = self._roll.agents
        return agents.profile is not None and agents.addressing.verify_streaming

    async def run(self) -> None:
        """Try, for ever."""
        async with asyncio.TaskGroup() as group:
            while True:
                for target in self._due()[: min(_PER_TICK, IN_FLIGHT - len(self._busy))]:
                    self._busy.add(target.node)
                    group.create_task(self._try(target), name=f"streaming {target.node}")
                await asyncio.sleep(_TICK_SECONDS if not self._busy else _TICK_SECONDS / _PER_TICK)

    def _due(self) -> list[Target]:
        """Who is due, the longest due first; forgets who is no target any more."""
        if not self._roll.has_pods and not self.trials:
            return []  # without a probe pod there is nothing to read
        targets = self._targets() if self.on else {}
        for name in [name for name in self.trials if name not in targets]:
            del self.trials[name]
            self._tell()
        self._resting = {name: until for name, until in self._resting.items() if name in targets}
        now = self._clock.uptime()
        due = [
            (streaming.due_at(target, self.trials.get(name)), target)
            for name, target in targets.items()
            if name not in self._busy and self._resting.get(name, 0.0) <= now
        ]
        return [target for at, target in sorted(due, key=lambda one: one[0]) if at <= now]

    def _targets(self) -> dict[str, Target]:
        found = {}
        for name, view in self._roll.views.items():
            probe = view.probe
            if probe is not None and probe.runtime is Runtime.READY and probe.pod:
                endpoint = view.address.endpoint if view.address.publish else None
                place = f"{endpoint.address}:{endpoint.port}" if endpoint is not None else ""
                found[name] = Target(node=name, pod=probe.pod, endpoint=place)
        return found

    async def _try(self, target: Target) -> None:
        try:
            cause = await self._read(target)
            if cause is not None and cause.reason is Reason.NO_PREFERRED_ADDRESS and target.endpoint:
                await asyncio.sleep(streaming.AGAIN_SECONDS)
                cause = await self._read(target)
            if cause is None:
                # The pod went meanwhile. Its successor is another target; until a watch tells of it, all is quiet.
                self._resting[target.node] = self._clock.uptime() + _GONE_SECONDS
                return
            self._resting.pop(target.node, None)
            self._note(Trial(target=target, at=self._clock.uptime(), cause=cause))
        finally:
            self._busy.discard(target.node)

    async def _read(self, target: Target) -> Finding | None:
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{target.pod}/log?tailLines=1&limitBytes=256"
        try:
            await self._cluster.send(Request(method="GET", path=path), timeout=_READ_SECONDS)
        except NotFoundError:
            return None
        except ApiError as error:
            return streaming.cause_of(str(error))
        return streaming.verified()

    def _note(self, trial: Trial) -> None:
        before = self.trials.get(trial.target.node)
        self.trials[trial.target.node] = trial
        self._metrics.streaming_trials.labels(trial.cause.reason).inc()
        if before is None or before.cause.reason is not trial.cause.reason:
            fields = {"node": trial.target.node, "reason": trial.cause.reason, "why": trial.cause.message}
            log.info("streaming tried", extra={"fields": fields})
            self._tell()

    def _tell(self) -> None:
        profile = self._roll.agents.profile
        if profile is not None:
            self._changed(profile.backend)
