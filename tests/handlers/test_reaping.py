"""The driver of the reaping pass, in virtual time: when it asks what, and what it makes of each answer."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from builders import Json, marks, virtual
from effects_api import CONFIGMAPS, NODE_LEASES, NODES, PROFILES, Reply, Sent, refusal, reply
from effects_reconciling import World
from effects_time import VirtualLoop, in_virtual_time
from reaping_worlds import ago, dead, dead_fleet, lease, living, ready_fleet, revived

from clusterconform.contract.facts import read_node, view_node
from clusterconform.contract.lease import Term
from clusterconform.contract.names import (
    APPROVE_ANNOTATION,
    FIRST_LEDGER_KEY,
    KEEP_ANNOTATION,
    LEDGER_CONFIGMAP,
    LEDGER_KEY,
    STATE_CONFIGMAP,
    TERM_KEY,
    TRUST_KEY,
)
from clusterconform.contract.settings import Bound, ReapingMode
from clusterconform.contract.verdicts import Reason
from clusterconform.decisions.ledger import read_ledger
from clusterconform.decisions.standing import Standing, reaping_allowed
from clusterconform.decisions.trust import Trust, read_trust
from clusterconform.effects.ledger import Ledger
from clusterconform.handlers.reaping import TICK_SECONDS, Reaper

LEDGER, STATE = f"{CONFIGMAPS}/{LEDGER_CONFIGMAP}", f"{CONFIGMAPS}/{STATE_CONFIGMAP}"
HOUR, SETTLE, INTERVAL, MIN_UPTIME = 3600.0, 300.0, 3600.0, 3600.0
# Ready to delete from the first tick on.
AT_ONCE: Json = {"settle": "0s", "minUptime": "0s"}
TERM = Term(number=1, holder="we", uid="lease")


class Reaping:
    """A reaper at work beside a reconciler that only looks.

    Attributes:
        world: What is around it.
        reaper: It.
        synced: Uptime of the last complete list.
        hearing: Whether the stream is alive.
        ahead: By how many seconds the API server's clock is ahead.
    """

    def __init__(
        self,
        *nodes: Json,
        bound: Bound = Bound.ENFORCE,
        word: str = "",
        own_node: str = "",
        settings: Json | None = None,
        may_act: bool = True,
    ) -> None:
        self.world = World(*nodes, bound=Bound.OBSERVE, synced=may_act)
        self.api = self.world.api
        self.synced: float | None = 0.0
        self.hearing, self.ahead = True, 0.0
        state = {"seeded": "k3s", FIRST_LEDGER_KEY: "true"}
        self.api.put(CONFIGMAPS, {"metadata": {"name": STATE_CONFIGMAP}, "data": state})
        self.set(**(AT_ONCE if settings is None else settings))
        self.reaper = Reaper(
            cache=self.world.cache,
            nodes=self.world.nodes,
            cluster=self.world.cluster,
            clock=self.world.clock,
            events=self.world.events,
            metrics=self.world.metrics.reaping,
            ledger=Ledger(self.world.cluster, TERM),
            bound=bound,
            word=word,
            own_node=own_node,
            synced_at=lambda: self.synced,
            hears=lambda: self.hearing,
            clock_difference=lambda: self.ahead,
            changed=self.world.changed.append,
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Reaping"]:
        """Reap while the body runs."""
        async with self.world.working():
            work = asyncio.create_task(self.reaper.run())
            try:
                yield self
            finally:
                work.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await work

    def set(self, **settings: Any) -> None:
        """Somebody edits the agent profile's settings; its watch tells at once."""
        self.api.change(PROFILES, "k3s", lambda raw: raw["spec"].update(nodeGC=settings))
        self.world.refresh_profiles()

    def approve(self, text: str | None) -> None:
        """Somebody annotates the agent profile, or takes the annotation away."""

        def change(raw: Json) -> None:
            raw["metadata"]["annotations"] = {} if text is None else {APPROVE_ANNOTATION: text}

        self.api.change(PROFILES, "k3s", change)
        self.world.refresh_profiles()

    def requests(self) -> list[str]:
        """What was asked so far: verb and last word of the path, dry runs marked; watches are no requests here."""
        return [_told(sent) for sent in self.api.sent]

    def passes(self) -> int:
        """How many passes have begun; each live one asks for the fence."""
        return sum(sent.method == "DELETE" and "dryRun" in sent.body for sent in self.api.sent)

    def left(self) -> list[str]:
        """The nodes that are still there."""
        return self.api.names(NODES)

    def lines(self) -> list[tuple[str, str]]:
        """Event and node of each line of the ledger."""
        text = self.api.get(CONFIGMAPS, LEDGER_CONFIGMAP)["data"][LEDGER_KEY]
        return [(entry.line.event, entry.line.node) for entry in read_ledger(text) if entry.line is not None]

    def trust(self) -> Trust:
        """The trust as it is written down."""
        return read_trust(self.api.get(CONFIGMAPS, LEDGER_CONFIGMAP)["data"].get(TRUST_KEY))

    def standing(self) -> Standing:
        """Where reaping stands."""
        standing = self.reaper.standing("k3s")
        assert standing is not None
        return standing

    def allowed(self) -> tuple[str, Reason]:
        """Status and reason of the condition ReapingAllowed."""
        status, finding = reaping_allowed(self.standing())
        return status, finding.reason

    def held(self) -> dict[str, Reason]:
        """By name, what held the candidates of the last pass."""
        last = self.standing().last
        assert last is not None
        return {held.name: held.reason for held in last.report.held}

    def error(self) -> str | None:
        """What ended the last pass early."""
        last = self.standing().last
        assert last is not None
        return last.report.error

    def count(self, name: str, **labels: str) -> float:
        """The value of a metric."""
        return self.world.count(f"clusterconform_{name}", **labels)


def _told(sent: Sent) -> str:
    dry = "try to " if sent.method == "DELETE" and "dryRun" in sent.body else ""
    kind = "lease " if sent.path.startswith(NODE_LEASES) else ""
    return f"{dry}{sent.method} {kind}{sent.path.rpartition('/')[2]}"


def three(**settings: Any) -> Reaping:
    """A fleet with three dead agents, a first and oldest, then b and c; they go in the first pass."""
    nodes = [dead("pi-a", 100.0), dead("pi-b", 50.0), dead("pi-c", 30.0), *ready_fleet(7)]
    return Reaping(*nodes, settings={**AT_ONCE, **settings})


# --- order -------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_the_ledger_is_claimed_first_and_then_a_pass_asks_one_after_the_other() -> None:
    async with Reaping(*dead_fleet(100.0, 50.0), *ready_fleet(3), settings=AT_ONCE).running() as reaping:
        await asyncio.sleep(TICK_SECONDS + 1)
    assert reaping.requests() == [
        "GET clusterconform-ledger",
        "GET clusterconform-state",
        "PUT clusterconform-state",
        "POST configmaps",
        "GET clusterconform-ledger",
        "try to DELETE pi-dead-00",
        "GET pi-dead-00",
        "GET lease pi-dead-00",
        "PUT clusterconform-ledger",
        "DELETE pi-dead-00",
        "PUT clusterconform-ledger",
        "GET pi-dead-01",
        "GET lease pi-dead-01",
        "PUT clusterconform-ledger",
        "DELETE pi-dead-01",
        "PUT clusterconform-ledger",
    ]
    assert reaping.lines() == [
        ("intended", "pi-dead-00"),
        ("deleted", "pi-dead-00"),
        ("intended", "pi-dead-01"),
        ("deleted", "pi-dead-01"),
    ]


@in_virtual_time
async def test_the_intention_lies_in_the_ledger_when_the_delete_arrives() -> None:
    reaping = three()
    seen: list[tuple[str, str]] = []

    def look(sent: Sent) -> None:
        if sent.method == "DELETE" and "dryRun" not in sent.body:
            seen.append(reaping.lines()[-1])

    reaping.api.before = look
    async with reaping.running():
        await asyncio.sleep(TICK_SECONDS + 1)
    assert seen == [("intended", "pi-a"), ("intended", "pi-b"), ("intended", "pi-c")]


@in_virtual_time
async def test_a_delete_carries_the_uid_and_the_version_of_the_fresh_read() -> None:
    reaping = three()

    def age(sent: Sent) -> None:
        """Somebody labels a node before it is read afresh."""
        if (sent.method, sent.path) == ("GET", f"{NODES}/pi-a"):
            reaping.api.change(NODES, "pi-a", lambda raw: raw["metadata"]["labels"].update(rack="7"))

    reaping.api.before = age
    async with reaping.running():
        await asyncio.sleep(TICK_SECONDS + 1)
    _, sent = reaping.api.asked("DELETE", f"{NODES}/pi-a")
    versions = [
        raw["metadata"]["resourceVersion"] for _, kind, raw in reaping.api.history[NODES] if kind == "MODIFIED"
    ]
    assert sent.body["preconditions"] == {"uid": "uid-pi-a", "resourceVersion": versions[0]}
    assert "pi-a" not in reaping.left()


@in_virtual_time
async def test_without_a_stale_agent_a_pass_reads_no_node() -> None:
    async with Reaping(*ready_fleet(3), virtual()).running() as reaping:
        await asyncio.sleep(TICK_SECONDS + 1)
    assert reaping.requests()[4:] == [
        "GET clusterconform-ledger",
        "try to DELETE pi-ready-00",
        "PUT clusterconform-ledger",  # the trust
    ]


@in_virtual_time
async def test_nothing_is_asked_before_we_may_act() -> None:
    """Seeding has to come first: it tells whether this is the installation's first ledger."""
    reaping = Reaping(*dead_fleet(30.0), *ready_fleet(3), may_act=False)
    async with reaping.running():
        await asyncio.sleep(HOUR)
        assert reaping.api.sent == []
        reaping.world.nodes.may_act.set()
        for name in reaping.world.cache.names():
            reaping.world.nodes.queue.add(name)
        await asyncio.sleep(TICK_SECONDS + 1)
        assert reaping.lines()[-1] == ("deleted", "pi-dead-00")


# --- when --------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_o17_the_first_pass_comes_when_all_has_been_known_for_settle() -> None:
    reaping = Reaping(*ready_fleet(2), settings={})
    async with reaping.running():
        await asyncio.sleep(TICK_SECONDS + SETTLE - 0.1)
        assert reaping.passes() == 0
        await asyncio.sleep(TICK_SECONDS + 0.2)
        assert reaping.passes() == 1


@pytest.mark.parametrize("missing", ["list", "stream", "verdict"])
@in_virtual_time
async def test_settle_counts_from_the_first_moment_at_which_all_is_known(missing: str) -> None:
    reaping = Reaping(*ready_fleet(2), settings={})
    async with reaping.running():
        await asyncio.sleep(1)
        verdict = reaping.world.nodes.verdicts["pi-ready-01"]
        if missing == "list":
            reaping.synced = None
        elif missing == "stream":
            reaping.hearing = False
        else:
            del reaping.world.nodes.verdicts["pi-ready-01"]
        await asyncio.sleep(2 * HOUR)
        assert reaping.passes() == 0
        assert reaping.allowed() == ("Unknown", Reason.EVIDENCE_INCOMPLETE)
        reaping.synced, reaping.hearing = reaping.world.clock.uptime(), True
        reaping.world.nodes.verdicts["pi-ready-01"] = verdict
        await asyncio.sleep(SETTLE)
        assert reaping.passes() == 0
        await asyncio.sleep(2 * TICK_SECONDS)
        assert reaping.passes() == 1


@in_virtual_time
async def test_o20_min_uptime_counts_from_the_same_moment() -> None:
    reaping = Reaping(*dead_fleet(30.0), *ready_fleet(2), settings={"settle": "0s", "interval": "10m"})
    reaping.synced = None
    async with reaping.running():
        await asyncio.sleep(5 * HOUR)
        reaping.synced = reaping.world.clock.uptime()
        await asyncio.sleep(MIN_UPTIME - 60)
        assert reaping.allowed() == ("False", Reason.MIN_UPTIME)
        assert "pi-dead-00" in reaping.left()
        await asyncio.sleep(600 + 60)
        assert "pi-dead-00" not in reaping.left()


@in_virtual_time
async def test_passes_follow_one_another_at_the_interval() -> None:
    async with Reaping(*ready_fleet(2)).running() as reaping:
        await asyncio.sleep(TICK_SECONDS + 1)
        for count in range(1, 5):
            assert reaping.passes() == count
            await asyncio.sleep(INTERVAL - 2 * TICK_SECONDS)
            assert reaping.passes() == count
            await asyncio.sleep(2 * TICK_SECONDS)


@in_virtual_time
async def test_an_edit_of_the_interval_holds_at_once() -> None:
    async with Reaping(*ready_fleet(2)).running() as reaping:
        await asyncio.sleep(TICK_SECONDS + 1)
        reaping.set(**AT_ONCE, interval="10s")
        await asyncio.sleep(60)
        assert reaping.passes() == 7


@in_virtual_time
async def test_a_pass_that_fails_is_said_and_the_next_one_comes(caplog: pytest.LogCaptureFixture) -> None:
    reaping = three()
    reaping.api.script("GET", LEDGER, refusal(404), refusal(500, "etcd is away"))
    async with reaping.running():
        await asyncio.sleep(TICK_SECONDS + 1)
        assert reaping.error() == "ledger: etcd is away"
        assert reaping.allowed() == ("False", Reason.LEDGER_UNREADABLE)
        assert "the reaping pass ended early" in [record.getMessage() for record in caplog.records]
        await asyncio.sleep(INTERVAL + TICK_SECONDS)
        assert reaping.allowed() == ("True", Reason.GUARDS_PASS)
        assert "pi-a" not in reaping.left()


@in_virtual_time
async def test_without_an_agent_profile_nothing_is_done() -> None:
    reaping = three()
    reaping.api.remove(PROFILES, "k3s")
    reaping.world.refresh_profiles()
    async with reaping.running():
        await asyncio.sleep(2 * HOUR)
        assert reaping.passes() == 0
        assert reaping.reaper.standing("k3s") is None


@in_virtual_time
async def test_only_the_agent_profile_stands_anywhere() -> None:
    async with three().running() as reaping:
        await asyncio.sleep(TICK_SECONDS + 1)
        assert [reaping.reaper.standing(name) for name in ("vk-podman", "nothing")] == [None, None]


# --- approval ----------------------------------------------------------------------------------------------


def outage() -> Reaping:
    """A fleet of which most are dead."""
    return Reaping(dead("pi-a", 100.0), dead("pi-b", 50.0), dead("pi-c", 30.0), living("pi-d"))


@in_virtual_time
async def test_an_approval_is_heeded_at_the_next_tick_and_for_that_node_alone() -> None:
    async with outage().running() as reaping:
        await asyncio.sleep(TICK_SECONDS + 1)
        assert reaping.allowed() == ("False", Reason.MASS_STALE)
        assert len(reaping.left()) == 4
        reaping.approve("pi-b/uid-pi-b")
        await asyncio.sleep(TICK_SECONDS)
        assert reaping.left() == ["pi-a", "pi-c", "pi-d"]
        await asyncio.sleep(INTERVAL - 3 * TICK_SECONDS)
        assert reaping.passes() == 2


@in_virtual_time
async def test_the_next_approval_is_heeded_at_the_next_tick_too() -> None:
    async with outage().running() as reaping:
        await asyncio.sleep(TICK_SECONDS + 1)
        for name in ("pi-b", "pi-c"):
            reaping.approve(f"{name}/uid-{name}")
            await asyncio.sleep(TICK_SECONDS)
            assert name not in reaping.left()
        assert reaping.left() == ["pi-a", "pi-d"]


@pytest.mark.parametrize(
    "text", ["pi-b/uid-of-another-life", "pi-d/uid-pi-d", "nobody/uid", "/", "pi-b/", "/uid-pi-b"]
)
@in_virtual_time
async def test_an_approval_of_what_is_no_candidate_costs_a_pass_and_no_node(text: str) -> None:
    async with outage().running() as reaping:
        await asyncio.sleep(TICK_SECONDS + 1)
        reaping.approve(text)
        await asyncio.sleep(10 * TICK_SECONDS)
        assert reaping.passes() == 2
        assert len(reaping.left()) == 4


@pytest.mark.parametrize("text", [None, "", "pi-b", "pi-b uid-pi-b"])
@in_virtual_time
async def test_what_is_no_approval_is_none(text: str | None) -> None:
    async with outage().running() as reaping:
        await asyncio.sleep(TICK_SECONDS + 1)
        reaping.approve(text)
        await asyncio.sleep(10 * TICK_SECONDS)
        assert reaping.passes() == 1
        assert len(reaping.left()) == 4


@in_virtual_time
async def test_an_approval_given_before_we_led_is_heeded_by_the_first_pass() -> None:
    reaping = outage()
    reaping.approve("pi-b/uid-pi-b")
    async with reaping.running():
        await asyncio.sleep(TICK_SECONDS + 1)
        assert reaping.left() == ["pi-a", "pi-c", "pi-d"]


@in_virtual_time
async def test_an_approval_hurries_no_settling() -> None:
    reaping = outage()
    reaping.set(minUptime="0s")
    reaping.approve("pi-b/uid-pi-b")
    async with reaping.running():
        await asyncio.sleep(SETTLE)
        assert len(reaping.left()) == 4


# --- the mandate -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "word", "bound"),
    [
        ("DryRun", "", Bound.ENFORCE),
        ("Live", "dry-run", Bound.ENFORCE),
        ("Live", "", Bound.OBSERVE),
        ("Live", "live", Bound.OBSERVE),
        ("DryRun", "live", Bound.ENFORCE),
    ],
)
@in_virtual_time
async def test_a_dry_run_writes_what_would_go_and_deletes_nothing(mode: str, word: str, bound: Bound) -> None:
    nodes = [*dead_fleet(50.0), *ready_fleet(3)]
    settings = {**AT_ONCE, "mode": mode}
    async with Reaping(*nodes, bound=bound, word=word, settings=settings).running() as reaping:
        await asyncio.sleep(3 * INTERVAL)
        assert reaping.lines() == [("dry_run_deleted", "pi-dead-00")]
        assert not [sent for sent in reaping.api.sent if sent.method == "DELETE"]
        assert reaping.allowed() == ("False", Reason.NOT_LIVE)
        assert reaping.standing().mandate.mode is ReapingMode.DRY_RUN


@pytest.mark.parametrize(
    ("mode", "word"), [("Off", ""), ("Off", "live"), ("Live", "off"), ("Live", "dryrunn"), ("DryRun", "0")]
)
@in_virtual_time
async def test_off_asks_for_nothing(mode: str, word: str) -> None:
    nodes = [*dead_fleet(50.0), *ready_fleet(3)]
    async with Reaping(*nodes, word=word, settings={**AT_ONCE, "mode": mode}).running() as reaping:
        await asyncio.sleep(1)
        claimed = len(reaping.api.sent)
        await asyncio.sleep(3 * INTERVAL)
        assert len(reaping.api.sent) == claimed
        assert reaping.allowed() == ("False", Reason.NOT_LIVE)


@in_virtual_time
async def test_an_edit_to_off_forgets_what_the_last_pass_said_and_an_edit_back_works() -> None:
    async with three().running() as reaping:
        await asyncio.sleep(TICK_SECONDS + 1)
        reaping.set(**AT_ONCE, mode="Off")
        await asyncio.sleep(INTERVAL)
        assert reaping.standing().last is None
        reaping.set(**AT_ONCE, maxDeletes=100)
        assert reaping.allowed() == ("Unknown", Reason.EVIDENCE_INCOMPLETE)
        await asyncio.sleep(INTERVAL)
        assert reaping.allowed() == ("True", Reason.GUARDS_PASS)


# --- evidence ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["list", "stream", "verdict"])
@in_virtual_time
async def test_a_picture_that_is_no_longer_complete_deletes_nothing(missing: str) -> None:
    reaping = Reaping(*ready_fleet(3), *[virtual(backend) for backend in ("vk-podman", "vk-ollama")])
    async with reaping.running():
        await asyncio.sleep(TICK_SECONDS + 1)
        reaping.world.api.put(NODES, dead("pi-a", 50.0))
        await asyncio.sleep(1)
        if missing == "list":
            reaping.synced = None
        elif missing == "stream":
            reaping.hearing = False
        else:
            del reaping.world.nodes.verdicts["laptop-vk-ollama"]
        await asyncio.sleep(2 * INTERVAL)
        assert reaping.passes() == 3
        assert reaping.allowed() == ("False", Reason.EVIDENCE_INCOMPLETE)
        assert "pi-a" in reaping.left()


@in_virtual_time
async def test_a_node_that_came_back_before_its_read_stays() -> None:
    reaping = three()

    def revive(sent: Sent) -> None:
        if (sent.method, sent.path) == ("GET", f"{NODES}/pi-b"):
            reaping.api.put(NODES, revived(reaping.api.get(NODES, "pi-b")))

    reaping.api.before = revive
    async with reaping.running():
        await asyncio.sleep(TICK_SECONDS + 1)
        assert [name for name in ("pi-a", "pi-b", "pi-c") if name in reaping.left()] == ["pi-b"]
        assert reaping.held() == {"pi-b": Reason.NODE_READY}


@in_virtual_time
async def test_d6_a_node_that_came_back_after_its_read_stays() -> None:
    reaping = three()

    def revive(sent: Sent) -> None:
        if (sent.method, sent.path) == ("GET", f"{NODE_LEASES}/pi-b"):
            reaping.api.put(NODES, revived(reaping.api.get(NODES, "pi-b")))

    reaping.api.before = revive
    async with reaping.running():
        await asyncio.sleep(TICK_SECONDS + 1)
    assert [name for name in ("pi-a", "pi-b", "pi-c") if name in reaping.left()] == ["pi-b"]
    assert ("skipped", "pi-b") in reaping.lines()


@in_virtual_time
async def test_whoever_renews_its_lease_stays() -> None:
    reaping = three()
    reaping.api.put(NODE_LEASES, {**lease(1.0), "metadata": {"name": "pi-b"}})
    async with reaping.running():
        await asyncio.sleep(TICK_SECONDS + 1)
        assert reaping.held() == {"pi-b": Reason.WITNESS_LIVES}
        assert "pi-b" in reaping.left()


@in_virtual_time
async def test_without_the_lease_witness_no_lease_is_read() -> None:
    async with three(leaseWitness=False).running() as reaping:
        await asyncio.sleep(TICK_SECONDS + 1)
        assert [told for told in reaping.requests() if "lease" in told] == []
        assert "pi-a" not in reaping.left()


@in_virtual_time
async def test_those_who_are_never_reaped_are_not_even_read() -> None:
    never = [
        dead("pi-kept", 50.0, annotations={KEEP_ANNOTATION: ""}),
        dead("pi-ours", 50.0),
        dead("pi-plane", 50.0, labels={"node-role.kubernetes.io/control-plane": ""}),
        dead("laptop-other", 50.0),
        dead("plane-agent", 50.0, host="plane"),
        dead("pi-liar", 50.0, labels={"type": "virtual-kubelet"}),
        virtual(labels={"type": None}, annotations=marks()),
    ]
    settings = {**AT_ONCE, "selfHost": "plane", "maxStalePercent": 100}
    async with Reaping(*never, *ready_fleet(3), own_node="pi-ours", settings=settings).running() as reaping:
        await asyncio.sleep(2 * INTERVAL)
        assert reaping.passes() == 2
        names = [raw["metadata"]["name"] for raw in never]
        assert not [told for told in reaping.requests() if told.partition(" ")[2] in names]
        assert set(names) <= set(reaping.left())


@in_virtual_time
async def test_a_clock_that_is_not_the_api_servers_proves_nothing() -> None:
    reaping = three()
    reaping.ahead = -301.0
    async with reaping.running():
        await asyncio.sleep(TICK_SECONDS + 1)
        assert reaping.allowed() == ("False", Reason.CLOCK_SKEW)
        assert reaping.lines() == [("refused_clock_skew", "")]
        assert "pi-a" in reaping.left()


@in_virtual_time
async def test_a_fence_that_is_down_holds_all_and_is_asked_for_before_each_pass() -> None:
    reaping = three()
    reaping.api.fenced = False
    async with reaping.running():
        await asyncio.sleep(TICK_SECONDS + 1)
        assert reaping.allowed() == ("False", Reason.NOT_FENCED)
        assert len(reaping.left()) == 10
        reaping.api.fenced = True
        await asyncio.sleep(INTERVAL)
        assert len(reaping.left()) == 7


@in_virtual_time
async def test_a_fence_that_is_not_required_is_not_asked_for() -> None:
    async with three(requireFence=False).running() as reaping:
        await asyncio.sleep(TICK_SECONDS + 1)
        assert reaping.passes() == 0
        assert len(reaping.left()) == 7


# --- trust -------------------------------------------------------------------------------------------------


def doubted_fleet() -> Reaping:
    """A fleet in an outage from which all come back."""
    nodes = [dead(f"pi-{letter}", 30.0) for letter in "abcd"]
    return Reaping(*nodes, settings={**AT_ONCE, "interval": "10m"})


def recover(reaping: Reaping) -> None:
    """All report again."""
    for name in reaping.left():
        reaping.api.put(NODES, revived(reaping.world.node(name)))


@in_virtual_time
async def test_trust_is_earned_by_the_time_in_which_we_knew_and_heard_all() -> None:
    async with doubted_fleet().running() as reaping:
        await asyncio.sleep(TICK_SECONDS + 1)
        assert reaping.trust() == Trust(seconds=0.0, cause=Reason.MASS_STALE)
        recover(reaping)
        await asyncio.sleep(2 * HOUR)
        assert reaping.trust().seconds == pytest.approx(2 * HOUR, abs=2 * TICK_SECONDS)
        reaping.hearing = False
        await asyncio.sleep(2 * HOUR)
        reaping.hearing, reaping.synced = True, None
        await asyncio.sleep(2 * HOUR)
        reaping.synced = reaping.world.clock.uptime()
        await asyncio.sleep(HOUR)
        assert reaping.trust().seconds == pytest.approx(3 * HOUR, abs=6 * TICK_SECONDS)
        assert reaping.trust().cause is Reason.MASS_STALE


@in_virtual_time
async def test_a_process_that_was_paused_earns_next_to_nothing_by_it() -> None:
    async with doubted_fleet().running() as reaping:
        await asyncio.sleep(TICK_SECONDS + 1)
        recover(reaping)
        await asyncio.sleep(600)
        before = reaping.trust().seconds
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop._no_waiting.passed += 100 * HOUR
        await asyncio.sleep(600)
        assert reaping.trust().seconds - before < 600 + 4 * TICK_SECONDS


@in_virtual_time
async def test_trust_that_could_not_be_written_is_not_counted_twice() -> None:
    async with doubted_fleet().running() as reaping:
        await asyncio.sleep(TICK_SECONDS + 1)
        recover(reaping)
        await asyncio.sleep(600)
        reaping.api.script("PUT", LEDGER, refusal(500), forever=True)
        await asyncio.sleep(2 * HOUR)
        reaping.api.heal()
        await asyncio.sleep(HOUR)
        assert reaping.trust().seconds <= 600 + 600 + HOUR + 2 * TICK_SECONDS


@in_virtual_time
async def test_after_a_mass_death_nothing_goes_for_a_grace() -> None:
    async with doubted_fleet().running() as reaping:
        await asyncio.sleep(TICK_SECONDS + 1)
        recover(reaping)
        reaping.api.put(NODES, dead("pi-ghost", 30.0))
        await asyncio.sleep(23 * HOUR)
        assert reaping.allowed() == ("False", Reason.UNTRUSTED)
        assert reaping.held() == {"pi-ghost": Reason.UNTRUSTED}
        await asyncio.sleep(2 * HOUR)
        assert "pi-ghost" not in reaping.left()


# --- what each answer means --------------------------------------------------------------------------------

GOES_ON = {
    "404": (refusal(404), "skipped"),
    "409": (refusal(409), "skipped"),
    "422 of a lost test": (refusal(422), "skipped"),
    "400": (refusal(400), "rejected"),
    "405": (refusal(405), "rejected"),
    "413": (refusal(413), "rejected"),
    "422": (refusal(422, causes=1), "rejected"),
}
ENDS = {
    "401": (refusal(401), "intended"),
    "403": (refusal(403), "rejected"),
    "408": (refusal(408), "intended"),
    "410": (refusal(410), "intended"),
    "429": (refusal(429, Retry_After="1"), "intended"),
    "500": (refusal(500), "intended"),
    "503": (refusal(503), "intended"),
    "504": (refusal(504), "intended"),
    "no answer": (Reply(hang=True), "intended"),
    "a cut": (Reply(cut=True), "intended"),
}


def script_delete(reaping: Reaping, answer: Reply) -> None:
    """Answer the DELETE of pi-a, which comes after the trial of the fence on the same node."""
    proof = refusal(403, "ValidatingAdmissionPolicy 'clusterconform-fence-delete' with binding 'b' denied request")
    reaping.api.script("DELETE", f"{NODES}/pi-a", proof, answer)


@pytest.mark.parametrize(("answer", "line"), GOES_ON.values(), ids=GOES_ON)
@in_virtual_time
async def test_d7_an_answer_about_this_one_node_does_not_stop_the_others(answer: Reply, line: str) -> None:
    reaping = three()
    script_delete(reaping, answer)
    async with reaping.running():
        await asyncio.sleep(TICK_SECONDS + 1)
        assert reaping.error() is None
        assert reaping.lines()[:2] == [("intended", "pi-a"), (line, "pi-a")]
        assert [name for name in ("pi-a", "pi-b", "pi-c") if name in reaping.left()] == ["pi-a"]


@in_virtual_time
async def test_a_node_that_was_rejected_is_left_alone_for_an_hour() -> None:
    reaping = three(interval="10m", maxDeletes=100)
    script_delete(reaping, refusal(400))
    async with reaping.running():
        await asyncio.sleep(3000)
        assert reaping.held() == {"pi-a": Reason.WRITE_REJECTED}
        assert reaping.lines().count(("intended", "pi-a")) == 1
        await asyncio.sleep(1200)
        assert reaping.lines()[-1] == ("deleted", "pi-a")


@pytest.mark.parametrize(("answer", "line"), ENDS.values(), ids=ENDS)
@in_virtual_time
async def test_an_answer_that_tells_of_more_than_this_node_ends_the_pass(answer: Reply, line: str) -> None:
    reaping = three()
    script_delete(reaping, answer)
    async with reaping.running():
        await asyncio.sleep(TICK_SECONDS + 20)
        assert (reaping.error() or "").startswith("deleting node pi-a: ")
        assert reaping.lines()[-1] == (line, "pi-a")
        assert {name for name, _ in reaping.lines()} <= {"intended", line}
        assert {"pi-b", "pi-c"} <= set(reaping.left())
        spent = reaping.standing().last
        assert spent is not None
        assert spent.report.spent == (line == "intended")


@in_virtual_time
async def test_a_delete_that_was_done_although_its_answer_was_lost_is_spent() -> None:
    reaping = three(maxDeletes=1)
    script_delete(reaping, Reply(cut=True))

    def carry_out(sent: Sent) -> None:
        if sent.method == "DELETE" and "dryRun" not in sent.body:
            reaping.api.remove(NODES, "pi-a")

    reaping.api.before = carry_out
    async with reaping.running():
        await asyncio.sleep(TICK_SECONDS + INTERVAL - 60)
        assert reaping.lines() == [("intended", "pi-a")]
        assert {"pi-b", "pi-c"} <= set(reaping.left())


@pytest.mark.parametrize(
    ("answer", "goes_on"),
    [
        (refusal(404), True),
        (refusal(401), False),
        (refusal(403), False),
        (refusal(409), False),
        (refusal(429), False),
        (refusal(500), False),
        (Reply(hang=True), False),
        (Reply(cut=True), False),
        (reply([]), False),
        (reply("text"), False),
        (Reply(body=b"{"), False),
        (reply({"metadata": 7}), False),
    ],
)
@in_virtual_time
async def test_a_node_that_cannot_be_read_stays_and_only_one_that_is_gone_lets_the_pass_go_on(
    answer: Reply, *, goes_on: bool
) -> None:
    reaping = three()
    reaping.api.script("GET", f"{NODES}/pi-a", answer)
    async with reaping.running():
        await asyncio.sleep(TICK_SECONDS + 20)
        assert (reaping.error() is None) is goes_on
        assert ("pi-b" not in reaping.left()) is goes_on
        assert "pi-a" in reaping.left()


@in_virtual_time
async def test_an_answer_about_another_node_deletes_neither() -> None:
    reaping = three()
    other = reaping.api.put(NODES, dead("pi-z", 1.0))
    reaping.api.script(
        "GET", f"{NODES}/pi-a", reply({**other, "metadata": {**other["metadata"], "uid": "uid-pi-a"}})
    )
    async with reaping.running():
        await asyncio.sleep(TICK_SECONDS + 1)
        assert {"pi-a", "pi-z"} <= set(reaping.left())


UNREADABLE = {
    "401": refusal(401),
    "403": refusal(403),
    "409": refusal(409),
    "429": refusal(429),
    "500": refusal(500),
    "no answer": Reply(hang=True),
    "a cut": Reply(cut=True),
    "no JSON": Reply(body=b"<html>"),
    "null": reply(None),
    "a list": reply([]),
    "an empty object": reply({}),
    "a text": reply("Lease"),
    "a Status": reply({"kind": "Status", "status": "Success"}),
}


@pytest.mark.parametrize("answer", UNREADABLE.values(), ids=UNREADABLE)
@in_virtual_time
async def test_a_lease_that_cannot_be_read_holds_its_node_and_no_other(answer: Reply) -> None:
    """Whatever is no Lease is no witness either: only that there is none is no objection."""
    reaping = three()
    reaping.api.script("GET", f"{NODE_LEASES}/pi-a", answer)
    async with reaping.running():
        await asyncio.sleep(TICK_SECONDS + 20)
        assert reaping.held() == {"pi-a": Reason.LEASE_UNREADABLE}
        assert [name for name in ("pi-a", "pi-b", "pi-c") if name in reaping.left()] == ["pi-a"]


@pytest.mark.parametrize("path", [f"{NODES}/pi-a", f"{NODE_LEASES}/pi-a"], ids=["node", "lease"])
@in_virtual_time
async def test_a_witness_has_five_seconds(path: str) -> None:
    """The contract's time for a GET (§3.1)."""
    reaping = three()
    reaping.api.script("GET", path, Reply(hang=True))
    async with reaping.running():
        await asyncio.sleep(TICK_SECONDS + 4.9)
        assert reaping.standing().last is None
        await asyncio.sleep(0.2)
        assert reaping.standing().last is not None


BAD_SWAPS = {
    "401": refusal(401),
    "403": refusal(403),
    "404": refusal(404),
    "413": refusal(413),
    "422": refusal(422, causes=1),
    "429": refusal(429),
    "500": refusal(500),
    "no answer": Reply(hang=True),
    "a cut": Reply(cut=True),
    "an empty object": reply({}),
}


@pytest.mark.parametrize("answer", BAD_SWAPS.values(), ids=BAD_SWAPS)
@in_virtual_time
async def test_an_intention_that_cannot_be_written_deletes_nothing(answer: Reply) -> None:
    reaping = three()
    reaping.api.script("PUT", LEDGER, answer)
    async with reaping.running():
        await asyncio.sleep(TICK_SECONDS + 20)
        assert reaping.allowed() == ("False", Reason.LEDGER_UNREADABLE)
        assert len(reaping.left()) == 10


@pytest.mark.parametrize("answer", BAD_SWAPS.values(), ids=BAD_SWAPS)
@in_virtual_time
async def test_a_result_that_cannot_be_written_ends_the_pass_and_stays_spent(answer: Reply) -> None:
    reaping = three(maxDeletes=2)
    puts: list[Sent] = []

    def second(sent: Sent) -> None:
        if (sent.method, sent.path) == ("PUT", LEDGER):
            puts.append(sent)
            if len(puts) == 1:
                reaping.api.script("PUT", LEDGER, answer)

    reaping.api.after = second
    async with reaping.running():
        await asyncio.sleep(TICK_SECONDS + 20)
        reaping.api.after = lambda _: None
        assert reaping.lines() == [("intended", "pi-a")]
        assert {"pi-b", "pi-c"} <= set(reaping.left())
        await asyncio.sleep(INTERVAL)
        # Of two deletions one is left, whatever the ledger could not be told.
        assert [name for name in ("pi-a", "pi-b", "pi-c") if name in reaping.left()] == ["pi-c"]


@in_virtual_time
async def test_with_the_write_fence_shut_nothing_is_written_and_nothing_goes() -> None:
    """As for a leader who was paused beyond its Lease, whatever it had found out before."""
    reaping = three()
    shut: list[str] = []
    reaping.world.cluster.fence = lambda _: not shut
    reaping.api.after = lambda sent: shut.append("now") if sent.path == f"{NODE_LEASES}/pi-a" else None
    async with reaping.running():
        await asyncio.sleep(TICK_SECONDS + 20)
        before = len(reaping.api.writes())
        await asyncio.sleep(3 * INTERVAL)
        assert len(reaping.api.writes()) == before
        assert len(reaping.left()) == 10
        assert reaping.lines() == []


@in_virtual_time
async def test_with_the_write_fence_shut_after_the_intention_nothing_goes() -> None:
    reaping = three()
    shut: list[str] = []
    reaping.world.cluster.fence = lambda _: not shut
    reaping.api.after = lambda sent: shut.append("now") if (sent.method, sent.path) == ("PUT", LEDGER) else None
    async with reaping.running():
        await asyncio.sleep(TICK_SECONDS + 20)
        assert len(reaping.left()) == 10
        assert reaping.lines() == [("intended", "pi-a")]


# --- the ledger --------------------------------------------------------------------------------------------


@in_virtual_time
async def test_another_leaders_term_in_the_ledger_stops_all() -> None:
    reaping = three()
    async with reaping.running():
        await asyncio.sleep(1)
        reaping.api.change(
            CONFIGMAPS, LEDGER_CONFIGMAP, lambda raw: raw["data"].update({TERM_KEY: "2/they/lease"})
        )
        await asyncio.sleep(2 * INTERVAL)
        assert reaping.allowed() == ("False", Reason.LEDGER_UNREADABLE)
        assert len(reaping.left()) == 10
        assert reaping.lines() == []


@in_virtual_time
async def test_a_claim_that_fails_is_said_and_made_up_for_by_the_first_pass(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reaping = three()
    reaping.api.script("POST", CONFIGMAPS, refusal(500, "no space"))
    async with reaping.running():
        await asyncio.sleep(1)
        (record,) = caplog.records
        assert record.getMessage() == "the ledger cannot be claimed"
        await asyncio.sleep(TICK_SECONDS)
        # What the failed claim took out of the state is gone: the ledger counts as spent for a window.
        assert reaping.lines() == []
        assert len(reaping.left()) == 10


@in_virtual_time
async def test_rubbish_in_the_ledger_is_counted_and_spent() -> None:
    reaping = three(maxDeletes=3)
    reaping.api.put(
        CONFIGMAPS,
        {
            "metadata": {"name": LEDGER_CONFIGMAP, "creationTimestamp": ago(1000.0)},
            "data": {LEDGER_KEY: "rubbish\n{}\n"},
        },
    )
    async with reaping.running():
        await asyncio.sleep(TICK_SECONDS + 1)
        assert reaping.count("ledger_malformed_lines") == 2
        assert [name for name in ("pi-a", "pi-b", "pi-c") if name in reaping.left()] == ["pi-b", "pi-c"]
        assert reaping.count("ledger_bytes") > 100


# --- what is shown -----------------------------------------------------------------------------------------


@in_virtual_time
async def test_a_deletion_is_an_event_on_the_profile() -> None:
    async with three().running() as reaping:
        await asyncio.sleep(TICK_SECONDS + 1)
    profile = reaping.api.get(PROFILES, "k3s")["metadata"]["uid"]
    notes = [note for note in reaping.world.events.notes if note.reason == Reason.REAPED]
    assert [note.message.partition(":")[0] for note in notes] == ["node pi-a", "node pi-b", "node pi-c"]
    assert {note.type for note in notes} == {"Normal"}
    assert all("secret kube-system/pi-" in note.message for note in notes)
    assert [dict(note.reference) for note in notes] == [
        {"apiVersion": "outpost.dhnt.io/v1alpha1", "kind": "RuntimeProfile", "name": "k3s", "uid": profile}
    ] * 3


@in_virtual_time
async def test_refusals_are_events_and_intentions_are_none() -> None:
    reaping = three()
    script_delete(reaping, refusal(400, "not like this"))
    async with reaping.running():
        await asyncio.sleep(TICK_SECONDS + 1)
        assert sorted(reaping.world.events.reasons()) == ["Reaped", "Reaped", "WriteRejected"]
    async with outage().running() as held:
        await asyncio.sleep(TICK_SECONDS + 1)
        assert [(note.type, note.reason) for note in held.world.events.notes] == [("Warning", "MassStale")]


@in_virtual_time
async def test_a_dry_run_is_no_event() -> None:
    async with three(mode="DryRun").running() as reaping:
        await asyncio.sleep(TICK_SECONDS + 1)
        assert reaping.world.events.notes == []


@in_virtual_time
async def test_every_line_of_the_ledger_and_every_held_node_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    reaping = three()
    reaping.api.put(NODE_LEASES, {**lease(1.0), "metadata": {"name": "pi-b"}})
    async with reaping.running():
        await asyncio.sleep(TICK_SECONDS + 1)
    fields = [getattr(record, "fields", {}) for record in caplog.records if record.getMessage() == "ledger"]
    assert [(said["event"], said["node"]) for said in fields] == reaping.lines()
    (held,) = [record for record in caplog.records if record.getMessage() == "stale node held"]
    assert getattr(held, "fields", {})["node"] == "pi-b"


@in_virtual_time
async def test_metrics_tell_what_a_pass_did() -> None:
    reaping = three(maxDeletes=5)
    reaping.api.put(NODE_LEASES, {**lease(1.0), "metadata": {"name": "pi-b"}})
    async with reaping.running():
        await asyncio.sleep(TICK_SECONDS + 1)
        assert reaping.count("reaped_nodes_total", mode="Live") == 2
        assert reaping.count("reaping_passes_total", outcome="Done") == 1
        assert reaping.count("reaping_budget_left_nodes") == 3
        assert reaping.count("reaping_held_nodes", reason="WitnessLives") == 1
        assert reaping.count("reaping_allowed", status="True", reason="GuardsPass") == 1
        assert reaping.count("reaping_oldest_stale_age_seconds") == pytest.approx(100 * HOUR, abs=60)
        assert reaping.count("reaping_last_pass_timestamp_seconds") > 0
        await asyncio.sleep(INTERVAL)
        assert reaping.count("reaping_oldest_stale_age_seconds") == pytest.approx(51 * HOUR, abs=60)
        assert reaping.count("reaping_trusted_seconds") == pytest.approx(HOUR, abs=2 * TICK_SECONDS)


@in_virtual_time
async def test_metrics_tell_what_held_all() -> None:
    async with outage().running() as reaping:
        await asyncio.sleep(TICK_SECONDS + 1)
        assert reaping.count("reaping_passes_total", outcome="MassStale") == 1
        assert reaping.count("reaping_held_nodes", reason="MassStale") == 3
        assert reaping.count("reaping_allowed", status="False", reason="MassStale") == 1
        recover(reaping)
        await asyncio.sleep(INTERVAL)
        assert reaping.count("reaping_allowed", status="False", reason="MassStale") == 0
        assert reaping.count("reaping_held_nodes", reason="MassStale") == 0
        assert reaping.count("reaping_oldest_stale_age_seconds") == 0


@in_virtual_time
async def test_a_node_that_does_not_end_is_counted() -> None:
    stuck = dead("pi-stuck", 50.0, deleted=ago(10.0))
    async with Reaping(stuck, *ready_fleet(3)).running() as reaping:
        await asyncio.sleep(TICK_SECONDS + 1)
        assert reaping.count("nodes_terminating") == 1
        assert "pi-stuck" in reaping.left()


@in_virtual_time
async def test_the_status_learns_of_each_pass_and_tells_when_the_next_is_due() -> None:
    async with Reaping(*ready_fleet(2)).running() as reaping:
        await asyncio.sleep(1)
        assert reaping.standing().next_at is None
        reaping.world.changed.clear()
        await asyncio.sleep(TICK_SECONDS)
        assert reaping.world.changed == ["k3s"]
        standing = reaping.standing()
        assert standing.last is not None
        assert standing.next_at is not None
        assert (standing.next_at - standing.last.at).total_seconds() == INTERVAL


@in_virtual_time
async def test_the_status_shows_the_settings_and_the_mandate_that_are_in_force_now() -> None:
    async with three().running() as reaping:
        await asyncio.sleep(TICK_SECONDS + 1)
        reaping.set(maxDeletes=7, mode="DryRun")
        standing = reaping.standing()
        assert (standing.policy.max_deletes, standing.mandate.mode) == (7, ReapingMode.DRY_RUN)


@in_virtual_time
async def test_another_life_of_the_name_is_judged_for_itself() -> None:
    """The verdict at hand is still that of the node before."""
    reaping = three()
    async with reaping.running():
        await asyncio.sleep(1)
        successor = dead("pi-a", 100.0, uid="uid-2", labels={"type": "virtual-kubelet"})
        reaping.api.remove(NODES, "pi-a")
        stored = reaping.api.put(NODES, successor)
        reaping.world.cache.observe(read_node(view_node(stored)))
        await asyncio.sleep(2 * INTERVAL)
        assert "pi-a" in reaping.left()
