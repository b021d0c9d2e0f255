"""Events: said once, not too many, and in the shape in which describe finds them."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator

import pytest
from builders import START
from effects_api import EVENTS, FakeApi, Reply, refusal
from effects_cluster import FakeCluster
from effects_time import LoopClock, in_virtual_time

from clusterconform.effects.events import EventNote, EventRecorder
from clusterconform.effects.metrics import Metrics

BURST = 25


def note(
    message: str = "it is so", *, name: str = "pi", uid: str = "uid-1", reason: str = "Contested"
) -> EventNote:
    """An Event about a node."""
    reference = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
    return EventNote(reference=reference, type="Warning", reason=reason, message=message)


class Recording:
    """A recorder and where its Events go."""

    def __init__(self) -> None:
        self.api, self.metrics = FakeApi(), Metrics()
        cluster = FakeCluster(self.api, self.metrics)
        self.recorder = EventRecorder(cluster, LoopClock(), self.metrics, "this-pod")

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[EventRecorder]:
        """Post while the body runs."""
        work = asyncio.create_task(self.recorder.run())
        await asyncio.sleep(0)
        try:
            yield self.recorder
            await asyncio.sleep(1)
        finally:
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await work

    @property
    def dropped(self) -> float:
        """How many were dropped."""
        return self.metrics.registry.get_sample_value("clusterconform_events_dropped_total") or 0.0

    def messages(self) -> list[str]:
        """The messages posted."""
        return [sent.body["message"] for sent in self.api.asked("POST", EVENTS)]


@in_virtual_time
async def test_B89_an_event_has_the_real_uid_and_lies_in_namespace_default() -> None:
    recording = Recording()
    async with recording.running() as recorder:
        recorder.note(note())
    (sent,) = recording.api.sent
    body = sent.body
    name = body["metadata"].pop("name")
    assert re.fullmatch(r"pi\.[0-9a-f]+\.1", name)
    at = START.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert (sent.method, sent.path, sent.content_type) == ("POST", EVENTS, "application/json")
    assert body == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": "pi", "uid": "uid-1"},
        "type": "Warning",
        "reason": "Contested",
        "message": "it is so",
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
        "source": {"component": "clusterconform"},
        "reportingComponent": "clusterconform",
        "reportingInstance": "this-pod",
    }


@pytest.mark.parametrize("name", ["a" * 253, "a" * 199 + "-b", "a" * 199 + ".b", "a." * 126 + "a"])
@in_virtual_time
async def test_B96_the_name_of_an_event_is_a_valid_one_whatever_the_node_is_called(name: str) -> None:
    recording = Recording()
    async with recording.running() as recorder:
        recorder.note(note(name=name))
    posted = recording.api.sent[0].body["metadata"]["name"]
    assert len(posted) <= 253
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", posted)


@in_virtual_time
async def test_no_two_events_have_the_same_name() -> None:
    recording = Recording()
    async with recording.running() as recorder:
        for number in range(BURST):
            recorder.note(note(f"message {number}"))
    assert len(recording.api.names(EVENTS)) == BURST


@in_virtual_time
async def test_a_long_message_is_cut() -> None:
    recording = Recording()
    async with recording.running() as recorder:
        recorder.note(note("x" * 5000))
    assert recording.messages() == ["x" * 1024]


@in_virtual_time
async def test_the_same_thing_about_the_same_object_is_said_once_in_ten_minutes() -> None:
    recording = Recording()
    async with recording.running() as recorder:
        for _ in range(61):
            recorder.note(note())
            await asyncio.sleep(10)
    assert recording.messages() == ["it is so"] * 2
    assert recording.dropped == 0


@in_virtual_time
async def test_another_node_life_reason_or_message_is_another_thing() -> None:
    recording = Recording()
    async with recording.running() as recorder:
        for event in (note(), note(uid="uid-2"), note(reason="Unidentified"), note("it is otherwise")):
            recorder.note(event)
    assert len(recording.messages()) == 4


@in_virtual_time
async def test_a_burst_is_followed_by_a_trickle_and_what_is_dropped_is_counted() -> None:
    recording = Recording()
    async with recording.running() as recorder:
        for number in range(100):
            recorder.note(note(f"first {number}"))
        assert recording.dropped == 100 - BURST
        for number in range(100):
            await asyncio.sleep(0.5)
            recorder.note(note(f"then {number}"))
    assert len(recording.messages()) == BURST + 50
    assert recording.dropped == 100 - BURST + 50


@in_virtual_time
async def test_what_was_dropped_may_be_said_as_soon_as_there_is_room() -> None:
    recording = Recording()
    async with recording.running() as recorder:
        for number in range(BURST + 1):
            recorder.note(note(f"message {number}"))
        await asyncio.sleep(2)
        recorder.note(note(f"message {BURST}"))
    assert f"message {BURST}" in recording.messages()


@in_virtual_time
async def test_noting_never_waits_even_if_nobody_posts() -> None:
    recording = Recording()
    for number in range(1000):
        recording.recorder.note(note(f"message {number}"))
    assert recording.dropped == 1000 - BURST


@pytest.mark.parametrize(
    "answer", [refusal(403, "no"), refusal(404), refusal(500), refusal(422, causes=1), Reply(hang=True)]
)
@in_virtual_time
async def test_B91_an_event_that_cannot_be_posted_is_lost_with_a_line_and_holds_up_nothing(
    answer: Reply, caplog: pytest.LogCaptureFixture
) -> None:
    recording = Recording()
    recording.api.script("POST", EVENTS, answer)
    async with recording.running() as recorder:
        recorder.note(note("lost"))
        recorder.note(note("kept"))
        await asyncio.sleep(60)
    assert recording.messages() == ["lost", "kept"]
    assert [record.message for record in caplog.records] == ["event not posted"]
