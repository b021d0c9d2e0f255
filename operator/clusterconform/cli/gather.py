"""What the commands read of a cluster, once, for the decisions that they print."""

from collections.abc import Iterable
from typing import Any, Final

from clusterconform.cli.live import AbsentError, DeniedError, Live, UnavailableError
from clusterconform.contract.lease import LEASE_PATH, LeaseRecord, UnreadableLeaseError, read_lease
from clusterconform.contract.names import API_VERSION, NAME_LABEL, NAMESPACE, PLURAL, PROBE_NAME
from clusterconform.contract.profile import ProfileObject, Refusal, read_profile
from clusterconform.contract.verdicts import Finding
from clusterconform.decisions.streaming import cause_of, verified

NODES: Final = "/api/v1/nodes"
PROFILES: Final = f"/apis/{API_VERSION}/{PLURAL}"
_PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
PROBES: Final = f"{_PODS}?labelSelector={NAME_LABEL}%3D{PROBE_NAME}"


def profiles_of(cluster: Live) -> list[Any]:
    """The profiles as JSON values.

    Raises:
        UnavailableError: They cannot be read, or are no kind of this cluster.
    """
    try:
        return cluster.items(PROFILES)
    except AbsentError as error:
        message = (
            "there are no RuntimeProfiles: apply the CRD with: clusterconform manifests crd | kubectl apply -f -"
        )
        raise UnavailableError(message) from error


def objects_of(profiles: list[Any]) -> list[ProfileObject]:
    """``profiles`` as values; one that cannot even be named is no profile of an API server."""
    read = []
    for manifest in profiles:
        try:
            read.append(read_profile(manifest))
        except Refusal as refusal:
            raise UnavailableError(f"a RuntimeProfile cannot be read: {refusal}") from refusal
    return read


def stream_trials(cluster: Live, pods: Iterable[Any], nodes: Iterable[str]) -> dict[str, Finding]:
    """By node, what reading one line of its probe pod's log tells; the operator's trial, with our own rights."""
    wanted, trials = set(nodes), dict[str, Finding]()
    for pod in pods:
        node = (pod.get("spec") or {}).get("nodeName")
        if node in wanted and (pod.get("status") or {}).get("phase") == "Running":
            try:
                cluster.send("GET", f"{_PODS}/{pod['metadata']['name']}/log?tailLines=1")
            except DeniedError:
                continue  # it says nothing of the path
            except UnavailableError as error:
                trials[node] = cause_of(str(error))
            else:
                trials[node] = verified()
    return trials


def lease_of(cluster: Live) -> LeaseRecord | None:
    """The operator's Lease; None where there is none, or none that was ever held."""
    raw = cluster.find(LEASE_PATH)
    try:
        return None if raw is None else read_lease(raw)
    except UnreadableLeaseError:
        return None
