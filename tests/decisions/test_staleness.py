import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from builders import BORN, START, agent, at, bare, catalogue, facts, ready, virtual
from reaping_worlds import CONTROL_PLANE, MASTER, agents, ago, dead, lease, living

from clusterconform.contract.memory import EMPTY
from clusterconform.contract.names import BACKEND_LABEL, HOST_LABEL, KEEP_ANNOTATION, RUNTIME_LABEL
from clusterconform.contract.plan import BACKEND_MARK, HOST_MARK, RUNTIME_MARK
from clusterconform.contract.reaping import Agents
from clusterconform.contract.times import parse_time
from clusterconform.contract.verdicts import Reason
from clusterconform.contract.witness import read_fresh_node, read_lease
from clusterconform.decisions.planning import decide
from clusterconform.decisions.staleness import (
    Outcome,
    Staleness,
    confirm,
    dead_since,
    is_eligible,
    is_from_the_future,
    judge,
)

Json = dict[str, Any]

BUILT_IN = catalogue()
PLAIN = agents()
GRACE = timedelta(hours=24)
SINCE = START - timedelta(hours=25)


def judged(raw: Json, who: Agents = PLAIN, now: datetime = START, contested: tuple[str, ...] = ()) -> Staleness:
    node = facts(raw)
    verdict = decide(node, BUILT_IN, EMPTY, at(0)).verdict
    return judge(node, replace(verdict, contested=contested), who, now)


def answer(raw: Json, who: Agents = PLAIN, now: datetime = START) -> tuple[Outcome, Reason]:
    found = judged(raw, who, now)
    return found.outcome, found.reason


def heard(raw: Json, seen: Json | None = None, **settings: Any) -> Staleness:
    """The answer after the witnesses, with ``seen`` for a Lease."""
    found = read_lease(seen) if seen is not None else None
    return confirm(judged(raw), read_fresh_node(raw), found, agents=agents(**settings), now=START)


def stamped(raw: Json, *entries: Json) -> Json:
    return {**raw, "metadata": {**raw["metadata"], "managedFields": list(entries)}}


def write_of_ready(hours: float, **fields: Any) -> Json:
    owned: Json = {"f:status": {"f:conditions": {'k:{"type":"Ready"}': {}}}}
    return {"manager": "k3s", "subresource": "status", "time": ago(hours), "fieldsV1": owned, **fields}


def with_conditions(*conditions: Json | None) -> Json:
    raw = dead()
    raw["status"]["conditions"] = list(conditions)
    return raw


UNDETERMINED = Outcome.UNDETERMINED


# --- the contract's table ----------------------------------------------------------------------------------

TABLE = [
    pytest.param(dead(), True, id="P2 canonical"),
    pytest.param(dead(status="Unknown"), True, id="P3 Unknown"),
    pytest.param(dead(status="True"), False, id="P4 True"),
    pytest.param(bare("pi-abc123", labels=None), False, id="P5 no labels"),
    pytest.param(virtual("vk-ollama", host="pi"), False, id="P6 virtual"),
    pytest.param(dead(labels={BACKEND_LABEL: "k0s"}), False, id="P7 another backend"),
    pytest.param(dead(labels={HOST_LABEL: None}), False, id="P8 host missing"),
    pytest.param(dead(labels={HOST_LABEL: ""}), False, id="P9 host empty"),
    pytest.param(dead("laptop-abc123"), False, id="P10 another host's name"),
    pytest.param(dead("pi"), False, id="P11 the host's name alone"),
    pytest.param(dead("pizza-abc123"), False, id="P12 a longer host's name"),
    pytest.param(dead(hours=24), False, id="P13 exactly grace"),
    pytest.param(dead(hours=24 + 1 / 3600), True, id="P14 grace and a second"),
    pytest.param(dead(hours=1), False, id="P15 an hour"),
    pytest.param(with_conditions({"type": "MemoryPressure", "status": "False"}), False, id="P16 no Ready"),
    pytest.param(with_conditions(ready("False", lastTransitionTime=None)), False, id="P17 no time"),
    pytest.param(
        with_conditions(ready(lastTransitionTime=ago(25)), ready("False", lastTransitionTime=ago(25))),
        False,
        id="P18 the first Ready decides",
    ),
    pytest.param(with_conditions(ready("", lastTransitionTime=ago(25))), False, id="P19 empty status"),
]


@pytest.mark.parametrize(("raw", "stale"), TABLE)
def test_a_node_is_stale_iff_the_contract_says_so(raw: Json, stale: bool) -> None:
    assert (judged(raw).outcome is Outcome.STALE) is stale


@pytest.mark.parametrize(("raw", "stale"), TABLE)
def test_the_contracts_count_says_the_same(raw: Json, stale: bool) -> None:
    node = facts(raw)
    assert (is_eligible(node, PLAIN) and dead_since(node, PLAIN, START) is not None) is stale


def test_p1_no_node_is_stale_in_an_empty_object() -> None:
    assert judged({"metadata": {}}).outcome is UNDETERMINED


def test_p2_a_stale_node_says_since_when() -> None:
    assert judged(dead()).since == dead_since(facts(dead()), PLAIN, START) == SINCE


# --- each rule ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "labels",
    [
        {RUNTIME_LABEL: None},
        {RUNTIME_LABEL: ""},
        {RUNTIME_LABEL: "virtual"},
        {RUNTIME_LABEL: "Agent"},
        {RUNTIME_LABEL: "agent "},
        {BACKEND_LABEL: None},
        {BACKEND_LABEL: ""},
        {BACKEND_LABEL: "K3S"},
        {BACKEND_LABEL: "vk-podman"},
    ],
    ids=repr,
)
def test_rule_1_only_a_labelled_agent_of_the_profiles_backend(labels: Json) -> None:
    assert answer(dead(labels=labels)) == (UNDETERMINED, Reason.NOT_AN_AGENT)


def test_rule_1_the_backend_is_the_profiles() -> None:
    assert answer(dead(), replace(PLAIN, backend="k0s")) == (UNDETERMINED, Reason.NOT_AN_AGENT)


@pytest.mark.parametrize(
    ("name", "host"),
    [("pi-1", ""), ("pi-1", None), ("pi", "pi"), ("pi1", "pi"), ("Pi-1", "pi"), ("-1", ""), ("api-1", "pi")],
)
def test_rule_2_the_name_begins_with_the_host_and_a_dash(name: str, host: str | None) -> None:
    assert answer(dead(name, labels={HOST_LABEL: host})) == (UNDETERMINED, Reason.HOST_NAME_MISMATCH)


def test_rule_2_an_agent_whose_name_was_overridden_is_named_and_not_reaped_d3() -> None:
    found = judged(dead("workbench", host="pi"))
    assert (found.outcome, found.reason) == (UNDETERMINED, Reason.HOST_NAME_MISMATCH)
    assert "pi-" in found.message


def test_rule_2_a_host_that_begins_another_hosts_name_passes_as_the_contract_has_it_d1() -> None:
    # Node pi-zero-1 labelled with host pi: the prefix cannot tell. What stands between is the rest of the
    # evidence: it must be a dead agent, and no witness of its own life may speak.
    other = dead("pi-zero-1", host="pi")
    assert judged(other).outcome is Outcome.STALE
    assert heard(other, lease(0.01)).outcome is Outcome.LIVE


def test_rule_2_a_host_that_begins_another_hosts_name_takes_nothing_from_that_ones_nodes_d1() -> None:
    assert judged(dead("pi-zero-1", host="pi-zero"), agents(selfHost="pi")).outcome is Outcome.STALE
    assert judged(dead("pi-zero-1", host="pi-zero"), agents(selfHost="pi-zero")).outcome is UNDETERMINED


def test_rule_3_the_control_planes_own_host_is_never_touched() -> None:
    assert answer(dead(), agents(selfHost="pi")) == (UNDETERMINED, Reason.SELF_HOST)
    assert judged(dead(), agents(selfHost="pi-abc123")).outcome is Outcome.STALE
    assert judged(dead(), agents(selfHost="")).outcome is Outcome.STALE


@pytest.mark.parametrize("value", ["", "true", "false", "anything", None])
@pytest.mark.parametrize("role", [CONTROL_PLANE, MASTER])
def test_rule_4_a_role_counts_whatever_its_value(role: str, value: str | None) -> None:
    raw = dead()
    raw["metadata"]["labels"][role] = value
    assert answer(raw) == (UNDETERMINED, Reason.CONTROL_PLANE)


def test_rule_4_another_role_is_none_of_these() -> None:
    assert judged(dead(labels={"node-role.kubernetes.io/worker": "true"})).outcome is Outcome.STALE


@pytest.mark.parametrize(
    "conditions",
    [[], [None], [{"type": "MemoryPressure", "status": "False", "lastTransitionTime": ago(999)}]],
    ids=["empty", "null", "another"],
)
def test_rule_5_without_ready_nothing_is_known_b84(conditions: list[Json | None]) -> None:
    assert answer(with_conditions(*conditions)) == (UNDETERMINED, Reason.NO_READY_CONDITION)


def test_rule_5_the_first_of_two_counts() -> None:
    alive, gone = ready(lastTransitionTime=ago(25)), ready("False", lastTransitionTime=ago(25))
    assert judged(with_conditions(alive, gone)).outcome is Outcome.LIVE
    assert judged(with_conditions(gone, alive)).outcome is Outcome.STALE


def test_rule_6_a_ready_node_lives() -> None:
    assert answer(dead(status="True")) == (Outcome.LIVE, Reason.NODE_READY)


@pytest.mark.parametrize(
    "word", ["", "false", "FALSE", "unknown", "NotReady", " False", "true", "0", "\U0001f480"]
)
def test_rule_6_another_word_than_the_three_is_no_answer(word: str) -> None:
    assert answer(dead(status=word)) == (UNDETERMINED, Reason.NO_READY_CONDITION)


@pytest.mark.parametrize(
    "time",
    [
        None,
        "",
        "garbage",
        "2026-07-20T12:00:00",
        "2026-07-20 12:00:00Z",
        "2026-07-20",
        "2026-02-30T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "1784548800",
        "2026-07-20T12:00:00.0000000001Z",
    ],
)
def test_rule_7_what_is_no_time_dates_nothing_b34_b36(time: str | None) -> None:
    assert answer(with_conditions(ready("False", lastTransitionTime=time))) == (UNDETERMINED, Reason.UNDATABLE)


@pytest.mark.parametrize("digits", range(10))
def test_rule_7_any_fraction_of_a_second_is_a_time_b36(digits: int) -> None:
    fraction = "." + "123456789"[:digits] if digits else ""
    raw = with_conditions(ready("False", lastTransitionTime=f"2026-07-20T12:00:00{fraction}Z"))
    assert judged(raw).outcome is Outcome.STALE


def test_rule_7_another_zone_is_a_time() -> None:
    raw = with_conditions(ready("False", lastTransitionTime="2026-07-20T14:00:00+02:00"))
    assert judged(raw).since == parse_time("2026-07-20T12:00:00Z")


@pytest.mark.parametrize(("seconds", "outcome"), [(-1, Outcome.LIVE), (0, Outcome.LIVE), (1, Outcome.STALE)])
def test_rule_8_grace_is_to_be_exceeded(seconds: float, outcome: Outcome) -> None:
    assert judged(dead(hours=24), now=START + timedelta(seconds=seconds)).outcome is outcome


def test_rule_8_within_grace_tells_until_when() -> None:
    found = judged(dead(hours=23))
    assert (found.reason, found.until) == (Reason.WITHIN_GRACE, START + timedelta(hours=1))


@pytest.mark.parametrize("time", ["2026-08-01T12:04:00Z", "2027-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_rule_8_a_time_in_the_future_is_within_grace(time: str) -> None:
    raw = with_conditions(ready("False", lastTransitionTime=time))
    assert answer(raw) == (Outcome.LIVE, Reason.WITHIN_GRACE)


def test_rule_8_a_node_that_flaps_is_never_stale_b32() -> None:
    assert judged(dead(hours=6)).outcome is Outcome.LIVE


def test_rule_9_a_node_that_is_being_deleted_is_left_to_that_d26() -> None:
    assert answer(dead(deleted=ago(1))) == (UNDETERMINED, Reason.TERMINATING)


@pytest.mark.parametrize("value", ["", "true", "false", "until spring"])
def test_rule_9_a_kept_node_is_kept_whatever_the_value(value: str) -> None:
    assert answer(dead(annotations={KEEP_ANNOTATION: value})) == (UNDETERMINED, Reason.KEPT)


def test_rule_9_a_keep_without_a_value_keeps() -> None:
    raw = dead()
    raw["metadata"]["annotations"][KEEP_ANNOTATION] = None
    assert answer(raw) == (UNDETERMINED, Reason.KEPT)


def test_rule_10_our_own_node_is_never_touched() -> None:
    assert answer(dead(), agents("pi-abc123")) == (UNDETERMINED, Reason.OWN_NODE)
    assert judged(dead(), agents("pi-other")).outcome is Outcome.STALE


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": {"type": "virtual-kubelet"}},
        {"annotations": {"virtual-kubelet.io/last-applied-node-status": "{}"}},
        {"taints": [{"key": "virtual-kubelet.io/provider", "value": "azure", "effect": "NoSchedule"}]},
    ],
    ids=["type", "annotations", "taint"],
)
def test_rule_11_evidence_against_the_labels_is_never_overruled_d1(changes: Json) -> None:
    assert answer(dead(**changes)) == (UNDETERMINED, Reason.IDENTITY_CONFLICT)


@pytest.mark.parametrize(
    ("args", "outcome"),
    [
        (["agent", "--node-label", "outpost.dhnt.io/host=pi-zero"], UNDETERMINED),
        (["agent", "--node-label=outpost.dhnt.io/host=pi-zero"], UNDETERMINED),
        (["agent", "--node-label", "outpost.dhnt.io/host=pi"], Outcome.STALE),
        (["agent", "--node-name", "pi-zero"], Outcome.STALE),
        (["agent"], Outcome.STALE),
    ],
)
def test_rule_11_a_host_label_that_is_not_the_one_it_was_started_with_proves_nothing_d1(
    args: list[str], outcome: Outcome
) -> None:
    other = dead("pi-zero-1", host="pi", annotations={"k3s.io/node-args": json.dumps(args)})
    found = judged(other)
    assert found.outcome is outcome
    assert (found.reason is Reason.IDENTITY_CONFLICT) == (outcome is UNDETERMINED)


@pytest.mark.parametrize("mark", [RUNTIME_MARK, BACKEND_MARK])
def test_rule_11_a_contested_label_proves_nothing(mark: str) -> None:
    found = judged(dead(), contested=(mark,))
    assert (found.outcome, found.reason) == (UNDETERMINED, Reason.CONTESTED)
    assert mark in found.message


def test_rule_11_another_contested_mark_matters_not() -> None:
    assert judged(dead(), contested=(HOST_MARK,)).outcome is Outcome.STALE


@pytest.mark.parametrize(
    "time", ["0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "1970-12-31T23:59:59Z", "2026-07-01T08:59:59Z"]
)
def test_rule_12_an_impossible_time_dates_nothing_b47(time: str) -> None:
    raw = with_conditions(ready("False", lastTransitionTime=time))
    assert answer(raw) == (UNDETERMINED, Reason.UNDATABLE)


def test_rule_12_a_transition_at_the_creation_is_possible() -> None:
    assert judged(with_conditions(ready("False", lastTransitionTime=BORN))).outcome is Outcome.STALE


def test_rule_12_a_node_without_a_creation_time_is_judged_by_the_rest() -> None:
    raw = dead()
    raw["metadata"]["creationTimestamp"] = None
    assert judged(raw).outcome is Outcome.STALE


# --- the witnesses -----------------------------------------------------------------------------------------


def test_rule_13_without_any_other_witness_the_transition_stands() -> None:
    found = heard(dead())
    assert (found.outcome, found.since) == (Outcome.STALE, SINCE)


@pytest.mark.parametrize(
    ("hours", "outcome"), [(0, Outcome.LIVE), (23.9, Outcome.LIVE), (24, Outcome.LIVE), (24.1, Outcome.STALE)]
)
def test_rule_13_a_renewed_lease_vetoes_b02(hours: float, outcome: Outcome) -> None:
    seen = {"metadata": {}, "spec": {"renewTime": ago(hours)}}
    assert heard(dead(), seen).outcome is outcome


@pytest.mark.parametrize(("hours", "outcome"), [(0, Outcome.LIVE), (24, Outcome.LIVE), (24.1, Outcome.STALE)])
def test_rule_13_a_kubelet_with_a_wrong_clock_is_heard_through_the_stamp_on_its_lease(
    hours: float, outcome: Outcome
) -> None:
    seen = {"metadata": {"managedFields": [{"time": ago(400)}, {"time": ago(hours)}]}}
    assert heard(dead(hours=400), {**seen, "spec": {"renewTime": ago(400)}}).outcome is outcome


@pytest.mark.parametrize(("hours", "outcome"), [(0, Outcome.LIVE), (24, Outcome.LIVE), (24.1, Outcome.STALE)])
def test_rule_13_a_kubelet_with_a_wrong_clock_is_heard_through_the_stamp_on_ready(
    hours: float, outcome: Outcome
) -> None:
    found = heard(stamped(dead(hours=400), write_of_ready(300), write_of_ready(hours)))
    assert found.outcome is outcome
    assert found.reason is (Reason.WITNESS_LIVES if outcome is Outcome.LIVE else Reason.STALE)


@pytest.mark.parametrize(
    "entry",
    [
        write_of_ready(0, subresource=""),
        write_of_ready(0, fieldsV1={"f:status": {"f:conditions": {'k:{"type":"RuntimeConformant"}': {}}}}),
        write_of_ready(0, fieldsV1=None),
        write_of_ready(0, time="garbage"),
    ],
    ids=["metadata", "our own condition", "no fields", "no time"],
)
def test_rule_13_another_write_says_nothing_of_the_machine(entry: Json) -> None:
    assert heard(stamped(dead(), entry)).outcome is Outcome.STALE


@pytest.mark.parametrize(("hours", "outcome"), [(1, Outcome.LIVE), (24, Outcome.LIVE), (24.5, Outcome.STALE)])
def test_rule_13_a_node_that_was_created_within_grace_is_no_corpse(hours: float, outcome: Outcome) -> None:
    raw = dead(hours=24.2)
    raw["metadata"]["creationTimestamp"] = None
    stale = judged(raw)
    raw["metadata"]["creationTimestamp"] = ago(hours)
    assert confirm(stale, read_fresh_node(raw), None, agents=PLAIN, now=START).outcome is outcome


def test_rule_13_a_witness_from_the_future_lives() -> None:
    assert heard(dead(), {"metadata": {}, "spec": {"renewTime": "2027-01-01T00:00:00Z"}}).outcome is Outcome.LIVE


def test_rule_13_a_witness_from_the_end_of_time_lives() -> None:
    assert heard(dead(), {"metadata": {}, "spec": {"renewTime": "9999-12-31T23:59:59Z"}}).outcome is Outcome.LIVE


def test_rule_13_since_is_what_the_last_witness_says() -> None:
    found = heard(stamped(dead(hours=400), write_of_ready(100)), lease(50))
    assert found.since == START - timedelta(hours=50)


@pytest.mark.parametrize(
    "seen", [{}, {"spec": None}, {"spec": {"renewTime": "garbage"}}, {"metadata": None}], ids=repr
)
def test_rule_13_a_lease_that_tells_nothing_is_no_objection(seen: Json) -> None:
    assert heard(dead(), seen).outcome is Outcome.STALE


def test_rule_13_the_lease_witness_can_be_switched_off_and_the_api_servers_stamp_cannot() -> None:
    assert heard(dead(), lease(0), leaseWitness=False).outcome is Outcome.STALE
    assert heard(stamped(dead(), write_of_ready(0)), leaseWitness=False).outcome is Outcome.LIVE


def test_rule_13_a_live_witness_tells_until_when() -> None:
    assert heard(dead(), lease(1)).until == START + GRACE - timedelta(hours=1)


# --- the order of the rules, and what is no rule -----------------------------------------------------------


def test_the_rules_speak_in_the_order_of_their_numbers() -> None:
    """A node that breaks every rule, mended one rule at a time."""
    raw = dead("abc", labels={RUNTIME_LABEL: "virtual", CONTROL_PLANE: ""}, annotations={KEEP_ANNOTATION: ""})
    raw["status"]["conditions"] = [ready("False", lastTransitionTime="1970-01-01T00:00:00Z")]
    who, said = agents("pi-abc", selfHost="pi"), []

    def note() -> None:
        said.append(judged(raw, who).reason)

    note()
    raw["metadata"]["labels"][RUNTIME_LABEL] = "agent"
    note()
    raw["metadata"]["name"] = "pi-abc"
    note()
    who = agents("pi-abc")
    note()
    del raw["metadata"]["labels"][CONTROL_PLANE]
    raw["metadata"]["labels"]["type"] = "virtual-kubelet"
    raw["metadata"]["deletionTimestamp"] = ago(1)
    note()
    raw["metadata"]["deletionTimestamp"] = None
    note()
    del raw["metadata"]["annotations"][KEEP_ANNOTATION]
    note()
    who = agents()
    note()
    del raw["metadata"]["labels"]["type"]
    note()
    raw["status"]["conditions"] = [ready("False", lastTransitionTime=ago(25))]
    note()
    assert said == [
        Reason.NOT_AN_AGENT,
        Reason.HOST_NAME_MISMATCH,
        Reason.SELF_HOST,
        Reason.CONTROL_PLANE,
        Reason.TERMINATING,
        Reason.KEPT,
        Reason.OWN_NODE,
        Reason.IDENTITY_CONFLICT,
        Reason.UNDATABLE,
        Reason.STALE,
    ]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (dead(status="True", annotations={KEEP_ANNOTATION: ""}), Reason.KEPT),
        (dead(status="True", labels={"type": "virtual-kubelet"}), Reason.IDENTITY_CONFLICT),
    ],
    ids=["kept", "conflicting"],
)
def test_what_is_never_reaped_says_so_although_it_is_ready(raw: Json, reason: Reason) -> None:
    assert judged(raw).reason is reason


def test_a_heartbeat_that_is_old_says_nothing_b31() -> None:
    raw = with_conditions(ready(lastHeartbeatTime="2026-07-01T00:00:00Z"))
    assert judged(raw).outcome is Outcome.LIVE


def test_a_node_that_has_not_said_yet_what_it_is_is_no_agent_b09() -> None:
    raw = dead(labels={RUNTIME_LABEL: None, BACKEND_LABEL: None}, status="Unknown")
    raw["metadata"]["creationTimestamp"] = ago(3 / 3600)
    assert answer(raw) == (UNDETERMINED, Reason.NOT_AN_AGENT)


def test_a_virtual_node_is_never_a_candidate_b07_b62() -> None:
    raw = virtual()
    raw["status"]["conditions"] = [ready("Unknown", lastTransitionTime=ago(30 * 24))]
    assert answer(raw) == (UNDETERMINED, Reason.NOT_AN_AGENT)


def test_a_node_without_ready_is_not_stale_however_old_it_is_b84() -> None:
    raw = with_conditions()
    raw["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
    assert answer(raw) == (UNDETERMINED, Reason.NO_READY_CONDITION)


@pytest.mark.parametrize("labels", [{"a": ""}, {"": ""}, {"type": ""}, {RUNTIME_LABEL: None, "a": None}], ids=repr)
def test_empty_label_values_are_read_without_complaint(labels: Json) -> None:
    raw = dead()
    raw["metadata"]["labels"] |= labels
    assert judged(raw).outcome in Outcome


@pytest.mark.parametrize(
    ("seconds", "ahead"), [(0, False), (299, False), (300, False), (301, True), (10**9, True)]
)
@pytest.mark.parametrize("status", ["True", "False", "Unknown", ""])
def test_a_transition_of_any_status_lies_in_the_future_beyond_the_tolerance_o32_b29(
    status: str, seconds: float, ahead: bool
) -> None:
    raw = agent()
    raw["status"]["conditions"] = [ready(status, lastTransitionTime=ago(-seconds / 3600))]
    assert is_from_the_future(facts(raw), PLAIN, START) is ahead


def test_a_node_without_ready_is_not_from_the_future() -> None:
    assert not is_from_the_future(facts(with_conditions()), PLAIN, START)


def test_a_living_node_is_live() -> None:
    assert answer(living("pi-1")) == (Outcome.LIVE, Reason.NODE_READY)
