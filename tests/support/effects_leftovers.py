"""A fixture for tests in real time: whoever starts a task ends it."""

import asyncio
import gc
from collections.abc import AsyncIterator

import pytest


@pytest.fixture
async def nothing_left_over() -> AsyncIterator[None]:
    """Fail where a task, or a socket that nobody closed, outlives the test."""
    yield
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, f"left over: {left}"
    gc.collect()  # what was not closed warns now, and warnings are errors
