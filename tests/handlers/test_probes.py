"""The probe's DaemonSet kept, its pods known, its troubles said once; the pinning policy looked for."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from builders import BORN, START, Json, address, agent, probe_pod
from effects_api import DAEMONSETS, NODES, PODS, PROFILES, refusal
from effects_reconciling import World
from effects_time import in_virtual_time

from clusterconform.contract.names import RUNTIME_READY_LABEL
from clusterconform.contract.settings import Bound
from clusterconform.contract.verdicts import Reason
from clusterconform.decisions.daemonset import DAEMONSET_PATH, daemonset
from clusterconform.handlers.pinning import PATHS, PinningCheck
from clusterconform.handlers.probes import ProbeKeeper

AGENT = "pi-4c7adeb6"
NAME = "dks-runtime-probe"
FORBIDDEN = refusal(403, 'daemonsets.apps is forbidden: cannot get resource "daemonsets"')
ABSENT = refusal(404, "not found")


def keeper(world: World, bound: Bound = Bound.ENFORCE) -> ProbeKeeper:
    return ProbeKeeper(
        cache=world.cache,
        roll=world.nodes.roll,
        cluster=world.cluster,
        bound=bound,
        node_due=world.nodes.queue.add,
        changed=world.changed.append,
    )


@contextlib.asynccontextmanager
async def keeping(world: World, bound: Bound = Bound.ENFORCE) -> AsyncIterator[ProbeKeeper]:
    probes = keeper(world, bound)
    assert await probes.may_watch()
    work = asyncio.create_task(probes.run())
    try:
        await asyncio.sleep(1)
        yield probes
    finally:
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work


def trouble_of(probes: ProbeKeeper) -> Reason | None:
    return probes.trouble.reason if probes.trouble else None


def profile(world: World, **probe: Any) -> None:
    world.api.change(PROFILES, "k3s", lambda raw: raw["spec"].update(runtimeProbe=probe))
    world.refresh_profiles()


def stored(world: World) -> Json:
    return world.api.get(DAEMONSETS, NAME)


@in_virtual_time
async def test_C12_it_is_made_and_then_left_alone() -> None:
    world = World(agent())
    async with keeping(world):
        assert stored(world)["spec"] == daemonset("rancher/mirrored-pause:3.6")["spec"]
        world.api.sent.clear()
        await asyncio.sleep(3600)
    assert world.api.writes() == []


@in_virtual_time
async def test_D15_what_somebody_changes_is_put_back_when_the_watch_tells() -> None:
    world = World(agent())
    async with keeping(world) as probes:
        world.api.change(DAEMONSETS, NAME, lambda raw: raw["spec"]["template"]["spec"].update(hostNetwork=True))
        probes.daemonset()
        await asyncio.sleep(1)
        assert "hostNetwork" not in stored(world)["spec"]["template"]["spec"]


@in_virtual_time
async def test_D15_what_a_watch_lost_is_put_back_within_ten_minutes() -> None:
    world = World(agent())
    async with keeping(world):
        world.api.change(DAEMONSETS, NAME, lambda raw: raw["spec"]["template"]["spec"].update(tolerations=[]))
        await asyncio.sleep(601)
        assert stored(world)["spec"]["template"]["spec"]["tolerations"] != []


@in_virtual_time
async def test_D15_another_selector_is_answered_by_a_daemonset_made_anew() -> None:
    world = World(agent())
    async with keeping(world) as probes:
        world.api.change(DAEMONSETS, NAME, lambda raw: raw["spec"].update(selector={"matchLabels": {"a": "b"}}))
        probes.daemonset()
        await asyncio.sleep(1)
        assert stored(world)["spec"] == daemonset("")["spec"]
    assert len(world.api.asked("DELETE", DAEMONSET_PATH)) == 1


@in_virtual_time
async def test_C13_off_takes_it_away_and_on_brings_it_back() -> None:
    world = World(agent())
    async with keeping(world) as probes:
        profile(world, mode="Off")
        probes.daemonset()
        await asyncio.sleep(1)
        assert world.api.names(DAEMONSETS) == []
        profile(world, mode="Observe")
        probes.daemonset()
        await asyncio.sleep(1)
        assert world.api.names(DAEMONSETS) == [NAME]


@in_virtual_time
async def test_under_the_observe_bound_it_is_left_as_it_is_and_its_pods_are_read() -> None:
    world = World(agent())
    world.api.put(PODS, probe_pod())
    async with keeping(world, Bound.OBSERVE):
        assert [pod.name for pod in world.nodes.roll.pods()] == [f"dks-runtime-probe-{AGENT}"]
    assert world.api.writes() == []


@in_virtual_time
async def test_a_profile_that_only_observes_leaves_it_as_it_is() -> None:
    world = World(agent())
    world.api.change(PROFILES, "k3s", lambda raw: raw["spec"].update(enforcement="Observe"))
    world.refresh_profiles()
    async with keeping(world):
        world.api.sent.clear()
        await asyncio.sleep(1300)
    assert world.api.sent == []


@in_virtual_time
async def test_a_missing_right_is_one_word_and_no_loop_of_errors(caplog: pytest.LogCaptureFixture) -> None:
    world = World(agent())
    world.api.script("GET", DAEMONSET_PATH, FORBIDDEN, forever=True)
    async with keeping(world) as probes:
        await asyncio.sleep(3600)
        assert trouble_of(probes) is Reason.PROBE_NOT_KEPT
        assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1
        assert len(world.api.asked("GET", DAEMONSET_PATH)) <= 70
        world.api.heal()
        await asyncio.sleep(61)
        assert trouble_of(probes) is None
        assert world.api.names(DAEMONSETS) == [NAME]


@in_virtual_time
async def test_whether_pods_may_be_watched_is_tried_and_a_refusal_told() -> None:
    world = World(agent())
    probes = keeper(world)
    assert await probes.may_watch()
    world.api.script("GET", PODS, refusal(403, "cannot list pods"), forever=True)
    assert not await probes.may_watch()
    assert probes.trouble is not None
    assert "cannot list pods" in probes.trouble.message


@in_virtual_time
async def test_a_ready_probe_marks_its_node_after_it_has_held() -> None:
    world = World(agent())
    async with keeping(world) as probes, world.working():
        probes.pod("ADDED", probe_pod(transition=BORN))
        await asyncio.sleep(29)
        assert "outpost.dhnt.io/runtime-ready" not in world.node(AGENT)["metadata"]["labels"]
        await asyncio.sleep(2)
        assert world.node(AGENT)["metadata"]["labels"]["outpost.dhnt.io/runtime-ready"] == "true"


@in_virtual_time
async def test_C17_an_update_that_met_another_writer_is_tried_again_and_holds_up_no_other_node() -> None:
    other = "pi-00000001"
    world = World(agent(), agent(other))
    world.api.script("PATCH", f"{NODES}/{AGENT}", refusal(409, "the object has been modified"))
    async with world.working(), keeping(world) as probes:
        for name in (AGENT, other):
            probes.pod("ADDED", probe_pod(name, transition=BORN))
        await asyncio.sleep(120)
    assert [world.node(name)["metadata"]["labels"].get(RUNTIME_READY_LABEL) for name in (AGENT, other)] == [
        "true"
    ] * 2
    marks = [
        sent for sent in world.api.asked("PATCH", f"{NODES}/{AGENT}") if RUNTIME_READY_LABEL in str(sent.body)
    ]
    assert len(marks) == 2
    assert len(world.api.asked("PATCH", f"{NODES}/{other}")) == 1


@in_virtual_time
async def test_a_probe_that_stays_unready_taints_its_node_when_grace_ends_though_nothing_happens() -> None:
    world = World(agent("pi-1"), agent())
    created = START.strftime("%Y-%m-%dT%H:%M:%SZ")
    async with keeping(world) as probes, world.working():
        probes.pod("ADDED", probe_pod(ready_status="False", created=created))
        await asyncio.sleep(118)
        assert not world.node(AGENT)["spec"].get("taints")
        await asyncio.sleep(2 + 30 + 2)
        assert [taint["value"] for taint in world.node(AGENT)["spec"]["taints"]] == ["sandbox"]
        assert "RuntimeUnavailable" in world.events.reasons()


@in_virtual_time
async def test_a_pod_that_is_not_listed_any_more_is_forgotten_and_an_older_word_does_not_count() -> None:
    world = World(agent())
    async with keeping(world) as probes:
        newer = probe_pod()
        newer["metadata"]["resourceVersion"] = "9"
        probes.pod("ADDED", newer)
        probes.pod("MODIFIED", probe_pod(ready_status="False"))
        (seen,) = world.nodes.roll.pods()
        assert seen.ready is not None
        assert seen.ready.status == "True"
        await asyncio.sleep(601)
        assert list(world.nodes.roll.pods()) == []


@in_virtual_time
async def test_what_is_no_pod_is_said_and_disturbs_nobody() -> None:
    world = World(agent())
    probes = keeper(world)
    probes.pod("ADDED", {"metadata": {"name": 5}})
    probes.pod("DELETED", probe_pod())
    assert list(world.nodes.roll.pods()) == []


# --- the policy that pins ------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def checking(world: World) -> AsyncIterator[PinningCheck]:
    check = PinningCheck(roll=world.nodes.roll, cluster=world.cluster, changed=world.changed.append)
    work = asyncio.create_task(check.run())
    try:
        await asyncio.sleep(1)
        yield check
    finally:
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work


@in_virtual_time
async def test_in_any_mode_but_pinned_nobody_looks_for_the_policy() -> None:
    world = World(agent(), addresses="Status")
    async with checking(world) as check:
        await asyncio.sleep(3600)
        assert (check.missing, world.api.sent) == ("", [])


@pytest.mark.parametrize("absent", PATHS, ids=["policy", "binding"])
def test_a_missing_policy_or_binding_is_said(absent: str) -> None:
    @in_virtual_time
    async def check_it() -> None:
        world = World(agent(), addresses="Pinned")
        for path in PATHS:
            answer = ABSENT if path == absent else refusal(200)
            world.api.script("GET", path, answer, forever=True)
        async with checking(world) as check:
            assert check.missing == "not found"
            assert "k3s" in world.changed

    check_it()


@in_virtual_time
async def test_a_policy_that_was_removed_while_running_is_noticed_by_the_address_that_vanishes() -> None:
    own = [address("InternalIP", "10.0.0.1")]
    world = World(agent(addresses=own), addresses="Pinned")
    for path in PATHS:
        world.api.script("GET", path, refusal(200), forever=True)
    async with checking(world) as check, world.working():
        await asyncio.sleep(10)
        assert check.missing == ""
        world.api.heal()
        for path in PATHS:
            world.api.script("GET", path, ABSENT, forever=True)
        world.change(AGENT, lambda raw: raw["status"].update(addresses=own))
        await asyncio.sleep(10)
        assert check.missing == "not found"
    assert len(world.node(AGENT)["status"]["addresses"]) == 2
