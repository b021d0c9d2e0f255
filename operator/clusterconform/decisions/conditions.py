"""Our condition on a node: what it should read, and when it is worth a write.

1. True after 10 s without findings: a repair costs one patch and not a second write for each step of it.
2. False at once where we may not or cannot repair; for a drift that we can repair only when it outlives 30 s.
3. Unknown, once, when no profile keeps the node to its contract any more; never on a node without it.
4. The transition time moves only with the status. Status, reason and message are compared, times are not.
"""

from typing import Final

from clusterconform.contract.facts import NodeFacts
from clusterconform.contract.plan import ConditionWrite
from clusterconform.contract.profile import RuntimeProfile
from clusterconform.contract.times import Moment
from clusterconform.contract.verdicts import ADVICE, Finding, Reason

CLEAN_SECONDS: Final = 10.0
DRIFT_SECONDS: Final = 30.0
# A message is read by people and stored on every node: enough for every finding of one node, and no more.
_MESSAGE_LENGTH: Final = 1024


def conforming(
    node: NodeFacts, profile: RuntimeProfile, advice: list[Finding], now: Moment
) -> ConditionWrite | None:
    """The write that makes the condition True, or None where it reads so already."""
    message = f"carries the labels and the taint of RuntimeProfile {profile.backend}"
    return _write(node, "True", Reason.CONFORMS, "; ".join([message, *(seen.message for seen in advice)]), now)


def failing(node: NodeFacts, findings: list[Finding], now: Moment) -> ConditionWrite | None:
    """The write that makes the condition False for ``findings``, or None where it reads so already."""
    first = next(seen for seen in findings if seen.reason not in ADVICE)
    return _write(node, "False", first.reason, "; ".join(seen.message for seen in findings), now)


def released(node: NodeFacts, why: str, now: Moment) -> ConditionWrite | None:
    """The one write to Unknown; None where the condition is absent or reads Unknown already."""
    seen = node.conformant
    if seen is None or (seen.status, seen.reason) == ("Unknown", Reason.NOT_ENFORCED):
        return None
    return _write(node, "Unknown", Reason.NOT_ENFORCED, why, now)


def _write(node: NodeFacts, status: str, reason: str, message: str, now: Moment) -> ConditionWrite | None:
    seen = node.conformant
    message = message[:_MESSAGE_LENGTH]
    if seen is not None and (seen.status, seen.reason, seen.message) == (status, reason, message):
        return None
    same_status = seen is not None and seen.status == status
    transition = seen.transition if seen is not None and same_status else None
    return ConditionWrite(
        status=status,
        reason=reason,
        message=message,
        transition=transition or now.wall,
        heartbeat=now.wall,
    )
