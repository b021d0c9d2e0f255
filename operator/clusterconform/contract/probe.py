"""What we read of a probe pod, parsed once at the door."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from clusterconform.contract.facts import Condition
from clusterconform.contract.names import NAME_LABEL, NAMESPACE, PROBE_NAME
from clusterconform.contract.times import parse_time


class _Requirement(Struct):
    key: str = ""
    values: list[str] | None = None


class _Term(Struct, rename="camel"):
    match_fields: list[_Requirement] | None = None


class _Terms(Struct, rename="camel"):
    node_selector_terms: list[_Term | None] | None = None


class _NodeAffinity(Struct, rename="camel"):
    required: _Terms | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)


class _Affinity(Struct, rename="camel"):
    node_affinity: _NodeAffinity | None = None


class _Spec(Struct, rename="camel"):
    node_name: str | None = None
    affinity: _Affinity | None = None


class _Metadata(Struct, rename="camel"):
    name: str = ""
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str | None] | None = None


class _Condition(Struct, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class _Waiting(Struct):
    reason: str | None = None


class _State(Struct):
    waiting: _Waiting | None = None


class _Container(Struct):
    state: _State | None = None


class _Status(Struct, rename="camel"):
    conditions: list[_Condition | None] | None = None
    container_statuses: list[_Container | None] | None = None


class _Pod(Struct, rename="camel"):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec | None = None
    status: _Status | None = None


class UnreadablePodError(ValueError):
    """A Pod whose fields have other types than the API server would ever accept; says which and where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeFacts:
    """What decisions know of a probe pod.

    Attributes:
        name: metadata.name.
        uid: metadata.uid; empty in hand-written files.
        resource_version: metadata.resourceVersion; empty in hand-written files.
        node: The node that it runs on, or is meant for while it is not scheduled; empty where nothing tells.
        scheduled: Whether it has been given its node.
        created_at: Creation in UTC, None where absent.
        terminating: Whether a deletion is under way.
        ready: The FIRST condition of type Ready, or None.
        waiting: Why its containers wait, such as ImagePullBackOff; empty where none does.
    """

    name: str
    uid: str
    resource_version: str
    node: str
    scheduled: bool
    created_at: datetime | None
    terminating: bool
    ready: Condition | None
    waiting: tuple[str, ...]


def is_probe(manifest: Mapping[str, Any]) -> bool:
    """Whether ``manifest``, a Pod as JSON values, is one of our namespace's probe pods."""
    metadata = manifest.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, Mapping) else None
    return (
        isinstance(metadata, Mapping)
        and metadata.get("namespace") == NAMESPACE
        and isinstance(labels, Mapping)
        and labels.get(NAME_LABEL) == PROBE_NAME
    )


def read_probe(manifest: Mapping[str, Any]) -> ProbeFacts:
    """The facts in ``manifest``, a Pod as JSON values.

    Raises:
        UnreadablePodError: A field of a wrong type.
    """
    try:
        pod = msgspec.convert(manifest, _Pod)
    except msgspec.ValidationError as error:
        raise UnreadablePodError(str(error)) from error
    metadata, status = pod.metadata, pod.status or _Status()
    node = (pod.spec.node_name if pod.spec else None) or ""
    return ProbeFacts(
        name=metadata.name,
        uid=metadata.uid or "",
        resource_version=metadata.resource_version or "",
        node=node or _meant_for(pod.spec),
        scheduled=bool(node),
        created_at=parse_time(metadata.creation_timestamp),
        terminating=metadata.deletion_timestamp is not None,
        ready=next(
            (
                Condition(
                    seen.status, seen.reason or "", seen.message or "", parse_time(seen.last_transition_time)
                )
                for seen in status.conditions or ()
                if seen is not None and seen.type == "Ready"
            ),
            None,
        ),
        waiting=tuple(
            seen.state.waiting.reason or ""
            for seen in status.container_statuses or ()
            if seen is not None and seen.state is not None and seen.state.waiting is not None
        ),
    )


def _meant_for(spec: _Spec | None) -> str:
    """The node that the DaemonSet controller names in the affinity of a pod that is not scheduled yet."""
    affinity = spec.affinity.node_affinity if spec and spec.affinity else None
    for term in (affinity.required.node_selector_terms if affinity and affinity.required else None) or ():
        for field in (term.match_fields if term else None) or ():
            if field.key == "metadata.name" and field.values:
                return field.values[0]
    return ""
