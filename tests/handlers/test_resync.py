"""Our own lists: when the picture counts as complete, and what is concluded from what a list lacks."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from builders import Json, agent, manifest, virtual
from effects_api import CONFIGMAPS, NODES, PROFILES, FakeApi, Reply, Sent, refusal, reply
from effects_cluster import FakeCluster
from effects_reconciling import World
from effects_time import LoopClock, in_virtual_time

from clusterconform.contract.facts import read_node, view_node
from clusterconform.contract.matrix import MATRIX
from clusterconform.contract.profile import manifest_of, read_profile
from clusterconform.effects.errors import ApiError, GoneError
from clusterconform.effects.metrics import Metrics
from clusterconform.handlers.cache import Cache
from clusterconform.handlers.resync import PERIOD_SECONDS, EvidenceIncompleteError, Resync

NAMES = [f"host{number}-vk-podman" for number in range(5)]


NO_PROFILES = {"kind": "RuntimeProfileList", "metadata": {"resourceVersion": "1"}, "items": []}


def hide_profiles(api: FakeApi, answer: Reply, *, alone: bool = False) -> None:
    """Give ``answer`` to each list of all profiles, or of one alone."""
    api.script("GET", PROFILES, answer, forever=True, only=lambda sent: ("fieldSelector" in sent.query) == alone)


class Listing:
    """A resync with its API server and what it told."""

    def __init__(self, *, seeded: bool = True, nodes: int = 5, page: int | None = 2) -> None:
        self.api, self.metrics, self.cache = FakeApi(), Metrics(), Cache()
        self.api.page = page
        self.due, self.catalogue_changes = list[str](), 0
        for number in range(nodes):
            self.api.put(NODES, virtual(host=f"host{number}", uid=f"uid-{number}"))
        if seeded:
            for row in MATRIX.values():
                self.api.put(PROFILES, manifest_of(row))
            self.api.put(
                CONFIGMAPS, {"metadata": {"name": "clusterconform-state"}, "data": {"seeded": ",".join(MATRIX)}}
            )
        self.resync = Resync(
            cache=self.cache,
            cluster=FakeCluster(self.api, self.metrics),
            clock=LoopClock(),
            node_due=self.due.append,
            catalogue_changed=self._catalogue_changed,
        )

    def _catalogue_changed(self) -> None:
        self.catalogue_changes += 1

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """First list, then the others in the background."""

        async def both() -> None:
            await self.resync.first()
            await self.resync.run()

        work = asyncio.create_task(both())
        try:
            yield
        finally:
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await work

    def synced(self) -> bool:
        """Whether the picture was complete once."""
        return self.resync.synced_at is not None

    def pages(self) -> list[str]:
        """The continue tokens of the node lists asked for, empty for a first page."""
        return [sent.query.get("continue", "") for sent in self.api.asked("GET", NODES)]


@in_virtual_time
async def test_the_first_list_makes_the_picture_complete() -> None:
    listing = Listing()
    assert not listing.synced()
    await listing.resync.first()
    assert listing.cache.names() == NAMES
    assert set(listing.cache.profiles()) == set(MATRIX)
    assert listing.due == NAMES
    assert listing.catalogue_changes == 1
    assert listing.synced()
    assert listing.pages() == ["", "2", "4"]
    assert listing.api.writes() == []


@in_virtual_time
async def test_lists_are_asked_for_in_pages_of_500() -> None:
    listing = Listing(page=None)
    await listing.resync.first()
    assert listing.api.asked("GET", NODES)[0].query == {"limit": "500"}


@in_virtual_time
async def test_410_on_page_three_starts_the_list_again_from_the_beginning() -> None:
    listing = Listing()
    page = reply({"kind": "NodeList", "metadata": {"continue": "2", "resourceVersion": "1"}, "items": []})
    again = reply({"kind": "NodeList", "metadata": {"continue": "4", "resourceVersion": "1"}, "items": []})
    listing.api.script("GET", NODES, page, again, refusal(410, "the provided continue parameter is too old"))
    await listing.resync.once()
    assert listing.pages() == ["", "2", "4", "", "2", "4"]
    assert listing.cache.names() == NAMES
    assert listing.synced()


@in_virtual_time
async def test_410_twice_is_no_complete_list_and_forgets_nothing() -> None:
    listing = Listing()
    await listing.resync.once()
    at = listing.resync.synced_at
    listing.api.script("GET", NODES, refusal(410), refusal(410))
    with pytest.raises(GoneError):
        await listing.resync.once()
    assert listing.cache.names() == NAMES
    assert listing.resync.synced_at == at


@pytest.mark.parametrize(
    "answer",
    [
        refusal(500, "etcd leader changed"),
        refusal(503),
        refusal(403, "nodes is forbidden"),
        Reply(hang=True),
        Reply(cut=True),
        Reply(body=b""),
        Reply(body=b"<html>"),
        Reply(body=b"{}"),
        Reply(body=b"[]"),
        Reply(body=b'{"items": "many"}'),
        Reply(body=b'{"items": [{"metadata": {"name": 7}}]}'),
        Reply(body=b'{"metadata": {"continue": 7}, "items": []}'),
    ],
)
@pytest.mark.parametrize("path", [NODES, PROFILES])
@in_virtual_time
async def test_B04_a_list_that_is_none_ends_in_our_own_error_and_forgets_nothing(path: str, answer: Reply) -> None:
    listing = Listing()
    await listing.resync.once()
    listing.due.clear()
    listing.api.script("GET", path, answer)
    with pytest.raises((ApiError, EvidenceIncompleteError)):
        await listing.resync.once()
    assert listing.cache.names() == NAMES
    assert set(listing.cache.profiles()) == set(MATRIX)
    assert listing.due == []
    assert listing.api.writes() == []


@pytest.mark.parametrize("body", [b'{"items": [null]}', b'{"items": ["k3s"]}', b'{"items": [{"metadata": {}}]}'])
@in_virtual_time
async def test_B04_a_list_of_profiles_with_something_else_in_it_is_not_believed(body: bytes) -> None:
    listing = Listing()
    await listing.resync.once()
    listing.api.script("GET", PROFILES, Reply(body=body))
    with pytest.raises((ApiError, EvidenceIncompleteError)):
        await listing.resync.once()
    assert set(listing.cache.profiles()) == set(MATRIX)


@pytest.mark.parametrize("path", [NODES, PROFILES])
@pytest.mark.parametrize("answer", [refusal(500), Reply(hang=True), refusal(403, "forbidden")])
@in_virtual_time
async def test_B04_while_a_list_fails_at_the_start_nothing_is_complete_or_written(
    path: str, answer: Reply
) -> None:
    listing = Listing()
    listing.api.script("GET", path, answer, forever=True)
    async with listing.running():
        await asyncio.sleep(1000)
        assert not listing.synced()
        assert listing.api.writes() == []
        listing.api.heal()
        await asyncio.sleep(120)
        assert listing.synced()
    assert listing.cache.names() == NAMES


@in_virtual_time
async def test_B04_failing_lists_are_tried_again_ever_more_slowly_and_told_once(caplog: Any) -> None:
    listing = Listing()
    listing.api.script("GET", NODES, refusal(500, "etcd is sad"), forever=True)
    async with listing.running():
        await asyncio.sleep(3600)
    assert 50 < len(listing.pages()) < 70
    assert len([line for line in caplog.records if line.levelname == "WARNING"]) == 1


@in_virtual_time
async def test_B04_one_empty_list_of_profiles_at_the_start_is_no_evidence() -> None:
    listing = Listing()
    empty = reply({"kind": "RuntimeProfileList", "metadata": {"resourceVersion": "1"}, "items": []})
    listing.api.script("GET", PROFILES, empty, empty, empty)
    async with listing.running():
        await asyncio.sleep(120)
    assert set(listing.cache.profiles()) == set(MATRIX)
    assert listing.api.writes() == []


@in_virtual_time
async def test_a_cluster_whose_profiles_were_all_deleted_on_purpose_is_believed_in_the_end() -> None:
    listing = Listing()
    for name in list(MATRIX):
        listing.api.remove(PROFILES, name)
    async with listing.running():
        await asyncio.sleep(120)
        assert listing.synced()
    assert listing.cache.profiles() == {}
    assert listing.api.names(PROFILES) == []


@in_virtual_time
async def test_B04_profiles_that_an_empty_list_hides_are_kept_while_a_list_of_each_finds_them() -> None:
    listing = Listing()
    await listing.resync.first()
    hide_profiles(listing.api, reply(NO_PROFILES))
    async with listing.running():
        await asyncio.sleep(7200)
    assert set(listing.cache.profiles()) == set(MATRIX)


@pytest.mark.parametrize("answer", [refusal(500), refusal(403), Reply(body=b"{}"), reply({"items": None})])
@in_virtual_time
async def test_a_profile_that_a_list_lacks_is_kept_while_a_list_of_it_alone_is_no_answer(answer: Reply) -> None:
    listing = Listing()
    await listing.resync.first()
    hide_profiles(listing.api, reply(NO_PROFILES))
    hide_profiles(listing.api, answer, alone=True)
    async with listing.running():
        await asyncio.sleep(7200)
    assert set(listing.cache.profiles()) == set(MATRIX)


@in_virtual_time
async def test_a_kind_that_is_gone_has_no_objects_any_more_and_is_believed_in_the_end() -> None:
    """The CRD was deleted, and the watch did not tell of the profiles that went with it."""
    listing = Listing()
    await listing.resync.first()
    for alone in (False, True):
        hide_profiles(listing.api, refusal(404, "the server could not find the requested resource"), alone=alone)
    for _ in range(2):
        with pytest.raises(EvidenceIncompleteError):
            await listing.resync.once()
        assert set(listing.cache.profiles()) == set(MATRIX)
    await listing.resync.once()
    assert listing.cache.profiles() == {}
    assert not await listing.resync.profiles_served()
    listing.api.heal()
    for name, row in MATRIX.items():
        listing.api.remove(PROFILES, name)
        listing.api.put(PROFILES, manifest_of(row))
    assert await listing.resync.profiles_served()
    await listing.resync.once()
    assert set(listing.cache.profiles()) == set(MATRIX)


@in_virtual_time
async def test_a_profile_that_is_gone_is_dropped_and_told() -> None:
    listing = Listing()
    await listing.resync.first()
    listing.api.remove(PROFILES, "vk-native")
    await listing.resync.once()
    assert "vk-native" not in listing.cache.profiles()
    assert listing.catalogue_changes == 2


@in_virtual_time
async def test_a_list_that_brings_nothing_new_wakes_nobody() -> None:
    listing = Listing()
    await listing.resync.first()
    listing.due.clear()
    await listing.resync.once()
    assert listing.due == []
    assert listing.catalogue_changes == 1


@in_virtual_time
async def test_what_a_watch_lost_is_found_within_ten_minutes() -> None:
    listing = Listing()
    async with listing.running():
        await asyncio.sleep(1)
        listing.due.clear()
        listing.api.change(NODES, NAMES[0], lambda raw: raw["spec"].pop("taints"))
        listing.api.put(NODES, agent())
        listing.api.remove(NODES, NAMES[1])
        await asyncio.sleep(PERIOD_SECONDS + 1)
    assert set(listing.due) == {NAMES[0], NAMES[1], "pi-4c7adeb6"}
    assert listing.cache.node(NAMES[1]) is None


@pytest.mark.parametrize("answer", [refusal(500), refusal(403), Reply(hang=True), Reply(body=b"<html>")])
@in_virtual_time
async def test_a_node_that_a_list_lacks_is_forgotten_only_after_a_get_says_404(answer: Reply) -> None:
    listing = Listing()
    await listing.resync.first()
    listing.due.clear()
    listing.api.remove(NODES, NAMES[0])
    listing.api.script("GET", f"{NODES}/{NAMES[0]}", answer)
    with pytest.raises(ApiError):
        await listing.resync.once()
    assert listing.cache.names() == NAMES
    await listing.resync.once()
    assert listing.cache.names() == NAMES[1:]
    assert listing.due == [NAMES[0]]


@in_virtual_time
async def test_a_list_that_lies_costs_few_requests_and_forgets_nobody() -> None:
    listing = Listing(nodes=300, page=None)
    await listing.resync.first()
    listing.api.sent.clear()
    lie = reply({"kind": "NodeList", "metadata": {"resourceVersion": "9999"}, "items": []})
    listing.api.script("GET", NODES, lie)
    await listing.resync.once()
    assert len(listing.cache) == 300
    assert len(listing.api.sent) <= 203


@in_virtual_time
async def test_a_node_younger_than_the_list_is_not_asked_for() -> None:
    listing = Listing()
    await listing.resync.first()
    younger = agent()
    younger["metadata"]["resourceVersion"] = "5000"
    listing.cache.observe(read_node(view_node(younger)))
    await listing.resync.once()
    assert listing.cache.node("pi-4c7adeb6") is not None
    assert listing.api.asked("GET", f"{NODES}/pi-4c7adeb6") == []


@in_virtual_time
async def test_a_node_deleted_while_the_list_was_read_leaves_no_ghost() -> None:
    """The first page still shows it; the watch tells of the deletion before the last page is there."""
    listing = Listing()
    await listing.resync.first()

    def gone(sent: Sent) -> None:
        if sent.query.get("continue") == "4":
            listing.api.after = lambda _: None
            listing.api.remove(NODES, NAMES[0])
            listing.cache.forget(NAMES[0], "uid-0")

    listing.api.after = gone
    await listing.resync.once()
    assert listing.cache.names() == NAMES[1:]


@in_virtual_time
async def test_a_profile_edited_while_the_list_was_read_stays_edited() -> None:
    """The first page shows the old spec; the watch tells of the edit before the last page is there."""
    listing = Listing(page=3)
    await listing.resync.first()

    def edited(sent: Sent) -> None:
        if sent.path == PROFILES and "continue" in sent.query:
            listing.api.after = lambda _: None
            new = listing.api.change(PROFILES, "k3s", lambda raw: raw["spec"].update(enforcement="Observe"))
            listing.cache.set_profile(read_profile(new))

    listing.api.after = edited
    await listing.resync.once()
    assert listing.cache.catalogue.profiles["k3s"].enforcement == "Observe"


@in_virtual_time
async def test_a_profile_deleted_while_the_list_was_read_stays_deleted() -> None:
    listing = Listing(page=3)
    await listing.resync.first()

    def deleted(sent: Sent) -> None:
        if sent.path == PROFILES and "continue" in sent.query:
            listing.api.after = lambda _: None
            uid = listing.api.get(PROFILES, "k3s")["metadata"]["uid"]
            listing.api.remove(PROFILES, "k3s")
            listing.cache.drop_profile("k3s", uid)

    listing.api.after = deleted
    await listing.resync.once()
    assert "k3s" not in listing.cache.profiles()


@in_virtual_time
async def test_a_profile_made_while_the_list_was_read_stays() -> None:
    listing = Listing(page=3)
    await listing.resync.first()

    def made(sent: Sent) -> None:
        if sent.path == PROFILES and "continue" in sent.query:
            listing.api.after = lambda _: None
            listing.cache.set_profile(read_profile(listing.api.put(PROFILES, wasm())))

    listing.api.after = made
    await listing.resync.once()
    assert "vk-wasm" in listing.cache.profiles()


@in_virtual_time
async def test_one_answer_that_is_no_json_does_not_end_the_resync() -> None:
    """A proxy's page in place of one object; the watch has gone on, and so must this."""
    listing = Listing()
    async with listing.running():
        await asyncio.sleep(1)
        listing.api.remove(NODES, NAMES[0])
        listing.api.script("GET", f"{NODES}/{NAMES[0]}", Reply(body=b"<html>"))
        await asyncio.sleep(3 * PERIOD_SECONDS)
    assert listing.cache.names() == NAMES[1:]


@in_virtual_time
async def test_a_failed_resync_is_tried_again_sooner() -> None:
    listing = Listing()
    async with listing.running():
        await asyncio.sleep(1)
        listing.api.script("GET", NODES, refusal(500))
        listing.api.sent.clear()
        await asyncio.sleep(PERIOD_SECONDS + 61)
    assert len(listing.pages()) == 1 + 3


@in_virtual_time
async def test_an_empty_cluster_is_seeded_and_then_complete() -> None:
    listing = Listing(seeded=False, nodes=0)
    await listing.resync.first()
    assert set(listing.cache.profiles()) == set(MATRIX)
    assert listing.cache.catalogue.refusals == {}
    assert len(listing.cache) == 0


@in_virtual_time
async def test_B04_no_node_is_written_before_the_first_list_is_complete() -> None:
    """The watch has brought a drifted node; the lists fail; the whole chain waits."""
    world = World(virtual(taints=[]), synced=False)
    resync = Resync(
        cache=world.cache,
        cluster=world.cluster,
        clock=world.clock,
        node_due=world.nodes.queue.add,
        catalogue_changed=world.refresh_profiles,
    )
    world.api.script("GET", NODES, refusal(500), forever=True)

    async def first() -> None:
        await resync.first()
        world.nodes.may_act.set()
        world.refresh_profiles()

    async with world.working():
        work = asyncio.create_task(first())
        await asyncio.sleep(500)
        assert world.api.writes(NODES) == []
        world.api.heal()
        await asyncio.sleep(100)
        await work
    assert len(world.api.writes(NODES)) == 2


def wasm() -> Json:
    """A further virtual profile."""
    return manifest("vk-wasm", manifest_of(MATRIX["vk-podman"])["spec"] | {"backend": "vk-wasm"})
