"""Seeding: the built-in profiles, once.

What was seeded is remembered in ConfigMap ``clusterconform-state``, so a profile deleted on purpose stays
deleted and an edit is never overwritten. Where the memory is absent while any profile exists, somebody else
brought them: nothing is seeded. The memory is written first, then extended by each profile made, so that a
crash in between goes on where it stopped.
"""

import logging
from collections.abc import Iterable
from typing import Any

from clusterconform.contract.names import (
    API_VERSION,
    FIRST_LEDGER_KEY,
    NAMESPACE,
    PLURAL,
    SEEDED_KEY,
    STATE_CONFIGMAP,
)
from clusterconform.contract.request import JSON, Json, Request
from clusterconform.effects.cluster import Cluster
from clusterconform.effects.errors import ConflictError, NotFoundError

log = logging.getLogger(__name__)
_STATE = f"/api/v1/namespaces/{NAMESPACE}/configmaps"


async def seed(cluster: Cluster, manifests: Iterable[Json], present: Iterable[str]) -> list[str]:
    """Create those of ``manifests`` that were never seeded; returns the names of the created ones.

    Args:
        cluster: The API client.
        manifests: The built-in profiles as custom resources.
        present: Names of the profiles that exist.

    Raises:
        ApiError: The API server refused; what was done so far is remembered.
    """
    wanted = {manifest["metadata"]["name"]: manifest for manifest in manifests}
    state = await _state(cluster)
    if state is None:
        first = not any(present)
        state = await _create_state(cluster, set() if first else set(wanted), first=first)
    seeded = {name for name in str((state.get("data") or {}).get(SEEDED_KEY, "")).split(",") if name}
    created = []
    for name in sorted(wanted.keys() - seeded):
        try:
            path = f"/apis/{API_VERSION}/{PLURAL}"
            await cluster.send(Request(method="POST", path=path, content_type=JSON, body=wanted[name]))
            created.append(name)
            log.info("seeded a profile", extra={"fields": {"profile": name}})
        except ConflictError:
            log.info("a profile to be seeded was there already", extra={"fields": {"profile": name}})
        seeded.add(name)
        state = await _remember(cluster, state, seeded)
    return created


async def _state(cluster: Cluster) -> Any | None:
    try:
        return await cluster.get(f"{_STATE}/{STATE_CONFIGMAP}")
    except NotFoundError:
        return None


async def _create_state(cluster: Cluster, seeded: set[str], *, first: bool) -> Any:
    # On a first installation nothing was ever deleted: its ledger is complete (effects.ledger).
    new = {FIRST_LEDGER_KEY: "true"} if first else {}
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": STATE_CONFIGMAP, "namespace": NAMESPACE},
        "data": {SEEDED_KEY: ",".join(sorted(seeded)), **new},
    }
    try:
        await cluster.send(Request(method="POST", path=_STATE, content_type=JSON, body=body))
    except ConflictError:
        log.info("the state was there already", extra={"fields": {"configmap": STATE_CONFIGMAP}})
    return await cluster.get(f"{_STATE}/{STATE_CONFIGMAP}")


async def _remember(cluster: Cluster, state: Any, seeded: set[str]) -> Any:
    """Write ``seeded`` by compare-and-swap; a lost swap surfaces as a conflict and the next start goes on."""
    state = {**state, "data": {**(state.get("data") or {}), SEEDED_KEY: ",".join(sorted(seeded))}}
    path = f"{_STATE}/{STATE_CONFIGMAP}"
    await cluster.send(Request(method="PUT", path=path, content_type=JSON, body=state))
    return await cluster.get(path)
