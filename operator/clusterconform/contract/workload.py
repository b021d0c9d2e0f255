"""What we read of a workload: where its pods may run, and what of it only a real kubelet serves.

Views in the shape of the wire, as ``contract.facts`` has them for nodes; a null is as good as an absent field.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from clusterconform.contract.objects import Path

_TEMPLATE: Final[Path] = ("spec", "template", "spec")

POD_SPECS: Final[Mapping[tuple[str, str], Path]] = {
    ("", "Pod"): ("spec",),
    ("", "PodTemplate"): ("template", "spec"),
    ("", "ReplicationController"): _TEMPLATE,
    ("apps", "DaemonSet"): _TEMPLATE,
    ("apps", "Deployment"): _TEMPLATE,
    ("apps", "ReplicaSet"): _TEMPLATE,
    ("apps", "StatefulSet"): _TEMPLATE,
    ("batch", "Job"): _TEMPLATE,
    ("batch", "CronJob"): ("spec", "jobTemplate", *_TEMPLATE),
}
"""By API group and kind, where the spec of a pod stands."""


class UnreadableWorkloadError(ValueError):
    """A workload whose fields have other types than the API server would ever accept; says which and where."""


class Toleration(Struct, frozen=True):
    """One toleration of a pod."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class Expression(Struct, frozen=True):
    """One requirement on a node's label or name."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class Term(Struct, frozen=True, rename="camel"):
    """Requirements that must all hold; none at all hold for no node."""

    match_expressions: tuple[Expression, ...] | None = None
    match_fields: tuple[Expression, ...] | None = None


class _Required(Struct, frozen=True, rename="camel"):
    node_selector_terms: tuple[Term | None, ...] | None = None


class _NodeAffinity(Struct, frozen=True, rename="camel"):
    required_during_scheduling_ignored_during_execution: _Required | None = None


class _Affinity(Struct, frozen=True, rename="camel"):
    node_affinity: _NodeAffinity | None = None


class _Handler(Struct, frozen=True):
    exec: Any = None


class _Lifecycle(Struct, frozen=True, rename="camel"):
    post_start: _Handler | None = None
    pre_stop: _Handler | None = None


class _ContainerSecurity(Struct, frozen=True):
    privileged: bool | None = None


class Container(Struct, frozen=True, rename="camel"):
    """What of a container needs a kubelet or its machine."""

    liveness_probe: _Handler | None = None
    readiness_probe: _Handler | None = None
    startup_probe: _Handler | None = None
    lifecycle: _Lifecycle | None = None
    security_context: _ContainerSecurity | None = None


class _Volume(Struct, frozen=True, rename="camel"):
    host_path: Any = None


class PodSpecView(Struct, frozen=True, rename="camel"):
    """The spec of a pod, cut down to what is judged."""

    node_name: str | None = None
    node_selector: dict[str, str | None] | None = None
    affinity: _Affinity | None = None
    tolerations: tuple[Toleration | None, ...] | None = None
    containers: tuple[Container | None, ...] | None = None
    init_containers: tuple[Container | None, ...] | None = None
    volumes: tuple[_Volume | None, ...] | None = None

    @property
    def terms(self) -> tuple[Term | None, ...] | None:
        """The terms of the required node affinity, of which one must hold; None where there is none."""
        node = self.affinity.node_affinity if self.affinity else None
        required = node.required_during_scheduling_ignored_during_execution if node else None
        return None if required is None else required.node_selector_terms or ()


def view_pod_spec(manifest: Mapping[str, Any], path: Path) -> PodSpecView | None:
    """The spec of a pod at ``path`` of ``manifest``; None where nothing stands there.

    Raises:
        UnreadableWorkloadError: A field of a wrong type.
    """
    value: Any = manifest
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    if value is None:
        return None
    try:
        return msgspec.convert(value, PodSpecView)
    except msgspec.ValidationError as error:
        raise UnreadableWorkloadError(str(error)) from error
