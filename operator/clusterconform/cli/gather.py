"""What the commands read of a cluster, once, for the decisions that they print."""

from typing import Any, Final

from clusterconform.cli.live import AbsentError, Live, UnavailableError
from clusterconform.contract.lease import LEASE_PATH, LeaseRecord, UnreadableLeaseError, read_lease
from clusterconform.contract.names import API_VERSION, NAME_LABEL, NAMESPACE, PLURAL, PROBE_NAME
from clusterconform.contract.profile import ProfileObject, Refusal, read_profile

NODES: Final = "/api/v1/nodes"
PROFILES: Final = f"/apis/{API_VERSION}/{PLURAL}"
PROBES: Final = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector={NAME_LABEL}%3D{PROBE_NAME}"


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


def lease_of(cluster: Live) -> LeaseRecord | None:
    """The operator's Lease; None where there is none, or none that was ever held."""
    raw = cluster.find(LEASE_PATH)
    try:
        return None if raw is None else read_lease(raw)
    except UnreadableLeaseError:
        return None
