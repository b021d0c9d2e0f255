"""What a fresh read tells about when a node last lived, beside what its kubelet says of itself.

A kubelet with a wrong clock writes old times into its node and its Lease alike; the stamps that the API
server puts into ``managedFields`` cannot be old while it lives.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from clusterconform.contract.facts import NodeFacts, UnreadableNodeError, read_node, view_node
from clusterconform.contract.times import parse_time
from clusterconform.contract.writers import managed_fields

_READY_KEY: Final = 'k:{"type":"Ready"}'


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshNode:
    """A node as a live GET shows it.

    Attributes:
        facts: What decisions read.
        ready_stamp: When the API server last took a write of the Ready condition; None where no entry tells.
    """

    facts: NodeFacts
    ready_stamp: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseFacts:
    """A node's Lease as a live GET shows it.

    Attributes:
        renewed: The kubelet's word; None where absent or no time.
        stamp: The API server's own latest stamp on it.
    """

    renewed: datetime | None
    stamp: datetime | None


def read_fresh_node(manifest: Any) -> FreshNode:
    """The Node in ``manifest``, JSON values.

    Raises:
        UnreadableNodeError: A field of a wrong type.
    """
    if not isinstance(manifest, Mapping):
        raise UnreadableNodeError("no object")
    stamps = [
        parse_time(entry.get("time"))
        for entry in managed_fields(manifest)
        if entry.get("subresource") == "status" and _owns_ready(entry)
    ]
    return FreshNode(
        facts=read_node(view_node(manifest)),
        ready_stamp=max((stamp for stamp in stamps if stamp is not None), default=None),
    )


def decode_fresh_node(text: bytes) -> FreshNode:
    """The Node in JSON ``text``.

    Raises:
        UnreadableNodeError: Not JSON, or a field of a wrong type.
    """
    try:
        return read_fresh_node(msgspec.json.decode(text))
    except msgspec.DecodeError as error:
        raise UnreadableNodeError(str(error)) from error


def read_lease(manifest: Any) -> LeaseFacts:
    """The Lease in ``manifest``, JSON values; what is absent or of a wrong type tells nothing."""
    spec = manifest.get("spec") if isinstance(manifest, Mapping) else None
    stamps = [parse_time(entry.get("time")) for entry in managed_fields(manifest)]
    return LeaseFacts(
        renewed=parse_time(spec.get("renewTime")) if isinstance(spec, Mapping) else None,
        stamp=max((stamp for stamp in stamps if stamp is not None), default=None),
    )


def _owns_ready(entry: Mapping[str, Any]) -> bool:
    # Whoever writes Ready, by whatever name: a k3s agent's kubelet shows as "k3s". Other writers of the
    # status (our own condition, a cloud controller) say nothing about the machine.
    fields: Any = entry
    for key in ("fieldsV1", "f:status", "f:conditions"):
        fields = fields.get(key) if isinstance(fields, Mapping) else None
    return isinstance(fields, Mapping) and _READY_KEY in fields
