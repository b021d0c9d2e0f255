"""Where the agents stand, for the profile's status: endpoints, probes, and the proven paths to kubelets.

1. ``AddressesPublished`` is False while an agent lacks its endpoint or is withheld; a ghost is no reason, since it
   gave its endpoint up. Where mode Pinned lacks its policy it is False too: the addresses are there, but flicker.
2. ``ProbeHealthy`` is False while a runtime is unavailable, too many would be, or the probe cannot be kept.
3. ``StreamingVerified`` is False while one path is known not to work; what was not tried is no reason.
4. What is switched off, or not known yet, is Unknown.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from clusterconform.contract.settings import AddressMode, AddressReconcile, ProbeMode, RuntimeProbe
from clusterconform.contract.verdicts import Finding, Reason
from clusterconform.decisions.sandbox import ProbeVerdict, Runtime

Result = tuple[str, Finding]
_WITHHELD = (Reason.PORT_COLLISION, Reason.GHOST, Reason.ADDRESSES_EXHAUSTED)
_WORDS_LENGTH = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStanding:
    """What is known of the agents of one profile.

    Attributes:
        addressing: Settings of addresses.
        probing: Settings of the probe.
        endpoints: How many agents there are by where their endpoint stands.
        real: How many carry an ExternalIP that is not ours.
        unpinned: What mode Pinned lacks; empty where it lacks nothing.
        runtimes: How many agents there are by what their probe says.
        causes: How many there are by the cause of that.
        held: How many are not tainted because too many would be.
        trouble: Why the probe cannot be kept.
        streaming: How many there are by what came of reading a log; None where that is not done.
        words: Of one that could not be read, the API server's words.
    """

    addressing: AddressReconcile
    probing: RuntimeProbe
    endpoints: Mapping[Reason, int] = field(default_factory=dict)
    real: int = 0
    unpinned: str = ""
    runtimes: Mapping[Runtime, int] = field(default_factory=dict)
    causes: Mapping[Reason, int] = field(default_factory=dict)
    held: int = 0
    trouble: Finding | None = None
    streaming: Mapping[Reason, int] | None = None
    words: str = ""


def count_probes(verdicts: Iterable[ProbeVerdict]) -> tuple[Mapping[Runtime, int], Mapping[Reason, int], int]:
    """How many ``verdicts`` there are by runtime, by cause, and how many are held."""
    runtimes: dict[Runtime, int] = {}
    causes: dict[Reason, int] = {}
    held = 0
    for verdict in verdicts:
        runtimes[verdict.runtime] = runtimes.get(verdict.runtime, 0) + 1
        causes[verdict.cause.reason] = causes.get(verdict.cause.reason, 0) + 1
        held += verdict.held
    return runtimes, causes, held


def results_of(standing: AgentStanding, *, complete: bool) -> Mapping[str, Result]:
    """The three conditions, by type."""
    if not complete:
        unknown = Finding(Reason.EVIDENCE_INCOMPLETE, "not all nodes and profiles are known yet")
        return dict.fromkeys(("ProbeHealthy", "AddressesPublished", "StreamingVerified"), ("Unknown", unknown))
    return {
        "ProbeHealthy": _probe_healthy(standing),
        "AddressesPublished": _addresses_published(standing),
        "StreamingVerified": _streaming_verified(standing),
    }


def blocks_of(standing: AgentStanding) -> Mapping[str, Any]:
    """The counts as they stand in the status."""
    endpoints, runtimes = standing.endpoints, standing.runtimes
    withheld = sum(endpoints.get(reason, 0) for reason in _WITHHELD)
    published = endpoints.get(Reason.ENDPOINT_PUBLISHED, 0)
    total = sum(endpoints.values())
    blocks: dict[str, Any] = {
        "addressReconcile": {
            "agents": total,
            "published": published,
            "withheld": withheld,
            "missing": total - published - withheld - endpoints.get(Reason.SWITCHED_OFF, 0),
            "realExternalIPs": standing.real,
        },
        "runtimeProbe": {
            "agents": sum(runtimes.values()),
            "ready": runtimes.get(Runtime.READY, 0),
            "unavailable": runtimes.get(Runtime.UNAVAILABLE, 0),
            "undecided": runtimes.get(Runtime.NONE, 0),
            "held": standing.held,
        },
    }
    if standing.streaming is not None:
        verified = standing.streaming.get(Reason.STREAMING_VERIFIED, 0)
        untried = standing.streaming.get(Reason.NOT_TRIED, 0)
        blocks["streaming"] = {
            "verified": verified,
            "notVerified": sum(standing.streaming.values()) - verified - untried,
            "notTried": untried,
        }
    return blocks


def _addresses_published(standing: AgentStanding) -> Result:
    if standing.addressing.mode is AddressMode.OFF:
        return "Unknown", Finding(Reason.SWITCHED_OFF, "addressReconcile.mode is Off")
    counts = standing.endpoints
    total, published = sum(counts.values()), counts.get(Reason.ENDPOINT_PUBLISHED, 0)
    ghosts = counts.get(Reason.GHOST, 0)
    if total == 0:
        return "True", Finding(Reason.NO_NODES, "there is no agent")
    message = f"{published} of {total} agents show their endpoint{_listed(counts, Reason.ENDPOINT_PUBLISHED)}"
    if published + ghosts < total:
        return "False", Finding(Reason.ENDPOINTS_NOT_PUBLISHED, message)
    if standing.unpinned:
        needs = "mode Pinned goes on as Status; its policy needs Kubernetes 1.36 or newer"
        words = f"{needs}: {standing.unpinned[:_WORDS_LENGTH]}"
        return "False", Finding(Reason.PINNING_POLICY_MISSING, words)
    return "True", Finding(Reason.ENDPOINT_PUBLISHED, message)


def _probe_healthy(standing: AgentStanding) -> Result:
    if standing.probing.mode is ProbeMode.OFF:
        return "Unknown", Finding(Reason.SWITCHED_OFF, "runtimeProbe.mode is Off")
    if standing.trouble is not None:
        message = standing.trouble.message[:_WORDS_LENGTH]
        return "False", Finding(standing.trouble.reason, f"the probe's DaemonSet cannot be kept: {message}")
    runtimes = standing.runtimes
    total, ready = sum(runtimes.values()), runtimes.get(Runtime.READY, 0)
    if total == 0:
        return "True", Finding(Reason.NO_NODES, "there is no agent")
    message = f"{ready} of {total} agents have a Ready probe{_listed(standing.causes, Reason.RUNTIME_READY)}"
    if runtimes.get(Runtime.UNAVAILABLE, 0):
        many = Finding(Reason.MASS_UNAVAILABLE, f"{standing.held} more would be tainted; {message}")
        return "False", many if standing.held else Finding(Reason.RUNTIMES_UNAVAILABLE, message)
    if not ready:
        return "Unknown", Finding(Reason.NO_PROBE, message)
    return "True", Finding(Reason.RUNTIME_READY, message)


def _streaming_verified(standing: AgentStanding) -> Result:
    if standing.streaming is None:
        return "Unknown", Finding(Reason.SWITCHED_OFF, "verifyStreaming is false, or the probe is off")
    counts = standing.streaming
    total, verified = sum(counts.values()), counts.get(Reason.STREAMING_VERIFIED, 0)
    untried = counts.get(Reason.NOT_TRIED, 0)
    message = f"{verified} of {total} agents verified{_listed(counts, Reason.STREAMING_VERIFIED)}"
    if verified + untried < total:
        words = f"; such as: {standing.words[:_WORDS_LENGTH]}" if standing.words else ""
        return "False", Finding(Reason.STREAMING_NOT_VERIFIED, message + words)
    if not verified:
        return "Unknown", Finding(Reason.NOT_TRIED, message)
    return "True", Finding(Reason.STREAMING_VERIFIED, message)


def _listed(counts: Mapping[Reason, int], good: Reason) -> str:
    others = [f"{count} {reason}" for reason, count in sorted(counts.items()) if reason is not good and count]
    return f" ({', '.join(others)})" if others else ""
