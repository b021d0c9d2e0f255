"""Does the path to a kubelet work? What reading one line of its probe pod's log tells.

1. A log that could be read, even an empty one, proves the whole path: address, port, tunnel, certificate.
2. Where it could not, the API server's own words tell at which step, and are kept.
3. Each node is tried at most once in 10 minutes, spread over that time by its name, and again at once when the
   endpoint that is published for it has changed, or its probe pod.
4. "No address" is asked once more before it is believed: in mode Status the kubelet takes it away for a moment.

Nothing follows from it but words: it never taints and never takes anything away.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from clusterconform.contract.verdicts import Finding, Reason
from clusterconform.decisions.derivation import fnv1a

PERIOD_SECONDS: Final = 600.0
AGAIN_SECONDS: Final = 2.0
_SPREAD_SECONDS: Final = 60
_WORDS_LENGTH: Final = 300
# In this order: a refused connection may be told within a 502, a certificate within a failed dial.
_SIGNS: Final[tuple[tuple[Reason, tuple[str, ...]], ...]] = (
    (Reason.NO_PREFERRED_ADDRESS, ("no preferred addresses found",)),
    (Reason.CERTIFICATE_REFUSED, ("x509:", "certificate", "tls:")),
    (Reason.CONNECTION_REFUSED, ("connection refused",)),
    (Reason.BAD_GATEWAY, ("502", "bad gateway", "failed to find session", "proxy error from")),
    (Reason.TIMED_OUT, ("i/o timeout", "timeout", "deadline exceeded", "timed out")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Whom to try: what the answer depends on.

    Attributes:
        node: Name of the node.
        pod: Its probe pod.
        endpoint: What is published for it; empty where nothing is.
    """

    node: str
    pod: str
    endpoint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The last trial of one node.

    Attributes:
        target: What was tried.
        at: Uptime at which it ended.
        cause: StreamingVerified, or why not, with the API server's words.
    """

    target: Target
    at: float
    cause: Finding

    @property
    def verified(self) -> bool:
        """Whether the path works."""
        return self.cause.reason is Reason.STREAMING_VERIFIED


def verified() -> Finding:
    """The word for a log that could be read."""
    return Finding(Reason.STREAMING_VERIFIED, "a line of its probe's log was read")


def cause_of(words: str) -> Finding:
    """Why a log could not be read, by the API server's own ``words``."""
    low = words.lower()
    reason = next((reason for reason, signs in _SIGNS if any(sign in low for sign in signs)), Reason.LOGS_REFUSED)
    return Finding(reason, words[:_WORDS_LENGTH])


def due_at(target: Target, last: Trial | None) -> float:
    """Uptime at which ``target`` is to be tried again; 0 for now."""
    if last is None or last.target != target:
        return 0.0
    return last.at + PERIOD_SECONDS + fnv1a(target.node) % _SPREAD_SECONDS


def counts(trials: Mapping[str, Trial], agents: int) -> Mapping[Reason, int]:
    """How many of ``agents`` there are by cause."""
    found: dict[Reason, int] = {}
    for trial in trials.values():
        found[trial.cause.reason] = found.get(trial.cause.reason, 0) + 1
    left = agents - len(trials)
    return {**found, Reason.NOT_TRIED: left} if left > 0 else found
