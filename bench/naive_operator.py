"""The operator that everybody writes first: Kopf, one handler, ten lines. Measured for comparison."""

from typing import Any

import kopf


@kopf.on.event("nodes")
async def keep_the_label(labels: kopf.Labels, patch: kopf.Patch, **_: Any) -> None:
    """Put the runtime label right."""
    wanted = "agent" if labels.get("outpost.dhnt.io/backend") == "k3s" else "virtual"
    if labels.get("outpost.dhnt.io/runtime") != wanted:
        patch.metadata.labels["outpost.dhnt.io/runtime"] = wanted
