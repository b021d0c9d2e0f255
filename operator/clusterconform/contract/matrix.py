"""The conformance matrix of contract §2 as rows, and the helpers of §2.3.

Rows, not branches: ``clusterconform matrix`` prints this table, the README's copy is compared with it, the
seeded profiles and ``crds/profiles.yaml`` come from it. All virtual backends share one capability set, so a
further built-in one is one line.
"""

from typing import Final

from clusterconform.contract.names import Backend
from clusterconform.contract.profile import (
    AGENT_CAPABILITIES,
    VIRTUAL_CAPABILITIES,
    NodeClass,
    RuntimeProfile,
    of_class,
)

AGENT_BACKEND: Final = Backend("k3s")


MATRIX: Final[dict[str, RuntimeProfile]] = {
    profile.backend: profile
    for profile in (
        of_class(AGENT_BACKEND, NodeClass.AGENT, AGENT_CAPABILITIES),
        of_class("vk-podman", NodeClass.VIRTUAL, VIRTUAL_CAPABILITIES),
        of_class("vk-native", NodeClass.VIRTUAL, VIRTUAL_CAPABILITIES),
        of_class("vk-ollama", NodeClass.VIRTUAL, VIRTUAL_CAPABILITIES),
    )
}


def profile(backend: str) -> RuntimeProfile | None:
    """The built-in profile of ``backend``; None for an unknown one, which therefore serves nothing."""
    return MATRIX.get(backend)


def virtual_backends() -> list[str]:
    """The built-in virtual backends in bytewise order."""
    return sorted(row.backend for row in MATRIX.values() if row.node_class is NodeClass.VIRTUAL)


def node_name(base: str, backend: str) -> str:
    """The name of the node of ``backend`` on host ``base``: base and suffix, unchecked.

    For ``k3s`` it is the base, to which k3s appends its own id; an unknown backend leaves the base unchanged.
    """
    row = MATRIX.get(backend)
    return base if row is None else base + row.node_name_suffix


def serves(backend: str, capability: str) -> bool:
    """Whether nodes of ``backend`` serve ``capability``; False for an unknown backend or capability."""
    row = MATRIX.get(backend)
    return row is not None and row.serves(capability)


def serves_kubelet_streaming(backend: str) -> bool:
    """Whether nodes of ``backend`` serve any of the five streaming capabilities."""
    row = MATRIX.get(backend)
    return row is not None and row.serves_kubelet_streaming
