"""Which nodes the demo consists of, and in which state they arrive.

Some arrive drifted, as they do in life: an agent that somebody started by hand without its runtime label, a
virtual node without its taint. They are the operator's first work.
"""

from dataclasses import dataclass
from datetime import datetime
from itertools import cycle, islice, product
from typing import Any, Final

from clusterconform.cli.demo import death
from clusterconform.contract.names import BACKEND_LABEL, HOST_LABEL, RUNTIME_LABEL
from clusterconform.sandbox.fleet import HOSTS, VIRTUAL_BACKENDS, base_name
from clusterconform.sandbox.kwok import kept_alive
from clusterconform.sandbox.nodes import agent_name, agent_node, virtual_node

SMALLEST: Final = 10
LARGEST: Final = 1000
STOCK_BACKEND: Final = "vk-podman"
# Hosts of their own, so that neither name is taken.
HOLLOW_HOST: Final = "oak"
STOCK_NODE: Final = f"willow-{STOCK_BACKEND}"

_REAL: Final = 2  # the real kubelet and the stock virtual-kubelet
_DEAD: Final = 2  # an agent and a virtual node that are dead from the beginning (cli.demo.death)
_VIRTUAL_SHARE: Final = 4  # one imitated node in four is virtual
_DRIFTED_SHARE: Final = 5  # every fifth agent arrives without its runtime label


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """The nodes of a demo.

    Attributes:
        agents: manifests of the agents that kwok keeps alive.
        virtual: manifests of the virtual nodes that the sandbox keeps alive.
        hollow: name of the real kubelet's node.
        hollow_labels: what the real kubelet registers with.
        hollow_annotations: what k3s would add to its node.
    """

    agents: list[dict[str, Any]]
    virtual: list[dict[str, Any]]
    hollow: str
    hollow_labels: dict[str, str]
    hollow_annotations: dict[str, str]

    @property
    def virtual_names(self) -> list[str]:
        """The names of the imitated virtual nodes, which cover all backends."""
        return [node["metadata"]["name"] for node in self.virtual]

    @property
    def unlabelled(self) -> int:
        """How many agents arrive without their runtime label."""
        return sum(RUNTIME_LABEL not in agent["metadata"]["labels"] for agent in self.agents)

    @property
    def conforming(self) -> set[str]:
        """The names of all nodes that conform in the end: all but the stock virtual-kubelet's."""
        names = {node["metadata"]["name"] for node in (*self.agents, *self.virtual)}
        return names | {self.hollow, death.AGENT, death.TWIN}


def populate(size: int, *, now: datetime) -> Population:
    """Describe ``size`` nodes, the two real ones and the two dead ones included.

    Args:
        size: from ``SMALLEST`` to ``LARGEST``.
        now: the moment of their first heartbeat.
    """
    imitated = size - _REAL - _DEAD
    pairs = list(product(HOSTS, VIRTUAL_BACKENDS))
    count = min(max(len(VIRTUAL_BACKENDS), imitated // _VIRTUAL_SHARE), len(pairs))
    virtual = [virtual_node(host, backend, now=now) for host, backend in pairs[:count]]
    virtual[-1]["spec"]["taints"] = []
    hosts = islice(cycle(HOSTS), imitated - count)
    agents = [
        kept_alive(agent_node(base_name(index), host, index=index, now=now)) for index, host in enumerate(hosts)
    ]
    for agent in agents[::_DRIFTED_SHARE]:
        del agent["metadata"]["labels"][RUNTIME_LABEL]
    model = agent_node(HOLLOW_HOST, now=now)["metadata"]
    # A kubelet may register only with labels outside of Kubernetes' own domains.
    own = {key: model["labels"][key] for key in (RUNTIME_LABEL, BACKEND_LABEL, HOST_LABEL)}
    return Population(
        agents=agents,
        virtual=virtual,
        hollow=agent_name(HOLLOW_HOST, 0),
        hollow_labels=own,
        hollow_annotations=model["annotations"],
    )
