"""What a reaping pass asks for, and what it may be told: the pass itself does no I/O.

Each ask is a value; whoever drives the pass answers it (``handlers.reaping`` with the API, ``simulate`` with
files, tests with every fault at every point).
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any


class Trouble(StrEnum):
    """Why a read or a write brought no result."""

    GONE = "gone"
    CHANGED = "changed"
    REFUSED = "refused"
    FORBIDDEN = "forbidden"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Failed:
    """A request that brought no result: why, and in the API server's words."""

    trouble: Trouble
    message: str = ""


@dataclass(frozen=True, slots=True)
class ReadClock:
    """Asks for a Moment."""


@dataclass(frozen=True, slots=True)
class ReadLedger:
    """Asks for a LedgerText, or Failed."""


@dataclass(frozen=True, slots=True)
class SwapLedger:
    """Asks to write text and trust over what was read or swapped last; answered by None, or Failed."""

    text: str
    trust: str


@dataclass(frozen=True, slots=True)
class ReadNode:
    """Asks for a FreshNode, or Failed."""

    name: str


@dataclass(frozen=True, slots=True)
class ReadNodeLease:
    """Asks for LeaseFacts, or Failed."""

    name: str


@dataclass(frozen=True, slots=True)
class DeleteNode:
    """Asks for a DELETE with both preconditions; answered by None, or Failed."""

    name: str
    uid: str
    resource_version: str


@dataclass(frozen=True, slots=True)
class AskFence:
    """Asks whether the admission policy refuses what it must; answered by a bool."""


Ask = ReadClock | ReadLedger | SwapLedger | ReadNode | ReadNodeLease | DeleteNode | AskFence


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerText:
    """The ledger as read.

    Attributes:
        text: The lines.
        trust: The trust's text, None where there is none.
        created_at: When the ledger came to be; None where that is long ago.
    """

    text: str
    trust: str | None
    created_at: datetime | None


Answer = Any
