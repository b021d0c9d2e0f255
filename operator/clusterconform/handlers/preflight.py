"""Before anything starts: is there what we need? Each missing thing is one sentence and exit code 2."""

import logging
from collections.abc import Mapping
from typing import Any, Final

from clusterconform.contract.names import CRD_NAME, NAMESPACE, VERSION
from clusterconform.effects.cluster import Cluster, answered
from clusterconform.effects.errors import ApiError, NotFoundError

log = logging.getLogger(__name__)

_CRD_PATH: Final = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{CRD_NAME}"

WRITTEN_PATHS: Final = (
    "status.observedGeneration",
    "status.servesKubeletStreaming",
    "status.conditions.observedGeneration",
    "status.nodes.total",
    "status.nodes.conformant",
    "status.nodes.drifted",
    "status.nodes.conflicting",
    "status.nodes.contested",
    "status.nodes.notReady",
    "status.nodes.unidentified",
    "status.nodes.stale",
    "status.nodeGC.lastPass",
    "status.nodeGC.approved",
    "status.nodeGC.lastDoubt",
    "status.nodeGC.held.until",
    "status.nodeGC.settings.requireFence",
    "status.runtimeProbe.held",
    "status.addressReconcile.realExternalIPs",
    "status.streaming.notTried",
    "status.samples.message",
    "status.truncated",
    "spec.providerTaintValue",
    "spec.enforcement",
    "spec.adopt",
    "spec.nodeGC.requireFence",
    "spec.runtimeProbe.maxUnavailablePercent",
    "spec.addressReconcile.verifyStreaming",
)
"""What we write to a profile, and the newest of what we read; a schema without one is older than us."""


class NotReadyError(Exception):
    """The cluster lacks something that only a person can bring; one sentence that says what to do."""


async def check(cluster: Cluster) -> None:
    """Wait until the API server answers, then make sure of the namespace and the CRD.

    Raises:
        NotReadyError: One of them is missing, too old, or must not be read by us.
    """

    def tell(why: str) -> None:
        log.warning("waiting for the API server", extra={"fields": {"error": why}})

    try:
        await answered(cluster, f"/api/v1/namespaces/{NAMESPACE}", tell)
    except NotFoundError as error:
        message = f"namespace {NAMESPACE} is missing; create it with: kubectl apply -f deploy/base/namespace.yaml"
        raise NotReadyError(message) from error
    except ApiError as error:
        raise NotReadyError(f"namespace {NAMESPACE} cannot be read: {error}") from error
    try:
        crd = await answered(cluster, _CRD_PATH, tell)
    except NotFoundError as error:
        message = f"CRD {CRD_NAME} is missing; apply it with: kubectl apply -f crds/runtimeprofiles.yaml"
        raise NotReadyError(message) from error
    except ApiError as error:
        raise NotReadyError(f"CRD {CRD_NAME} cannot be read: {error}") from error
    missing = missing_paths(crd)
    if missing:
        message = (
            f"CRD {CRD_NAME} is older than this program (it lacks {', '.join(missing)}); "
            "apply the one that came with it: kubectl apply -f crds/runtimeprofiles.yaml"
        )
        raise NotReadyError(message)


def missing_paths(crd: Mapping[str, Any]) -> list[str]:
    """Those of ``WRITTEN_PATHS`` that the served schema of ``crd`` lacks."""
    spec = crd.get("spec") or {}
    served = [seen for seen in spec.get("versions") or () if seen.get("name") == VERSION and seen.get("served")]
    if not served:
        return [f"version {VERSION}"]
    schema = (served[0].get("schema") or {}).get("openAPIV3Schema") or {}
    return [path for path in WRITTEN_PATHS if not _has(schema, path.split("."))]


def _has(schema: Mapping[str, Any], path: list[str]) -> bool:
    for name in path:
        node = schema.get("items") or schema
        schema = (node.get("properties") or {}).get(name) or {}
        if not schema:
            return False
    return True
