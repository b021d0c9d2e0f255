"""One node drifted while the operator is at rest: how long until it is right again.

From the moment at which the API server has acknowledged the wrong label until a watch tells that the label is
right. One node after the other, each of them once, with a pause between them.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from statistics import quantiles
from typing import Final

import msgspec
from msgspec import Struct

from bench import fleet
from bench.client import get, lines, open_session, send
from bench.options import Options
from bench.report import Figure, Series
from bench.scene import Scene, scene
from bench.subjects import OURS, WHOLE_STREAM, running
from clusterconform.contract.names import RUNTIME_LABEL

NAME: Final = "one drift"

_DRIFTS: Final = 200
_PAUSE_SECONDS: Final = 0.05
_PATIENCE_SECONDS: Final = 30.0
_GOAL_P50: Final = 50.0
_GOAL_P99: Final = 250.0


class _Metadata(Struct):
    name: str = ""
    labels: dict[str, str] = {}


class _Node(Struct):
    metadata: _Metadata


class _Event(Struct):
    object: _Node


_EVENT: Final = msgspec.json.Decoder(_Event)


def measure(options: Options) -> list[Figure]:
    """Drift 200 nodes one after the other, in each run 200 others by a new operator."""
    series = Series(NAME)
    with scene(options.nodes) as staged:
        names = sorted(staged.right)
        for run in range(options.runs):
            first = run * _DRIFTS % len(names)
            chosen = (names + names)[first : first + min(_DRIFTS, len(names))]
            for subject in (OURS, WHOLE_STREAM):
                options.tell(f"run {run + 1} of {options.runs}: {subject.name}")
                with running(staged, subject) as operator:
                    operator.settle()
                    times = asyncio.run(_drift_each(staged, chosen, f"wrong-{run}"))
                percent = quantiles(times, n=100, method="inclusive")
                goals = (_GOAL_P50, _GOAL_P99) if subject is OURS else (None, None)
                for at, goal in zip((50, 99), goals, strict=True):
                    series.add(subject.name, f"p{at}", percent[at - 1], unit="ms", at_most=goal)
                series.add(subject.name, "slowest", max(times), unit="ms")
    return series.figures()


async def _drift_each(staged: Scene, names: Sequence[str], value: str) -> list[float]:
    async with open_session(staged.credentials) as session:
        head = msgspec.json.decode(await get(session, f"{fleet.NODES}?limit=1"))
        version = head["metadata"]["resourceVersion"]
        times = []
        async with session.get(f"{fleet.NODES}?watch=1&resourceVersion={version}") as response:
            events = lines(response)
            for call, name in zip(fleet.drifts(names, value), names, strict=True):
                await asyncio.sleep(_PAUSE_SECONDS)
                right = asyncio.create_task(_await_right(events, name, value, staged.right[name]))
                status, answer = await send(session, call)
                acknowledged = time.monotonic()
                if status != 200:  # noqa: PLR2004 - what HTTP calls success
                    raise RuntimeError(f"{call.path}: {status} {answer[:200].decode(errors='replace')}")
                times.append(1000 * (await asyncio.wait_for(right, _PATIENCE_SECONDS) - acknowledged))
        return times


async def _await_right(events: AsyncIterator[bytes], name: str, wrong: str, right: str) -> float:
    drifted = False
    async for line in events:
        metadata = _EVENT.decode(line).object.metadata
        if metadata.name != name:
            continue
        value = metadata.labels.get(RUNTIME_LABEL)
        if drifted and value == right:
            return time.monotonic()
        drifted = drifted or value == wrong
    raise RuntimeError("the API server closed the watch")
