"""Moments, timestamps as the API server writes them, and durations as Go writes them."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

# RFC 3339 with what real writers send: 0-9 fractional digits, any offset (bug case B36). A space instead of
# the T, or no zone at all, is malformed although ``fromisoformat`` takes both (contract §8.3).
_RFC3339: Final = re.compile(r"(\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?(Z|[+-]\d{2}:\d{2})", re.ASCII)
_DURATION: Final = re.compile(r"(?:[0-9]{1,6}(?:\.[0-9]{1,3})?(?:ms|s|m|h))+", re.ASCII)
_DURATION_PART: Final = re.compile(r"([0-9.]+)(ms|s|m|h)", re.ASCII)
_UNIT: Final = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A point in time as a decision gets it: time is an argument, never read.

    Attributes:
        wall: Wall clock in UTC, for timestamps that others read.
        uptime: Monotonic seconds since the process began to act, for everything that is waited for: the wall
            clock can jump, and a decision about waiting must not.
    """

    wall: datetime
    uptime: float

    def later(self, seconds: float) -> "Moment":
        """The moment ``seconds`` after this one."""
        return Moment(wall=self.wall + timedelta(seconds=seconds), uptime=self.uptime + seconds)


def parse_time(text: object) -> datetime | None:
    """An API timestamp in UTC, or None for anything that is not one (null, empty, garbage); never raises.

    Digits beyond the microsecond are cut off: ``datetime`` holds no more.
    """
    match = _RFC3339.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return None
    base, fraction, zone = match.groups()
    try:
        at = datetime.fromisoformat(base + ("+00:00" if zone == "Z" else zone))
        return at.astimezone(UTC) + timedelta(microseconds=int((fraction or "0").ljust(6, "0")[:6]))
    except (ValueError, OverflowError):
        return None


def format_time(at: datetime) -> str:
    """``at`` in the API server's own form: UTC, whole seconds, trailing Z (metav1.Time)."""
    return at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"


class Duration:
    """A duration as it stands in a profile, such as ``1h30m``; the text is kept as it was written.

    No dataclass, since the model library would then want an object with a field instead of a text.
    """

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        """Take ``text``, or refuse what is no duration.

        Raises:
            ValueError: Not a chain of numbers with the units ms, s, m, h (the same rule as the CRD's).
        """
        if not _DURATION.fullmatch(text) or len(text) > 16:  # noqa: PLR2004 - the CRD's maxLength
            raise ValueError(f"must be a duration such as 90s or 1h30m, not {text[:40]!r}")
        self.text = text

    def __eq__(self, other: object) -> bool:
        """Whether the texts are equal."""
        return isinstance(other, Duration) and self.text == other.text

    def __hash__(self) -> int:
        """By the text."""
        return hash(self.text)

    def __repr__(self) -> str:
        """As it would be written in code."""
        return f"Duration({self.text!r})"

    @property
    def seconds(self) -> float:
        """The length in seconds."""
        # Decimals, or 59.3s0.3s0.4s would not be the minute that it is for the API server.
        parts = _DURATION_PART.findall(self.text)
        return float(sum((Decimal(number) * _UNIT[unit] for number, unit in parts), Decimal(0)))
