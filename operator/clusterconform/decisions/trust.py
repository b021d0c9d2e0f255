"""Trust: how long nothing has been doubtful.

After a clock that jumped or a fleet that seemed to die at once, the evidence of the past is worth nothing: the
transition times may be wrong, or stem from an outage that has just ended. So staleness is earned again, on the
monotonic clock: no deletion until ``grace`` has passed since the last cause ended. The number lies beside the
ledger; a restart neither forgives nor resets it, nor does the refusal that it causes. A first install starts
trusted, since ``minUptime`` covers it. What a newer version keeps beside it goes back as it came; a cause of its
own that is not known here is a doubt of now.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec

from clusterconform.contract.verdicts import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """What is remembered.

    Attributes:
        seconds: Monotonic seconds spent leading, synced and with a live stream since the last cause ended.
        cause: The last cause; None where there never was one.
        more: What else is kept there, as it was written.
    """

    seconds: float = 0.0
    cause: Reason | None = None
    more: Mapping[str, msgspec.Raw] = field(default_factory=dict, hash=False)

    def is_earned(self, grace_seconds: float) -> bool:
        """Whether nothing was doubtful for long enough."""
        return self.cause is None or self.seconds >= grace_seconds


class _Stored(msgspec.Struct):
    seconds: float
    cause: str | None = None


def earned(trust: Trust, seconds: float) -> Trust:
    """``trust`` after ``seconds`` without a cause."""
    return replace(trust, seconds=trust.seconds + max(0.0, seconds))


def doubted(cause: Reason, before: Trust = Trust()) -> Trust:
    """Trust after ``cause``."""
    return replace(before, seconds=0.0, cause=cause)


def read_trust(text: str | None) -> Trust:
    """The trust in ``text``; absent means never doubted, unreadable means doubted just now."""
    if not text:
        return Trust()
    more: Mapping[str, msgspec.Raw] = {}
    try:
        found = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        more = {name: value for name, value in found.items() if name not in _Stored.__struct_fields__}
        stored = msgspec.json.decode(text, type=_Stored)
        cause = None if stored.cause is None else Reason(stored.cause)
        return Trust(seconds=max(0.0, stored.seconds), cause=cause, more=more)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return doubted(Reason.LEDGER_UNREADABLE, Trust(more=more))


def write_trust(trust: Trust) -> str:
    """``trust`` as JSON text."""
    return msgspec.json.encode({**trust.more, "seconds": round(trust.seconds, 3), "cause": trust.cause}).decode()
