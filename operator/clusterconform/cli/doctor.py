"""``clusterconform doctor``: what makes the contract fail in this cluster, and what to do about it."""

import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from clusterconform.cli.demo.shipped import FENCE, PINNING, RBAC, ShippedFileMissingError, shipped
from clusterconform.cli.formats import fields_text, output_option, print_value
from clusterconform.cli.gather import NODES, PROBES, PROFILES, lease_of, objects_of, stream_trials
from clusterconform.cli.live import AbsentError, DeniedError, Live, UnavailableError, cluster_options, progress
from clusterconform.cli.reading import documents_in
from clusterconform.contract.diagnosis import Access, Check, ClusterFacts, State
from clusterconform.contract.names import CRD_NAME
from clusterconform.decisions.diagnosis import diagnose, worst
from clusterconform.decisions.installation import needed_access, review_of
from clusterconform.decisions.world import UnusableWorldError
from clusterconform.effects.clock import Clock

_CRD: Final = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{CRD_NAME}"
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_DAEMON_SETS: Final = "/apis/apps/v1/daemonsets"
_SERVICES: Final = "/api/v1/services"
_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
_POLICY_KINDS: Final = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
}
_FLEET: Final = ("nodes", "contested", "ports", "addresses", "paths", "node-clocks", "runtimes")
# So many kubelets are tried; each dead tunnel among them may take the API server some seconds to notice.
_TRIALS: Final = 20
# So many findings of one check are shown to a person.
_SHOWN: Final = 6


@click.command(
    epilog="""\b
Examples:
  clusterconform doctor
  clusterconform doctor --output json
Docs: docs/doctor.md"""
)
@output_option
@cluster_options
def doctor(*, output: str, cluster: Live) -> None:
    """Look for what makes the contract fail in this cluster, and say of each finding what to do.

    Nothing is written. Exit codes: 0 nothing but warnings, 1 findings, 2 the cluster cannot be reached.
    """
    with progress("examining the cluster"):
        checks = _diagnosed(_gathered(cluster))
    state = worst(check.state for check in checks)
    if output == "table":
        click.echo(_text(checks))
    else:
        print_value({"state": state.value, "checks": [_as_value(check) for check in checks]}, output)
    sys.exit(int(state in {State.FAILING, State.UNKNOWN}))


def _diagnosed(facts: ClusterFacts) -> list[Check]:
    try:
        return diagnose(facts)
    except UnusableWorldError as error:
        raise UnavailableError(str(error)) from error


def _gathered(cluster: Live) -> ClusterFacts:
    """All that is looked at; what may not be read makes its checks unknown and no others."""
    cluster.get("/version")  # out of reach is out of reach, and no finding
    unread: dict[str, str] = {}

    def read(checks: Sequence[str], how: Callable[[], Any], absent: Any) -> Any:
        try:
            return how()
        except DeniedError as error:
            unread.update(dict.fromkeys(checks, str(error)))
            return absent

    now, local = cluster.now(), Clock().moment().wall
    fence = _policies_in(FENCE)
    pinning = _policies_in(PINNING)
    manifests = read(("profiles", *_FLEET, "reaping", "stream"), lambda: _items_or_none(cluster, PROFILES), ())
    pods = read(("runtimes", "paths"), lambda: cluster.items(PROBES), ())
    tried = sorted({node for pod in pods if (node := (pod.get("spec") or {}).get("nodeName"))})[:_TRIALS]
    return ClusterFacts(
        now=now,
        local=local,
        crd_missing=read(("crd",), lambda: _crd_missing(cluster), ()),
        denied=read(("permissions",), lambda: _denied(cluster), ()),
        lease=read(("leader", "stream"), lambda: lease_of(cluster), None),
        profiles=objects_of(list(manifests)),
        nodes=read(_FLEET, lambda: cluster.items(NODES), ()),
        pods=pods,
        trials=stream_trials(cluster, pods, tried),
        daemon_sets=read(("daemonsets", "addresses"), lambda: cluster.items(_DAEMON_SETS), ()),
        services=read(("addresses",), lambda: cluster.items(_SERVICES), ()),
        policies=read(("admission",), lambda: _policies(cluster, [*fence, *pinning]), frozenset()),
        shipped_policies=fence,
        pinning_policies=pinning,
        unread=unread,
    )


def _items_or_none(cluster: Live, path: str) -> list[Any]:
    try:
        return cluster.items(path)
    except AbsentError:
        return []


def _crd_missing(cluster: Live) -> list[str] | None:
    # Imported here: it brings the operator's HTTP client, for which no other command should wait.
    from clusterconform.handlers.preflight import missing_paths  # noqa: PLC0415

    manifest = cluster.find(_CRD)
    return None if manifest is None else missing_paths(manifest)


def _denied(cluster: Live) -> list[Access]:
    needed = needed_access(_shipped(RBAC))
    return [access for access in needed if not _is_allowed(cluster.send("POST", _REVIEWS, review_of(access)))]


def _is_allowed(review: Any) -> bool:
    return bool((review.get("status") or {}).get("allowed"))


def _policies(cluster: Live, wanted: Sequence[tuple[str, str]]) -> frozenset[tuple[str, str]]:
    return frozenset(
        (kind, name)
        for kind, name in wanted
        if cluster.find(f"{_ADMISSION}/{_POLICY_KINDS[kind]}/{name}") is not None
    )


def _policies_in(file: str) -> list[tuple[str, str]]:
    return [(item["kind"], item["metadata"]["name"]) for item in _shipped(file) if item["kind"] in _POLICY_KINDS]


def _shipped(name: str) -> list[Any]:
    try:
        return [document for document in documents_in(str(shipped(name))) if document]
    except ShippedFileMissingError as error:
        raise UnavailableError(f"{name} is not shipped beside this program, so it cannot be compared") from error


def _as_value(check: Check) -> dict[str, Any]:
    return {
        "check": check.name,
        "state": check.state.value,
        "findings": [
            {"state": trouble.state.value, "message": trouble.message, "advice": trouble.advice}
            for trouble in check.troubles
        ],
    }


def _text(checks: Sequence[Check]) -> str:
    rows: list[tuple[str, str]] = []
    for check in checks:
        if check.state is State.OK:
            rows.append((check.name, "ok"))
        for index, trouble in enumerate(check.troubles[:_SHOWN]):
            rows.append((check.name if index == 0 else "", f"{trouble.state}: {trouble.message}"))
            rows.append(("", f"  do: {trouble.advice}"))
        if len(check.troubles) > _SHOWN:
            rows.append(("", f"and {len(check.troubles) - _SHOWN} more; all of them: --output json"))
    return fields_text(rows)
