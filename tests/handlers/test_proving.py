"""Paths to kubelets, proven by reading logs: whom, how often, how many at once, and what is told."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from builders import Json, agent, probe_pod
from effects_api import PODS, PROFILES, Sent, refusal, reply
from effects_reconciling import World
from effects_time import in_virtual_time

from clusterconform.contract.probe import read_probe
from clusterconform.contract.verdicts import Reason
from clusterconform.handlers.streaming import IN_FLIGHT, StreamingVerifier

AGENT = "pi-4c7adeb6"
LOG = f"{PODS}/dks-runtime-probe-{AGENT}/log"
UNKNOWN = refusal(500, "no preferred addresses found; known addresses: []")
REFUSED = refusal(500, 'Get "https://127.0.226.242:23058/…": dial tcp: connect: connection refused')


def probed(world: World, *names: str) -> None:
    for name in names or (AGENT,):
        world.nodes.roll.take_pod(read_probe(probe_pod(name)))


@contextlib.asynccontextmanager
async def proving(world: World) -> AsyncIterator[StreamingVerifier]:
    verifier = StreamingVerifier(
        roll=world.nodes.roll,
        cluster=world.cluster,
        clock=world.clock,
        metrics=world.metrics.agents,
        changed=world.changed.append,
    )
    work = asyncio.create_task(verifier.run())
    try:
        async with world.working():
            yield verifier
    finally:
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work


def cause(verifier: StreamingVerifier, name: str = AGENT) -> Reason:
    return verifier.trials[name].cause.reason


@in_virtual_time
async def test_a_log_that_can_be_read_even_an_empty_one_verifies() -> None:
    world = World(agent(), addresses="Status")
    probed(world)
    world.api.script("GET", LOG, reply(""), forever=True)
    async with proving(world) as verifier:
        await asyncio.sleep(10)
        assert cause(verifier) is Reason.STREAMING_VERIFIED
        assert "k3s" in world.changed
    sent = world.api.asked("GET", LOG)[0]
    assert sent.query == {"tailLines": "1", "limitBytes": "256"}


@in_virtual_time
async def test_each_node_is_tried_once_in_ten_minutes() -> None:
    world = World(agent(), addresses="Status")
    probed(world)
    world.api.script("GET", LOG, reply(""), forever=True)
    async with proving(world):
        await asyncio.sleep(6 * 3600)
    assert 30 <= len(world.api.asked("GET", LOG)) <= 37


@in_virtual_time
async def test_a_path_that_does_not_work_is_told_with_the_api_server_s_words_and_marks_nothing() -> None:
    world = World(agent(), addresses="Status")
    probed(world)
    world.api.script("GET", LOG, REFUSED, forever=True)
    async with proving(world) as verifier:
        await asyncio.sleep(60)
        assert cause(verifier) is Reason.CONNECTION_REFUSED
        assert "connection refused" in verifier.trials[AGENT].cause.message
    assert not world.node(AGENT)["spec"].get("taints")


@in_virtual_time
async def test_an_address_that_flickers_is_asked_for_once_more() -> None:
    world = World(agent(), addresses="Status")
    probed(world)
    async with proving(world) as verifier:
        await asyncio.sleep(10)
        verifier.trials.clear()
        world.api.script("GET", LOG, UNKNOWN, reply(""))
        await asyncio.sleep(10)
        assert cause(verifier) is Reason.STREAMING_VERIFIED


@in_virtual_time
async def test_a_node_without_an_address_is_known_not_to_work_and_tried_again_when_it_gets_one() -> None:
    world = World(agent(), addresses="Off")
    probed(world)
    world.api.script("GET", LOG, UNKNOWN, forever=True)
    async with proving(world) as verifier:
        await asyncio.sleep(10)
        assert cause(verifier) is Reason.NO_PREFERRED_ADDRESS
        world.api.heal()
        world.api.script("GET", LOG, reply(""), forever=True)
        world.api.change(PROFILES, "k3s", lambda raw: raw["spec"].update(addressReconcile={"mode": "Status"}))
        world.refresh_profiles()
        await asyncio.sleep(10)
        assert cause(verifier) is Reason.STREAMING_VERIFIED


@in_virtual_time
async def test_only_a_few_are_read_at_once() -> None:
    names = [f"pi-{index}" for index in range(100)]
    fleet: list[Json] = [agent(name, uid=name, annotations={"k3s.io/node-args": None}) for name in names]
    world = World(*fleet, addresses="Status")
    probed(world, *names)
    flying, most = 0, 0

    def leaves(sent: Sent) -> None:
        nonlocal flying, most
        flying += sent.path.endswith("/log")
        most = max(most, flying)

    def answered(sent: Sent) -> None:
        nonlocal flying
        flying -= sent.path.endswith("/log")

    for name in names:
        world.api.script("GET", f"{PODS}/dks-runtime-probe-{name}/log", reply(""), forever=True)
    world.api.before, world.api.after = leaves, answered
    async with proving(world) as verifier:
        await asyncio.sleep(60)
        assert len(verifier.trials) == 100
    assert most <= IN_FLIGHT


@in_virtual_time
async def test_without_a_ready_probe_nobody_is_tried() -> None:
    world = World(agent(), addresses="Status")
    world.nodes.roll.take_pod(read_probe(probe_pod(ready_status="False")))
    async with proving(world) as verifier:
        await asyncio.sleep(60)
        assert verifier.trials == {}
    assert world.api.asked("GET", LOG) == []


@in_virtual_time
async def test_switched_off_nobody_is_tried_and_what_was_known_is_forgotten() -> None:
    world = World(agent(), addresses="Status")
    probed(world)
    world.api.script("GET", LOG, reply(""), forever=True)
    async with proving(world) as verifier:
        await asyncio.sleep(10)
        off = {"mode": "Status", "verifyStreaming": False}
        world.api.change(PROFILES, "k3s", lambda raw: raw["spec"].update(addressReconcile=off))
        world.refresh_profiles()
        await asyncio.sleep(10)
        assert (verifier.on, verifier.trials) == (False, {})


@in_virtual_time
async def test_a_pod_that_went_meanwhile_is_no_trial() -> None:
    world = World(agent(), addresses="Status")
    probed(world)
    async with proving(world) as verifier:
        await asyncio.sleep(60)
        assert verifier.trials == {}
    assert len(world.api.asked("GET", LOG)) <= 7
