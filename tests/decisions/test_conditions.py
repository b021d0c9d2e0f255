from datetime import UTC, datetime
from typing import Any

import pytest
from builders import START, agent, at, catalogue, conformant, facts, ready, virtual

from clusterconform.contract.facts import NodeFacts
from clusterconform.contract.matrix import MATRIX
from clusterconform.contract.memory import EMPTY
from clusterconform.contract.plan import ConditionWrite
from clusterconform.contract.verdicts import Finding, Reason
from clusterconform.decisions import conditions
from clusterconform.decisions.conditions import CLEAN_SECONDS, DRIFT_SECONDS
from clusterconform.decisions.planning import Decision, condition_written, decide

Json = dict[str, Any]

PODMAN = MATRIX["vk-podman"]
BEFORE = datetime(2026, 7, 2, 10, tzinfo=UTC)
CLEAN_TEXT = "carries the labels and the taint of RuntimeProfile vk-podman"
PORT = Finding(Reason.KUBELET_ENDPOINT_ADVERTISED, "a port")
ADVICE = Finding(Reason.NAME_SUFFIX_MISMATCH, "a name")
DRIFT: Json = {"labels": {"outpost.dhnt.io/runtime": None}}


def carrying(*own: Json) -> NodeFacts:
    return facts(virtual(conditions=own))


def story(raw: Json, *seconds: float) -> list[Decision]:
    """The decisions on an unchanging node at ``seconds``; nothing is written in between."""
    memory, decisions = EMPTY, []
    for second in seconds:
        decisions.append(decide(facts(raw), catalogue(), memory, at(second)))
        memory = decisions[-1].memory
    return decisions


def statuses(decisions: list[Decision]) -> list[str | None]:
    return [made.plan.condition.status if made.plan.condition else None for made in decisions]


# --- when --------------------------------------------------------------------------------------------------


def test_the_numbers_are_ten_seconds_clean_and_thirty_amiss() -> None:
    assert (CLEAN_SECONDS, DRIFT_SECONDS) == (10.0, 30.0)


def test_rule_1_a_node_reads_true_only_after_ten_seconds_without_findings() -> None:
    decisions = story(virtual(), 0, 5, 9.9, 10)
    assert statuses(decisions) == [None, None, None, "True"]
    assert [made.recheck_after for made in decisions] == [
        10.0,
        5.0,
        pytest.approx(0.1),
        None,
    ]


def test_rule_1_a_finding_in_between_starts_the_ten_seconds_anew() -> None:
    clean, drifted = facts(virtual()), facts(virtual(**DRIFT))
    memory = EMPTY
    for second, node, expected in [
        (0, clean, None),
        (9, drifted, None),
        (12, clean, None),
        (21.9, clean, None),
    ]:
        made = decide(node, catalogue(), memory, at(second))
        memory = made.memory
        assert made.plan.condition is expected
    assert statuses([decide(clean, catalogue(), memory, at(22))]) == ["True"]


def test_rule_1_advice_does_not_keep_a_node_from_reading_true() -> None:
    (_, made) = story(virtual(name="vk-0"), 0, 10)
    assert made.verdict.conformant
    assert made.plan.condition is not None
    assert made.plan.condition.text == (
        "True",
        "Conforms",
        f"{CLEAN_TEXT}; the name does not end with -vk-podman",
    )


def test_rule_2_a_drift_that_we_can_repair_reads_false_only_when_it_outlives_thirty_seconds() -> None:
    decisions = story(virtual(**DRIFT), 0, 10, 29.9, 30)
    assert statuses(decisions) == [None, None, None, "False"]
    assert [made.recheck_after for made in decisions] == [30.0, 20.0, pytest.approx(0.1), None]
    assert all(made.plan.marks for made in decisions)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        pytest.param(virtual(port=10250), "KubeletEndpointAdvertised", id="port"),
        pytest.param(virtual(name="vk-0", labels={"outpost.dhnt.io/host": None}), "HostUnknown", id="host"),
        pytest.param(agent(labels={"type": "virtual-kubelet"}), "IdentityConflict", id="conflict"),
    ],
)
def test_rule_2_what_we_may_not_or_cannot_repair_reads_false_at_once(raw: Json, reason: str) -> None:
    (made,) = story(raw, 0)
    assert made.plan.condition is not None
    assert (made.plan.condition.status, made.plan.condition.reason) == ("False", reason)


def test_rule_2_a_flaw_beside_a_drift_that_we_repair_reads_false_at_once() -> None:
    assert statuses(story(virtual(port=10250, **DRIFT), 0)) == ["False"]


def test_rule_2_a_drift_repaired_in_time_costs_no_condition_at_all() -> None:
    true = conformant(message=CLEAN_TEXT)
    memory = EMPTY
    for second, raw in [
        (0, virtual(conditions=[true])),
        (20, virtual(conditions=[true], **DRIFT)),
        (21, virtual(conditions=[true])),
        (60, virtual(conditions=[true])),
    ]:
        made = decide(facts(raw), catalogue(), memory, at(second))
        memory = made.memory
        assert made.plan.condition is None


@pytest.mark.parametrize("status", ["True", "False", "Mended"])
def test_rule_3_a_node_that_no_profile_keeps_any_more_reads_unknown(status: str) -> None:
    write = conditions.released(carrying(conformant(status)), "why", at(0))
    assert write == ConditionWrite(
        status="Unknown", reason="NotEnforced", message="why", transition=START, heartbeat=START
    )


@pytest.mark.parametrize("message", ["why", "another why", ""])
def test_rule_3_unknown_is_written_once_whatever_the_reason_becomes(message: str) -> None:
    assert conditions.released(carrying(conformant("Unknown", "NotEnforced", message)), "why", at(0)) is None


def test_rule_3_a_foreign_unknown_is_not_taken_for_ours() -> None:
    write = conditions.released(carrying(conformant("Unknown", "NodeStatusUnknown")), "why", at(0))
    assert write is not None
    assert (write.reason, write.transition) == ("NotEnforced", BEFORE)


def test_rule_3_a_node_without_our_condition_never_gets_one_on_release() -> None:
    assert conditions.released(carrying(), "why", at(0)) is None


@pytest.mark.parametrize("raw", [virtual, agent])
def test_nothing_is_ever_written_on_a_terminating_node(raw: Any) -> None:
    dying = {"deleted": "2026-08-01T11:59:00Z", "port": 10250, "conditions": [conformant("False")], **DRIFT}
    for made in story(raw(**dying), 0, 10, 30, 100):
        assert not made.plan
        assert made.recheck_after is None


# --- what --------------------------------------------------------------------------------------------------


def test_B47_a_first_condition_transitions_now() -> None:
    write = conditions.conforming(carrying(), PODMAN, [], at(5))
    now = at(5).wall
    assert write == ConditionWrite(
        status="True", reason="Conforms", message=CLEAN_TEXT, transition=now, heartbeat=now
    )


def test_rule_4_the_transition_moves_with_the_status() -> None:
    write = conditions.failing(carrying(conformant("True")), [PORT], at(0))
    assert write is not None
    assert (write.status, write.transition, write.heartbeat) == ("False", START, START)


def test_rule_4_the_transition_stays_when_only_the_words_change() -> None:
    write = conditions.failing(carrying(conformant("False", "HostUnknown", "a host")), [PORT], at(0))
    assert write is not None
    assert (write.status, write.reason, write.transition, write.heartbeat) == (
        "False",
        "KubeletEndpointAdvertised",
        BEFORE,
        START,
    )


@pytest.mark.parametrize("transition", [None, "", "garbage"])
def test_rule_4_B47_an_unreadable_transition_is_replaced_by_now(transition: str | None) -> None:
    own = conformant("False", "HostUnknown", "a host", lastTransitionTime=transition)
    write = conditions.failing(carrying(own), [PORT], at(0))
    assert write is not None
    assert write.transition == START


@pytest.mark.parametrize(
    "times",
    [
        {"lastHeartbeatTime": "2020-01-01T00:00:00Z"},
        {"lastTransitionTime": "2020-01-01T00:00:00Z"},
        {"lastTransitionTime": None, "lastHeartbeatTime": None},
    ],
    ids=["heartbeat", "transition", "null"],
)
def test_rule_4_other_times_alone_are_never_worth_a_write(times: Json) -> None:
    true = conformant("True", "Conforms", CLEAN_TEXT, **times)
    false = conformant("False", "KubeletEndpointAdvertised", "a port", **times)
    assert conditions.conforming(carrying(true), PODMAN, [], at(0)) is None
    assert conditions.failing(carrying(false), [PORT], at(0)) is None


@pytest.mark.parametrize(
    "own",
    [
        conformant("False", "Conforms", CLEAN_TEXT),
        conformant("True", "Other", CLEAN_TEXT),
        conformant("True", "Conforms", "other"),
        conformant("True", None, None),
    ],
    ids=["status", "reason", "message", "null"],
)
def test_rule_4_another_status_reason_or_message_is_worth_a_write(own: Json) -> None:
    assert conditions.conforming(carrying(own), PODMAN, [], at(0)) is not None


def test_a_failing_condition_is_called_after_the_first_finding_that_is_no_advice() -> None:
    write = conditions.failing(carrying(), [ADVICE, PORT], at(0))
    assert write is not None
    assert write.text == ("False", "KubeletEndpointAdvertised", "a name; a port")


def test_a_message_is_cut_at_1024_characters_and_still_recognised_afterwards() -> None:
    many = [Finding(Reason.HOST_UNKNOWN, "x" * 600), Finding(Reason.WRITE_REJECTED, "y" * 600)]
    write = conditions.failing(carrying(), many, at(0))
    assert write is not None
    assert write.message == "x" * 600 + "; " + "y" * 422
    own = conformant(write.status, write.reason, write.message)
    assert conditions.failing(carrying(own), many, at(0)) is None


def test_a_condition_that_was_written_is_not_written_again() -> None:
    raw = virtual(port=10250)
    (made,) = story(raw, 0)
    assert made.plan.condition is not None
    write = made.plan.condition
    raw["status"]["conditions"] = [ready(), conformant(*write.text)]
    memory = condition_written(made.memory, write, at(0))
    for second in (1, 60, 3600):
        again = decide(facts(raw), catalogue(), memory, at(second))
        memory = again.memory
        assert not again.plan
