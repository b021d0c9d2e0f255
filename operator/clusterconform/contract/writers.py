"""Who wrote a field last, and when: the API server's own record in ``metadata.managedFields``."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from clusterconform.contract.objects import Path
from clusterconform.contract.times import parse_time


@dataclass(frozen=True, slots=True)
class Writer:
    """One entry of the record.

    Attributes:
        manager: The name under which somebody writes, such as ``kubectl-label``.
        at: When that writer last changed anything that it owns.
    """

    manager: str
    at: datetime


def managed_fields(manifest: Any) -> list[Mapping[str, Any]]:
    """The entries of the record in ``manifest``, JSON values; those that are none are left out."""
    metadata = manifest.get("metadata") if isinstance(manifest, Mapping) else None
    entries = metadata.get("managedFields") if isinstance(metadata, Mapping) else None
    return [entry for entry in entries if isinstance(entry, Mapping)] if isinstance(entries, list) else []


def last_writer(manifest: Any, path: Path) -> Writer | None:
    """Who wrote the field at ``path`` of ``manifest`` last; None where nothing tells, as of an absent field."""
    found = [
        Writer(str(entry.get("manager") or ""), at)
        for entry in managed_fields(manifest)
        if (at := parse_time(entry.get("time"))) is not None and _owns(entry.get("fieldsV1"), path)
    ]
    return max(found, key=lambda writer: writer.at, default=None)


def _owns(fields: Any, path: Path) -> bool:
    for part in path:
        fields = fields.get(f"f:{part}") if isinstance(fields, Mapping) else None
    return fields is not None
