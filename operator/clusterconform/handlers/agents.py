"""The agents as they stand now: their endpoints, their probes' words, and what became of both."""

from collections.abc import Callable, Iterable
from typing import Final

from clusterconform.contract.facts import NodeFacts
from clusterconform.contract.names import ENDPOINT_ANNOTATION
from clusterconform.contract.probe import ProbeFacts
from clusterconform.contract.times import Moment
from clusterconform.decisions.addresses import AddressVerdict
from clusterconform.decisions.agent_news import AgentView, Warned, is_news, view_of, warnings
from clusterconform.decisions.agents import Agents
from clusterconform.decisions.sandbox import ProbeVerdict
from clusterconform.decisions.surroundings import Surroundings
from clusterconform.handlers.cache import Cache

# A node that is held because too many would be tainted is looked at again, for the others may have recovered.
HELD_SECONDS: Final = 30.0


class AgentRoll:
    """Keeps the book of agents for the catalogue in force, and the last verdicts on each.

    Attributes:
        views: By name, each node as it was last looked at.
        unpinned: Called when an address vanished although it is recorded for the policy.
    """

    def __init__(self, cache: Cache) -> None:
        """Know what ``cache`` knows."""
        self._cache = cache
        self._agents = Agents(cache.catalogue)
        self._pods: dict[str, ProbeFacts] = {}
        self.views: dict[str, AgentView] = {}
        self.unpinned: Callable[[], None] = lambda: None

    @property
    def agents(self) -> Agents:
        """The book for the catalogue in force; filled anew when a profile has changed."""
        if self._agents.catalogue is not self._cache.catalogue:
            self._agents = Agents(self._cache.catalogue)
            for pod in self._pods.values():
                self._agents.observe_pod(pod)
            # All of them, or a younger node would be published while its elder is not in the book yet.
            for node in self._cache.nodes():
                self._agents.observe(node)
        return self._agents

    def take(self, node: NodeFacts, now: Moment) -> tuple[Surroundings, set[str]]:
        """Take ``node`` as it is; gives what is around it, and whose endpoint may have changed by it."""
        touched = self.agents.observe(node)
        return self.agents.around(node, now.wall), touched

    def forget(self, name: str) -> set[str]:
        """Forget a node; gives whose endpoint may have changed by it."""
        self.views.pop(name, None)
        return self.agents.forget(name)

    def take_pod(self, pod: ProbeFacts) -> set[str]:
        """Take a probe pod as it is; gives the nodes that it is about."""
        known = self._pods.get(pod.name)
        if known is not None and _version(known) > _version(pod):
            return set()
        self._pods[pod.name] = pod
        return self.agents.observe_pod(pod)

    def drop_pod(self, name: str, uid: str = "") -> set[str]:
        """Forget a probe pod; gives the node that it was about."""
        known = self._pods.get(name)
        if known is None or (uid and known.uid != uid):
            return set()
        del self._pods[name]
        return self.agents.forget_pod(name)

    @property
    def has_pods(self) -> bool:
        """Whether any probe pod is known."""
        return bool(self._pods)

    def pods(self) -> Iterable[ProbeFacts]:
        """All probe pods as last seen."""
        return self._pods.values()

    @property
    def probes(self) -> dict[str, ProbeVerdict]:
        """By name, what the probe says of each agent that is probed."""
        return {name: view.probe for name, view in self.views.items() if view.probe is not None}

    def note(
        self, node: NodeFacts, address: AddressVerdict, probe: ProbeVerdict | None, now: Moment
    ) -> tuple[bool, list[Warned]]:
        """Remember the verdicts on ``node``; gives whether they are news, and what of it people should hear."""
        before = self.views.get(node.name)
        view = self.views[node.name] = view_of(before, address, probe, now.uptime)
        if view.missing_since is not None and ENDPOINT_ANNOTATION in node.annotations:
            self.unpinned()
        return is_news(before, view), list(warnings(node.name, before, view))


def wait_for(probe: ProbeVerdict | None) -> float | None:
    """Seconds after which the probe's word may be another although nothing happens; None for never."""
    if probe is None:
        return None
    return HELD_SECONDS if probe.held else probe.recheck_after


def _version(pod: ProbeFacts) -> int:
    return int(pod.resource_version) if pod.resource_version.isdigit() else 0
