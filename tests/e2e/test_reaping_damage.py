"""Reaping while what it leans on breaks: the ledger, the rights, the API server, the leader itself."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from operators import OperatorProcess
from proxy import Exchange, Hold, Matches, When
from reaping_crashes import HASTY, LEDGER, Scene, crashing, is_a, is_line, now

from clusterconform.contract.lease import LEASE_PATH
from clusterconform.contract.names import LEDGER_CONFIGMAP, LEDGER_KEY, NAMESPACE, TERM_KEY
from clusterconform.contract.times import parse_time
from clusterconform.decisions.ledger import SIZE, LedgerEvent, append, line_at
from clusterconform.sandbox.builder import Builder

ROLE = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles/clusterconform"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
OPERATOR = f"system:serviceaccount:{NAMESPACE}:clusterconform"
INTENDED, DELETED = LedgerEvent.INTENDED, LedgerEvent.DELETED
IS_DELETE = is_a("DELETE node")


@pytest.fixture(scope="module")
def ripe(builder: Builder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with crashing(builder, tmp_path_factory.mktemp("damage"), candidates=30) as scene:
        scene.ripen()
        yield scene


@pytest.fixture
def scene(ripe: Scene) -> Iterator[Scene]:
    """With room in the budget, and whole again afterwards."""
    ripe.allow(50)
    with ripe.mended():
        yield ripe
    ripe.check()


def allowed(scene: Scene) -> tuple[str, str]:
    return scene.world.profile_condition("k3s", "ReapingAllowed")


def until_refused(scene: Scene, reason: str) -> None:
    scene.world.until(lambda: allowed(scene) == ("False", reason), f"reaping is refused: {reason}", seconds=45)


# --- the ledger --------------------------------------------------------------------------------------------


def test_a_ledger_that_is_deleted_in_the_middle_of_a_pass_counts_as_spent(scene: Scene) -> None:
    names = scene.take(2)

    def delete(_: Exchange) -> None:
        scene.plane.admin.delete(LEDGER)

    scene.first.at(IS_DELETE, delete, when=When.AFTER)
    with scene.running(scene.first) as process:
        scene.until_passed(process)
        assert len(scene.left(names)) == 1
        until_refused(scene, "BudgetSpent")
        assert "complete" not in scene.data()
        assert scene.data()[LEDGER_KEY] == ""
        assert len(scene.left(names)) == 1
    with scene.running(scene.second) as process:
        scene.until_passed(process)
        assert len(scene.left(names)) == 1, "the next leader does not know better"
    scene.leave(names)


def test_lines_of_rubbish_are_each_worth_a_deletion(scene: Scene) -> None:
    names = scene.take(2)
    scene.allow(4)
    rubbish = scene.data()[LEDGER_KEY] + 'rubbish\n{"at": 7}\n{"event":"deleted","node":"torn'
    scene.plane.admin.patch(LEDGER, {"data": {LEDGER_KEY: rubbish}})
    with scene.running(scene.first) as process:
        until_refused(scene, "BudgetSpent")
        assert len(scene.left(names)) == 1
        assert process.metric("clusterconform_ledger_malformed_lines") == 3
    assert scene.data()[LEDGER_KEY].startswith(rubbish + "\n")
    scene.leave(names)


def test_a_ledger_that_is_full_stops_all(scene: Scene) -> None:
    names = scene.take(1)
    notes = [line_at(now(), LedgerEvent.NOTED, detail="x" * 1000) for _ in range(SIZE // 1000)]
    scene.plane.admin.patch(LEDGER, {"data": {LEDGER_KEY: append(scene.data()[LEDGER_KEY], notes)}})
    with scene.running(scene.first):
        until_refused(scene, "LedgerFull")
        assert scene.left(names) == names
    scene.leave(names)


@pytest.fixture
def rights(ripe: Scene) -> Iterator[Callable[[], None]]:
    """Takes the right to write the ledger away, for the length of the test."""
    role = ripe.plane.admin.get(ROLE)

    def may() -> bool:
        place = {
            "namespace": NAMESPACE,
            "verb": "update",
            "resource": "configmaps",
            "name": "clusterconform-ledger",
        }
        spec = {"user": OPERATOR, "resourceAttributes": place}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        granted: bool = ripe.plane.admin.create(REVIEWS, review)["status"]["allowed"]
        return granted

    def revoke() -> None:
        others = [rule for rule in role["rules"] if LEDGER_CONFIGMAP not in rule.get("resourceNames", ())]
        (own,) = [rule for rule in role["rules"] if rule not in others]
        less = {"resourceNames": [LEDGER_CONFIGMAP], "verbs": ["get"]}
        rest = {"resourceNames": [name for name in own["resourceNames"] if name != LEDGER_CONFIGMAP]}
        ripe.plane.admin.patch(ROLE, {"rules": [*others, {**own, **less}, {**own, **rest}]})
        ripe.world.until(lambda: not may(), "the right is gone")

    yield revoke
    ripe.plane.admin.patch(ROLE, {"rules": role["rules"]})
    ripe.world.until(may, "the right is back")


def test_without_the_right_to_write_the_ledger_nothing_goes(scene: Scene, rights: Callable[[], None]) -> None:
    names = scene.take(1)
    rights()
    with scene.running(scene.first):
        until_refused(scene, "LedgerUnreadable")
        assert scene.left(names) == names
    scene.leave(names)


def test_a_right_that_is_taken_away_after_the_intention_leaves_it_spent(
    scene: Scene, rights: Callable[[], None]
) -> None:
    names = scene.take(2)
    scene.first.at(IS_DELETE, lambda _: rights(), when=When.BEFORE)
    with scene.running(scene.first) as process:
        scene.until_passed(process)
        until_refused(scene, "LedgerUnreadable")
        assert len(scene.left(names)) == 1
        assert [event for event, _ in scene.told(names)] == [INTENDED]
    scene.leave(names)


# --- the API server ----------------------------------------------------------------------------------------


def test_an_api_server_that_is_killed_between_intention_and_deletion(scene: Scene) -> None:
    names = scene.take(1)
    killed = threading.Event()

    def kill(_: Exchange) -> None:
        scene.plane.kill_api_server()
        killed.set()

    scene.first.at(IS_DELETE, kill, when=When.BEFORE)
    with scene.running(scene.first):
        assert killed.wait(60)
        scene.plane.start_api_server()
        assert scene.left(names) == names
        assert scene.told(names) == [(INTENDED, 0)]
        scene.check()
        scene.until_gone(names, seconds=90)
    assert [event for event, _ in scene.told(names)] == [INTENDED, INTENDED, DELETED]


# --- the leader --------------------------------------------------------------------------------------------


def by(entries: list[Any], name: str) -> list[Any]:
    return [entry for entry in entries if entry["userAgent"].endswith(f"({name})")]


@contextmanager
def paused(scene: Scene, matches: Matches, when: When) -> Iterator[tuple[OperatorProcess, OperatorProcess, str]]:
    """The first sleeps from that request on until the second's term is in the ledger, and then wakes up.

    The request is held for as long. Gives both, and since when the term is there.
    """
    hold = Hold()
    with scene.running(scene.first, HASTY) as first:

        def pause(exchange: Exchange) -> None:
            # At once, or it would notice that no answer comes.
            first.kill(signal.SIGSTOP)
            hold(exchange)

        scene.first.at(matches, pause, when=when)
        hold.wait()
        with scene.running(scene.second, HASTY) as second, closing(hold):
            term, before = scene.data().get(TERM_KEY), len(by(scene.swaps(), "second"))
            told = lambda: scene.data().get(TERM_KEY) != term and len(by(scene.swaps(), "second")) > before  # noqa: E731
            scene.world.until(told, "the second has written its term", seconds=60)
            hold.release()
            first.kill(signal.SIGCONT)
            yield first, second, by(scene.swaps(), "second")[before]["stageTimestamp"]


def done_by_the_first(scene: Scene, since: str) -> list[Any]:
    """What the first has deleted or written into the ledger with success after ``since``."""
    then = parse_time(since)
    assert then is not None
    answered = [(parse_time(entry["stageTimestamp"]), entry) for entry in [*scene.deletions(), *scene.swaps()]]
    return by([entry for at, entry in answered if at is not None and at > then], "first")


PAUSES = {
    "before it intends": (is_a("GET lease"), When.AFTER),
    "while its intention is on its way": (is_line(INTENDED), When.BEFORE),
    "after it intended": (is_line(INTENDED), When.AFTER),
    "after it deleted": (IS_DELETE, When.AFTER),
    "while its result is on its way": (is_line(DELETED), When.BEFORE),
}
SHORT = {"while its intention is on its way", "after it intended"}


@pytest.mark.parametrize(
    "pause", [pytest.param(name, marks=[] if name in SHORT else [pytest.mark.long]) for name in PAUSES]
)
def test_a_leader_that_was_paused_beyond_its_lease_deletes_and_writes_nothing_any_more(
    scene: Scene, pause: str
) -> None:
    names = scene.take(2)
    with paused(scene, *PAUSES[pause]) as (first, second, since):
        scene.world.until(lambda: bool(first.said("lost leadership")), "the first knows that it has lost")
        scene.until_gone(names)
        scene.world.until(lambda: len(first.said("started")) == 2, "the first begins anew, as a standby")
        assert done_by_the_first(scene, since) == []
        assert second.running


def test_a_deletion_that_the_network_held_back_until_another_led_was_counted_before(scene: Scene) -> None:
    """No fence can stop what was sent already; but it was written down, and the next leader counts it."""
    names = scene.take(2)
    scene.allow(1)
    with paused(scene, IS_DELETE, When.BEFORE) as (_, second, _):
        scene.until_passed(second)
        assert len(scene.left(names)) == 1
        assert scene.spent() <= scene.world.profile("k3s")["spec"]["nodeGC"]["maxDeletes"]
    scene.leave(names)


def test_two_operators_that_start_at_once_act_as_one(scene: Scene) -> None:
    names = sorted(scene.take(2))
    term = scene.plane.admin.get(LEASE_PATH)["spec"]["leaseTransitions"]
    begun = len(scene.deletions()), len(scene.swaps())
    with scene.running(scene.first) as first, scene.running(scene.second) as second:
        for process in (first, second):
            process.await_ready()
        scene.until_gone(names)
        scene.until_passed(first if first.metric("clusterconform_leader") else second, passes=2)
        leads = [process.metric("clusterconform_leader") for process in (first, second)]
        assert sorted(leads) == [0, 1]
        acted = [*scene.deletions()[begun[0] :], *scene.swaps()[begun[1] :]]
        assert len({entry["userAgent"] for entry in acted}) == 1
        assert scene.plane.admin.get(LEASE_PATH)["spec"]["leaseTransitions"] == term + 1
    assert [told for told in scene.told(names) if told[0] == DELETED] == [(DELETED, 0), (DELETED, 1)]
