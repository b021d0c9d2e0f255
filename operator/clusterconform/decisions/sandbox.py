"""Can this agent start a container sandbox? The verdict of its probe pod, and the marks that follow.

1. One pod speaks for a node: any Ready one (the last of them), else the oldest (contract §4.4). A pod that is
   being deleted, or was never scheduled, does not speak.
2. No pod, no verdict; and a node that is not Ready shows old words, so they count neither for nor against it.
3. A Ready pod: the runtime works.
4. A pod that is not Ready counts after ``grace``, from its Ready condition's last transition and not from its
   creation: an old pod gets its grace like a new one. Without any time there is no verdict.
5. A cordoned node, a pod that waits for its image: no evidence about the runtime; the cause is named.
6. A verdict is put on the node when it has held for ``stabilization``, as we saw it.
7. When more than ``maxUnavailablePercent`` of the agents would be tainted, no further one is: a bad image or a
   broken network is likelier. A single node is never held by it, as with reaping's breaker (contract §3.1), except
   at 0, which taints none.
8. Marks (contract §4.3): ready means label true, no taint of our key, no reason; unavailable means label false,
   exactly one taint of our key (the API server refuses two alike, D24) and the reason. Other taints stay.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from clusterconform.contract.facts import NodeFacts, Taint, marks_listed
from clusterconform.contract.memory import NodeMemory
from clusterconform.contract.names import (
    RUNTIME_READY_LABEL,
    UNAVAILABLE_REASON,
    UNAVAILABLE_REASON_ANNOTATION,
    UNAVAILABLE_TAINT_EFFECT,
    UNAVAILABLE_TAINT_KEY,
    UNAVAILABLE_TAINT_VALUE,
)
from clusterconform.contract.plan import (
    PROBE_MARKS,
    RUNTIME_READY_MARK,
    UNAVAILABLE_REASON_MARK,
    UNAVAILABLE_TAINT_MARK,
)
from clusterconform.contract.probe import ProbeFacts
from clusterconform.contract.settings import RuntimeProbe
from clusterconform.contract.times import Moment, format_time
from clusterconform.contract.verdicts import Finding, Reason
from clusterconform.decisions.conformance import Drift

FLOOR: Final = 2
# What the kubelet says while an image is on its way or cannot be had.
_PULLING: Final = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "InvalidImageName",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)


class Runtime(StrEnum):
    """What the probe says of a node's container runtime."""

    READY = "ready"
    UNAVAILABLE = "unavailable"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeVerdict:
    """The probe's word about one node.

    Attributes:
        runtime: Ready, unavailable, or no verdict.
        cause: Why, in a word and a sentence.
        held: Whether it would be tainted, were there not too many.
        recheck_after: Seconds after which time alone may change it; None for never.
        pod: The pod that speaks for the node; empty where none does.
    """

    runtime: Runtime
    cause: Finding
    held: bool = False
    recheck_after: float | None = None
    pod: str = ""


def pick(pods: Iterable[ProbeFacts]) -> ProbeFacts | None:
    """The pod that speaks for a node, of ``pods`` in list order (rule 1)."""
    picked: ProbeFacts | None = None
    for pod in pods:
        if not pod.scheduled or pod.terminating:
            continue
        if picked is None or _is_ready(pod) or (not _is_ready(picked) and _is_older(pod, picked)):
            picked = pod
    return picked


def judge(node: NodeFacts, pods: Iterable[ProbeFacts], settings: RuntimeProbe, now: datetime) -> ProbeVerdict:
    """The verdict on ``node`` by its probe ``pods`` at ``now`` (rules 1 to 5)."""
    seen = list(pods)
    pod = pick(seen)
    # A node without the condition was never judged by anybody; it counts as the contract has it, by its pod.
    if node.ready is not None and node.ready.status != "True":
        return _none(Reason.NODE_NOT_READY, "the node is not Ready, so its probe may show old words")
    if pod is None:
        return _silent(seen)
    if _is_ready(pod):
        cause = Finding(Reason.RUNTIME_READY, "the probe pod is Ready")
        return ProbeVerdict(runtime=Runtime.READY, cause=cause, pod=pod.name)
    return replace(_judge_unready(node, pod, settings, now), pod=pod.name)


def _silent(pods: list[ProbeFacts]) -> ProbeVerdict:
    if any(pod.terminating for pod in pods):
        return _none(Reason.PROBE_TERMINATING, "the probe pod is being deleted")
    if pods:
        return _none(Reason.PROBE_UNSCHEDULED, "the probe pod has not been scheduled")
    return _none(Reason.NO_PROBE, "no probe pod on the node")


def _judge_unready(node: NodeFacts, pod: ProbeFacts, settings: RuntimeProbe, now: datetime) -> ProbeVerdict:
    if node.unschedulable:
        return _none(Reason.NODE_UNSCHEDULABLE, "the node is cordoned")
    pulling = sorted(set(pod.waiting) & _PULLING)
    if pulling:
        return _none(Reason.IMAGE_PULL_FAILING, f"the probe's image cannot be pulled: {pulling[0]}")
    times = [pod.created_at, pod.ready.transition if pod.ready else None]
    since = max((time for time in times if time is not None), default=None)
    if pod.created_at is None or since is None:
        return _none(Reason.PROBE_UNDATABLE, "since when the probe pod is not Ready cannot be told")
    left = (since + timedelta(seconds=settings.grace.seconds) - now).total_seconds()
    if left > 0:
        starting = _none(Reason.PROBE_STARTING, f"the probe pod is not Ready for less than {settings.grace.text}")
        return replace(starting, recheck_after=left)
    cause = Finding(Reason.RUNTIME_UNAVAILABLE, f"{UNAVAILABLE_REASON}{_words(pod)}")
    return ProbeVerdict(runtime=Runtime.UNAVAILABLE, cause=cause)


def is_marked(node: NodeFacts) -> bool:
    """Whether ``node`` carries a taint of our key."""
    return any(taint.key == UNAVAILABLE_TAINT_KEY for taint in node.taints or ())


def would_be_tainted(node: NodeFacts, verdict: ProbeVerdict) -> bool:
    """Whether ``node`` is tainted once ``verdict`` is put on it; no verdict leaves it as it is."""
    return verdict.runtime is Runtime.UNAVAILABLE or (verdict.runtime is Runtime.NONE and is_marked(node))


def too_many(tainted: int, agents: int, settings: RuntimeProbe) -> bool:
    """Whether ``tainted`` of ``agents`` is more than may be (rule 7)."""
    percent = settings.max_unavailable_percent
    return tainted * 100 > percent * agents and (tainted >= FLOOR or percent == 0)


def held(node: NodeFacts, verdict: ProbeVerdict, tainted: int, agents: int) -> ProbeVerdict:
    """``verdict`` as it is while too many would be tainted: what is tainted already stays so."""
    if verdict.runtime is not Runtime.UNAVAILABLE or is_marked(node):
        return verdict
    message = f"{tainted} of {agents} agents would be tainted, which is too many; {verdict.cause.message}"
    return replace(verdict, held=True, cause=Finding(Reason.MASS_UNAVAILABLE, message))


def stabilized(
    verdict: ProbeVerdict, memory: NodeMemory, settings: RuntimeProbe, uptime: float
) -> tuple[bool, NodeMemory, float | None]:
    """Whether ``verdict`` has held for long enough (rule 6), the memory, and seconds to wait."""
    if verdict.runtime is Runtime.NONE:
        return False, memory if memory.probe is None else replace(memory, probe=None), None
    if memory.probe is None or memory.probe[0] != verdict.runtime:
        # What we write for another verdict is no quarrel with another writer.
        repairs = {mark: times for mark, times in memory.repairs.items() if mark not in PROBE_MARKS}
        memory = replace(memory, probe=(verdict.runtime.value, uptime), repairs=repairs)
    since = memory.probe[1] if memory.probe else uptime
    left = since + settings.stabilization.seconds - uptime
    return (True, memory, None) if left <= 0 else (False, memory, left)


def drifts_of(node: NodeFacts, verdict: ProbeVerdict, now: Moment) -> list[Drift]:
    """What of the marks on ``node`` is not as ``verdict`` wants it (rule 8)."""
    if verdict.runtime is Runtime.NONE or verdict.held:
        return []
    ready = verdict.runtime is Runtime.READY
    found = []
    label = "true" if ready else "false"
    if node.labels.get(RUNTIME_READY_LABEL) != label:
        found.append(_drift(RUNTIME_READY_MARK, verdict, label=(RUNTIME_READY_LABEL, label)))
    ours = [taint for taint in node.taints or () if taint.key == UNAVAILABLE_TAINT_KEY]
    if ready and ours:
        found.append(_drift(UNAVAILABLE_TAINT_MARK, verdict, released=True))
    if not ready and [(taint.value, taint.effect) for taint in ours] != [_VALUE_AND_EFFECT]:
        added = ours[0].time_added if ours else format_time(now.wall)
        wanted = Taint(UNAVAILABLE_TAINT_KEY, UNAVAILABLE_TAINT_VALUE, UNAVAILABLE_TAINT_EFFECT, added)
        found.append(_drift(UNAVAILABLE_TAINT_MARK, verdict, taint=wanted))
    reason = None if ready else UNAVAILABLE_REASON
    if node.annotations.get(UNAVAILABLE_REASON_ANNOTATION) != reason:
        annotation = (UNAVAILABLE_REASON_ANNOTATION, reason)
        found.append(_drift(UNAVAILABLE_REASON_MARK, verdict, annotation=annotation, released=ready))
    return found


def leftovers_of(node: NodeFacts) -> list[Drift]:
    """The marks on ``node`` to be taken back where it is not probed any more: those that our annotation lists."""
    verdict = _none(Reason.MARK_UNWANTED, "the node is not probed any more")
    listed = marks_listed(node)
    found = []
    if RUNTIME_READY_MARK in listed:
        found.append(_drift(RUNTIME_READY_MARK, verdict, label=(RUNTIME_READY_LABEL, None), released=True))
    if UNAVAILABLE_TAINT_MARK in listed:
        found.append(_drift(UNAVAILABLE_TAINT_MARK, verdict, released=True))
    if UNAVAILABLE_REASON_MARK in listed:
        annotation = (UNAVAILABLE_REASON_ANNOTATION, None)
        found.append(_drift(UNAVAILABLE_REASON_MARK, verdict, annotation=annotation, released=True))
    return found


def with_unavailable_taint(taints: tuple[Taint, ...], wanted: Taint | None) -> tuple[Taint, ...]:
    """``taints`` with the one of our key as ``wanted``, in its old place or last; all others untouched."""
    kept: list[Taint] = []
    for taint in taints:
        if taint.key != UNAVAILABLE_TAINT_KEY:
            kept.append(taint)
        elif wanted is not None and wanted not in kept:
            kept.append(wanted)
    return tuple(kept) if wanted is None or wanted in kept else (*kept, wanted)


_VALUE_AND_EFFECT: Final = (UNAVAILABLE_TAINT_VALUE, UNAVAILABLE_TAINT_EFFECT)


def _drift(
    mark: str,
    verdict: ProbeVerdict,
    *,
    label: tuple[str, str | None] | None = None,
    annotation: tuple[str, str | None] | None = None,
    taint: Taint | None = None,
    released: bool = False,
) -> Drift:
    return Drift(
        mark=mark,
        finding=verdict.cause,
        label=label,
        annotation=annotation,
        taint=taint,
        ours=not released,
        released=released,
    )


def _none(reason: Reason, message: str) -> ProbeVerdict:
    return ProbeVerdict(runtime=Runtime.NONE, cause=Finding(reason, message))


def _words(pod: ProbeFacts) -> str:
    words = [word for word in pod.waiting if word]
    return f" ({words[0]})" if words else ""


def _is_ready(pod: ProbeFacts) -> bool:
    return pod.ready is not None and pod.ready.status == "True"


def _is_older(pod: ProbeFacts, other: ProbeFacts) -> bool:
    # Without a creation time a pod counts as the oldest (contract §4.4), and then yields no verdict.
    if other.created_at is None:
        return False
    return pod.created_at is None or pod.created_at < other.created_at
