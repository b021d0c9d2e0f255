"""The two rules for workloads: what a pod may ask of the nodes that it can get.

W1  A pod that can only run on virtual nodes, but tolerates the provider taint of none of them, is never scheduled.
W2  A pod that can land on virtual nodes needs nothing that they do not serve: no command run in its container
    by the kubelet (exec probes and hooks), no ``hostPath``, no privileged container.

Where a pod can go follows from what is promised of the nodes: runtime, backend and ``type`` label, name suffix
and provider taint. Whatever else it asks for (an architecture, a GPU) may be there: only what is certainly
excluded counts as excluded.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from clusterconform.contract.names import (
    BACKEND_LABEL,
    PROVIDER_TAINT_EFFECT,
    PROVIDER_TAINT_KEY,
    RUNTIME_LABEL,
    TYPE_LABEL,
    VIRTUAL_KUBELET_TYPE,
)
from clusterconform.contract.objects import Path
from clusterconform.contract.profile import NodeClass, RuntimeProfile
from clusterconform.contract.workload import Container, Expression, PodSpecView, Term, Toleration

NEVER_SCHEDULED: Final = "W1"
NOT_SERVED: Final = "W2"

_NAME_KEYS: Final = frozenset({"kubernetes.io/hostname", "metadata.name"})
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")


@dataclass(frozen=True, slots=True)
class WorkloadBreach:
    """One rule broken by one pod or template.

    Attributes:
        rule: W1 or W2.
        path: The field, below the spec of the pod.
        message: What is wrong, and what to do.
    """

    rule: str
    path: Path
    message: str


@dataclass(frozen=True, slots=True)
class _Model:
    """What is certain of the nodes of one kind.

    Attributes:
        labels: By key, the value; None for a label that such a node does not carry.
        suffix: What the name ends with; None where it ends with none of ``others``.
        others: The suffixes of all virtual backends.
    """

    labels: Mapping[str, str | None]
    suffix: str | None
    others: tuple[str, ...]

    def may_be_named(self, name: str) -> bool:
        if self.suffix is None:
            return not name.endswith(self.others)
        return name.endswith(self.suffix)


def judge_pod(spec: PodSpecView, profiles: Sequence[RuntimeProfile]) -> list[WorkloadBreach]:
    """The rules that ``spec`` breaks among nodes of the accepted ``profiles``, in order."""
    landing = lands_on(spec, profiles)
    if landing:
        return [_not_served(path, what, landing) for path, what in _needs(spec)]
    suffixes = _suffixes(profiles)
    reachable = _reachable(spec, profiles)
    elsewhere = [_model_of(row, suffixes) for row in profiles if row.node_class is NodeClass.AGENT]
    elsewhere.append(_Model({RUNTIME_LABEL: None, BACKEND_LABEL: None, TYPE_LABEL: None}, None, suffixes))
    if not reachable or any(_may_run_on(spec, model) for model in elsewhere):
        return []
    return [_never_scheduled(reachable)]


def lands_on(spec: PodSpecView, profiles: Sequence[RuntimeProfile]) -> list[RuntimeProfile]:
    """Those of the virtual ``profiles`` whose nodes a pod with ``spec`` can get."""
    return [profile for profile in _reachable(spec, profiles) if spec.node_name or _tolerates(spec, profile)]


def _reachable(spec: PodSpecView, profiles: Sequence[RuntimeProfile]) -> list[RuntimeProfile]:
    suffixes = _suffixes(profiles)
    virtual = [profile for profile in profiles if profile.node_class is NodeClass.VIRTUAL]
    return [profile for profile in virtual if _may_run_on(spec, _model_of(profile, suffixes))]


def _suffixes(profiles: Sequence[RuntimeProfile]) -> tuple[str, ...]:
    return tuple(row.node_name_suffix for row in profiles if row.node_class is NodeClass.VIRTUAL)


def _never_scheduled(reachable: Sequence[RuntimeProfile]) -> WorkloadBreach:
    message = (
        f"can only run on virtual nodes ({_names(reachable)}), but does not tolerate their taint, so it will "
        f"never be scheduled: add the toleration {{key: {PROVIDER_TAINT_KEY}, operator: Exists}}"
    )
    return WorkloadBreach(NEVER_SCHEDULED, ("tolerations",), message)


def _not_served(path: Path, what: str, tolerated: Sequence[RuntimeProfile]) -> WorkloadBreach:
    message = (
        f"can land on virtual nodes ({_names(tolerated)}), which serve no {what}: take that out, or keep it off "
        f"them with a required node affinity {{key: {RUNTIME_LABEL}, operator: NotIn, values: [virtual]}}"
    )
    return WorkloadBreach(NOT_SERVED, path, message)


def _names(profiles: Sequence[RuntimeProfile]) -> str:
    return ", ".join(sorted(profile.backend for profile in profiles))


def _model_of(profile: RuntimeProfile, suffixes: tuple[str, ...]) -> _Model:
    virtual = profile.node_class is NodeClass.VIRTUAL
    labels = {
        RUNTIME_LABEL: profile.runtime_label_value,
        BACKEND_LABEL: profile.backend,
        TYPE_LABEL: VIRTUAL_KUBELET_TYPE if virtual else None,
    }
    return _Model(labels, profile.node_name_suffix if virtual else None, suffixes)


def _may_run_on(spec: PodSpecView, model: _Model) -> bool:
    if spec.node_name:
        return model.may_be_named(spec.node_name)
    selector = [Expression(key, "In", (value or "",)) for key, value in (spec.node_selector or {}).items()]
    if not all(_may_hold(expression, model) for expression in selector):
        return False
    return spec.terms is None or any(_may_match(term, model) for term in spec.terms)


def _may_match(term: Term | None, model: _Model) -> bool:
    expressions = [*(term.match_expressions or ()), *(term.match_fields or ())] if term else []
    return bool(expressions) and all(_may_hold(expression, model) for expression in expressions)


def _may_hold(expression: Expression, model: _Model) -> bool:
    values = expression.values or ()
    if expression.key in _NAME_KEYS:
        return expression.operator != "In" or any(model.may_be_named(value) for value in values)
    if expression.key not in model.labels:
        return True
    value = model.labels[expression.key]
    answers = {
        "In": value in values,
        "NotIn": value not in values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }
    return answers.get(expression.operator, False)  # Gt and Lt hold for no word


def _tolerates(spec: PodSpecView, profile: RuntimeProfile) -> bool:
    return any(_covers(seen, profile) for seen in spec.tolerations or () if seen is not None)


def _covers(toleration: Toleration, profile: RuntimeProfile) -> bool:
    if toleration.effect and toleration.effect != PROVIDER_TAINT_EFFECT:
        return False
    exists = toleration.operator == "Exists"
    if not toleration.key:
        return exists
    if toleration.key != PROVIDER_TAINT_KEY:
        return False
    equal = toleration.operator in {None, "", "Equal"} and (toleration.value or "") == profile.provider_taint_value
    return exists or equal


def _needs(spec: PodSpecView) -> Iterator[tuple[Path, str]]:
    """What of ``spec`` a virtual node does not serve, with the field that asks for it."""
    for list_name, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for index, container in enumerate(containers or ()):
            if container is not None:
                yield from _needs_of(container, (list_name, index))
    for index, volume in enumerate(spec.volumes or ()):
        if volume is not None and volume.host_path is not None:
            yield ("volumes", index, "hostPath"), "hostPath volume"


def _needs_of(container: Container, path: Path) -> Iterator[tuple[Path, str]]:
    probes = (container.liveness_probe, container.readiness_probe, container.startup_probe)
    for name, probe in zip(_PROBES, probes, strict=True):
        if probe is not None and probe.exec is not None:
            yield (*path, name, "exec"), "exec probe"
    hooks = container.lifecycle
    for name, hook in (("postStart", hooks.post_start), ("preStop", hooks.pre_stop)) if hooks else ():
        if hook is not None and hook.exec is not None:
            yield (*path, "lifecycle", name, "exec"), "exec hook"
    if container.security_context is not None and container.security_context.privileged:
        yield (*path, "securityContext", "privileged"), "privileged container"
