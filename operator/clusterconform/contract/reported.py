"""What an operator wrote into a profile's status, read back.

The status is read from the API server, where anybody who may write it can have put anything: what has not the
expected shape counts as absent, and nothing here raises.
"""

from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]


def condition_of(status: Json, kind: str) -> Json:
    """The condition of type ``kind`` in ``status``; empty where there is none."""
    return next((seen for seen in rows_of(status, "conditions") if seen.get("type") == kind), {})


def reaping_of(status: Json) -> Json:
    """``status.nodeGC``; empty where there is none."""
    block = status.get("nodeGC")
    return block if isinstance(block, Mapping) else {}


def held_in(status: Json) -> list[Json]:
    """The nodes that the last pass held, one JSON object for each."""
    return rows_of(reaping_of(status), "held")


def held_row(status: Json, node: str) -> Json | None:
    """What the last pass held the node of that name for; None where it did not."""
    return next((row for row in held_in(status) if row.get("name") == node), None)


def rows_of(holder: Json, name: str) -> list[Json]:
    """The JSON objects in the list ``name`` of ``holder``."""
    rows = holder.get(name)
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
