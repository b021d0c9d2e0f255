"""The agents as they stand now: their endpoints, their probes' words, and what became of both."""

from collections.abc import Callable, Iterable
from typing import Final

from clusterconform.contract.facts import NodeFacts
from clusterconform.contract.names import ENDPOINT_ANNOTATION
from clusterconform.contract.probe import ProbeFacts
from clusterconform.contract.times import Moment
from clusterconform.contract.verdicts import Finding, Reason
from clusterconform.decisions.addresses import AddressVerdict
from clusterconform.decisions.agents import Agents
from clusterconform.decisions.sandbox import ProbeVerdict
from clusterconform.decisions.surroundings import Surroundings
from clusterconform.handlers.cache import Cache

# A node that is held because too many would be tainted is looked at again, for the others may have recovered.
HELD_SECONDS: Final = 30.0
FLICKER_SECONDS: Final = 5.0
_WARNED: Final = frozenset(
    {
        Reason.PORT_COLLISION,
        Reason.ADDRESS_CONTESTED,
        Reason.ADDRESSES_EXHAUSTED,
        Reason.WRITE_REJECTED,
        Reason.RUNTIME_UNAVAILABLE,
        Reason.MASS_UNAVAILABLE,
    }
)


class AgentRoll:
    """Keeps the book of agents for the catalogue in force, and the last verdicts on each.

    Attributes:
        addresses: By name, where the endpoint of each node stands.
        probes: By name, what the probe says of each agent.
        settled: By name, the same in a word; what was published counts as such for some seconds more, since in
            mode Status the kubelet takes each address away about every 10 s for some milliseconds.
        unpinned: Called when an address vanished although it is recorded for the policy.
    """

    def __init__(self, cache: Cache) -> None:
        """Know what ``cache`` knows."""
        self._cache = cache
        self._agents = Agents(cache.catalogue)
        self._pods: dict[str, ProbeFacts] = {}
        self.addresses: dict[str, AddressVerdict] = {}
        self.probes: dict[str, ProbeVerdict] = {}
        self.settled: dict[str, Reason] = {}
        self.unpinned: Callable[[], None] = lambda: None
        self._missing: dict[str, float] = {}

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
        self.addresses.pop(name, None)
        self.probes.pop(name, None)
        self.settled.pop(name, None)
        self._missing.pop(name, None)
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

    def note(
        self, node: NodeFacts, address: AddressVerdict | None, probe: ProbeVerdict | None, now: Moment
    ) -> tuple[bool, list[Finding]]:
        """Remember the verdicts on ``node``; gives whether they are news, and what of it people should hear."""
        settled = self.settled.get(node.name)
        if address is not None:
            self.settled[node.name] = self._settled(node, address, now.uptime)
        before, probed = self.addresses.get(node.name), self.probes.get(node.name)
        if address is not None:
            self.addresses[node.name] = address
        if probe is None:
            self.probes.pop(node.name, None)
        else:
            self.probes[node.name] = probe
        heard: list[Finding] = []
        if address is not None and address.finding.reason in _WARNED and not _same(before, address):
            heard.append(address.finding)
        if (
            address is not None
            and address.publish
            and address.real
            and (before is None or before.real != address.real)
        ):
            message = f"kept behind ours: {', '.join(address.real) or 'none any more'}"
            heard.append(Finding(Reason.REAL_EXTERNAL_IP, message))
        if probe is not None and probe.cause.reason in _WARNED and not _same_cause(probed, probe):
            heard.append(probe.cause)
        real = (before.real if before else ()) != (address.real if address else ())
        news = real or settled != self.settled.get(node.name) or not _same_cause(probed, probe)
        return news, heard

    def _settled(self, node: NodeFacts, address: AddressVerdict, uptime: float) -> Reason:
        reason = address.finding.reason
        if reason is not Reason.ENDPOINT_MISSING or self.settled.get(node.name) is not Reason.ENDPOINT_PUBLISHED:
            self._missing.pop(node.name, None)
            return reason
        if ENDPOINT_ANNOTATION in node.annotations:
            self.unpinned()
        since = self._missing.setdefault(node.name, uptime)
        return Reason.ENDPOINT_PUBLISHED if uptime - since < FLICKER_SECONDS else reason


def wait_for(probe: ProbeVerdict | None) -> float | None:
    """Seconds after which the probe's word may be another although nothing happens; None for never."""
    if probe is None:
        return None
    return HELD_SECONDS if probe.held else probe.recheck_after


def _same(before: AddressVerdict | None, now: AddressVerdict | None) -> bool:
    return (before and (before.publish, before.finding.reason)) == (now and (now.publish, now.finding.reason))


def _same_cause(before: ProbeVerdict | None, now: ProbeVerdict | None) -> bool:
    return (before and (before.runtime, before.cause.reason, before.pod)) == (
        now and (now.runtime, now.cause.reason, now.pod)
    )


def _version(pod: ProbeFacts) -> int:
    return int(pod.resource_version) if pod.resource_version.isdigit() else 0
