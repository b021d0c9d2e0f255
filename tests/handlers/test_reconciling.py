"""One node at a time: what is sent, what is tried again and when, and what is said about it."""

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from builders import TAINT, VIRTUAL_SPEC, Json, agent, bare, conformant, manifest, ready, virtual
from effects_api import NODES, PROFILES, Reply, Sent, refusal
from effects_reconciling import World
from effects_time import in_virtual_time

from clusterconform.contract.facts import read_node, view_node
from clusterconform.contract.names import BACKEND_LABEL, HOST_LABEL, RUNTIME_LABEL
from clusterconform.contract.plan import PROVIDER_TAINT_MARK
from clusterconform.contract.settings import Bound

DAY = 24 * 3600.0
AGENT, VIRTUAL = "pi-4c7adeb6", "laptop-vk-podman"
AGENT_PATH, VIRTUAL_PATH = f"{NODES}/{AGENT}", f"{NODES}/{VIRTUAL}"
LOST_TEST = refusal(422, "the server rejected our request due to an error in our request")
FORBIDDEN = refusal(403, 'nodes "pi-4c7adeb6" is forbidden: User "x" cannot patch resource "nodes"')


def without_runtime(**changes: Any) -> Json:
    """An agent that lost its runtime label."""
    return agent(labels={RUNTIME_LABEL: None}, **changes)


def with_images(name: str) -> Callable[[Json], None]:
    """The kubelet reports another image."""

    def change(raw: Json) -> None:
        raw["status"]["images"] = [{"names": [name]}]

    return change


def relabelled(value: str) -> Callable[[Json], None]:
    """Somebody sets the runtime label to ``value``."""

    def change(raw: Json) -> None:
        raw["metadata"]["labels"][RUNTIME_LABEL] = value

    return change


@in_virtual_time
async def test_a_drifted_node_costs_one_patch_and_then_one_condition() -> None:
    world = World(without_runtime())
    async with world.working():
        await asyncio.sleep(DAY)
    assert [(sent.method, sent.path) for sent in world.api.sent] == [
        ("PATCH", AGENT_PATH),
        ("PATCH", f"{AGENT_PATH}/status"),
    ]
    assert world.node(AGENT)["metadata"]["labels"][RUNTIME_LABEL] == "agent"
    assert world.condition(AGENT) == ("True", "Conforms")
    assert world.count("clusterconform_node_writes_total", write="marks", outcome="done") == 1
    assert world.count("clusterconform_node_writes_total", write="condition", outcome="done") == 1


@in_virtual_time
async def test_a_conforming_node_with_its_condition_is_never_written() -> None:
    world = World(agent())
    async with world.working():
        await asyncio.sleep(20)
        world.api.sent.clear()
        for beat in range(100):
            world.change(AGENT, with_images(str(beat)))
            world.nodes.queue.add(AGENT)
            await asyncio.sleep(10)
    assert world.api.sent == []


@in_virtual_time
async def test_B21_five_lost_tests_and_then_success_with_every_conflict_counted() -> None:
    world = World(without_runtime())
    world.api.script("PATCH", AGENT_PATH, *[LOST_TEST] * 5)
    async with world.working():
        await asyncio.sleep(60)
    assert world.count("clusterconform_write_conflicts_total") == 5
    assert len(world.api.asked("PATCH", AGENT_PATH)) == 6
    assert len(world.api.asked("GET", AGENT_PATH)) == 5
    assert world.node(AGENT)["metadata"]["labels"][RUNTIME_LABEL] == "agent"
    assert world.nodes.failures == {}


@in_virtual_time
async def test_B21_lost_tests_are_tried_again_with_a_backoff_that_doubles() -> None:
    world, times = World(without_runtime()), list[float]()
    world.api.script("PATCH", AGENT_PATH, LOST_TEST, forever=True)
    world.api.before = lambda sent: times.append(world.clock.uptime()) if sent.method == "PATCH" else None
    async with world.working():
        await asyncio.sleep(600)
    gaps = [round(later - earlier, 1) for earlier, later in pairwise(times)]
    assert gaps[:8] == [0.1, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4]
    assert max(gaps) == pytest.approx(60, abs=1)


@in_virtual_time
async def test_B19_a_taint_that_another_writer_adds_between_read_and_write_is_kept() -> None:
    world = World(virtual(taints=[{"key": "x", "effect": "NoSchedule"}]))
    foreign = {"key": "y", "value": "1", "effect": "NoExecute", "timeAdded": "2026-08-01T00:00:00Z"}

    def another_writer(sent: Sent) -> None:
        if sent.method == "PATCH":
            world.api.before = lambda _: None
            world.change(VIRTUAL, lambda raw: raw["spec"]["taints"].append(foreign))

    world.api.before = another_writer
    async with world.working():
        await asyncio.sleep(5)
    assert world.node(VIRTUAL)["spec"]["taints"] == [{"key": "x", "effect": "NoSchedule"}, foreign, TAINT]
    assert world.count("clusterconform_write_conflicts_total") == 1


@in_virtual_time
async def test_a_node_that_answers_404_is_forgotten_and_asked_no_more() -> None:
    world = World(without_runtime())
    world.api.script("PATCH", AGENT_PATH, refusal(404), forever=True)
    async with world.working():
        await asyncio.sleep(DAY)
    assert len(world.api.sent) == 1
    assert world.cache.node(AGENT) is None
    assert world.nodes.verdicts == {}
    assert world.nodes.failures == {}


@in_virtual_time
async def test_a_node_that_is_gone_after_a_lost_test_is_forgotten() -> None:
    world = World(without_runtime())
    world.api.script("PATCH", AGENT_PATH, LOST_TEST)
    world.api.script("GET", AGENT_PATH, refusal(404))
    async with world.working():
        await asyncio.sleep(DAY)
    assert world.cache.node(AGENT) is None
    assert len(world.api.sent) == 2


@in_virtual_time
async def test_a_node_of_the_same_name_that_came_meanwhile_is_not_forgotten_by_a_late_404() -> None:
    world = World(without_runtime())

    def replaced(_: Sent) -> None:
        world.api.after = lambda _: None
        successor = agent(uid="uid-2")
        successor["metadata"]["resourceVersion"] = "900"
        world.cache.observe(read_node(view_node(successor)))

    world.api.script("PATCH", AGENT_PATH, refusal(404))
    world.api.after = replaced
    async with world.working():
        await asyncio.sleep(5)
    node = world.cache.node(AGENT)
    assert node is not None
    assert node.uid == "uid-2"


@in_virtual_time
async def test_403_is_named_in_failures_and_tried_again_slowly() -> None:
    world, times = World(without_runtime()), list[float]()
    world.api.script("PATCH", AGENT_PATH, FORBIDDEN, forever=True)
    world.api.before = lambda sent: times.append(world.clock.uptime()) if sent.path == AGENT_PATH else None
    async with world.working():
        await asyncio.sleep(301)
        failure = world.nodes.failures[AGENT]
    assert failure.profile == "k3s"
    assert "cannot patch resource" in failure.message
    assert len(world.api.asked("PATCH", AGENT_PATH)) <= 1 + 301 / 30
    assert all(later - earlier >= 29.9 for earlier, later in pairwise(times))
    assert world.changed.count("k3s") == 3  # once for the verdict, once for the endpoint, once for the failure


@in_virtual_time
async def test_403_on_the_patch_does_not_hide_a_drift_that_outlives_thirty_seconds() -> None:
    """False is the truth about a drift that we cannot repair, and /status is a right of its own."""
    world = World(without_runtime(conditions=[conformant()]))
    world.api.script("PATCH", AGENT_PATH, FORBIDDEN, forever=True)
    async with world.working():
        await asyncio.sleep(120)
    assert world.condition(AGENT) == ("False", "RuntimeLabelDrifted")


@in_virtual_time
async def test_B46_a_failure_is_cleared_by_the_next_success() -> None:
    world = World(without_runtime())
    world.api.script("PATCH", AGENT_PATH, refusal(500, "etcd is sad"))
    async with world.working():
        await asyncio.sleep(0.03)
        assert world.nodes.failures[AGENT].message == "etcd is sad"
        world.changed.clear()
        await asyncio.sleep(5)
    assert world.nodes.failures == {}
    assert "k3s" in world.changed


@in_virtual_time
async def test_B46_a_failure_is_cleared_when_the_node_goes() -> None:
    world = World(without_runtime())
    world.api.script("PATCH", AGENT_PATH, FORBIDDEN, forever=True)
    async with world.working():
        await asyncio.sleep(1)
        assert AGENT in world.nodes.failures
        world.changed.clear()
        world.api.remove(NODES, AGENT)
        await asyncio.sleep(1)
    assert world.nodes.failures == {}
    assert world.nodes.verdicts == {}
    assert "k3s" in world.changed


@in_virtual_time
async def test_B46_a_failure_is_cleared_when_somebody_else_heals_the_node() -> None:
    world = World(without_runtime())
    world.api.script("PATCH", AGENT_PATH, FORBIDDEN, forever=True)
    async with world.working():
        await asyncio.sleep(1)
        world.change(AGENT, relabelled("agent"))
        await asyncio.sleep(1)
    assert world.nodes.failures == {}


@in_virtual_time
async def test_B94_a_patch_refused_for_good_is_reported_and_not_sent_again_until_the_facts_change() -> None:
    world = World(without_runtime())
    world.api.script("PATCH", AGENT_PATH, refusal(422, "label value is too long", causes=1), forever=True)
    async with world.working():
        await asyncio.sleep(DAY)
        assert len(world.api.asked("PATCH", AGENT_PATH)) == 1
        assert world.condition(AGENT) == ("False", "WriteRejected")
        assert world.events.reasons() == ["WriteRejected"]
        assert "label value is too long" in world.events.notes[0].message
        world.change(AGENT, lambda raw: raw["metadata"]["labels"].pop(BACKEND_LABEL))
        await asyncio.sleep(DAY)
    assert len(world.api.asked("PATCH", AGENT_PATH)) == 2


@in_virtual_time
async def test_a_rejected_patch_that_somebody_else_made_needless_leaves_no_trace() -> None:
    world = World(without_runtime())
    world.api.script("PATCH", AGENT_PATH, refusal(422, "label value is too long", causes=1), forever=True)
    async with world.working():
        await asyncio.sleep(60)
        world.change(AGENT, relabelled("agent"))
        await asyncio.sleep(60)
    assert world.condition(AGENT) == ("True", "Conforms")
    assert world.nodes.verdicts[AGENT].findings == ()


@in_virtual_time
async def test_429_waits_as_long_as_it_is_told_to() -> None:
    world, times = World(without_runtime()), list[float]()
    world.api.script("PATCH", AGENT_PATH, refusal(429, "slow down", Retry_After="17"))
    world.api.before = lambda _: times.append(world.clock.uptime())
    async with world.working():
        await asyncio.sleep(25)
    assert times[1] - times[0] == pytest.approx(17, abs=0.1)


@in_virtual_time
async def test_a_write_without_an_answer_is_tried_again_and_found_done() -> None:
    world = World(without_runtime())
    world.api.script("PATCH", AGENT_PATH, Reply(hang=True))
    async with world.working():
        await asyncio.sleep(5)
        world.change(AGENT, relabelled("agent"))  # it had been carried out after all
        await asyncio.sleep(60)
    assert len(world.api.asked("PATCH", AGENT_PATH)) == 1
    assert world.nodes.failures == {}
    assert world.condition(AGENT) == ("True", "Conforms")


@in_virtual_time
async def test_under_the_observe_bound_everything_is_judged_and_nothing_sent() -> None:
    world = World(without_runtime(), virtual(taints=[]), bare("n"), bound=Bound.OBSERVE)
    async with world.working():
        await asyncio.sleep(DAY)
    assert world.api.sent == []
    assert {name: verdict.conformant for name, verdict in world.nodes.verdicts.items()} == {
        AGENT: False,
        VIRTUAL: False,
        "n": False,
    }


@in_virtual_time
async def test_before_the_picture_is_complete_nothing_is_judged_or_sent() -> None:
    world = World(without_runtime(), synced=False)
    async with world.working():
        await asyncio.sleep(DAY)
        assert world.api.sent == []
        assert world.nodes.verdicts == {}
        world.nodes.may_act.set()
        world.nodes.queue.add(AGENT)
        await asyncio.sleep(1)
    assert len(world.api.sent) == 1


@in_virtual_time
async def test_with_the_fence_shut_nothing_is_sent_and_it_is_tried_again_when_it_opens() -> None:
    world = World(without_runtime())
    world.cluster.fence = lambda _: world.clock.uptime() > 100
    async with world.working():
        await asyncio.sleep(99)
        assert world.api.sent == []
        assert world.nodes.failures == {}
        await asyncio.sleep(120)
    assert world.node(AGENT)["metadata"]["labels"][RUNTIME_LABEL] == "agent"


@in_virtual_time
async def test_with_the_fence_shut_the_queue_is_not_hot() -> None:
    world, tries = World(without_runtime()), list[float]()

    def fence(_: float) -> bool:
        tries.append(world.clock.uptime())
        return False

    world.cluster.fence = fence
    async with world.working():
        await asyncio.sleep(600)
    assert len(tries) < 30


@in_virtual_time
async def test_the_answer_to_a_write_feeds_the_cache_at_once_and_its_echo_wakes_nobody() -> None:
    world = World(without_runtime())
    async with world.working():
        await asyncio.sleep(0.0025)  # there and back again, and before the watch tells
        node = world.cache.node(AGENT)
        assert node is not None
        assert node.labels[RUNTIME_LABEL] == "agent"
        await asyncio.sleep(60)
    assert world.woken == 0
    assert world.count("clusterconform_node_stream_lines_total", fate="dropped") == 2


@in_virtual_time
async def test_an_answer_that_comes_after_the_deletion_leaves_no_ghost() -> None:
    world = World(without_runtime())

    world.watch_delay = 0.0005

    def gone(_: Sent) -> None:
        world.api.after = lambda _: None
        world.api.remove(NODES, AGENT)

    world.api.after = gone
    async with world.working():
        await asyncio.sleep(DAY)
    assert world.cache.node(AGENT) is None
    assert len(world.api.sent) == 1


@in_virtual_time
async def test_an_answer_that_is_no_node_changes_nothing_and_stops_nobody() -> None:
    world = World(without_runtime(), virtual(taints=[]))
    world.api.script("PATCH", AGENT_PATH, Reply(body=b"<html>hello</html>"))
    async with world.working():
        await asyncio.sleep(60)
    assert world.node(VIRTUAL)["spec"]["taints"] == [TAINT]


@pytest.mark.parametrize("values", [["virtual"], ["virtual", "other"]])
@in_virtual_time
async def test_B59_B74_a_label_that_is_put_back_three_times_is_left_alone_for_an_hour(values: list[str]) -> None:
    """Also when two writers alternate: any wrong value counts."""
    world, rounds = World(without_runtime(conditions=[conformant()])), 0

    def stubborn(sent: Sent) -> None:
        nonlocal rounds
        if sent.path == AGENT_PATH:
            value = values[rounds % len(values)]
            asyncio.get_running_loop().call_later(0.01, world.change, AGENT, relabelled(value))
            rounds += 1

    world.api.after = stubborn
    async with world.working():
        await asyncio.sleep(3500)
        assert len(world.api.asked("PATCH", AGENT_PATH)) == 3
        assert world.condition(AGENT) == ("False", "Contested")
        assert world.events.reasons().count("Contested") == 1
        assert len(world.api.sent) <= 3 + 3
        await asyncio.sleep(3600)
    assert len(world.api.asked("PATCH", AGENT_PATH)) == 6


@in_virtual_time
async def test_B59_a_condition_that_is_put_back_is_fought_over_no_longer_than_a_label() -> None:
    world = World(agent())

    def stubborn(sent: Sent) -> None:
        if sent.path == f"{AGENT_PATH}/status":
            loop = asyncio.get_running_loop()
            loop.call_later(0.01, world.change, AGENT, lambda raw: raw["status"].update(conditions=[ready()]))

    world.api.after = stubborn
    async with world.working():
        await asyncio.sleep(3500)
    assert len(world.api.sent) <= 5


@in_virtual_time
async def test_B72_a_taint_removed_by_hand_is_put_back_at_once_and_announced() -> None:
    world = World(virtual())
    async with world.working():
        await asyncio.sleep(60)
        world.change(VIRTUAL, lambda raw: raw["spec"].pop("taints"))
        await asyncio.sleep(0.1)
        assert world.node(VIRTUAL)["spec"]["taints"] == [TAINT]
    assert world.events.reasons() == ["DriftRepaired"]
    assert world.events.notes[0].reference == {
        "apiVersion": "v1",
        "kind": "Node",
        "name": VIRTUAL,
        "uid": "uid-1",
    }


@in_virtual_time
async def test_an_event_about_a_repair_names_only_what_was_put_back() -> None:
    world = World(virtual(taints=[], port=10250))
    async with world.working():
        await asyncio.sleep(1)
    repaired = next(note for note in world.events.notes if note.reason == "DriftRepaired")
    assert "taint" in repaired.message
    assert "kubelet port" not in repaired.message


@in_virtual_time
async def test_B24_a_deleted_profile_turns_the_condition_to_unknown_once_and_leaves_the_marks() -> None:
    world = World(virtual(taints=[]))
    async with world.working():
        await asyncio.sleep(60)
        world.api.sent.clear()
        world.api.remove(PROFILES, "vk-podman")
        world.refresh_profiles()
        world.change(VIRTUAL, lambda raw: raw["spec"].pop("taints"))
        await asyncio.sleep(DAY)
    assert [sent.path for sent in world.api.sent] == [f"{VIRTUAL_PATH}/status"]
    assert world.condition(VIRTUAL) == ("Unknown", "NotEnforced")
    assert PROVIDER_TAINT_MARK in world.node(VIRTUAL)["metadata"]["annotations"]["outpost.dhnt.io/managed-marks"]


@in_virtual_time
async def test_B24_nothing_decided_before_the_deletion_of_a_profile_is_written_after_it() -> None:
    """The drift and the flaw are decided in one go; the profile goes while the first write is under way."""
    world = World(virtual(taints=[], port=10250))

    def deleted(_: Sent) -> None:
        world.api.after = lambda _: None
        world.api.remove(PROFILES, "vk-podman")
        world.refresh_profiles()

    world.api.after = deleted
    async with world.working():
        await asyncio.sleep(DAY)
    assert [sent.path for sent in world.api.sent] == [VIRTUAL_PATH]
    assert world.condition(VIRTUAL) is None


@in_virtual_time
async def test_a_profile_that_only_observes_releases_its_nodes_and_a_failure_of_theirs() -> None:
    world = World(without_runtime(conditions=[conformant()]))
    world.api.script("PATCH", AGENT_PATH, FORBIDDEN, forever=True)
    async with world.working():
        await asyncio.sleep(1)
        world.api.change(PROFILES, "k3s", lambda raw: raw["spec"].update(enforcement="Observe"))
        world.refresh_profiles()
        await asyncio.sleep(60)
    assert world.condition(AGENT) == ("Unknown", "NotEnforced")
    assert world.nodes.failures == {}


@in_virtual_time
async def test_a_conflicting_node_gets_its_condition_and_nothing_else() -> None:
    world = World(agent(taints=[TAINT]))
    async with world.working():
        await asyncio.sleep(DAY)
    assert [sent.path for sent in world.api.sent] == [f"{AGENT_PATH}/status"]
    assert world.condition(AGENT) == ("False", "IdentityConflict")
    assert world.events.reasons() == ["IdentityConflict"]


@in_virtual_time
async def test_a_node_that_is_being_deleted_is_not_written() -> None:
    world = World(without_runtime(deleted="2026-08-01T00:00:00Z"))
    async with world.working():
        await asyncio.sleep(DAY)
    assert world.api.sent == []


@in_virtual_time
async def test_the_profile_of_a_node_is_told_when_the_node_turns_unready() -> None:
    """Its status counts the nodes that are not Ready."""
    world = World(agent())
    async with world.working():
        await asyncio.sleep(60)
        world.changed.clear()
        world.change(AGENT, lambda raw: raw["status"]["conditions"][0].update(status="Unknown"))
        await asyncio.sleep(60)
    assert "k3s" in world.changed


@in_virtual_time
async def test_both_profiles_are_told_when_a_node_moves_from_one_to_the_other() -> None:
    world = World(virtual(name="laptop", labels={HOST_LABEL: "laptop"}))
    async with world.working():
        await asyncio.sleep(60)
        world.changed.clear()
        world.change("laptop", lambda raw: raw["metadata"]["labels"].update({BACKEND_LABEL: "vk-native"}))
        await asyncio.sleep(60)
    assert {"vk-podman", "vk-native"} <= set(world.changed)


@in_virtual_time
async def test_one_node_whose_writes_fail_holds_up_no_other() -> None:
    names = [f"host{number}" for number in range(40)]
    world = World(*[virtual(host=name, uid=name, taints=[]) for name in names])
    world.api.script("PATCH", f"{NODES}/host0-vk-podman", Reply(hang=True), forever=True)
    async with world.working():
        await asyncio.sleep(1)
        done = [name for name in names if world.node(f"{name}-vk-podman")["spec"].get("taints")]
    assert len(done) == 39


@in_virtual_time
async def test_what_is_remembered_of_a_node_goes_with_it() -> None:
    world = World(without_runtime(), virtual(uid="uid-2"))
    async with world.working():
        await asyncio.sleep(60)
        world.api.remove(NODES, AGENT)
        await asyncio.sleep(1)
    kept = [value for value in vars(world.nodes).values() if isinstance(value, dict) and value]
    assert all(set(value) == {VIRTUAL} for value in kept)


@in_virtual_time
async def test_what_is_remembered_of_a_node_is_not_held_against_its_successor() -> None:
    """A quarrel over the mark of one life is none of the next."""
    world, rounds = World(without_runtime(conditions=[conformant()])), 0

    def stubborn(sent: Sent) -> None:
        nonlocal rounds
        if sent.path == AGENT_PATH and rounds < 3:
            rounds += 1
            asyncio.get_running_loop().call_later(0.01, world.change, AGENT, relabelled("virtual"))

    world.api.after = stubborn
    async with world.working():
        await asyncio.sleep(60)
        assert world.condition(AGENT) == ("False", "Contested")
        world.api.remove(NODES, AGENT)
        world.api.put(NODES, without_runtime(uid="uid-2"))
        await asyncio.sleep(60)
    assert world.condition(AGENT) == ("True", "Conforms")


@in_virtual_time
async def test_the_catalogue_may_change_between_two_looks() -> None:
    world = World(virtual("vk-wasm", taints=[]))
    async with world.working():
        await asyncio.sleep(60)
        assert world.api.sent == []
        assert world.events.reasons() == ["UnknownBackend"]
        world.api.put(PROFILES, manifest("vk-wasm", VIRTUAL_SPEC))
        world.refresh_profiles()
        await asyncio.sleep(60)
    assert world.node("laptop-vk-wasm")["spec"]["taints"] == [TAINT]
    assert world.condition("laptop-vk-wasm") == ("True", "Conforms")
