"""Endpoints at work: published, put back when they are taken away, and given on when their holder goes."""

import asyncio
from typing import Any

import pytest
from builders import Json, address, agent, virtual
from effects_api import NODES, refusal
from effects_reconciling import World
from effects_time import in_virtual_time

from clusterconform.contract.facts import NodeFacts
from clusterconform.contract.settings import Bound
from clusterconform.contract.verdicts import Finding, Reason

AGENT = "pi-4c7adeb6"
STATUS = f"{NODES}/{AGENT}/status"
OURS, INTERNAL = address("ExternalIP", "127.0.226.242"), address("InternalIP", "10.0.0.1")
LOST_TEST = refusal(422, "the server rejected our request due to an error in our request")


def plain(**changes: Any) -> Json:
    return agent(addresses=[INTERNAL], **changes)


def kubelet_writes(raw: Json) -> None:
    """The kubelet puts its own list and its own port back."""
    raw["status"]["addresses"] = [INTERNAL]
    raw["status"]["daemonEndpoints"] = {"kubeletEndpoint": {"Port": 10250}}


def addresses(world: World, name: str = AGENT) -> list[Json]:
    return list(world.node(name)["status"].get("addresses") or [])


def reason(world: World, name: str = AGENT) -> Reason:
    return world.nodes.roll.views[name].address.finding.reason


def endpoint_writes(world: World) -> int:
    return sum(
        sent.method == "PATCH" and sent.path.endswith("/status") and isinstance(sent.body, list)
        for sent in world.api.sent
    )


@in_virtual_time
async def test_an_agent_costs_one_write_and_then_nothing() -> None:
    world = World(plain(), addresses="Status")
    async with world.working():
        await asyncio.sleep(24 * 3600)
    assert addresses(world) == [INTERNAL, OURS]
    assert endpoint_writes(world) == 1
    assert world.count("clusterconform_node_writes_total", write="endpoint", outcome="done") == 1


@in_virtual_time
async def test_A7_what_the_kubelet_takes_away_is_back_as_soon_as_the_watch_tells() -> None:
    world = World(plain(), addresses="Status")
    async with world.working():
        await asyncio.sleep(20)
        for _ in range(30):
            world.change(AGENT, kubelet_writes)
            assert addresses(world) == [INTERNAL]
            await asyncio.sleep(0.1)
            assert addresses(world) == [INTERNAL, OURS]
            await asyncio.sleep(9.9)
    assert reason(world) is Reason.ENDPOINT_PUBLISHED


@in_virtual_time
async def test_B13_a_writer_that_takes_it_away_all_the_time_is_answered_twelve_times_a_minute() -> None:
    world = World(plain(), addresses="Status")
    async with world.working():
        for _ in range(600):
            world.change(AGENT, kubelet_writes)
            await asyncio.sleep(0.5)
        assert reason(world) is Reason.ADDRESS_CONTESTED
        assert endpoint_writes(world) <= 12 * 6
        assert world.events.reasons().count("AddressContested") >= 1
        await asyncio.sleep(120)
    assert reason(world) is Reason.ENDPOINT_PUBLISHED
    assert addresses(world) == [INTERNAL, OURS]


@in_virtual_time
async def test_a_storm_of_lost_tests_ends_in_the_address() -> None:
    world = World(plain(), addresses="Status")
    world.api.script("PATCH", STATUS, *[LOST_TEST, refusal(409, "conflict")] * 10)
    async with world.working():
        await asyncio.sleep(600)
    assert addresses(world) == [INTERNAL, OURS]
    assert world.nodes.failures == {}


@in_virtual_time
async def test_a_refusal_for_good_is_said_and_not_sent_again_until_something_changes() -> None:
    world = World(plain(), addresses="Status")
    world.api.script("PATCH", STATUS, refusal(422, "no such address", causes=1), forever=True)
    async with world.working():
        await asyncio.sleep(600)
        assert endpoint_writes(world) == 1
        assert reason(world) is Reason.WRITE_REJECTED
        assert "WriteRejected" in world.events.reasons()
        world.api.heal()
        world.change(AGENT, lambda raw: raw["status"].update(addresses=[INTERNAL, address("Hostname", "x")]))
        await asyncio.sleep(1)
    assert OURS in addresses(world)


@in_virtual_time
async def test_when_the_holder_of_a_port_goes_the_withheld_node_is_published_at_once() -> None:
    elder, younger = plain(uid="a"), agent("pi-ffffffff", uid="b", addresses=[INTERNAL])
    world = World(elder, younger, addresses="Status")
    async with world.working():
        await asyncio.sleep(5)
        assert (reason(world), reason(world, "pi-ffffffff")) == (Reason.ENDPOINT_PUBLISHED, Reason.PORT_COLLISION)
        assert addresses(world, "pi-ffffffff") == [INTERNAL]
        collisions = [note for note in world.events.notes if note.reason == "PortCollision"]
        assert {note.reference["name"] for note in collisions} == {AGENT, "pi-ffffffff"}  # B12: on both
        world.api.remove(NODES, AGENT)
        await asyncio.sleep(1)
        assert addresses(world, "pi-ffffffff") == [INTERNAL, OURS]


@in_virtual_time
async def test_a_ghost_gives_its_address_to_the_rejoined_node_and_gets_it_back_when_it_recovers() -> None:
    elder, younger = plain(uid="a"), agent("pi-ffffffff", uid="b", addresses=[INTERNAL])
    world = World(elder, younger, addresses="Status")

    def becomes(status: str) -> None:
        world.change(AGENT, lambda raw: raw["status"]["conditions"][0].update(status=status))

    async with world.working():
        await asyncio.sleep(5)
        becomes("Unknown")
        await asyncio.sleep(1)
        assert (addresses(world), addresses(world, "pi-ffffffff")) == ([INTERNAL], [INTERNAL, OURS])
        becomes("True")
        await asyncio.sleep(1)
        assert (addresses(world), addresses(world, "pi-ffffffff")) == ([INTERNAL, OURS], [INTERNAL])


@in_virtual_time
async def test_a_virtual_node_is_never_written_whatever_it_carries() -> None:
    world = World(virtual(addresses=[OURS], port=10250), addresses="Status")
    async with world.working():
        await asyncio.sleep(600)
    assert endpoint_writes(world) == 0
    assert addresses(world, "laptop-vk-podman") == [OURS]


@in_virtual_time
async def test_under_the_observe_bound_it_is_told_and_not_written() -> None:
    world = World(plain(), addresses="Status", bound=Bound.OBSERVE)
    async with world.working():
        await asyncio.sleep(600)
    assert world.api.sent == []
    assert reason(world) is Reason.ENDPOINT_MISSING


@in_virtual_time
async def test_a_missing_right_on_status_is_named_and_the_rest_goes_on() -> None:
    world = World(plain(labels={"outpost.dhnt.io/runtime": None}), addresses="Status")
    forbidden = refusal(403, 'nodes "pi-4c7adeb6" is forbidden: cannot patch resource "nodes/status"')
    world.api.script("PATCH", STATUS, forbidden, forever=True)
    async with world.working():
        await asyncio.sleep(120)
        assert "nodes/status" in world.nodes.failures[AGENT].message
    assert world.node(AGENT)["metadata"]["labels"]["outpost.dhnt.io/runtime"] == "agent"
    assert len(world.api.asked("PATCH", STATUS)) <= 2 * (1 + 120 / 30)


@in_virtual_time
async def test_pinned_records_the_endpoint_in_the_write_that_publishes_it() -> None:
    world = World(plain(), addresses="Pinned")
    async with world.working():
        await asyncio.sleep(60)
    assert endpoint_writes(world) == 1
    pin = world.node(AGENT)["metadata"]["annotations"]["outpost.dhnt.io/kubelet-endpoint"]
    assert (pin, addresses(world)) == ("127.0.226.242:23058", [INTERNAL, OURS])


@in_virtual_time
async def test_B66_a_real_external_ip_is_kept_and_reported_once() -> None:
    real = address("ExternalIP", "203.0.113.5")
    world = World(agent(addresses=[INTERNAL, real]), addresses="Status")
    async with world.working():
        await asyncio.sleep(600)
    assert addresses(world) == [OURS, INTERNAL, real]
    assert world.events.reasons().count("RealExternalIP") == 1


@in_virtual_time
async def test_of_thousands_of_nodes_that_join_one_by_one_only_the_newcomer_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain_args = {"k3s.io/node-args": None}
    fleet = [agent(f"node-{index}", uid=f"{index:05}", annotations=plain_args) for index in range(300)]
    world = World(*fleet, addresses="Status")
    looked: list[str] = []
    async with world.working():
        await asyncio.sleep(60)

        def note(node: NodeFacts, *_: object) -> tuple[bool, list[Finding]]:
            looked.append(node.name)
            return False, []

        monkeypatch.setattr(world.nodes.roll, "note", note)
        world.api.put(NODES, agent("newcomer-1", uid="zzz", annotations=plain_args))
        await asyncio.sleep(60)
    assert set(looked) == {"newcomer-1"}
