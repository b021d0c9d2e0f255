"""Every node drifted at once: how long until all are right, beside the bare client and two usual operators.

The operator is at rest and is stopped (SIGSTOP); the runtime label of every node is made wrong; it is
continued (SIGCONT), and a watch tells when every label is right again. Then all nodes are made wrong once
more, and the bare client sends the operator's own requests: the floor, a minute away from the figure that it
is compared with. Each run starts a new operator, since a mark put wrong three times in ten minutes is left
alone.
"""

import time
from collections import Counter
from dataclasses import dataclass
from typing import Final

from bench.options import Options
from bench.processes import await_rest
from bench.report import Figure, Series
from bench.scene import Scene, scene
from bench.subjects import NAIVE, OURS, TEXTBOOK, WHOLE_STREAM, Subject, running

NAME: Final = "mass drift"

_KOPF: Final = "kopf.zalando.org/"
_LAST_HANDLED: Final = f"{_KOPF}last-handled-configuration"
# Long enough for the second look that the operator takes at each node after ten clean seconds.
_AFTERMATH_SECONDS: Final = 12.0
_GOAL_RATIO: Final = 1.5
_GOAL_MIB: Final = 200.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """One run.

    Attributes:
        ready: seconds from its start until it was ready; 0 for an operator that does not tell.
        seconds: from SIGCONT until the last label was right.
        floor: the bare client's seconds for the same.
        floor_cpu: the bare client's CPU seconds.
        all_cpu: CPU seconds of operator, API server and etcd until the last label was right.
        floor_all_cpu: CPU seconds of bare client, API server and etcd for the same.
        cpu: the operator's CPU seconds until then.
        cpu_after: and until it had come to rest.
        start_cpu: its CPU seconds from its start until it was at rest.
        peak: its peak memory since its start in MiB.
        patches: PATCHes of Nodes, until it had come to rest.
        failed: answers of 400 and above to anybody in that time.
        annotated: nodes with an annotation of Kopf's.
    """

    ready: float
    seconds: float
    floor: float
    floor_cpu: float
    all_cpu: float
    floor_all_cpu: float
    cpu: float
    cpu_after: float
    start_cpu: float
    peak: float
    patches: int
    failed: int
    annotated: int


def measure(options: Options) -> list[Figure]:
    """Measure the operator with and without its slim stream, and the two usual ones."""
    series = Series(NAME)
    with scene(options.nodes) as staged:
        for run in range(options.runs):
            for subject in (OURS, WHOLE_STREAM, NAIVE, TEXTBOOK):
                options.tell(f"run {run + 1} of {options.runs}: {subject.name}")
                take(series, subject.name, subject, repair(staged, subject, f"wrong-{run}"), options.nodes)
    return series.figures()


def take(series: Series, label: str, subject: Subject, done: Repair, nodes: int) -> None:
    """Add the figures of one run."""
    goals = subject is OURS
    ratio = done.seconds / done.floor
    series.add(label, "time / bare client's time", ratio, at_most=_GOAL_RATIO if goals else None)
    series.add(label, "CPU of all / bare client's CPU of all", done.all_cpu / done.floor_all_cpu)
    series.add(label, "time until all are right", done.seconds, unit="s")
    series.add(label, "bare client's time", done.floor, unit="s")
    series.add(label, "bare client's CPU", done.floor_cpu, unit="s")
    series.add(label, "bare client's CPU of all", done.floor_all_cpu, unit="s")
    series.add(label, "CPU of all until all are right", done.all_cpu, unit="s")
    series.add(label, "CPU until all are right", done.cpu, unit="s")
    series.add(label, "CPU until at rest", done.cpu_after, unit="s")
    series.add(label, "CPU of its start", done.start_cpu, unit="s")
    series.add(label, "peak RSS", done.peak, unit="MiB", at_most=_GOAL_MIB if goals else None)
    series.add(label, "PATCHes per node", done.patches / nodes, at_most=1.0 if goals else None)
    series.add(label, "failed requests", done.failed, at_most=0.0 if goals else None)
    series.add(label, "nodes left with a Kopf annotation", done.annotated, at_most=0.0 if goals else None)


def repair(staged: Scene, subject: Subject, value: str) -> Repair:
    """One run of ``subject``, and of the bare client after it."""
    with running(staged, subject) as operator:
        ready = operator.await_ready() if subject.ours else 0.0
        operator.settle()
        start_cpu = operator.cpu
        operator.program.pause()
        staged.drift(value)
        before = staged.requests()
        seconds, server_cpu = staged.await_right(operator.program)
        cpu = operator.cpu - start_cpu
        time.sleep(_AFTERMATH_SECONDS)
        await_rest(operator.program)
        cpu_after, peak = operator.cpu - start_cpu, operator.peak
        sent = staged.requests() - before
    annotated = staged.annotated(_KOPF)
    if annotated:
        staged.unannotate(annotated, _LAST_HANDLED)
    floor, floor_server_cpu = staged.floor(f"{value}-again")
    return Repair(
        ready=ready,
        seconds=seconds,
        floor=floor.seconds,
        floor_cpu=floor.cpu,
        all_cpu=cpu + server_cpu,
        floor_all_cpu=floor.cpu + floor_server_cpu,
        cpu=cpu,
        cpu_after=cpu_after,
        start_cpu=start_cpu,
        peak=peak,
        patches=_node_patches(sent),
        failed=sum(count for (*_, code), count in sent.items() if code >= "400"),
        annotated=len(annotated),
    )


def _node_patches(sent: Counter[tuple[str, str, str, str]]) -> int:
    return sum(count for (verb, resource, *_), count in sent.items() if (verb, resource) == ("PATCH", "nodes"))
