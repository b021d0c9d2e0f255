"""How the fleet does, as the API server tells it: the profiles' status, and our condition on the nodes."""

import http.client
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.text import Text

from clusterconform.contract.names import API_VERSION, CONFORMANT_CONDITION, PLURAL
from clusterconform.sandbox.admin import Admin, RequestRefused

PROFILES: Final = f"/apis/{API_VERSION}/{PLURAL}"
_NODES: Final = "/api/v1/nodes"
_COLUMNS: Final = ("NAME", "CLASS", "NODES", "CONFORMANT", "DRIFTED", "READY")
_GAP: Final = 3
_STYLES: Final = {"True": "green", "False": "yellow"}
_POLL_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One profile as ``kubectl get rtp`` shows it; numbers are None before the first status."""

    name: str
    node_class: str
    nodes: int | None
    conformant: int | None
    drifted: int | None
    ready: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """The condition RuntimeConformant of a node; empty words where there is none."""

    status: str = ""
    reason: str = ""
    message: str = ""


def read_rows(admin: Admin) -> list[Row]:
    """Read all profiles, sorted by name."""
    items = admin.get(PROFILES)["items"]
    return sorted(map(_row, items), key=lambda row: row.name)


def condition_of(node: Mapping[str, Any]) -> Condition:
    """Give the condition RuntimeConformant of a Node object."""
    for entry in node["status"].get("conditions", ()):
        if entry["type"] == CONFORMANT_CONDITION:
            return Condition(status=entry["status"], reason=entry["reason"], message=entry["message"])
    return Condition()


def read_conditions(admin: Admin) -> dict[str, Condition]:
    """Read the condition of every node."""
    return {
        node["metadata"]["name"]: condition_of(node) for node in admin.get(f"{_NODES}?resourceVersion=0")["items"]
    }


def table(rows: Sequence[Row]) -> Text:
    """Draw profiles as ``kubectl get rtp`` does, but for the age."""
    cells = [
        [row.name, row.node_class, *map(_cell, (row.nodes, row.conformant, row.drifted)), row.ready]
        for row in rows
    ]
    widths = [max(map(len, column)) + _GAP for column in zip(_COLUMNS, *cells, strict=True)]
    text = Text("".join(name.ljust(width) for name, width in zip(_COLUMNS, widths, strict=True)).rstrip())
    for line in cells:
        padded = "".join(word.ljust(width) for word, width in zip(line, widths, strict=True))
        text.append("\n" + padded.rstrip(), style=_STYLES.get(line[-1], ""))
    return text


def clause(rows: Sequence[Row]) -> str:
    """Say in one line how many nodes of each profile conform; empty before the first status."""
    known = [row for row in rows if row.nodes is not None]
    return ", ".join(f"{row.name} {row.conformant}/{row.nodes}" for row in known)


class Observer:
    """Reads the profiles again and again on a thread of its own, and tells when they have changed."""

    def __init__(self, admin: Admin, changed: Callable[[list[Row]], None]) -> None:
        """Begin to look; ``changed`` is called on that thread."""
        self.rows: list[Row] = []
        self._admin, self._changed = admin, changed
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="observer", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread. May be called again."""
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.is_set():
            try:
                rows = read_rows(self._admin)
            except (RequestRefused, OSError, http.client.HTTPException):
                # The kind is not known yet, or the API server is away: the last picture stays.
                rows = self.rows
            if rows != self.rows and not self._ended.is_set():
                self.rows = rows
                self._changed(rows)
            self._ended.wait(_POLL_SECONDS)


def _row(item: Mapping[str, Any]) -> Row:
    status = item.get("status") or {}
    counts = status.get("nodes") or {}
    ready = (entry["status"] for entry in status.get("conditions", ()) if entry["type"] == "Ready")
    return Row(
        name=item["metadata"]["name"],
        node_class=item["spec"]["class"],
        nodes=counts.get("total"),
        conformant=counts.get("conformant"),
        drifted=counts.get("drifted"),
        ready=next(ready, ""),
    )


def _cell(value: int | None) -> str:
    return "" if value is None else str(value)
