"""What a reaping pass tells of itself: for status, metrics, the log and ``simulate``."""

from dataclasses import dataclass

from clusterconform.contract.reaping import Held, ReapingMemory
from clusterconform.contract.verdicts import Reason
from clusterconform.decisions.fleet import Admission, Survey
from clusterconform.decisions.ledger import LedgerLine
from clusterconform.decisions.trust import Trust


@dataclass(frozen=True, slots=True, kw_only=True)
class PassReport:
    """What a pass did.

    Attributes:
        refused: The guard that refused, or None; with nothing stale none is asked (contract §3.3, step 5).
        standing: What the guards say, also where nothing is stale: whether a deletion would be allowed.
        error: What ended the pass early, or None.
        error_reason: Its reason, or None.
        deleted: Names in order; in a dry run those that would have been.
        held: Candidates that were not.
        survey: The fleet as judged.
        lines: The ledger lines written.
        spent: Deletions that count in this window, those without a known outcome included.
        budget_left: Deletions left in it.
        trust: The trust afterwards.
        memory: What to remember.
    """

    refused: Reason | None
    standing: Admission
    error: str | None
    error_reason: Reason | None
    deleted: tuple[str, ...]
    held: tuple[Held, ...]
    survey: Survey
    lines: tuple[LedgerLine, ...]
    spent: int
    budget_left: int
    trust: Trust
    memory: ReapingMemory
