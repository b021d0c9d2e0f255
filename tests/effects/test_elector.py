"""Leader election, one behaviour at a time: times are virtual, the Lease is in memory, any request can fail."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest
from builders import START
from effects_leases import CUT, DEAF, LOST, MUTE, WAY, Fate, LeaseCluster, LeaseStore, OwnClock, Process
from effects_time import in_virtual_time

from clusterconform.contract.lease import LeaseTimings, UnreadableLeaseError, read_lease
from clusterconform.contract.names import HEARD_ANNOTATION, RESYNCED_ANNOTATION
from clusterconform.contract.times import Moment, format_time
from clusterconform.effects.elector import Elector, LeadershipLostError, new_identity
from clusterconform.effects.errors import ConflictError, ForbiddenError

TIMES = LeaseTimings()
WAYS = 6 * WAY


def now() -> float:
    return asyncio.get_running_loop().time()


async def eventually(condition: Callable[[], bool], within: float) -> float:
    """Wait for ``condition``; gives after how many seconds it held."""
    began = now()
    async with asyncio.timeout(within + 0.01):
        while not condition():  # noqa: ASYNC110 - a test looks from outside, and time is virtual
            await asyncio.sleep(0.01)
    return now() - began


async def until_leading(*processes: Process, within: float) -> float:
    return await eventually(lambda: any(process.leads for process in processes), within)


@contextlib.asynccontextmanager
async def running(store: LeaseStore, *names: str, **options: Any) -> AsyncIterator[list[Process]]:
    """Processes that live during the block; the first of them leads."""
    store.edit_spec(holderIdentity="")
    processes = [Process(store, names[0], **options)]
    try:
        await until_leading(*processes, within=WAYS)
        processes += [Process(store, name, **options) for name in names[1:]]
        await asyncio.sleep(5 * WAY)
        yield processes
    finally:
        for process in processes:
            await process.kill()


# Beginning


@in_virtual_time
async def test_an_absent_lease_is_created_without_a_holder_and_taken_once_it_stood_for_the_duration() -> None:
    store = LeaseStore()
    process = Process(store, "a")
    await asyncio.sleep(5)
    assert store.writes == [("POST", None)]
    waited = await until_leading(process, within=20)
    assert TIMES.duration <= waited + 5 <= TIMES.duration + 2 * WAYS
    await process.kill()


@in_virtual_time
async def test_a_released_lease_is_taken_at_once() -> None:
    store = LeaseStore()
    async with running(store, "a") as (a,):
        assert [(term.number, term.holder, term.uid) for term in a.terms] == [(1, "a_1", "uid-1")]


@in_virtual_time
async def test_what_the_leader_writes_and_what_it_leaves_alone() -> None:
    store = LeaseStore()
    store.edit(lambda body: body["metadata"].update(labels={"kept": "yes"}))
    store.edit_spec(strategy="Kept", leaseTransitions=6)
    async with running(store, "a", timings=LeaseTimings(duration=14.2)):
        assert store.spec == {
            "holderIdentity": "a_1",
            "leaseDurationSeconds": 15,
            "leaseTransitions": 7,
            "acquireTime": "2026-08-01T12:00:00.020000Z",
            "renewTime": "2026-08-01T12:00:00.020000Z",
            "strategy": "Kept",
        }
        await asyncio.sleep(TIMES.retry)
        assert (store.spec["acquireTime"], store.spec["renewTime"]) == (
            "2026-08-01T12:00:00.020000Z",
            "2026-08-01T12:00:02.000000Z",
        )
        assert store.spec["leaseTransitions"] == 7
        assert store.raw is not None
        assert store.raw["metadata"]["labels"] == {"kept": "yes"}


@in_virtual_time
async def test_of_two_that_see_a_released_lease_one_leads_and_the_other_stands_by() -> None:
    store = LeaseStore()
    store.edit_spec(holderIdentity="")
    both = [Process(store, "a"), Process(store, "b")]
    await asyncio.sleep(60)
    assert [len(process.terms) for process in both] == [1, 0]
    for process in both:
        await process.kill()


@in_virtual_time
async def test_a_leader_is_valid_from_its_first_write_for_the_deadline_and_renews_every_retry() -> None:
    async with running(LeaseStore(), "a") as (a,):
        for _ in range(50):
            await asyncio.sleep(TIMES.retry / 10)
            assert a.elector.valid_for(TIMES.deadline - TIMES.retry - WAYS)
            assert not a.elector.valid_for(TIMES.deadline)
        assert len([1 for method, _ in a.cluster.sent if method == "PUT"]) == 6


# What it tells of itself


@in_virtual_time
async def test_each_write_of_our_name_carries_what_we_tell_and_no_other_write_is_made_for_it() -> None:
    writes = []
    for tells in (False, True):
        store = LeaseStore()
        store.edit(lambda body: body["metadata"].update(annotations={"kept": "yes"}))
        async with running(store, "a") as (a,):
            if tells:
                a.elector.tell = lambda: {HEARD_ANNOTATION: START + timedelta(microseconds=7)}
            await asyncio.sleep(5 * TIMES.retry)
            assert store.raw is not None
            annotations = store.raw["metadata"]["annotations"]
            record = read_lease(store.raw)
            assert a.lost == []
        told = {HEARD_ANNOTATION: "2026-08-01T12:00:00.000007Z"} if tells else {}
        assert annotations == {"kept": "yes", **told}
        assert record.told(RESYNCED_ANNOTATION) is None
        writes.append(len(store.writes))
    assert writes[0] == writes[1]


@in_virtual_time
async def test_what_an_earlier_leader_told_is_taken_out_by_the_next_and_left_by_a_release() -> None:
    store = LeaseStore()
    async with running(store, "a", "b") as (a, b):
        a.elector.tell = lambda: {HEARD_ANNOTATION: START, RESYNCED_ANNOTATION: START}
        await asyncio.sleep(2 * TIMES.retry)
        await a.stop()
        assert store.raw is not None
        assert set(store.raw["metadata"]["annotations"]) == {HEARD_ANNOTATION, RESYNCED_ANNOTATION}
        await until_leading(b, within=TIMES.retry + WAYS)
        await asyncio.sleep(WAYS)
        assert "annotations" not in store.raw["metadata"]


@pytest.mark.parametrize(
    "rubbish", [None, 7, "x", [], {HEARD_ANNOTATION: 7, "kept": "yes"}, {HEARD_ANNOTATION: "soon"}]
)
def test_rubbish_in_its_place_is_no_loss_and_reads_as_nothing(rubbish: Any) -> None:
    @in_virtual_time
    async def goes_on() -> None:
        store = LeaseStore()
        async with running(store, "a") as (a,):
            store.edit(lambda body: body["metadata"].update(annotations=rubbish))
            assert store.raw is not None
            assert read_lease(store.raw).told(HEARD_ANNOTATION) is None
            a.elector.tell = lambda: {HEARD_ANNOTATION: a.clock.moment().wall}
            await asyncio.sleep(3 * TIMES.retry)
            assert a.lost == []
            heard = read_lease(store.raw).told(HEARD_ANNOTATION)
            assert heard is not None
            others = {"kept": "yes"} if isinstance(rubbish, dict) and "kept" in rubbish else {}
            assert store.raw["metadata"]["annotations"].keys() - {HEARD_ANNOTATION} == others.keys()

    goes_on()


@pytest.mark.parametrize(("acquired", "believed"), [(None, True), ("rubbish", True), (-1, True), (1, False)])
def test_a_time_from_before_the_holder_took_the_lease_is_not_its_own(acquired: Any, believed: bool) -> None:
    began = format_time(START + timedelta(seconds=acquired)) if isinstance(acquired, int) else acquired
    metadata = {"uid": "u", "resourceVersion": "1", "annotations": {HEARD_ANNOTATION: format_time(START)}}
    record = read_lease({"metadata": metadata, "spec": {"acquireTime": began}})
    assert record.told(HEARD_ANNOTATION) == (START if believed else None)


# Ending


@in_virtual_time
async def test_after_a_kill_the_next_one_leads_within_duration_and_retry_and_never_sooner_than_it_may() -> None:
    for moment in (0.0, 0.5, 1.0, 1.9):
        async with running(LeaseStore(), "a", "b", "c") as (a, b, c):
            await asyncio.sleep(20 + moment)
            await a.kill()
            waited = await until_leading(b, c, within=TIMES.duration + TIMES.retry + WAYS)
            assert waited > TIMES.duration - TIMES.retry - WAYS
            assert [term.number for process in (b, c) for term in process.terms] == [2]


@in_virtual_time
async def test_after_a_release_the_next_one_leads_within_retry() -> None:
    store = LeaseStore()
    async with running(store, "a", "b") as (a, b):
        await asyncio.sleep(7.7)
        await a.stop()
        assert store.holder == ""
        assert not a.leads
        await until_leading(b, within=TIMES.retry + WAYS)


@in_virtual_time
async def test_a_release_leaves_the_lease_of_another_alone() -> None:
    store = LeaseStore()
    async with running(store, "a") as (a,):
        store.edit_spec(holderIdentity="other")
        await a.stop()
        assert store.holder == "other"


@in_virtual_time
async def test_a_standby_that_never_wrote_releases_nothing_and_asks_nothing() -> None:
    store = LeaseStore()
    async with running(store, "a", "b") as (_, b):
        asked = len(b.cluster.sent)
        await b.stop()
        assert len(b.cluster.sent) == asked


@pytest.mark.parametrize(
    "fate", [LOST, CUT, DEAF, MUTE, Fate(there=2.0), Fate(error=ForbiddenError), Fate(junk=True)]
)
def test_a_release_never_raises_and_takes_no_longer_than_one_request(fate: Fate) -> None:
    @in_virtual_time
    async def stops() -> None:
        async with running(LeaseStore(), "a") as (a,):
            a.cluster.always = fate
            began = now()
            await a.stop()
            assert now() - began <= TIMES.request

    stops()


@in_virtual_time
async def test_whoever_begins_to_release_may_write_no_more() -> None:
    store = LeaseStore()
    store.edit_spec(holderIdentity="")
    elector = Elector(LeaseCluster(store), OwnClock(), "a", TIMES)
    await elector.acquire()
    releasing = asyncio.create_task(elector.release())
    await asyncio.sleep(WAY / 2)
    assert (store.holder, elector.valid_for(0)) == ("a", False)
    await releasing
    assert (store.holder, elector.valid_for(0)) == ("", False)


@in_virtual_time
async def test_a_release_whose_swap_is_lost_is_tried_again() -> None:
    store = LeaseStore()
    async with running(store, "a") as (a,):
        a.cluster.fates = iter([Fate(), Fate(there=None, error=ConflictError)])
        await a.stop()
        assert store.holder == ""


@in_virtual_time
async def test_an_acquisition_that_was_carried_out_and_cut_short_is_released_too() -> None:
    store = LeaseStore()
    store.edit_spec(holderIdentity="")
    a = Process(store, "a")
    a.cluster.fates = iter([Fate(), Fate(back=2.0)])
    await asyncio.sleep(1)
    assert (store.holder, a.leads) == ("a_1", False)
    await a.stop()
    assert store.holder == ""


# Losing


@in_virtual_time
async def test_whoever_was_paused_beyond_the_deadline_is_not_valid_at_its_first_check_after() -> None:
    async with running(LeaseStore(), "a", "b") as (a, b):
        await asyncio.sleep(9)
        a.freeze()
        await asyncio.sleep(60)
        assert not a.leads
        assert b.leads
        a.thaw()
        assert not a.elector.valid_for(0)
        await asyncio.sleep(1)
        assert a.lost == ["not renewed for 10 s: paused"]
        assert b.leads


@in_virtual_time
async def test_an_answer_that_arrived_during_a_pause_counts_from_when_it_was_asked_for() -> None:
    async with running(LeaseStore(), "a") as (a,):
        await asyncio.sleep(TIMES.retry - 5 * WAY - WAY / 2)
        a.freeze()
        await asyncio.sleep(TIMES.deadline - 1)
        a.thaw()
        await asyncio.sleep(0)
        assert not a.elector.valid_for(TIMES.retry + 1)


@in_virtual_time
async def test_a_pause_shorter_than_the_deadline_is_survived() -> None:
    async with running(LeaseStore(), "a", "b") as (a, b):
        for _ in range(5):
            a.freeze()
            await asyncio.sleep(TIMES.deadline - TIMES.retry - 3 * WAYS)
            a.thaw()
            await asyncio.sleep(2 * TIMES.retry)
        assert (a.lost, len(b.terms)) == ([], 0)


@pytest.mark.parametrize("fate", [LOST, CUT, DEAF, MUTE, Fate(error=ForbiddenError), Fate(junk=True)])
def test_whoever_cannot_renew_has_lost_when_the_deadline_passes_and_not_later(fate: Fate) -> None:
    @in_virtual_time
    async def loses() -> None:
        async with running(LeaseStore(), "a", "b") as (a, b):
            await asyncio.sleep(TIMES.retry / 2)
            a.cluster.always = fate
            waited = await eventually(lambda: bool(a.lost), within=TIMES.deadline)
            assert TIMES.deadline - TIMES.retry <= waited <= TIMES.deadline - TIMES.retry / 2
            assert a.lost[0].startswith("not renewed for 10 s: ")
            assert not b.leads

    loses()


@pytest.mark.parametrize("fate", [LOST, CUT, DEAF, MUTE, Fate(junk=True)])
@pytest.mark.parametrize("request_number", range(4))
def test_one_failed_request_is_survived_wherever_it_falls(fate: Fate, request_number: int) -> None:
    @in_virtual_time
    async def survives() -> None:
        async with running(LeaseStore(), "a", "b") as (a, b):
            a.cluster.fates = iter([Fate()] * request_number + [fate])
            for _ in range(300):
                await asyncio.sleep(0.1)
                assert a.elector.valid_for(TIMES.longest_write - WAYS)
            assert (a.lost, len(b.terms)) == ([], 0)

    survives()


@in_virtual_time
async def test_a_renewal_whose_answer_is_lost_counts_for_nothing_and_is_read_back_first() -> None:
    store = LeaseStore()
    async with running(store, "a") as (a,):
        a.cluster.fates = iter([MUTE, Fate()])
        await asyncio.sleep(TIMES.retry)
        a.cluster.sent.clear()
        await asyncio.sleep(TIMES.request - 0.1)
        assert store.spec["renewTime"] != store.spec["acquireTime"]
        assert not a.elector.valid_for(TIMES.deadline - TIMES.retry - TIMES.request + 0.1)
        await asyncio.sleep(0.2)
        assert [method for method, _ in a.cluster.sent] == ["GET", "PUT"]
        assert a.elector.valid_for(TIMES.deadline - 0.2)


@in_virtual_time
async def test_a_renewal_that_changed_nothing_is_none_since_nobody_can_see_it() -> None:
    store = LeaseStore()
    async with running(store, "a") as (a,):
        store.deaf = True
        await asyncio.sleep(TIMES.deadline)
        assert not a.leads
        assert a.lost == ["not renewed for 10 s: the answer does not show what was written"]


@in_virtual_time
async def test_a_renewal_counts_from_when_it_was_asked_for() -> None:
    async with running(LeaseStore(), "a") as (a,):
        a.cluster.fates = iter([Fate(back=2.5), DEAF])
        await asyncio.sleep(TIMES.retry + 2.6)
        assert a.elector.valid_for(TIMES.deadline - 2.7)
        assert not a.elector.valid_for(TIMES.deadline - 2.5)


@in_virtual_time
async def test_a_record_counts_from_when_it_was_seen() -> None:
    store = LeaseStore()
    store.edit_spec(holderIdentity="gone")
    a = Process(store, "a")
    a.cluster.fates = iter([Fate(there=2.5)])
    await asyncio.sleep(2.4)
    store.edit_spec(renewTime="just before it is read")
    assert await until_leading(a, within=20) > TIMES.duration
    await a.kill()


@in_virtual_time
async def test_an_acquisition_whose_answer_is_lost_is_recognised() -> None:
    store = LeaseStore()
    store.edit_spec(holderIdentity="")
    a = Process(store, "a")
    a.cluster.fates = iter([Fate(), CUT])
    await until_leading(a, within=TIMES.retry + WAYS)
    assert [term.number for term in a.terms] == [1]
    await a.kill()


@in_virtual_time
async def test_the_second_sending_of_one_renewal_by_the_transport_is_no_loss() -> None:
    # A transport that sends a PUT again after a dropped connection gets a conflict with its own first one.
    async with running(LeaseStore(), "a") as (a,):
        a.cluster.fates = iter([Fate(error=ConflictError)])
        await asyncio.sleep(TIMES.retry)
        assert (a.leads, a.lost) == (True, [])
        assert a.elector.valid_for(TIMES.deadline - 0.1)


@in_virtual_time
async def test_a_label_that_somebody_puts_on_the_lease_is_kept_and_no_loss() -> None:
    store = LeaseStore()
    async with running(store, "a") as (a,):
        store.edit(lambda body: body["metadata"].update(labels={"team": "x"}))
        await asyncio.sleep(TIMES.retry)
        assert a.elector.valid_for(TIMES.deadline - 0.1)
        assert store.raw is not None
        assert store.raw["metadata"]["labels"] == {"team": "x"}


@pytest.mark.parametrize(
    ("holder", "why"), [("other", "the Lease is held by other"), (None, "the Lease is held by nobody")]
)
def test_another_holder_is_a_loss_at_the_next_renewal(holder: str | None, why: str) -> None:
    @in_virtual_time
    async def loses() -> None:
        store = LeaseStore()
        async with running(store, "a") as (a,):
            store.edit_spec(holderIdentity=holder)
            await asyncio.sleep(TIMES.retry)
            assert (a.leads, a.lost) == (False, [why])

    loses()


@in_virtual_time
async def test_a_deleted_lease_is_a_loss_and_the_next_leader_waits_for_the_duration() -> None:
    store = LeaseStore()
    async with running(store, "a", "b") as (a, b):
        a.freeze()
        store.delete()
        await asyncio.sleep(TIMES.deadline)
        assert not b.leads
        await until_leading(b, within=TIMES.duration - TIMES.deadline + TIMES.retry + WAYS)
        a.thaw()
        await asyncio.sleep(TIMES.retry)
        assert not a.leads


@pytest.mark.parametrize("anew", [False, True])
def test_a_leader_whose_lease_was_deleted_says_so(anew: bool) -> None:
    @in_virtual_time
    async def loses() -> None:
        store = LeaseStore()
        async with running(store, "a") as (a,):
            holder = store.holder
            store.delete()
            if anew:
                store.edit_spec(holderIdentity=holder)
            await asyncio.sleep(TIMES.retry)
            assert a.lost == ["the Lease was deleted" + (" and created anew" if anew else "")]
            assert not a.leads

    loses()


@in_virtual_time
async def test_an_elector_leads_once() -> None:
    store = LeaseStore()
    store.edit_spec(holderIdentity="")
    elector = Elector(LeaseCluster(store), OwnClock(), "a", TIMES)
    with pytest.raises(RuntimeError):
        await elector.keep()
    await elector.acquire()
    store.delete()
    with pytest.raises(LeadershipLostError, match="deleted"):
        await elector.keep()
    with pytest.raises(RuntimeError):
        await elector.acquire()


# Clocks


@in_virtual_time
async def test_wall_clocks_that_differ_jump_or_stand_still_change_nothing() -> None:
    store = LeaseStore()
    async with running(store, "a", "b") as (a, b):
        b.clock.ahead = 1e8
        a.clock.stopped = a.clock.moment().wall
        await asyncio.sleep(30)
        assert (a.leads, a.lost, b.terms) == (True, [], [])
        a.clock.stopped, a.clock.ahead = None, -1e8
        await asyncio.sleep(30)
        assert (a.leads, a.lost, b.terms) == (True, [], [])
        await a.kill()
        await until_leading(b, within=TIMES.duration + TIMES.retry + WAYS)


@in_virtual_time
async def test_the_difference_to_the_servers_clock_is_that_at_receipt() -> None:
    cluster = LeaseCluster(LeaseStore())
    elector = Elector(cluster, OwnClock(), "a", TIMES)
    assert elector.clock_difference() is None
    cluster.server_date = (START + timedelta(seconds=90), Moment(wall=START, uptime=3.0))
    await asyncio.sleep(50)
    assert elector.clock_difference() == 90.0


# Standing by


@in_virtual_time
async def test_a_standby_is_healthy_while_it_can_read_and_says_why_it_is_not() -> None:
    async with running(LeaseStore(), "a", "b") as (_, b):
        assert b.elector.standby_healthy()
        b.cluster.always = DEAF
        await asyncio.sleep(TIMES.duration + TIMES.retry)
        assert not b.elector.standby_healthy()
        assert b.elector.trouble == "no answer within 3.0 s"
        b.cluster.always = None
        await asyncio.sleep(TIMES.request + TIMES.retry)
        assert b.elector.standby_healthy()
        assert b.elector.trouble == ""


@in_virtual_time
async def test_a_standby_is_not_healthy_before_its_first_look_nor_when_it_may_not_take_the_lease() -> None:
    store = LeaseStore()
    a = Process(store, "a")
    assert not a.elector.standby_healthy()
    a.cluster.always = Fate(error=ForbiddenError)
    await asyncio.sleep(60)
    assert not a.elector.standby_healthy()
    assert not a.leads
    await a.kill()


@in_virtual_time
async def test_a_standby_that_could_not_look_for_a_while_counts_from_when_it_first_saw_the_record() -> None:
    async with running(LeaseStore(), "a", "b") as (a, b):
        await a.kill()
        b.cluster.always = LOST
        await asyncio.sleep(TIMES.duration)
        b.cluster.always = None
        await until_leading(b, within=TIMES.retry + WAYS)


@in_virtual_time
async def test_a_longer_duration_of_the_record_is_waited_for_and_a_shorter_one_is_not_believed() -> None:
    for written, waited in ((40, 40), (1, 15), (10**6, 15)):
        store = LeaseStore()
        store.edit_spec(holderIdentity="gone", leaseDurationSeconds=written)
        a = Process(store, "a")
        await asyncio.sleep(waited)
        assert not a.leads
        await until_leading(a, within=WAYS)
        await a.kill()


RUBBISH: list[Any] = [
    None,
    [],
    "x",
    {},
    {"holderIdentity": None, "leaseDurationSeconds": None, "leaseTransitions": None, "renewTime": None},
    {"holderIdentity": "x", "leaseDurationSeconds": -5, "leaseTransitions": -1, "renewTime": "", "acquireTime": 7},
    {"holderIdentity": 5, "leaseDurationSeconds": "15", "leaseTransitions": True, "renewTime": {"a": 1}},
    {"holderIdentity": ["x"], "leaseDurationSeconds": 1e99, "leaseTransitions": 2**40, "renewTime": "yesterday"},
]


@pytest.mark.parametrize("spec", RUBBISH)
def test_rubbish_is_waited_for_and_then_replaced(spec: Any) -> None:
    @in_virtual_time
    async def takes() -> None:
        store = LeaseStore()
        store.edit(lambda body: body.update(spec=spec))
        a = Process(store, "a")
        await asyncio.sleep(TIMES.duration)
        assert not a.leads
        await until_leading(a, within=WAYS)
        assert (store.spec["holderIdentity"], store.spec["leaseTransitions"]) == ("a_1", 1)
        await a.kill()

    takes()


@pytest.mark.parametrize("spec", RUBBISH)
def test_rubbish_written_over_a_leader_is_a_loss(spec: Any) -> None:
    @in_virtual_time
    async def loses() -> None:
        store = LeaseStore()
        async with running(store, "a") as (a,):
            store.edit(lambda body: body.update(spec=spec))
            await asyncio.sleep(TIMES.retry)
            assert (a.leads, len(a.lost)) == (False, 1)

    loses()


@pytest.mark.parametrize(
    "raw",
    [None, [], {}, {"metadata": None}, {"metadata": {}}, {"metadata": {"uid": "u"}}]
    + [{"metadata": {"uid": "u", "resourceVersion": version}} for version in ("", None, 5)],
)
def test_an_answer_that_could_not_be_swapped_is_no_lease(raw: object) -> None:
    with pytest.raises(UnreadableLeaseError):
        read_lease(raw)


def test_the_number_of_a_term_starts_anew_where_the_field_is_full() -> None:
    raw = {"metadata": {"uid": "u", "resourceVersion": "1"}, "spec": {"leaseTransitions": 2**31 - 1}}
    assert read_lease(raw).number_for("a") == 1


# Times and names


@pytest.mark.parametrize(
    "times",
    [(10, 10, 2), (15, 2, 2), (15, 2.4, 2), (15, 10, 0), (15, 10, -1), (301, 10, 2), (15, 10, float("nan"))],
)
def test_times_that_cannot_work_are_refused_in_one_sentence(times: tuple[float, float, float]) -> None:
    with pytest.raises(
        ValueError, match=r"^the times of the lease must be 1\.2 x retry < deadline < duration <= 300 s"
    ):
        LeaseTimings(duration=times[0], deadline=times[1], retry=times[2])


def test_the_default_times_leave_writes_five_seconds() -> None:
    assert (TIMES.duration, TIMES.deadline, TIMES.retry) == (15, 10, 2)
    assert (TIMES.request, TIMES.longest_write) == (3, 5)


def test_no_two_starts_have_the_same_name() -> None:
    assert new_identity() != new_identity()
