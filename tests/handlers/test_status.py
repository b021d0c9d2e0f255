"""The status of the profiles: how often it is written, what it says, and what becomes of trouble."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from typing import Any

import pytest
from builders import START, TAINT, Json, agent, facts, virtual
from effects_api import NODES, PROFILES, Reply, Sent, refusal
from effects_reconciling import World
from effects_time import in_virtual_time

from clusterconform.contract.names import BACKEND_LABEL
from clusterconform.contract.profile import read_profile
from clusterconform.contract.settings import Bound
from clusterconform.contract.times import parse_time
from clusterconform.contract.verdicts import Identity, IdentityKind, NodeVerdict
from clusterconform.decisions.standing import Standing
from clusterconform.handlers.nodes import Failure
from clusterconform.handlers.status import PERIOD_SECONDS, StatusReporter
from clusterconform.handlers.watching import registry_of

K3S, PODMAN = f"{PROFILES}/k3s", f"{PROFILES}/vk-podman"
VIRTUAL = "laptop-vk-podman"


def tainted(*, wanted: bool) -> Callable[[Json], None]:
    """Somebody sets the provider taint, or takes it away."""

    def change(raw: Json) -> None:
        raw["spec"]["taints"] = [TAINT] if wanted else []

    return change


class Reporting:
    """A reporter at work beside a reconciler."""

    def __init__(self, world: World, *, complete: bool = True) -> None:
        self.world, self.complete, self.blind = world, complete, False
        self.changes: list[str] = []
        self.standing: Standing | None = None
        self.reporter = StatusReporter(
            cache=world.cache,
            cluster=world.cluster,
            clock=world.clock,
            metrics=world.metrics,
            complete=lambda: self.complete,
            catalogue_changed=lambda: self.changes.append("an answer"),
            standing=lambda _: self.standing,
            agents=lambda _: None,
        )
        world.nodes._changed = self.reporter.due
        self.times: list[tuple[str, float]] = []
        before = world.api.before

        def note(sent: Sent) -> None:
            if sent.path.endswith("/status") and sent.path.startswith(PROFILES):
                self.times.append((sent.path.split("/")[-2], world.clock.uptime()))
            before(sent)

        world.api.before = note
        world.api.listeners.append(self._watch)

    def _watch(self, collection: str, kind: str, raw: Json) -> None:
        """The watch of profiles, which tells of our own writes too."""
        if collection == PROFILES and kind != "DELETED" and not self.blind:
            asyncio.get_running_loop().call_later(0.002, self._told, raw)

    def _told(self, raw: Json) -> None:
        self.world.cache.set_profile(read_profile(raw))
        self.reporter.due(raw["metadata"]["name"])

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Report while the body runs."""
        async with self.world.working():
            work = asyncio.create_task(self.reporter.run(self.world.nodes))
            try:
                yield
            finally:
                work.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await work

    def status(self, name: str = "vk-podman") -> Json:
        """The status as it is stored."""
        stored: Json = self.world.api.get(PROFILES, name).get("status", {})
        return stored

    def condition(self, kind: str, name: str = "vk-podman") -> tuple[str, str]:
        """Status and reason of a condition of a profile."""
        (seen,) = [entry for entry in self.status(name)["conditions"] if entry["type"] == kind]
        return seen["status"], seen["reason"]

    def writes(self, name: str = "vk-podman") -> list[float]:
        """When the status of that profile was written."""
        return [at for written, at in self.times if written == name]


@in_virtual_time
async def test_a_status_says_how_many_nodes_conform_and_why_the_others_do_not() -> None:
    reporting = Reporting(World(virtual(), virtual(host="b", uid="u2", port=10250)))
    async with reporting.running():
        await asyncio.sleep(30)
    status = reporting.status()
    assert status["nodes"] == {
        "total": 2,
        "conformant": 1,
        "drifted": 1,
        "conflicting": 0,
        "contested": 0,
        "notReady": 0,
        "unidentified": 0,
    }
    assert [seen["name"] for seen in status["samples"]] == ["b-vk-podman"]
    assert reporting.condition("Accepted") == ("True", "Accepted")
    assert reporting.condition("Conformant") == ("False", "NodesNotConformant")
    assert reporting.condition("Ready") == ("False", "NodesNotConformant")
    assert status["servesKubeletStreaming"] is False
    assert status["truncated"] is False


@in_virtual_time
async def test_the_request_is_an_apply_that_cannot_land_on_a_successor() -> None:
    reporting = Reporting(World())
    async with reporting.running():
        reporting.reporter.due("k3s")
        await asyncio.sleep(1)
    (sent,) = reporting.world.api.writes(PROFILES)
    assert (sent.method, sent.path) == ("PATCH", f"{K3S}/status")
    assert sent.query == {"fieldManager": "clusterconform", "force": "true"}
    assert sent.content_type == "application/apply-patch+yaml"
    assert sent.body["metadata"] == {
        "name": "k3s",
        "uid": reporting.world.api.get(PROFILES, "k3s")["metadata"]["uid"],
    }
    assert set(sent.body) == {"apiVersion", "kind", "metadata", "status"}


@in_virtual_time
async def test_a_profile_is_written_at_most_once_in_five_seconds_and_the_last_word_arrives() -> None:
    reporting = Reporting(World(virtual(), bound=Bound.OBSERVE))
    async with reporting.running():
        for beat in range(200):
            reporting.world.change(VIRTUAL, tainted(wanted=bool(beat % 2)))
            await asyncio.sleep(0.23)  # no even part of any of our periods
        await asyncio.sleep(30)
    times = reporting.writes()
    assert all(later - earlier >= PERIOD_SECONDS - 0.01 for earlier, later in pairwise(times))
    assert len(times) >= 2
    assert reporting.status()["nodes"]["conformant"] == 1


@in_virtual_time
async def test_the_first_write_waits_no_longer_than_a_repair_takes() -> None:
    reporting = Reporting(World())
    async with reporting.running():
        await asyncio.sleep(100)
        at = reporting.world.clock.uptime()
        reporting.reporter.due("k3s")
        await asyncio.sleep(1)
    assert reporting.writes("k3s")[0] - at < 0.6


@in_virtual_time
async def test_one_profile_does_not_wait_for_another() -> None:
    reporting = Reporting(World())
    async with reporting.running():
        reporting.reporter.due("k3s")
        await asyncio.sleep(0.1)
        reporting.reporter.due("vk-native")
        await asyncio.sleep(0.6)
    assert len(reporting.writes("vk-native")) == 1


@in_virtual_time
async def test_nothing_is_written_without_a_change() -> None:
    reporting = Reporting(World(agent(), virtual()))
    async with reporting.running():
        await asyncio.sleep(60)
        reporting.times.clear()
        for _ in range(1000):
            for name in ("k3s", "vk-podman"):
                reporting.reporter.due(name)
            await asyncio.sleep(10)
    assert reporting.times == []


@in_virtual_time
async def test_what_another_writer_puts_into_a_status_costs_no_write() -> None:
    reporting = Reporting(World(virtual()))

    def add(raw: Json) -> None:
        raw["status"] |= {"forecast": "sunny"}
        raw["status"]["conditions"].append({"type": "Sunny", "status": "True", "reason": "NoClouds"})

    async with reporting.running():
        await asyncio.sleep(60)
        reporting.times.clear()
        reporting.world.api.change(PROFILES, "vk-podman", add)
        await asyncio.sleep(60)
        reporting.reporter.due("vk-podman")
        await asyncio.sleep(10)
    assert reporting.times == []


@in_virtual_time
async def test_nothing_is_done_at_rest() -> None:
    reporting = Reporting(World(agent(), virtual()))
    async with reporting.running():
        await asyncio.sleep(60)
        reporting.world.api.sent.clear()
        await asyncio.sleep(100_000)
    assert reporting.world.api.sent == []


@in_virtual_time
async def test_B41_fields_that_the_schema_prunes_are_warned_of_once_and_not_written_for_ever(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reporting = Reporting(World(virtual(), bound=Bound.OBSERVE))
    api = reporting.world.api
    put = api.put

    def pruning(collection: str, raw: Json) -> Json:
        if collection == PROFILES and "status" in raw:
            raw = {**raw, "status": {key: value for key, value in raw["status"].items() if key != "samples"}}
        return put(collection, raw)

    api.put = pruning  # type: ignore[method-assign]
    async with reporting.running():
        for beat in range(20):
            reporting.world.change(VIRTUAL, tainted(wanted=bool(beat % 2)))
            await asyncio.sleep(60)
        warned = [record for record in caplog.records if "did not store" in record.message]
        assert len(warned) == 1
        assert warned[0].fields == {"profile": "vk-podman", "fields": "samples"}  # type: ignore[attr-defined]
        reporting.times.clear()
        await asyncio.sleep(3600)
    assert reporting.times == []


def verdict_of(world: World, raw: Json) -> NodeVerdict:
    """A verdict on a node that conforms."""
    profile = world.cache.catalogue.profiles[raw["metadata"]["labels"][BACKEND_LABEL]]
    return NodeVerdict(
        identity=Identity(kind=IdentityKind.MANAGED, profile=profile, evidence=frozenset()), findings=()
    )


@pytest.mark.parametrize("letter", ["a", "語", '"'])
@in_virtual_time
async def test_B44_twelve_thousand_nodes_with_long_names_fit_into_a_small_status(letter: str) -> None:
    """Also where the API server's words are long and take several bytes a letter."""
    world = World()
    for number in range(12_000):
        name = f"{number:05d}" + "a" * 238 + "-vk-podman"
        assert len(name) == 253
        raw = virtual(name=name, uid=name)
        world.cache.observe(facts(raw))
        world.nodes.verdicts[name] = verdict_of(world, raw)
        if number % 3 == 0:
            world.nodes.failures[name] = Failure(profile="vk-podman", message=letter * 2000)
    reporting = Reporting(world)
    async with reporting.running():
        reporting.reporter.due("vk-podman")
        await asyncio.sleep(1)
    status = reporting.status()
    assert status["nodes"]["total"] == 12_000
    assert status["nodes"]["conformant"] == 12_000
    assert len(status["samples"]) == 20
    assert status["truncated"] is True
    assert len(json.dumps(status, ensure_ascii=False).encode()) < 32_000


@in_virtual_time
async def test_B46_a_failed_node_is_shown_and_its_row_goes_when_it_heals_or_vanishes() -> None:
    world = World(virtual(taints=[]), virtual(host="b", uid="u2", taints=[]))
    for name in (VIRTUAL, "b-vk-podman"):
        world.api.script("PATCH", f"{NODES}/{name}", refusal(403, "cannot patch nodes"), forever=True)
    reporting = Reporting(world)
    async with reporting.running():
        await asyncio.sleep(20)
        assert reporting.condition("Ready") == ("False", "WritesFailing")
        assert [(row["name"], row["reason"]) for row in reporting.status()["samples"]] == [
            ("b-vk-podman", "WritesFailing"),
            (VIRTUAL, "WritesFailing"),
        ]
        assert "cannot patch nodes" in reporting.status()["samples"][0]["message"]
        world.api.remove(NODES, "b-vk-podman")
        await asyncio.sleep(10)
        assert [row["name"] for row in reporting.status()["samples"]] == [VIRTUAL]
        world.api.heal()
        await asyncio.sleep(120)
    assert "samples" not in reporting.status()
    assert reporting.condition("Ready") == ("True", "Conforms")


@in_virtual_time
async def test_B47_the_first_transition_time_is_now_and_moves_only_with_the_status() -> None:
    world = World(virtual(), bound=Bound.OBSERVE)
    reporting = Reporting(world)

    def transition() -> float:
        (seen,) = [entry for entry in reporting.status()["conditions"] if entry["type"] == "Conformant"]
        at = parse_time(seen["lastTransitionTime"])
        assert at is not None
        return (at - START).total_seconds()

    async with reporting.running():
        await asyncio.sleep(10)
        assert 0 <= transition() <= 1
        await asyncio.sleep(100)
        world.change(VIRTUAL, lambda raw: raw["spec"].update(taints=[]))
        await asyncio.sleep(10)
        assert 110 <= transition() <= 120
        first = transition()
        await asyncio.sleep(100)
        world.change(VIRTUAL, lambda raw: raw["status"].update(daemonEndpoints={"kubeletEndpoint": {"Port": 1}}))
        await asyncio.sleep(10)
    assert transition() == first


@in_virtual_time
async def test_B47_a_restart_keeps_the_transition_times_of_a_status_that_still_holds() -> None:
    """The nodes are judged one after the other; before they are, nothing is known of them, and no news."""
    world = World(virtual(taints=[]), bound=Bound.OBSERVE)
    before = {
        "type": "Conformant",
        "status": "False",
        "reason": "NodesNotConformant",
        "message": "1 of 1 nodes do not conform: ProviderTaintDrifted",
        "observedGeneration": 1,
        "lastTransitionTime": "2026-07-03T00:00:00Z",
    }
    world.api.change(PROFILES, "vk-podman", lambda raw: raw.update(status={"conditions": [before]}))
    world.refresh_profiles()
    reporting = Reporting(world)
    work = asyncio.create_task(reporting.reporter.run(world.nodes))
    reporting.reporter.due("vk-podman")
    await asyncio.sleep(1)  # no worker has looked at the node yet
    async with world.working():
        await asyncio.sleep(30)
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await work
    (seen,) = [entry for entry in reporting.status()["conditions"] if entry["type"] == "Conformant"]
    assert (seen["status"], seen["lastTransitionTime"]) == ("False", "2026-07-03T00:00:00Z")


@in_virtual_time
async def test_nodes_that_were_not_judged_yet_are_not_called_absent() -> None:
    world = World(virtual(taints=[]))
    reporting = Reporting(world)
    work = asyncio.create_task(reporting.reporter.run(world.nodes))
    reporting.reporter.due("vk-podman")
    await asyncio.sleep(1)
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await work
    if reporting.status():
        assert reporting.condition("Conformant") == ("Unknown", "EvidenceIncomplete")


@in_virtual_time
async def test_while_the_picture_is_incomplete_conformance_is_unknown() -> None:
    reporting = Reporting(World(virtual()), complete=False)
    async with reporting.running():
        reporting.reporter.due("vk-podman")
        await asyncio.sleep(10)
        assert reporting.condition("Conformant") == ("Unknown", "EvidenceIncomplete")
        reporting.complete = True
        reporting.reporter.due("vk-podman")
        await asyncio.sleep(10)
    assert reporting.condition("Conformant") == ("True", "Conforms")


@in_virtual_time
async def test_the_status_of_a_profile_that_is_no_more_is_not_written() -> None:
    reporting = Reporting(World())
    async with reporting.running():
        reporting.world.api.remove(PROFILES, "k3s")
        reporting.reporter.due("k3s")
        reporting.reporter.due("never there")
        await asyncio.sleep(100)
    assert len(reporting.writes("k3s")) <= 1


@pytest.mark.parametrize("answer", [refusal(403, "cannot patch"), refusal(500), refusal(409), Reply(hang=True)])
@in_virtual_time
async def test_a_status_that_could_not_be_written_is_written_later_and_no_other_waits_for_it(
    answer: Reply,
) -> None:
    reporting = Reporting(World())
    reporting.world.api.script("PATCH", f"{K3S}/status", answer)
    async with reporting.running():
        reporting.reporter.due("k3s")
        reporting.reporter.due("vk-podman")
        await asyncio.sleep(60)
    assert len(reporting.writes("k3s")) == 2
    assert reporting.status("k3s")["nodes"]["total"] == 0
    assert len(reporting.writes("vk-podman")) == 1


@pytest.mark.parametrize("body", [b"<html>", b"", b"[]", b'{"metadata": {}}'])
@in_virtual_time
async def test_an_answer_that_is_no_profile_does_not_end_the_reports(body: bytes) -> None:
    reporting = Reporting(World())
    reporting.world.api.script("PATCH", f"{K3S}/status", Reply(body=body))
    async with reporting.running():
        reporting.reporter.due("k3s")
        await asyncio.sleep(60)
        reporting.reporter.due("vk-podman")
        await asyncio.sleep(60)
    assert reporting.status("vk-podman")["nodes"]["total"] == 0


@in_virtual_time
async def test_a_profile_that_is_not_accepted_says_so() -> None:
    world = World()
    world.api.change(PROFILES, "vk-podman", lambda raw: raw["spec"].update(capabilities=["kubelet-exec"]))
    world.refresh_profiles()
    reporting = Reporting(world)
    async with reporting.running():
        reporting.reporter.due("vk-podman")
        await asyncio.sleep(1)
    assert reporting.condition("Accepted") == ("False", "Invalid")
    assert reporting.condition("Ready") == ("False", "Invalid")


@in_virtual_time
async def test_nodes_that_turn_unready_are_counted() -> None:
    reporting = Reporting(World(virtual()))
    async with reporting.running():
        await asyncio.sleep(60)
        reporting.world.change(VIRTUAL, lambda raw: raw["status"]["conditions"][0].update(status="Unknown"))
        await asyncio.sleep(60)
    assert reporting.status()["nodes"]["notReady"] == 1


@in_virtual_time
async def test_the_metric_counts_nodes_by_profile_and_reason_and_forgets_those_that_went() -> None:
    world = World(agent(), virtual(), virtual(host="b", uid="u2", port=10250))
    reporting = Reporting(world)
    async with reporting.running():
        await asyncio.sleep(60)
        assert world.count("clusterconform_nodes", profile="k3s", reason="Conforms") == 1
        assert world.count("clusterconform_nodes", profile="vk-podman", reason="KubeletEndpointAdvertised") == 1
        world.api.remove(NODES, "b-vk-podman")
        await asyncio.sleep(60)
    assert world.count("clusterconform_nodes", profile="vk-podman", reason="KubeletEndpointAdvertised") == 0
    assert world.count("clusterconform_nodes", profile="vk-podman", reason="Conforms") == 1


@in_virtual_time
async def test_the_metric_counts_a_node_of_no_profile_as_soon_as_it_is_judged() -> None:
    world = World(virtual("vk-docker"))
    reporting = Reporting(world)
    async with reporting.running():
        await asyncio.sleep(60)
    assert world.count("clusterconform_nodes", profile="", reason="UnknownBackend") == 1


@in_virtual_time
async def test_an_edit_that_the_answer_to_a_status_write_brings_first_still_makes_all_nodes_due() -> None:
    """The profile is edited while its status is written: the answer holds the new spec before the watch does."""
    world = World(virtual())
    reporting = Reporting(world)
    registry = registry_of(
        cache=world.cache,
        login=lambda: None,
        node_due=lambda _: None,
        profile_due=lambda _: None,
        catalogue_changed=lambda: reporting.changes.append("the watch"),
    )
    handlers: dict[str, Any] = {
        handler.id.rpartition(".")[2]: handler.fn for handler in registry._watching._handlers
    }
    reporting.blind = True

    def edited(sent: Sent) -> None:
        if sent.path == f"{PODMAN}/status":
            world.api.before = lambda _: None
            world.api.change(PROFILES, "vk-podman", lambda raw: raw["spec"].update(enforcement="Observe"))

    async with reporting.running():
        world.api.before = edited
        reporting.reporter.due("vk-podman")
        await asyncio.sleep(1)
        event = {"type": "MODIFIED", "object": world.api.get(PROFILES, "vk-podman")}
        await handlers["profile_event"](event=event)
    assert world.cache.catalogue.profiles["vk-podman"].enforcement == "Observe"
    assert len(reporting.changes) == 1


@in_virtual_time
async def test_an_answer_that_is_older_than_an_edit_does_not_undo_it() -> None:
    """The watch tells of the edit before the answer to the status write is read."""
    world = World(virtual())
    reporting = Reporting(world)

    def edited(sent: Sent) -> None:
        if sent.path == f"{PODMAN}/status":
            world.api.after = lambda _: None
            new = json.loads(json.dumps(world.api.get(PROFILES, "vk-podman")))
            new["spec"]["enforcement"] = "Observe"
            new["metadata"].update(resourceVersion="999", generation=2)
            world.cache.set_profile(read_profile(new))

    world.api.after = edited
    reporting.blind = True
    async with reporting.running():
        reporting.reporter.due("vk-podman")
        await asyncio.sleep(1)
    assert world.cache.catalogue.profiles["vk-podman"].enforcement == "Observe"


@in_virtual_time
async def test_with_the_fence_shut_no_status_is_sent() -> None:
    world = World()
    world.cluster.fence = lambda _: False
    reporting = Reporting(world)
    async with reporting.running():
        reporting.reporter.due("k3s")
        await asyncio.sleep(60)
    assert world.api.sent == []
