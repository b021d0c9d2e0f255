"""The work queue: each key once, one worker per key, and a backoff that doubles."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise

import pytest
from effects_time import in_virtual_time

from clusterconform.effects.metrics import Metrics
from clusterconform.handlers.queue import WORKERS, WorkQueue


def now() -> float:
    """Virtual seconds."""
    return asyncio.get_running_loop().time()


class Work:
    """Takes a second for each key, and notes when it began and ended."""

    def __init__(self, seconds: float = 1.0) -> None:
        self.seconds = seconds
        self.began: list[tuple[str, float]] = []
        self.busy: list[str] = []
        self.most = 0
        self.then: Callable[[str], None] = lambda _: None

    async def __call__(self, key: str) -> None:
        assert key not in self.busy, "two workers on one key"
        self.busy.append(key)
        self.most = max(self.most, len(self.busy))
        self.began.append((key, now()))
        try:
            if self.seconds:
                await asyncio.sleep(self.seconds)
            self.then(key)
        finally:
            self.busy.remove(key)

    def times(self, key: str) -> list[float]:
        """When work on ``key`` began, from the first time on."""
        times = [at for seen, at in self.began if seen == key]
        return [round(at - times[0], 3) for at in times]


@contextlib.asynccontextmanager
async def working(
    work: Callable[[str], Awaitable[None]], metrics: Metrics | None = None
) -> AsyncIterator[WorkQueue]:
    """A queue whose workers work."""
    queue = WorkQueue(work, metrics or Metrics())
    running = asyncio.create_task(queue.run())
    await asyncio.sleep(0)
    try:
        yield queue
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


@in_virtual_time
async def test_a_key_that_is_due_many_times_costs_one_piece_of_work() -> None:
    work = Work()
    async with working(work) as queue:
        for _ in range(100):
            queue.add("a")
        await asyncio.sleep(10)
    assert work.times("a") == [0]


@in_virtual_time
async def test_keys_wait_in_the_order_in_which_they_came() -> None:
    work = Work()
    async with working(work) as queue:
        keys = [str(number) for number in range(3 * WORKERS)]
        for key in keys:
            queue.add(key)
        assert len(queue) == 3 * WORKERS
        await asyncio.sleep(10)
        assert len(queue) == 0
    assert [key for key, _ in work.began] == keys


@in_virtual_time
async def test_no_more_workers_than_allowed_and_never_two_on_one_key() -> None:
    work = Work()
    async with working(work) as queue:
        for tenth in range(100):
            for number in range(50):
                queue.add(str(number))
            await asyncio.sleep(0.1)
            assert tenth < 100
        await asyncio.sleep(30)
    assert work.most == WORKERS


@in_virtual_time
async def test_a_key_that_becomes_due_while_it_is_worked_on_is_worked_on_once_more() -> None:
    work = Work()
    async with working(work) as queue:
        queue.add("a")
        await asyncio.sleep(0.5)
        for _ in range(5):
            queue.add("a")
        await asyncio.sleep(10)
    assert work.times("a") == [0, 1]


@in_virtual_time
async def test_work_that_makes_its_own_key_due_is_done_again() -> None:
    work = Work(0)
    async with working(work) as queue:
        work.then = lambda key: queue.add(key) if len(work.began) < 5 else None
        queue.add("a")
        await asyncio.sleep(1)
    assert len(work.began) == 5


@in_virtual_time
async def test_a_backoff_doubles_up_to_a_minute() -> None:
    work = Work(0)
    async with working(work) as queue:
        work.then = lambda key: (queue.retry(key), None)[1]
        queue.add("a")
        await asyncio.sleep(400)
        queue.forget("a")
    times = work.times("a")
    gaps = [round(later - earlier, 3) for earlier, later in pairwise(times)]
    assert gaps[:12] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 60.0]
    assert set(gaps[12:]) == {60.0}


@in_virtual_time
async def test_a_thousand_failures_wait_no_longer_than_a_minute() -> None:
    queue = WorkQueue(Work(), Metrics())
    assert {queue.retry("a") for _ in range(2000)} >= {60.0}
    assert queue.retry("a") == 60.0
    queue.forget("a")


@in_virtual_time
async def test_at_least_is_kept_while_the_backoff_is_shorter() -> None:
    queue = WorkQueue(Work(), Metrics())
    assert [queue.retry("a", at_least=1.0) for _ in range(7)] == [1.0, 1.0, 1.0, 1.0, 1.0, 1.6, 3.2]
    queue.forget("a")


@in_virtual_time
async def test_after_a_success_the_next_failure_starts_from_the_beginning() -> None:
    queue = WorkQueue(Work(), Metrics())
    for _ in range(5):
        queue.retry("a")
    queue.succeeded("a")
    assert queue.retry("a") == 0.05
    queue.forget("a")


@in_virtual_time
async def test_backoffs_of_different_keys_are_apart() -> None:
    queue = WorkQueue(Work(), Metrics())
    for _ in range(5):
        queue.retry("a")
    assert queue.retry("b") == 0.05
    queue.forget("a")
    queue.forget("b")


@pytest.mark.parametrize(("first", "second", "rings"), [(5, 3, [3.0]), (3, 5, [3.0]), (3, 3, [3.0])])
@in_virtual_time
async def test_the_earlier_of_two_appointments_is_kept(first: float, second: float, rings: list[float]) -> None:
    work, start = Work(0), now()
    async with working(work) as queue:
        queue.add_after("a", first)
        queue.add_after("a", second)
        await asyncio.sleep(20)
    assert [round(at - start, 3) for _, at in work.began] == rings


@in_virtual_time
async def test_a_forgotten_key_has_no_appointment_and_no_backoff() -> None:
    work = Work(0)
    async with working(work) as queue:
        queue.retry("a")
        queue.retry("a")
        queue.forget("a")
        await asyncio.sleep(100)
        assert work.began == []
        assert queue.retry("a") == 0.05
        queue.forget("a")


@in_virtual_time
async def test_work_that_raises_is_logged_whole_and_tried_again_ever_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    times = list[float]()

    async def defective(_: str) -> None:
        times.append(now())
        raise ZeroDivisionError("a defect")

    async with working(defective) as queue:
        queue.add("a")
        await asyncio.sleep(100)
        queue.forget("a")
    gaps = [round(later - earlier, 2) for earlier, later in pairwise(times)]
    assert gaps[:7] == [1.0, 1.0, 1.0, 1.0, 1.0, 1.6, 3.2]
    assert caplog.records[0].message == "a decision failed"
    assert caplog.records[0].exc_info is not None


@in_virtual_time
async def test_work_that_raises_for_one_key_goes_on_for_the_others() -> None:
    done = list[str]()

    async def sometimes(key: str) -> None:
        if key == "bad":
            raise ZeroDivisionError
        done.append(key)

    async with working(sometimes) as queue:
        for _ in range(2 * WORKERS):
            queue.add("bad")
            queue.add("good")
            await asyncio.sleep(10)
        queue.forget("bad")
    assert len(done) == 2 * WORKERS


@in_virtual_time
async def test_a_key_added_before_anybody_works_is_not_lost() -> None:
    work = Work()
    queue = WorkQueue(work, Metrics())
    queue.add("a")
    running = asyncio.create_task(queue.run())
    await asyncio.sleep(5)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    assert work.times("a") == [0]


@in_virtual_time
async def test_a_cancelled_queue_stops_at_once_in_the_middle_of_work() -> None:
    work = Work(1000)
    async with working(work) as queue:
        queue.add("a")
        await asyncio.sleep(1)
    assert work.busy == []


@in_virtual_time
async def test_nothing_is_kept_of_keys_that_are_done() -> None:
    work = Work(0)
    async with working(work) as queue:
        for number in range(10_000):
            queue.add(str(number))
            queue.add_after(str(number), 1)
            queue.retry(str(number))
        await asyncio.sleep(100)
        for number in range(10_000):
            queue.succeeded(str(number))
            queue.forget(str(number))
        kept = [value for value in vars(queue).values() if isinstance(value, set | dict)]
        assert all(not value for value in kept)
        assert len(queue._waiting) <= WORKERS
    gc.collect()


@in_virtual_time
async def test_the_depth_is_shown_as_a_metric() -> None:
    metrics, work = Metrics(), Work(1)
    async with working(work, metrics) as queue:
        for number in range(WORKERS + 10):
            queue.add(str(number))
        await asyncio.sleep(0.5)
        assert metrics.registry.get_sample_value("clusterconform_queue_depth") == 10
        await asyncio.sleep(10)
        assert metrics.registry.get_sample_value("clusterconform_queue_depth") == 0


@in_virtual_time
async def test_B99_five_thousand_keys_leave_the_loop_free_for_others() -> None:
    """Work that never waits must not keep timers, probes and the watch waiting until all of it is done."""
    steps, work = 0, Work(0)

    async def others() -> None:
        nonlocal steps
        while True:
            await asyncio.sleep(0)
            steps += 1

    async with working(work) as queue:
        other = asyncio.create_task(others())
        for number in range(5000):
            queue.add(str(number))
        while len(work.began) < 5000:  # noqa: ASYNC110 - it counts the turns of the loop
            await asyncio.sleep(0)
        other.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await other
    assert steps >= 20
