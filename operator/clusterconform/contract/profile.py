"""RuntimeProfile as a value: read from a manifest, or refused with a path and a reason.

The rules R1-R5 of contract §2.5 are numbered here and judged one by one in ``decisions.gate``; what follows
from class and backend (label value, suffix, taint, the three SubjectTo flags) need not be written in a
manifest and is filled in here, so that a further virtual backend is a spec of five lines.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct, field

from clusterconform.contract.names import API_VERSION, GROUP, KIND, PROVIDER_TAINT_VALUE
from clusterconform.contract.objects import Path
from clusterconform.contract.settings import LABEL_VALUE, AddressReconcile, NodeGC, RuntimeProbe
from clusterconform.contract.times import Duration, parse_time

# The spec, its blocks and their fields; below that nothing of ours lies, however deep a stranger's value goes.
_DEPTH: Final = 3


class NodeClass(StrEnum):
    """The two classes of runtime."""

    AGENT = "agent"
    VIRTUAL = "virtual"


class Capability(StrEnum):
    """What a workload can do on a node (contract §2.2)."""

    POD_LIFECYCLE = "pod-lifecycle"
    KUBELET_LOG_STREAM = "kubelet-log-stream"
    KUBELET_EXEC = "kubelet-exec"
    KUBELET_ATTACH = "kubelet-attach"
    KUBELET_PORT_FORWARD = "kubelet-port-forward"
    KUBELET_STATS = "kubelet-stats"
    TERMINATION_LOG_TAIL = "termination-log-tail"
    TRANSIENT_APP_ROUTE = "transient-app-route"


STREAMING: Final = (
    Capability.KUBELET_LOG_STREAM,
    Capability.KUBELET_EXEC,
    Capability.KUBELET_ATTACH,
    Capability.KUBELET_PORT_FORWARD,
    Capability.KUBELET_STATS,
)
RESULT_CHANNELS: Final = (Capability.TERMINATION_LOG_TAIL, Capability.TRANSIENT_APP_ROUTE)
AGENT_CAPABILITIES: Final = (Capability.POD_LIFECYCLE, *STREAMING)
VIRTUAL_CAPABILITIES: Final = (Capability.POD_LIFECYCLE, *RESULT_CHANNELS)


class Enforcement(StrEnum):
    """Whether drift is repaired or only reported."""

    ENFORCE = "Enforce"
    OBSERVE = "Observe"


class Adoption(StrEnum):
    """Whether an unlabelled node is taken in by its evidence."""

    NEVER = "Never"
    BY_EVIDENCE = "ByEvidence"


class _Spec(Struct, frozen=True, kw_only=True, rename="camel"):
    """The spec as it stands on the wire; bounds and patterns are the CRD's (an agreement test compares)."""

    backend: Annotated[str, Meta(min_length=1, max_length=52, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")]
    node_class: NodeClass = field(name="class")
    capabilities: Annotated[tuple[Capability, ...], Meta(min_length=1, max_length=8)]
    runtime_label_value: NodeClass | None = None
    node_name_suffix: (
        Annotated[str, Meta(max_length=53, pattern=r"^(-[a-z0-9]([-a-z0-9]*[a-z0-9])?)?\Z")] | None
    ) = None
    provider_taint: bool | None = None
    subject_to_node_gc: bool | None = field(name="subjectToNodeGC", default=None)
    subject_to_runtime_probe: bool | None = None
    subject_to_address_reconcile: bool | None = None
    enforcement: Enforcement = Enforcement.ENFORCE
    provider_taint_value: Annotated[str, Meta(max_length=63, pattern=LABEL_VALUE)] = PROVIDER_TAINT_VALUE
    adopt: Adoption = Adoption.NEVER
    node_gc: NodeGC | None = field(name="nodeGC", default=None)
    runtime_probe: RuntimeProbe | None = None
    address_reconcile: AddressReconcile | None = None

    def __post_init__(self) -> None:
        """Refuse a capability named twice: the list is a set.

        Raises:
            ValueError: With the capability.
        """
        seen: set[Capability] = set()
        for capability in self.capabilities:
            if capability in seen:
                raise ValueError(f"capabilities names {capability} twice")
            seen.add(capability)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeProfile:
    """The contract of one backend, with everything filled in that its class decides.

    Attributes:
        backend: Name of the backend; the object's name (R1).
        node_class: Agent or virtual; R3 and R4 bind the rest to it.
        capabilities: What a workload can do on such a node.
        runtime_label_value: Value of the runtime label.
        node_name_suffix: What a node's name carries behind the host's.
        provider_taint: Whether nodes carry the provider taint.
        subject_to_node_gc: Whether dead nodes may be reaped.
        subject_to_runtime_probe: Whether the container runtime is probed.
        subject_to_address_reconcile: Whether the kubelet's address is published.
        enforcement: Whether drift is repaired or only reported.
        provider_taint_value: Value of the provider taint.
        adopt: Whether unlabelled nodes are taken in by their evidence.
        node_gc: Settings of reaping; None for the virtual class.
        runtime_probe: Settings of probing; None for the virtual class.
        address_reconcile: Settings of addresses; None for the virtual class.
    """

    backend: str
    node_class: NodeClass
    capabilities: tuple[Capability, ...]
    runtime_label_value: str
    node_name_suffix: str
    provider_taint: bool
    subject_to_node_gc: bool
    subject_to_runtime_probe: bool
    subject_to_address_reconcile: bool
    enforcement: Enforcement = Enforcement.ENFORCE
    provider_taint_value: str = PROVIDER_TAINT_VALUE
    adopt: Adoption = Adoption.NEVER
    node_gc: NodeGC | None = None
    runtime_probe: RuntimeProbe | None = None
    address_reconcile: AddressReconcile | None = None

    def serves(self, capability: str) -> bool:
        """Whether ``capability`` is served; False for an unknown one."""
        return capability in self.capabilities

    @property
    def serves_kubelet_streaming(self) -> bool:
        """Whether any of the five streaming capabilities is served (contract §2.3)."""
        return any(capability in self.capabilities for capability in STREAMING)


@dataclass(unsafe_hash=True)
class Refusal(Exception):  # noqa: N818 - it is a verdict first, and raised only where nothing can be named
    """Why a manifest is no profile.

    Attributes:
        path: Where in the manifest, such as ``spec.capabilities[1]``.
        reason: What is wrong there, for a person.
    """

    path: str
    reason: str

    def __str__(self) -> str:
        """Path and reason in one sentence."""
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileObject:
    """A RuntimeProfile as it was seen: its identity, its contract or why it has none, and its status.

    Attributes:
        name: metadata.name.
        uid: metadata.uid; empty in files.
        resource_version: metadata.resourceVersion; empty in files.
        created_at: Creation, None in files.
        generation: metadata.generation; 0 in files.
        annotations: Our own ones.
        contract: The profile, or the refusal that says why the spec is none.
        status: The status as the API server shows it, as JSON values.
    """

    name: str
    uid: str
    resource_version: str
    created_at: datetime | None
    generation: int
    annotations: Mapping[str, str]
    contract: RuntimeProfile | Refusal
    status: Mapping[str, Any]


def of_class(backend: str, node_class: NodeClass, capabilities: tuple[Capability, ...]) -> RuntimeProfile:
    """The profile of ``backend`` with everything that its class decides and every default."""
    return _resolved(_Spec(backend=backend, node_class=node_class, capabilities=capabilities))


def read_profile(manifest: Mapping[str, Any]) -> ProfileObject:
    """The object in ``manifest``, a RuntimeProfile as JSON values; a bad spec becomes its ``contract``.

    Raises:
        Refusal: Where the metadata is unusable, so that the object cannot even be named.
    """
    metadata = manifest.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    if not isinstance(metadata, Mapping) or not isinstance(name, str) or not name:
        raise Refusal("metadata.name", "must be a name")
    generation = metadata.get("generation")
    status = manifest.get("status")
    return ProfileObject(
        name=name,
        uid=str(metadata.get("uid") or ""),
        resource_version=str(metadata.get("resourceVersion") or ""),
        created_at=parse_time(metadata.get("creationTimestamp")),
        generation=generation if isinstance(generation, int) else 0,
        annotations=_own_annotations(metadata.get("annotations")),
        contract=_read_contract(name, manifest.get("spec")),
        status=status if isinstance(status, Mapping) else {},
    )


def _own_annotations(annotations: object) -> Mapping[str, str]:
    if not isinstance(annotations, Mapping):
        return {}
    own = {key: value for key, value in annotations.items() if str(key).startswith(f"{GROUP}/")}
    return {key: value for key, value in own.items() if isinstance(value, str)}


def _read_contract(name: str, spec: object) -> RuntimeProfile | Refusal:
    if not isinstance(spec, Mapping):
        return Refusal("spec", "is required")
    try:
        # A null on a field with a default means the default: the API server prunes it (node-facts §13.3).
        wire = msgspec.convert(_as_stored(spec), _Spec, dec_hook=_decode)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$")
        return Refusal("spec" + path.rstrip("`"), reason)
    if wire.backend != name:
        return Refusal("spec.backend", f"metadata.name must equal spec.backend (R1): {name} is not {wire.backend}")
    return _resolved(wire)


def unknown_fields(manifest: Mapping[str, Any]) -> list[Path]:
    """The fields in the spec of ``manifest`` that no RuntimeProfile has, with the path to each."""
    spec = manifest.get("spec")
    found: list[Path] = []
    for path, block in (
        (("spec",), _Spec),
        (("spec", "nodeGC"), NodeGC),
        (("spec", "runtimeProbe"), RuntimeProbe),
        (("spec", "addressReconcile"), AddressReconcile),
    ):
        seen = spec.get(path[-1]) if isinstance(spec, Mapping) and len(path) > 1 else spec
        if isinstance(seen, Mapping):
            found += [(*path, str(key)) for key in seen if key not in block.__struct_encode_fields__]
    return found


def _decode(wanted: type, value: object) -> object:
    if wanted is Duration:
        if not isinstance(value, str):
            raise ValueError(f"must be a duration such as 90s or 1h30m, not {value!r}")
        return Duration(value)
    raise NotImplementedError(wanted)


def _as_stored(value: Any, depth: int = _DEPTH) -> Any:
    if isinstance(value, Mapping) and depth:
        return {key: _as_stored(item, depth - 1) for key, item in value.items() if item is not None}
    if isinstance(value, float) and value.is_integer():
        return int(value)  # the API server takes 3.0 for 3
    return value


def _resolved(spec: _Spec) -> RuntimeProfile:
    agent = spec.node_class is NodeClass.AGENT

    def decided(written: bool | None, by_class: bool) -> bool:
        return by_class if written is None else written

    suffix = "" if agent else f"-{spec.backend}"
    return RuntimeProfile(
        backend=spec.backend,
        node_class=spec.node_class,
        capabilities=spec.capabilities,
        runtime_label_value=spec.runtime_label_value or spec.node_class.value,
        node_name_suffix=suffix if spec.node_name_suffix is None else spec.node_name_suffix,
        provider_taint=decided(spec.provider_taint, not agent),
        subject_to_node_gc=decided(spec.subject_to_node_gc, agent),
        subject_to_runtime_probe=decided(spec.subject_to_runtime_probe, agent),
        subject_to_address_reconcile=decided(spec.subject_to_address_reconcile, agent),
        enforcement=spec.enforcement,
        provider_taint_value=spec.provider_taint_value,
        adopt=spec.adopt,
        node_gc=spec.node_gc or (NodeGC() if agent else None),
        runtime_probe=spec.runtime_probe or (RuntimeProbe() if agent else None),
        address_reconcile=spec.address_reconcile or (AddressReconcile() if agent else None),
    )


def manifest_of(profile: RuntimeProfile) -> dict[str, Any]:
    """The custom resource that spells ``profile`` out, settings blocks with defaults left to the CRD."""
    spec: dict[str, Any] = {
        "backend": profile.backend,
        "class": profile.node_class.value,
        "runtimeLabelValue": profile.runtime_label_value,
        "nodeNameSuffix": profile.node_name_suffix,
        "providerTaint": profile.provider_taint,
        "subjectToNodeGC": profile.subject_to_node_gc,
        "subjectToRuntimeProbe": profile.subject_to_runtime_probe,
        "subjectToAddressReconcile": profile.subject_to_address_reconcile,
        "capabilities": [capability.value for capability in profile.capabilities],
        "enforcement": profile.enforcement.value,
        "providerTaintValue": profile.provider_taint_value,
        "adopt": profile.adopt.value,
    }
    if profile.node_class is NodeClass.AGENT:
        # Written empty, so that the API server fills the defaults in and kubectl get -o yaml shows them all.
        spec |= {"nodeGC": {}, "runtimeProbe": {}, "addressReconcile": {}}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": profile.backend}, "spec": spec}
