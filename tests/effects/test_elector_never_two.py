"""At no moment do two processes lead, whatever happens to them, their clocks, their requests and the Lease."""

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from effects_leases import CUT, DEAF, FINE, LOST, MUTE, Fate, LeaseStore, Process
from effects_time import run_virtually
from hypothesis import given
from hypothesis import strategies as st

from clusterconform.contract.lease import LeaseTimings
from clusterconform.effects.errors import (
    BusyError,
    ConflictError,
    ForbiddenError,
    RejectedError,
    UnauthorizedError,
)

FATES: Final = (
    *(FINE, FINE, FINE, FINE, LOST, CUT, DEAF, MUTE),
    Fate(there=0.4, back=0.0),
    Fate(there=0.0, back=0.4),
    Fate(there=1.9, back=0.0),
    Fate(there=0.0, back=1.9),
    Fate(there=8.0, back=0.0),
    Fate(there=20.0, back=0.0),
    Fate(error=ConflictError),
    Fate(there=None, error=ForbiddenError),
    Fate(there=None, error=BusyError),
    Fate(there=None, error=UnauthorizedError),
    Fate(there=None, error=RejectedError),
    Fate(junk=True),
)
# Hardly any slack between the deadline and the duration, so that what only slack would save is found out.
TIMES: Final = (
    LeaseTimings(),
    LeaseTimings(duration=5.0, deadline=4.99, retry=1.0),
    LeaseTimings(duration=3.0, deadline=2.99, retry=2.0),
)


@dataclass(frozen=True, slots=True)
class Deed:
    """Something that happens to process ``who`` after ``after`` seconds."""

    after: float
    who: int
    what: str
    much: float
    fates: tuple[Fate, ...]


def deeds() -> st.SearchStrategy[list[Deed]]:
    deed = st.builds(
        Deed,
        st.sampled_from([0.0, 0.015, 0.5, 1.0, 3.0, 5.0, 12.0]),
        st.integers(0, 2),
        st.sampled_from([*DEEDS]),
        st.sampled_from([0.5, 2.0, 4.0, 6.0, 11.0, 20.0]),
        st.lists(st.sampled_from(FATES), max_size=8).map(tuple),
    )
    return st.lists(deed, max_size=14)


async def _freeze(process: Process, store: LeaseStore, deed: Deed) -> None:
    process.freeze()
    asyncio.get_running_loop().call_later(deed.much, process.thaw)


async def _cut_off(process: Process, store: LeaseStore, deed: Deed) -> None:
    process.cluster.always = deed.fates[0] if deed.fates else DEAF
    asyncio.get_running_loop().call_later(deed.much, lambda: setattr(process.cluster, "always", None))


async def _fail(process: Process, store: LeaseStore, deed: Deed) -> None:
    process.cluster.fates = itertools.chain(deed.fates)


async def _be_slow(process: Process, store: LeaseStore, deed: Deed) -> None:
    process.cluster.always = Fate(there=0.4 if deed.much < 5 else 1.9, back=0.0)
    asyncio.get_running_loop().call_later(deed.much, lambda: setattr(process.cluster, "always", None))


async def _answer_late_for_the_last_time(process: Process, store: LeaseStore, deed: Deed) -> None:
    process.cluster.fates = iter([Fate(there=0.0, back=0.4 if deed.much < 5 else 1.9), *[DEAF] * 20])


async def _kill(process: Process, store: LeaseStore, deed: Deed) -> None:
    await process.kill()
    process.start()


async def _stop(process: Process, store: LeaseStore, deed: Deed) -> None:
    await process.stop()
    process.start()


async def _jump(process: Process, store: LeaseStore, deed: Deed) -> None:
    process.clock.ahead += deed.much * (-1) ** deed.who


async def _stop_the_clock(process: Process, store: LeaseStore, deed: Deed) -> None:
    process.clock.stopped = process.clock.moment().wall


async def _same_wall_clock(process: Process, store: LeaseStore, deed: Deed) -> None:
    # Every write then says the same time as the last one, or the one before it.
    process.clock.stopped = (process.clock.stopped or process.clock.moment().wall) - timedelta(microseconds=1)


async def _delete(process: Process, store: LeaseStore, deed: Deed) -> None:
    store.delete()


async def _label(process: Process, store: LeaseStore, deed: Deed) -> None:
    store.edit(lambda body: body["metadata"].setdefault("labels", {}).update(at=str(deed.much)))


async def _other_holder(process: Process, store: LeaseStore, deed: Deed) -> None:
    store.edit_spec(holderIdentity=None if deed.much < 5 else "somebody")


async def _short_duration(process: Process, store: LeaseStore, deed: Deed) -> None:
    store.edit_spec(leaseDurationSeconds=1)


async def _no_spec(process: Process, store: LeaseStore, deed: Deed) -> None:
    store.edit(lambda body: body.pop("spec", None))


DEEDS: Final[dict[str, Callable[[Process, LeaseStore, Deed], Any]]] = {
    "freeze": _freeze,
    "freeze too": _freeze,
    "cut off": _cut_off,
    "fail": _fail,
    "fail too": _fail,
    "be slow": _be_slow,
    "answer late for the last time": _answer_late_for_the_last_time,
    "kill": _kill,
    "stop": _stop,
    "jump": _jump,
    "stop the clock": _stop_the_clock,
    "same wall clock": _same_wall_clock,
    "delete": _delete,
    "label": _label,
    "other holder": _other_holder,
    "short duration": _short_duration,
    "no spec": _no_spec,
}


async def history(times: LeaseTimings, count: int, happening: list[Deed]) -> None:
    store = LeaseStore()
    store.edit_spec(holderIdentity="")
    processes: list[Process] = []
    violations: list[str] = []

    def check() -> None:
        # Whoever begins to lead does so in a step of its own, so looking after each step misses nothing.
        leading = [process.terms[-1:] for process in processes if process.leads]
        if len(leading) > 1:
            violations.append(f"{asyncio.get_running_loop().time() - 1000:.3f} s: {leading}")

    processes += [
        Process(store, name, times, ahead=97.0 * at, stepped=check) for at, name in enumerate("abc"[:count])
    ]
    for deed in happening:
        await asyncio.sleep(deed.after)
        await DEEDS[deed.what](processes[deed.who % count], store, deed)
    # Peace: pauses and cuts run out, what is on its way arrives, and then a dead holder's time runs out.
    await asyncio.sleep(20 + 20)
    for process in processes:
        process.cluster.fates = iter(())
    await asyncio.sleep(times.duration + 2 * times.retry)
    leaders = [process for process in processes if process.leads]
    for process in processes:
        await process.kill()
    assert not violations
    assert len(leaders) == 1
    held = [(term.holder, term.uid, term.number) for process in processes for term in process.terms]
    assert len({holder for holder, _, _ in held}) == len(held)


@given(st.sampled_from(TIMES), st.sampled_from([2, 3]), deeds())
def test_never_two_lead_and_in_peace_one_does(times: LeaseTimings, count: int, happening: list[Deed]) -> None:
    run_virtually(history(times, count, happening))
