"""Two replicas with the times of a default installation: how long nobody leads when the leader goes.

From the moment at which the leader is asked to end (SIGTERM), or killed (SIGKILL), until a watch tells that the
standby's name stands in the Lease, and until the standby knows all nodes and profiles, from when on it repairs.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import Struct

from bench.client import get, lines, open_session
from bench.options import Options
from bench.processes import await_rest
from bench.report import Figure, Series
from bench.scene import Scene, scene
from bench.subjects import REPLICA, Running, running
from clusterconform.contract.lease import LEASE, LEASES_PATH, LeaseTimings

NAME: Final = "takeover"

_PATIENCE_SECONDS: Final = 120.0
_PAUSE_SECONDS: Final = 0.02
_RHYTHM_SECONDS: Final = LeaseTimings().retry
_GOALS: Final = {"clean stop": 5.0, "kill": 20.0}


class _Metadata(Struct):
    resourceVersion: str = ""  # noqa: N815 - the wire's name


class _Spec(Struct):
    holderIdentity: str = ""  # noqa: N815 - the wire's name


class _Lease(Struct):
    spec: _Spec


class _Event(Struct):
    object: _Lease


class _Leases(Struct):
    metadata: _Metadata
    items: list[_Lease]


def measure(options: Options) -> list[Figure]:
    """Let the leader end both ways, in each run with two new replicas."""
    series = Series(NAME)
    subject = f"{options.nodes:,} nodes"
    with scene(options.nodes) as staged:
        for run in range(options.runs):
            for way, goal in _GOALS.items():
                options.tell(f"run {run + 1} of {options.runs}: {way}")
                with running(staged, REPLICA, "leader") as leader:
                    leader.settle()
                    with running(staged, REPLICA, "standby") as standby:
                        standby.await_ready()
                        await_rest(standby.program)
                        # Both look at the Lease in a rhythm, and each run is to meet it elsewhere.
                        time.sleep(_RHYTHM_SECONDS * run / options.runs)
                        end = leader.program.kill if way == "kill" else leader.program.stop
                        held, synced = asyncio.run(
                            asyncio.wait_for(_take_over(staged, standby, end), _PATIENCE_SECONDS)
                        )
                series.add(subject, f"{way}: Lease held", held, unit="s", at_most=goal)
                series.add(subject, f"{way}: synced", synced, unit="s")
    return series.figures()


async def _take_over(staged: Scene, standby: Running, end: Callable[[], None]) -> tuple[float, float]:
    """Call ``end``, which ends the leader.

    Returns:
        The seconds until another name stands in the Lease, and until that one is synced.
    """
    query = f"{LEASES_PATH}?fieldSelector=metadata.name%3D{LEASE}"
    async with open_session(staged.credentials) as session:
        found = msgspec.json.decode(await get(session, query), type=_Leases)
        before, version = found.items[0].spec.holderIdentity, found.metadata.resourceVersion
        async with session.get(f"{query}&watch=1&resourceVersion={version}") as response:
            started = time.monotonic()
            # Beside the watch: the leader takes its time to end in order.
            ending = asyncio.create_task(asyncio.to_thread(end))
            held = 0.0
            async for line in lines(response):
                if msgspec.json.decode(line, type=_Event).object.spec.holderIdentity not in {"", before}:
                    held = time.monotonic() - started
                    break
    if not held:
        raise RuntimeError("the API server closed the watch")
    while not standby.leads_synced():
        standby.program.check()
        await asyncio.sleep(_PAUSE_SECONDS)
    synced = time.monotonic() - started
    await ending
    return held, synced
