from typing import Any

import pytest
from builders import at
from reaping_worlds import HOUR, OURS_OFF, dead, dead_fleet, lease, profiles, ready_fleet, revived

from clusterconform.contract.asks import LedgerText
from clusterconform.contract.times import Moment
from clusterconform.decisions.ledger import LedgerEvent, line_at, write_line
from clusterconform.decisions.rehearsal import Rehearsal, Scene, agents_of

Json = dict[str, Any]


def now(hours: float = 0, uptime: float = 2 * HOUR) -> Moment:
    return Moment(wall=at(hours * HOUR).wall, uptime=uptime)


def played(nodes: list[Json], *scenes: Scene, leases: Json | None = None, **settings: Any) -> Json:
    """What the last of ``scenes`` printed."""
    world, printed = Rehearsal(nodes, leases or {}, None), {}
    for scene in scenes or (Scene(moment=now()),):
        printed = dict(world.play(scene, profiles(**settings)))
    return printed


def test_a_pass_over_files_says_what_would_go_and_why_the_rest_would_not() -> None:
    printed = played([*ready_fleet(6), *dead_fleet(100, 90, 80, 70)])
    assert printed["deleted"] == ["pi-dead-00", "pi-dead-01", "pi-dead-02"]
    assert printed["held"] == [{"name": "pi-dead-03", "reason": "BudgetSpent", "until": None}]
    assert printed["facts"] == {"scope": 10, "stale": 4, "future": 0}
    assert (printed["refused"], printed["error"]) == (None, None)
    assert [line["event"] for line in printed["ledger"]] == ["intended", "deleted"] * 3


def test_o4_a_fresh_read_that_is_ready_spares_the_node() -> None:
    printed = played([dead()], Scene(moment=now(), fresh={"pi-abc123": revived(dead())}))
    assert (printed["deleted"], printed["held"][0]["reason"]) == ([], "NodeReady")


def test_o5_a_fresh_read_of_another_life_spares_the_node() -> None:
    assert played([dead()], Scene(moment=now(), fresh={"pi-abc123": dead(uid="uid-new")}))["deleted"] == []


def test_o6_a_list_that_fails_is_said() -> None:
    printed = played([dead()], Scene(moment=now(), faults={"list": 500}))
    assert (printed["deleted"], printed["error"]) == ([], "listing nodes: HTTP status 500")


@pytest.mark.parametrize(
    ("faults", "error"),
    [
        pytest.param({"get": 500}, "reading node pi-dead-00: HTTP status 500", id="O7"),
        pytest.param({"get": 403}, "reading node pi-dead-00: HTTP status 403", id="O7 forbidden"),
        pytest.param({"delete": 503}, "deleting node pi-dead-00: HTTP status 503", id="O8"),
        pytest.param({"delete": 403}, "deleting node pi-dead-00: HTTP status 403", id="O8 forbidden"),
        pytest.param({"ledger": 500}, "ledger: HTTP status 500", id="O16"),
    ],
)
def test_a_fault_ends_the_pass_and_is_said(faults: dict[str, int], error: str) -> None:
    printed = played([*ready_fleet(3), *dead_fleet(100, 50)], Scene(moment=now(), faults=faults))
    assert (printed["deleted"], printed["error"]) == ([], error)


@pytest.mark.parametrize("status", [404, 409, 422])
def test_d7_what_concerns_one_node_ends_no_pass(status: int) -> None:
    printed = played([*ready_fleet(3), *dead_fleet(100, 50)], Scene(moment=now(), faults={"delete": status}))
    assert (printed["deleted"], printed["error"]) == ([], None)
    assert [line["node"] for line in printed["ledger"]] == ["pi-dead-00"] * 2 + ["pi-dead-01"] * 2


def test_d7_a_node_that_is_gone_ends_no_pass() -> None:
    printed = played([*ready_fleet(3), *dead_fleet(100, 50)], Scene(moment=now(), fresh={"pi-dead-00": None}))
    assert (printed["deleted"], printed["error"]) == (["pi-dead-01"], None)


def test_o15_the_ledger_outlives_a_restart() -> None:
    nodes = [*ready_fleet(6), *dead_fleet(100, 90, 80, 70, 60)]
    scenes = [Scene(moment=now()), Scene(moment=now(), restarted=True)]
    assert played(nodes, *scenes, **OURS_OFF)["deleted"] == []
    later = Scene(moment=now(2), restarted=True)
    assert played(nodes, *scenes, later, **OURS_OFF)["deleted"] == ["pi-dead-03", "pi-dead-04"]


def test_o20_uptime_is_taken_from_the_scene() -> None:
    young, grown = Scene(moment=now(uptime=120)), Scene(moment=now(uptime=HOUR + 60))
    assert played([dead()], young, settle="0s")["refused"] == "MinUptime"
    assert played([dead()], young, grown, settle="0s")["deleted"] == ["pi-abc123"]


def test_o21_a_dry_run_names_what_it_would_delete_and_keeps_it() -> None:
    nodes = [*ready_fleet(5), *dead_fleet(50, 40)]
    printed = played(nodes, Scene(moment=now()), Scene(moment=now(1, 3 * HOUR)), mode="DryRun")
    assert printed["deleted"] == ["pi-dead-00", "pi-dead-01"]
    assert printed["ledger"] == []


def test_o27_o35_a_clock_that_jumped_is_not_trusted_again_before_a_grace() -> None:
    nodes, last = [*ready_fleet(9), dead(hours=5 / 60)], 49
    scenes = [Scene(moment=now()), Scene(moment=now(48)), Scene(moment=now(last, uptime=3 * HOUR))]
    assert played(nodes, *scenes[:2])["refused"] == "ClockSkew"
    assert played(nodes, *scenes)["refused"] == "Untrusted"
    assert played(nodes, *scenes, reearnTrust=False)["deleted"] == ["pi-abc123"]


def test_a_lease_of_the_world_is_heard_b02() -> None:
    printed = played([dead()], leases={"pi-abc123": lease(1)})
    assert (printed["deleted"], printed["held"][0]["reason"]) == ([], "WitnessLives")
    assert printed["held"][0]["until"] == "2026-08-02T11:00:00Z"


def test_the_ledger_of_the_world_counts() -> None:
    spent = [line_at(now().wall, LedgerEvent.DELETED, node=f"x{number}", uid=f"u{number}") for number in range(3)]
    ledger = LedgerText(text="".join(write_line(line) + "\n" for line in spent), trust=None, created_at=None)
    world = Rehearsal([dead(), *ready_fleet(20)], {}, ledger)
    assert world.play(Scene(moment=now(0.5)), profiles())["refused"] == "BudgetSpent"


def test_off_looks_for_nothing() -> None:
    printed = played([dead()], mode="Off")
    assert (printed["refused"], printed["deleted"], printed["facts"]["scope"]) == ("NotLive", [], 0)


def test_without_an_accepted_agent_profile_nobody_is_looked_for() -> None:
    world, unsubject = Rehearsal([dead()], {}, None), profiles()
    refused = type(unsubject)(profiles={}, refusals={})
    assert agents_of(refused) is None
    assert world.play(Scene(moment=now()), refused)["refused"] == "NotLive"


def test_a_fresh_read_that_bears_another_name_is_no_crash() -> None:
    printed = played([dead()], Scene(moment=now(), fresh={"pi-abc123": dead("pi-other", uid="uid-pi-abc123")}))
    assert printed["deleted"] == []
