"""All agents together: who has which endpoint, what each one's probe says, and whether too many would be tainted.

A book that is told each node and each probe pod as they are now, in any order; what it answers depends on that
alone. The operator keeps one as the watches go on, ``simulate`` fills one from files.
"""

from collections.abc import Iterable
from datetime import datetime

from clusterconform.contract.facts import NodeFacts
from clusterconform.contract.probe import ProbeFacts
from clusterconform.contract.profile import RuntimeProfile
from clusterconform.contract.settings import AddressMode, AddressReconcile, ProbeMode, RuntimeProbe
from clusterconform.contract.verdicts import Catalogue, Finding, Identity, Reason
from clusterconform.decisions import sandbox
from clusterconform.decisions.allocation import AddressBook
from clusterconform.decisions.identity import classify
from clusterconform.decisions.sandbox import ProbeVerdict, Runtime
from clusterconform.decisions.scope import acting_agent, excluded
from clusterconform.decisions.surroundings import Surroundings


class Agents:
    """The agents of one catalogue."""

    def __init__(self, catalogue: Catalogue) -> None:
        """Know nothing yet; judge by ``catalogue``."""
        self.catalogue = catalogue
        self.profile: RuntimeProfile | None = acting_agent(catalogue)
        self.addressing = (self.profile and self.profile.address_reconcile) or AddressReconcile()
        self.probing = (self.profile and self.profile.runtime_probe) or RuntimeProbe()
        self._book = AddressBook(self.addressing.port_base, self.addressing.port_slots)
        self._pods: dict[str, ProbeFacts] = {}
        self._pods_on: dict[str, dict[str, ProbeFacts]] = {}
        self._identities: dict[str, tuple[NodeFacts, Identity]] = {}
        self._probed: dict[str, bool] = {}
        self._tainted = 0

    def observe(self, node: NodeFacts) -> set[str]:
        """Take ``node`` as it is now; returns the names of others whose endpoint may have changed by it."""
        identity = self._identity(node)
        touched = self._observe_address(node, identity)
        if self._outside(node, identity, include=self.probing.include_unidentified) is None:
            self._probed.setdefault(node.name, False)
        else:
            self._set_tainted(node.name, None)
        return touched - {node.name}

    def forget(self, name: str) -> set[str]:
        """Forget the node called ``name``; returns the names of others whose endpoint may have changed by it."""
        self._identities.pop(name, None)
        self._set_tainted(name, None)
        return self._book.drop(name) - {name}

    def observe_pod(self, pod: ProbeFacts) -> set[str]:
        """Take a probe pod as it is now; returns the nodes that it speaks of, or spoke of."""
        nodes = self.forget_pod(pod.name)
        self._pods[pod.name] = pod
        if pod.node:
            self._pods_on.setdefault(pod.node, {})[pod.name] = pod
            nodes.add(pod.node)
        return nodes

    def forget_pod(self, name: str) -> set[str]:
        """Forget a probe pod; returns the node that it spoke of."""
        known = self._pods.pop(name, None)
        if known is None or not known.node:
            return set()
        pods = self._pods_on[known.node]
        del pods[name]
        if not pods:
            del self._pods_on[known.node]
        return {known.node}

    def pods(self) -> Iterable[ProbeFacts]:
        """All probe pods as last seen."""
        return self._pods.values()

    def around(self, node: NodeFacts, now: datetime) -> Surroundings:
        """What a decision on ``node``, which was observed as it is, takes from the others."""
        identity = self._identity(node)
        probed = node.name in self._probed and self.probing.mode is not ProbeMode.OFF
        return Surroundings(
            identity=identity,
            endpoint=self._book.endpoint(node.name),
            outside=self._outside(node, identity, include=self.addressing.include_unidentified),
            mode=self.addressing.mode if self.profile is not None else AddressMode.OFF,
            probe=self._judge(node, now) if probed else None,
            probed=probed or self.profile is None,
        )

    def unprobed(self, node: NodeFacts) -> Finding:
        """Why ``node`` is not probed."""
        identity = self._identity(node)
        outside = self._outside(node, identity, include=self.probing.include_unidentified)
        return outside or Finding(Reason.SWITCHED_OFF, "runtimeProbe.mode is Off")

    def _identity(self, node: NodeFacts) -> Identity:
        """Whose node ``node`` is; worked out once for each object, for it is half of a decision."""
        known = self._identities.get(node.name)
        if known is None or known[0] is not node:
            known = self._identities[node.name] = (node, classify(node, self.catalogue))
        return known[1]

    def _outside(self, node: NodeFacts, identity: Identity, *, include: bool) -> Finding | None:
        return excluded(node, identity, self.profile, include_unidentified=include)

    def _observe_address(self, node: NodeFacts, identity: Identity) -> set[str]:
        if self._outside(node, identity, include=self.addressing.include_unidentified) is not None:
            return self._book.drop(node.name)
        return self._book.put(node)

    def _judge(self, node: NodeFacts, now: datetime) -> ProbeVerdict:
        verdict = sandbox.judge(node, self._pods_on.get(node.name, {}).values(), self.probing, now)
        self._set_tainted(node.name, sandbox.would_be_tainted(node, verdict))
        if verdict.runtime is Runtime.UNAVAILABLE and self.is_mass():
            return sandbox.held(node, verdict, self._tainted, len(self._probed))
        return verdict

    def is_mass(self) -> bool:
        """Whether more agents would be tainted than may be."""
        return sandbox.too_many(self._tainted, len(self._probed), self.probing)

    def _set_tainted(self, name: str, tainted: bool | None) -> None:
        """Count ``name`` as tainted or not; None takes it out of the count."""
        self._tainted += bool(tainted) - self._probed.get(name, False)
        if tainted is None:
            self._probed.pop(name, None)
        else:
            self._probed[name] = tainted
