"""What a worker and the control plane both derive from a node's base name (contract §5.1 and §5.2).

1. The routing name is the base that k3s was started with (``--node-name``), where the registered name is that
   base or the base, a hyphen and k3s's own id; else the registered name itself.
2. Home is the loopback address at 127.0.1.0 + FNV-1a(name) mod 65280. 127.0.0.0/24 is never given out: the
   tunnel and the API server live there.
3. The kubelet port is the first port of the range + FNV-1a("kubelet:" + name) mod the number of ports.
4. Ours are the addresses 127.0.1.0 to 127.0.255.255; any other ExternalIP is a real one.

Neither end asks the other, so not a bit of this may ever change.
"""

import re
from itertools import pairwise
from typing import Final

from clusterconform.contract.facts import NodeFacts
from clusterconform.decisions.identity import go_trimmed, node_args

SLOTS: Final = 65280
_FIRST_SLOT: Final = 256
_FNV_OFFSET: Final = 2166136261
_FNV_PRIME: Final = 16777619
_NODE_NAME: Final = "--node-name"
_OCTET: Final = r"(?:0|[1-9]\d?|1\d\d|2[0-4]\d|25[0-5])"
_OURS: Final = re.compile(rf"127\.0\.(?!0\.){_OCTET}\.{_OCTET}", re.ASCII)


def fnv1a(text: str) -> int:
    """FNV-1a, 32 bits, over the UTF-8 bytes of ``text``."""
    value = _FNV_OFFSET
    for byte in text.encode():
        value = ((value ^ byte) * _FNV_PRIME) & 0xFFFFFFFF
    return value


def routing_name(node: NodeFacts) -> str:
    """The name from which both ends derive ``node``'s endpoint; a blank ``--node-name`` keeps looking."""
    args = node_args(node)
    for flag, value in pairwise(args):
        base = go_trimmed(value) if flag == _NODE_NAME else ""
        if base:
            return base if node.name == base or node.name.startswith(f"{base}-") else node.name
    return node.name


def home_slot(name: str) -> int:
    """The slot, from 0, that ``name`` gets where nobody else has it."""
    return fnv1a(name) % SLOTS


def loopback(slot: int) -> str:
    """The address of ``slot``."""
    high, low = divmod(_FIRST_SLOT + slot, 256)
    return f"127.0.{high}.{low}"


def kubelet_port(name: str, *, base: int, slots: int) -> int:
    """The port of ``name`` in the range of ``slots`` ports from ``base`` on; 0 for no name."""
    return base + fnv1a(f"kubelet:{name}") % slots if name else 0


def is_ours(address: str) -> bool:
    """Whether ``address`` is one that only this scheme gives out."""
    return _OURS.fullmatch(address) is not None
