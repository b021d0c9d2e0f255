"""Gathers where the agents stand, for status and metrics, from everybody who knows a part of it."""

from collections import Counter

from clusterconform.contract.settings import ProbeMode
from clusterconform.decisions import streaming
from clusterconform.decisions.agent_standing import AgentStanding, count_probes
from clusterconform.effects.metrics import AgentMetrics
from clusterconform.handlers.agents import AgentRoll
from clusterconform.handlers.pinning import PinningCheck
from clusterconform.handlers.probes import ProbeKeeper
from clusterconform.handlers.streaming import StreamingVerifier


class AgentReport:
    """Knows where the agents stand."""

    def __init__(
        self,
        *,
        roll: AgentRoll,
        keeper: ProbeKeeper,
        verifier: StreamingVerifier,
        pinning: PinningCheck,
        metrics: AgentMetrics,
    ) -> None:
        """Report on what these know, and count it in ``metrics``."""
        self._roll, self._keeper, self._verifier, self._pinning = roll, keeper, verifier, pinning
        self._metrics = metrics

    def standing(self, backend: str) -> AgentStanding | None:
        """Where the agents of profile ``backend`` stand; None for any but the one that acts."""
        agents = self._roll.agents
        if agents.profile is None or agents.profile.backend != backend:
            return None
        placed = [view for view in self._roll.views.values() if view.address.endpoint is not None]
        probes = self._roll.probes
        runtimes, causes, held = count_probes(probes.values())
        trials = self._verifier.trials
        probed = agents.probing.mode is not ProbeMode.OFF
        failed = next((trial for trial in trials.values() if not trial.verified), None)
        standing = AgentStanding(
            addressing=agents.addressing,
            probing=agents.probing,
            endpoints=Counter(view.settled for view in placed),
            real=sum(bool(view.address.real) for view in placed),
            unpinned=self._pinning.missing,
            runtimes=runtimes,
            causes=causes,
            held=held,
            trouble=self._keeper.trouble,
            streaming=streaming.counts(trials, len(probes)) if self._verifier.on and probed else None,
            words=failed.cause.message if failed is not None else "",
        )
        self._count(standing)
        return standing

    def _count(self, standing: AgentStanding) -> None:
        self._metrics.endpoints.clear()
        for reason, count in standing.endpoints.items():
            self._metrics.endpoints.labels(reason).set(count)
        self._metrics.runtimes.clear()
        verdicts = Counter((seen.runtime, seen.cause.reason) for seen in self._roll.probes.values())
        for (runtime, cause), count in verdicts.items():
            self._metrics.runtimes.labels(runtime, cause).set(count)
        self._metrics.streaming.clear()
        for reason, count in (standing.streaming or {}).items():
            self._metrics.streaming.labels(reason).set(count)
