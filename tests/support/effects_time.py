"""Time that passes when nobody works: clocks of our own, and an event loop whose sleeps take no time.

``in_virtual_time`` turns a coroutine test into a plain one. It fails when everything waits for nothing, and when
a task is left over. Nothing in it may use sockets.
"""

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar

from builders import START

from clusterconform.contract.times import Moment
from clusterconform.effects.clock import Clock

P = ParamSpec("P")
T = TypeVar("T")


class ManualClock(Clock):
    """A clock that stands still until it is told otherwise."""

    def __init__(self, uptime: float = 1000.0) -> None:
        self.now = Moment(wall=START, uptime=uptime)

    def uptime(self) -> float:
        return self.now.uptime

    def moment(self) -> Moment:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass on both clocks."""
        self.now = self.now.later(seconds)


class LoopClock(Clock):
    """A clock that goes as the running event loop's does, and so jumps with a virtual one."""

    def __init__(self) -> None:
        self._started = asyncio.get_running_loop().time()

    def uptime(self) -> float:
        return asyncio.get_running_loop().time() - self._started

    def moment(self) -> Moment:
        return Moment(wall=START + timedelta(seconds=self.uptime()), uptime=self.uptime())


class EverythingWaitsError(RuntimeError):
    """No task can go on, and no timer is set."""


class _NoWaiting(selectors.SelectSelector):
    """A selector that moves the loop's clock instead of waiting."""

    passed = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise EverythingWaitsError("everything waits for nothing")
        self.passed += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose sleeps take no time."""

    def __init__(self) -> None:
        self._no_waiting = _NoWaiting()
        super().__init__(self._no_waiting)

    def time(self) -> float:
        return 1000.0 + self._no_waiting.passed


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """Run ``main`` in virtual time; no task may be left over."""

    async def checked() -> T:
        result = await main
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"left over: {left}"
        return result

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(checked())


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """``test`` as a plain function that runs in virtual time."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        run_virtually(test(*args, **kwargs))

    return run
