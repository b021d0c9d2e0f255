"""What we read of a Node, parsed once at the door.

``NodeView`` is the part of the wire shape that decisions read; ``read_node`` turns it into ``NodeFacts``.
The node stream keeps only a NodeView of every object (``reduced``), so what is not named here can change
without waking anybody: heartbeat times, image lists, capacities, foreign conditions and annotations.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

from clusterconform.contract.names import (
    CONFORMANT_CONDITION,
    GROUP,
    IDENTITY_LABELS,
    K3S_EXTERNAL_IP_ANNOTATION,
    MARKS_ANNOTATION,
    NODE_ARGS_ANNOTATION,
    PROVIDER_TAINT_KEY,
    RUNTIME_LABEL,
    RUNTIME_READY_LABEL,
    TYPE_LABEL,
    VIRTUAL_KUBELET_ANNOTATION_PREFIX,
    VIRTUAL_KUBELET_TYPE,
    NodeName,
    NodeUid,
)
from clusterconform.contract.times import parse_time

READY: Final = "Ready"
_KEPT_LABELS: Final = frozenset({*IDENTITY_LABELS, RUNTIME_READY_LABEL, TYPE_LABEL})
_KEPT_LABEL_PREFIX: Final = "node-role.kubernetes.io/"
_KEPT_ANNOTATIONS: Final = frozenset({NODE_ARGS_ANNOTATION, K3S_EXTERNAL_IP_ANNOTATION})
_KEPT_CONDITIONS: Final = frozenset({READY, CONFORMANT_CONDITION})


class TaintView(Struct, omit_defaults=True):
    """One taint as it stands on the wire; the whole list is compared, so nothing of it is left out."""

    key: str = ""
    value: str | None = None
    effect: str = ""
    timeAdded: str | None = None  # noqa: N815 - the wire's name


class ConditionView(Struct, omit_defaults=True, rename="camel"):
    """One condition without its heartbeat."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class MetadataView(Struct, omit_defaults=True, rename="camel"):
    """The metadata that decisions read."""

    name: str = ""
    uid: str | None = None
    resource_version: str | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str | None] | None = None
    annotations: dict[str, str | None] | None = None


class SpecView(Struct, omit_defaults=True):
    """The spec that decisions read."""

    providerID: str | None = None  # noqa: N815 - the wire's name
    taints: list[TaintView | None] | None = None
    unschedulable: bool | None = None


class AddressView(Struct, omit_defaults=True):
    """One address of a node; the whole list is compared."""

    type: str | None = None
    address: str | None = None


class _EndpointView(Struct, omit_defaults=True):
    Port: int | None = None


class _EndpointsView(Struct, omit_defaults=True, rename="camel"):
    kubelet_endpoint: _EndpointView | None = None


class _NodeInfoView(Struct, omit_defaults=True, rename="camel"):
    kubelet_version: str | None = None


class StatusView(Struct, omit_defaults=True, rename="camel"):
    """The status that decisions read."""

    addresses: list[AddressView | None] | None = None
    conditions: list[ConditionView | None] | None = None
    daemon_endpoints: _EndpointsView | None = None
    node_info: _NodeInfoView | None = None


class NodeView(Struct, omit_defaults=True, rename="camel"):
    """A Node cut down to what decisions read, in the shape that the wire gives it."""

    api_version: str | None = None
    kind: str | None = None
    metadata: MetadataView = msgspec.field(default_factory=MetadataView)
    spec: SpecView | None = None
    status: StatusView | None = None


class _NodeListView(Struct, omit_defaults=True):
    items: list[NodeView] | None
    metadata: MetadataView = msgspec.field(default_factory=MetadataView)


@dataclass(frozen=True, slots=True)
class Taint:
    """One taint of a node.

    Attributes:
        key: Its key.
        value: Its value, empty where absent.
        effect: NoSchedule, PreferNoSchedule or NoExecute.
        time_added: As written, or None.
    """

    key: str
    value: str
    effect: str
    time_added: str | None = None


@dataclass(frozen=True, slots=True)
class Address:
    """One address of a node.

    Attributes:
        type: InternalIP, ExternalIP, Hostname, ... as written.
        address: As written.
    """

    type: str
    address: str


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of a node.

    Attributes:
        status: Status word as written; other words than True, False, Unknown are possible.
        reason: Reason, empty where absent.
        message: Message, empty where absent.
        transition: Last transition in UTC; None where null, absent or no timestamp.
    """

    status: str
    reason: str
    message: str
    transition: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What decisions know of a node.

    Attributes:
        name: metadata.name.
        uid: metadata.uid; empty in hand-written files.
        resource_version: metadata.resourceVersion; empty in hand-written files.
        created_at: Creation in UTC, None where absent.
        terminating: Whether a deletion is under way.
        labels: The identity labels, ``type`` and the role labels; null counts as empty, its key as present.
        has_labels: Whether the map exists; a JSON patch must create an absent one first.
        annotations: ``k3s.io/node-args``, ``k3s.io/external-ip`` and our own.
        has_annotations: Whether the map exists.
        virtual_kubelet_annotations: Whether virtual-kubelet's own annotations are there.
        provider_id: spec.providerID, empty where absent.
        kubelet_version: nodeInfo.kubeletVersion, empty where absent.
        kubelet_port: Advertised kubelet port, 0 where none is.
        addresses: All addresses in order; None where the list is absent or null.
        unschedulable: Whether somebody has cordoned it.
        taints: All taints in order; None where the list is absent, since a patch must know the difference.
        ready: The FIRST condition of type Ready (contract P18), or None.
        conformant: Our condition, or None.
    """

    name: NodeName
    uid: NodeUid
    resource_version: str
    created_at: datetime | None
    terminating: bool
    labels: Mapping[str, str]
    has_labels: bool
    annotations: Mapping[str, str]
    has_annotations: bool
    virtual_kubelet_annotations: bool
    provider_id: str
    kubelet_version: str
    kubelet_port: int
    addresses: tuple[Address, ...] | None
    unschedulable: bool
    taints: tuple[Taint, ...] | None
    ready: Condition | None
    conformant: Condition | None


class UnreadableNodeError(ValueError):
    """A Node whose fields have other types than the API server would ever accept; says which and where."""


def decode_node(line: bytes | bytearray | memoryview) -> NodeView:
    """The reduced view of a Node in JSON text; fields that nobody reads are skipped without being built.

    Raises:
        UnreadableNodeError: Not JSON, or a field of a wrong type.
    """
    try:
        return reduced(_NODE_DECODER.decode(line))
    except (msgspec.DecodeError, RecursionError) as error:
        raise UnreadableNodeError(str(error)) from error


def decode_node_list(page: bytes) -> tuple[list[NodeView], str]:
    """The reduced views of one page of a NodeList in JSON text, and the list's resource version.

    Raises:
        UnreadableNodeError: Not JSON, no list, or a field of a wrong type.
    """
    try:
        view = _LIST_DECODER.decode(page)
    except msgspec.DecodeError as error:
        raise UnreadableNodeError(str(error)) from error
    return [reduced(item) for item in view.items or ()], view.metadata.resource_version or ""


def view_node(manifest: Mapping[str, Any]) -> NodeView:
    """The reduced view of a Node given as JSON values.

    Raises:
        UnreadableNodeError: A field of a wrong type.
    """
    try:
        return reduced(msgspec.convert(manifest, NodeView))
    except msgspec.ValidationError as error:
        raise UnreadableNodeError(str(error)) from error


def reduced(view: NodeView) -> NodeView:
    """``view`` without what no decision reads, changed in place and returned.

    The Ready transition of a virtual node is left out: virtual-kubelet providers move it at every heartbeat
    (contract D18), so it says nothing and would turn each heartbeat into an event. Its addresses go too: they are
    nobody's business but its own.
    """
    metadata, status = view.metadata, view.status
    if metadata.labels is not None:
        metadata.labels = {
            key: value
            for key, value in metadata.labels.items()
            if key in _KEPT_LABELS or key.startswith(_KEPT_LABEL_PREFIX)
        }
    if metadata.annotations is not None:
        metadata.annotations = {
            key: value if _is_kept_annotation(key) else ""
            for key, value in metadata.annotations.items()
            if _is_kept_annotation(key) or key.startswith(VIRTUAL_KUBELET_ANNOTATION_PREFIX)
        }
    virtual = _looks_virtual(view)
    if status is not None and (virtual or not status.addresses):
        status.addresses = None
    if status is not None and status.conditions is not None:
        status.conditions = [
            ConditionView(type=READY, status=seen.status, reason=seen.reason, message=seen.message)
            if virtual and seen.type == READY
            else seen
            for seen in status.conditions
            if seen is not None and seen.type in _KEPT_CONDITIONS
        ]
    return view


def _is_kept_annotation(key: str) -> bool:
    return key in _KEPT_ANNOTATIONS or key.startswith(GROUP + "/")


def _looks_virtual(view: NodeView) -> bool:
    annotations = view.metadata.annotations or {}
    # A node that claims to be an agent is judged by its words, so that the breaker still counts it.
    return (view.metadata.labels or {}).get(RUNTIME_LABEL) != "agent" and (
        (view.metadata.labels or {}).get(TYPE_LABEL) == VIRTUAL_KUBELET_TYPE
        or any(key.startswith(VIRTUAL_KUBELET_ANNOTATION_PREFIX) for key in annotations)
        or any(
            taint is not None and taint.key == PROVIDER_TAINT_KEY
            for taint in (view.spec.taints if view.spec else None) or ()
        )
    )


def read_node(view: NodeView) -> NodeFacts:
    """The facts in ``view``; null lists, null entries and absent parts are as good as empty ones."""
    metadata, spec, status = view.metadata, view.spec, view.status
    annotations = {key: value or "" for key, value in (metadata.annotations or {}).items()}
    conditions = [seen for seen in (status.conditions if status else None) or () if seen is not None]
    endpoints = status.daemon_endpoints if status else None
    endpoint = endpoints.kubelet_endpoint if endpoints else None
    return NodeFacts(
        name=NodeName(metadata.name),
        uid=NodeUid(metadata.uid or ""),
        resource_version=metadata.resource_version or "",
        created_at=parse_time(metadata.creation_timestamp),
        terminating=metadata.deletion_timestamp is not None,
        labels={key: value or "" for key, value in (metadata.labels or {}).items()},
        has_labels=metadata.labels is not None,
        annotations={key: value for key, value in annotations.items() if _is_kept_annotation(key)},
        has_annotations=metadata.annotations is not None,
        virtual_kubelet_annotations=any(key.startswith(VIRTUAL_KUBELET_ANNOTATION_PREFIX) for key in annotations),
        provider_id=(spec.providerID if spec else None) or "",
        kubelet_version=(status.node_info.kubelet_version if status and status.node_info else None) or "",
        kubelet_port=(endpoint.Port if endpoint else None) or 0,
        addresses=_read_addresses(status),
        unschedulable=bool(spec and spec.unschedulable),
        taints=_read_taints(spec),
        ready=_first(READY, conditions),
        conformant=_first(CONFORMANT_CONDITION, conditions),
    )


def _read_taints(spec: SpecView | None) -> tuple[Taint, ...] | None:
    if spec is None or spec.taints is None:
        return None
    return tuple(
        Taint(seen.key, seen.value or "", seen.effect, seen.timeAdded) for seen in spec.taints if seen is not None
    )


def _read_addresses(status: StatusView | None) -> tuple[Address, ...] | None:
    if status is None or not status.addresses:
        return None
    seen = (address for address in status.addresses if address is not None)
    return tuple(Address(address.type or "", address.address or "") for address in seen) or None


def _first(kind: str, conditions: list[ConditionView]) -> Condition | None:
    for seen in conditions:
        if seen.type == kind:
            return Condition(
                seen.status, seen.reason or "", seen.message or "", parse_time(seen.last_transition_time)
            )
    return None


_NODE_DECODER: Final = msgspec.json.Decoder(NodeView)
_LIST_DECODER: Final = msgspec.json.Decoder(_NodeListView)


def marks_listed(facts: NodeFacts) -> tuple[str, ...]:
    """The marks that our annotation lists, sorted; see ``contract.plan`` for how a mark is written."""
    return tuple(sorted(mark for mark in facts.annotations.get(MARKS_ANNOTATION, "").split(",") if mark))
