"""What a node's addresses should read, and what to write where they do not.

1. Right means: the first ExternalIP is the derived address, no other one of ours is there, and the kubelet port
   is the derived one (contract §5.3; duplicates of ours collapse, D25).
2. Ours goes in front of a real ExternalIP, else last; all other addresses stay byte for byte and in order.
3. A withheld node loses what it carries of ours: a dial to it would reach another node's kubelet.
4. Mode Status writes list and port. Mode Pinned writes the annotation too, which the shipped admission policy
   turns into every status; where the policy is missing, what remains is mode Status. Mode Annotation writes
   ``k3s.io/external-ip``, whose real entries stay, and leaves the list to the cloud controller of k3s.
5. Mode Off publishes nothing and takes back what would go on publishing: the annotations that we wrote. The list
   is left to the kubelet, which puts its own back; an address there may be another publisher's.
6. At most 12 writes a minute and node; a kubelet that puts its own list back needs six.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from clusterconform.contract.facts import Address, NodeFacts, marks_listed
from clusterconform.contract.memory import NodeMemory
from clusterconform.contract.names import ENDPOINT_ANNOTATION, K3S_EXTERNAL_IP_ANNOTATION
from clusterconform.contract.plan import K3S_EXTERNAL_IP_MARK, EndpointWrite
from clusterconform.contract.settings import AddressMode
from clusterconform.contract.verdicts import Finding, Reason
from clusterconform.decisions.allocation import Endpoint
from clusterconform.decisions.conformance import Drift
from clusterconform.decisions.derivation import is_ours

EXTERNAL_IP: Final = "ExternalIP"
WRITES_PER_MINUTE: Final = 12
_MINUTE: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressVerdict:
    """Where one node stands.

    Attributes:
        endpoint: What is derived for it; None for a node that is not an agent.
        publish: Whether it is to be published.
        finding: How it stands, in a word and a sentence.
        observed_address: Its first ExternalIP, empty where there is none.
        observed_port: The kubelet port that it shows.
        real: Its ExternalIPs that are not ours.
    """

    endpoint: Endpoint | None
    publish: bool
    finding: Finding
    observed_address: str
    observed_port: int
    real: tuple[str, ...] = ()

    @property
    def patched(self) -> bool:
        """Whether the node shows the derived address and port (contract §5.4)."""
        wanted = self.endpoint
        return (
            self.publish
            and wanted is not None
            and (self.observed_address, self.observed_port) == (wanted.address, wanted.port)
        )


def judge(
    node: NodeFacts, endpoint: Endpoint | None, mode: AddressMode, outside: Finding | None = None
) -> AddressVerdict:
    """Where ``node`` stands with ``endpoint``; ``outside`` says why it has none."""
    external = _external(node)
    seen = AddressVerdict(
        endpoint=endpoint,
        publish=False,
        finding=outside or Finding(Reason.SWITCHED_OFF, "addressReconcile.mode is Off"),
        observed_address=external[0] if external else "",
        observed_port=node.kubelet_port,
        real=tuple(address for address in external if not is_ours(address)),
    )
    if endpoint is None or mode is AddressMode.OFF:
        return seen
    if endpoint.withheld is not None:
        return replace(seen, finding=endpoint.withheld)
    place = f"{endpoint.address}:{endpoint.port}"
    missing = Finding(Reason.ENDPOINT_MISSING, f"the status does not show {place}")
    published = Finding(Reason.ENDPOINT_PUBLISHED, f"published at {place}")
    right = _is_right(external, endpoint.address) and node.kubelet_port == endpoint.port
    return replace(seen, publish=True, finding=published if right else missing)


def as_values(verdict: AddressVerdict) -> Mapping[str, Any]:
    """``verdict`` as ``simulate`` prints it."""
    endpoint = verdict.endpoint
    return {
        "routingName": endpoint.routing_name if endpoint else None,
        "address": (endpoint.address or None) if endpoint else None,
        "port": endpoint.port if endpoint else None,
        "publish": verdict.publish,
        "reason": verdict.finding.reason.value,
        "realExternalIPs": list(verdict.real),
    }


def diagnostics(node: NodeFacts, verdict: AddressVerdict) -> Mapping[str, Any]:
    """The row of contract §5.4 for ``node``; what is empty or zero is left out, ``patched`` never."""
    endpoint = verdict.endpoint if verdict.publish else None
    row: dict[str, Any] = {
        "node_name": node.name,
        "expected_external_ip": endpoint.address if endpoint else "",
        "observed_external_ip": verdict.observed_address,
        "expected_kubelet_port": endpoint.port if endpoint else 0,
        "observed_kubelet_port": verdict.observed_port,
    }
    return {**{key: value for key, value in row.items() if value}, "patched": verdict.patched}


def write_of(node: NodeFacts, endpoint: Endpoint, mode: AddressMode) -> EndpointWrite | None:
    """What to write to the status of ``node``; None where nothing is amiss."""
    publish = endpoint.withheld is None and mode is not AddressMode.OFF
    pin = f"{endpoint.address}:{endpoint.port}" if publish and mode is AddressMode.PINNED else ""
    write = EndpointWrite(
        addresses=_list_of(node, endpoint.address if publish else "", mode),
        port=endpoint.port if publish and node.kubelet_port != endpoint.port else None,
        pin=None if node.annotations.get(ENDPOINT_ANNOTATION, "") == pin else pin,
        why=f"the kubelet is at {endpoint.address}:{endpoint.port}" if publish else "the endpoint is withdrawn",
    )
    return write or None


def annotation_drift(node: NodeFacts, endpoint: Endpoint, mode: AddressMode) -> Drift | None:
    """What is amiss with ``k3s.io/external-ip`` on ``node``; real entries stay, in order."""
    value = node.annotations.get(K3S_EXTERNAL_IP_ANNOTATION, "")
    entries = [entry.strip() for entry in value.split(",") if entry.strip()]
    real = [entry for entry in entries if not is_ours(entry)]
    publish = endpoint.withheld is None and mode is AddressMode.ANNOTATION
    wanted = [endpoint.address, *real] if publish else real
    if entries == wanted or not (publish or K3S_EXTERNAL_IP_MARK in marks_listed(node)):
        return None
    text = ",".join(wanted) or None
    message = f"{K3S_EXTERNAL_IP_ANNOTATION} is {value or 'absent'}, not {text or 'absent'}"
    return Drift(
        mark=K3S_EXTERNAL_IP_MARK,
        finding=Finding(Reason.ENDPOINT_MISSING, message),
        annotation=(K3S_EXTERNAL_IP_ANNOTATION, text),
        ours=publish,
        released=not publish,
    )


def within_limit(
    write: EndpointWrite | None, memory: NodeMemory, uptime: float
) -> tuple[EndpointWrite | None, NodeMemory, float | None]:
    """``write`` unless it was refused or the minute's writes are spent, the memory, and seconds to wait."""
    recent = tuple(at for at in memory.endpoint_writes if at > uptime - _MINUTE)
    rejected = memory.endpoint_rejected
    if rejected is not None and (write is None or rejected[0] != repr(write)):
        rejected = None
    if (recent, rejected) != (memory.endpoint_writes, memory.endpoint_rejected):
        memory = replace(memory, endpoint_writes=recent, endpoint_rejected=rejected)
    if write is None or rejected is not None:
        return None, memory, None
    if len(recent) >= WRITES_PER_MINUTE:
        return None, memory, recent[0] + _MINUTE - uptime
    return write, memory, None


def hindered(verdict: AddressVerdict, memory: NodeMemory) -> AddressVerdict:
    """``verdict`` with what keeps us from writing, if anything does."""
    if memory.endpoint_rejected is not None:
        message = f"the API server refuses our patch: {memory.endpoint_rejected[1]}"
        return replace(verdict, finding=Finding(Reason.WRITE_REJECTED, message))
    if len(memory.endpoint_writes) >= WRITES_PER_MINUTE and verdict.finding.reason is Reason.ENDPOINT_MISSING:
        message = f"another writer takes the address away; it was put back {WRITES_PER_MINUTE} times in a minute"
        return replace(verdict, finding=Finding(Reason.ADDRESS_CONTESTED, message))
    return verdict


def endpoint_written(memory: NodeMemory, uptime: float) -> NodeMemory:
    """``memory`` after the endpoint was written."""
    return replace(memory, endpoint_writes=(*memory.endpoint_writes, uptime), endpoint_rejected=None)


def endpoint_rejected(memory: NodeMemory, write: EndpointWrite, message: str) -> NodeMemory:
    """``memory`` after the API server refused ``write`` for good."""
    return replace(memory, endpoint_rejected=(repr(write), message))


def _list_of(node: NodeFacts, address: str, mode: AddressMode) -> tuple[Address, ...] | None:
    """The list as it shall read with ``address``, or without one of ours; None where it is left alone."""
    if mode in {AddressMode.ANNOTATION, AddressMode.OFF}:
        return None
    external = _external(node)
    if _is_right(external, address) if address else not any(map(is_ours, external)):
        return None
    others = tuple(seen for seen in node.addresses or () if seen.type != EXTERNAL_IP or not is_ours(seen.address))
    if not address:
        return others
    ours = Address(EXTERNAL_IP, address)
    # The API server dials the first ExternalIP, so ours stands before a real one.
    return (ours, *others) if any(seen.type == EXTERNAL_IP for seen in others) else (*others, ours)


def _external(node: NodeFacts) -> list[str]:
    return [seen.address for seen in node.addresses or () if seen.type == EXTERNAL_IP]


def _is_right(external: Sequence[str], address: str) -> bool:
    return external[:1] == [address] and sum(map(is_ours, external)) == 1
