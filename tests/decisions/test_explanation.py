"""``explain``: the operator's own verdicts, and what only the operator knows. How it looks: golden outputs."""

from dataclasses import replace
from typing import Any

import pytest
from builders import (
    AGENT_SPEC,
    START,
    TAINT,
    Json,
    agent,
    bare,
    catalogue,
    conformant,
    facts,
    manifest,
    ready,
    virtual,
)
from builders import at as moment
from hypothesis import given
from strategies import nodes

from clusterconform.contract.memory import EMPTY
from clusterconform.contract.names import RUNTIME_LABEL
from clusterconform.contract.plan import CONDITION_MARK, PROVIDER_TAINT_MARK, RUNTIME_MARK
from clusterconform.contract.profile import ProfileObject, read_profile
from clusterconform.contract.times import Moment
from clusterconform.contract.verdicts import Finding, Reason
from clusterconform.decisions.explanation import Sight, explain, field_of, remembered
from clusterconform.decisions.planning import decide
from clusterconform.decisions.world import read_world

NOW = Moment(wall=START, uptime=1e9)
DEAD = agent()
DEAD["status"]["conditions"][0] = ready("Unknown", lastTransitionTime="2026-07-30T12:00:00Z")


def told(raw: Json, profiles: list[ProfileObject] | None = None, **changes: Any) -> Any:
    """What is said of one node."""
    world = read_world([{"apiVersion": "v1", "kind": "Node", **raw}])
    if profiles is not None:
        world = replace(world, profiles=profiles)
    (row,) = explain(Sight(world=world, now=NOW, **changes))
    return row


CONDITION = "another writer keeps putting {} back"


@pytest.mark.parametrize(
    ("message", "marks"),
    [
        (CONDITION.format(RUNTIME_MARK), [RUNTIME_MARK]),
        (
            f"{CONDITION.format(RUNTIME_MARK)}; {CONDITION.format(PROVIDER_TAINT_MARK)}",
            [RUNTIME_MARK, PROVIDER_TAINT_MARK],
        ),
        ("something else", []),
        ("", []),
    ],
)
def test_quarrels_are_remembered_from_the_condition(message: str, marks: list[str]) -> None:
    seen = facts(virtual(conditions=[conformant("False", "Contested", message)]))
    assert list(remembered(seen, NOW).contested) == marks


def test_a_condition_of_another_reason_tells_of_no_quarrel() -> None:
    message = CONDITION.format(RUNTIME_MARK)
    assert remembered(facts(virtual(conditions=[conformant("False", "HostUnknown", message)])), NOW) is EMPTY
    assert remembered(facts(virtual()), NOW) is EMPTY


def test_a_contested_mark_is_not_said_to_be_written() -> None:
    message = CONDITION.format(RUNTIME_MARK)
    raw = virtual(labels={RUNTIME_LABEL: "x"}, conditions=[conformant("False", "Contested", message)])
    row = told(raw)
    assert [finding["reason"] for finding in row["findings"]] == ["Contested"]
    assert row["wouldWrite"] == []


@pytest.mark.parametrize(
    ("finding", "field"),
    [
        (Finding(Reason.RUNTIME_LABEL_DRIFTED, "x"), ("metadata", "labels", RUNTIME_LABEL)),
        (Finding(Reason.PROVIDER_TAINT_DRIFTED, "x"), ("spec", "taints")),
        (Finding(Reason.CONTESTED, CONDITION.format(RUNTIME_MARK)), ("metadata", "labels", RUNTIME_LABEL)),
        (Finding(Reason.CONTESTED, CONDITION.format(PROVIDER_TAINT_MARK)), ("spec", "taints")),
        (Finding(Reason.CONTESTED, CONDITION.format("annotation:a")), ("metadata", "annotations", "a")),
        (Finding(Reason.CONTESTED, CONDITION.format(CONDITION_MARK)), ()),
        (Finding(Reason.WRITE_REJECTED, "x"), ()),
    ],
)
def test_a_finding_names_its_field(finding: Finding, field: tuple[str, ...]) -> None:
    assert field_of(finding) == field


def test_a_dead_agent_is_a_candidate_until_a_witness_objects() -> None:
    assert told(DEAD)["reaping"]["candidate"] is True
    fresh = {"spec": {"renewTime": "2026-08-01T11:00:00Z"}}
    row = told(DEAD, leases={DEAD["metadata"]["name"]: fresh})["reaping"]
    assert (row["candidate"], row["reason"], row["until"]) == (False, "WitnessLives", "2026-08-02T11:00:00Z")
    row = told(DEAD, unreadable={DEAD["metadata"]["name"]: "forbidden"})["reaping"]
    assert (row["staleness"], row["reason"], row["message"]) == ("undetermined", "LeaseUnreadable", "forbidden")


def test_the_guards_are_told_with_their_age_and_only_of_a_candidate() -> None:
    spec = manifest("k3s", AGENT_SPEC)
    spec["status"] = {
        "conditions": [{"type": "ReapingAllowed", "status": "False", "reason": "MassStale", "message": "2 of 2"}],
        "nodeGC": {
            "lastPass": "2026-08-01T11:50:00Z",
            "nextPass": "2026-08-01T12:50:00Z",
            "held": [{"name": DEAD["metadata"]["name"], "reason": "MassStale"}, 7],
        },
    }
    row = told(DEAD, [read_profile(spec)])["reaping"]
    assert row["asOf"] == "2026-08-01T11:50:00Z"
    assert row["held"] == {"reason": "MassStale", "until": None}
    assert row["guard"] == {
        "allowed": False,
        "reason": "MassStale",
        "message": "2 of 2",
        "since": None,
        "nextPass": "2026-08-01T12:50:00Z",
    }
    assert told(agent(), [read_profile(spec)])["reaping"]["guard"] is None


def test_without_a_profile_of_class_agent_nothing_is_a_candidate() -> None:
    row = told(DEAD, [])["reaping"]
    assert (row["candidate"], row["reason"]) == (False, "NotAnAgent")


def test_what_nobody_proved_is_neither_true_nor_false() -> None:
    proven = {row["name"]: row["verified"] for row in told(agent())["capabilities"]}
    assert set(proven.values()) == {None}
    trials = {"pi-4c7adeb6": Finding(Reason.CONNECTION_REFUSED, "refused")}
    row = told(agent(), trials=trials)
    assert {seen["name"]: seen["verified"] for seen in row["capabilities"]}["kubelet-log-stream"] is False
    assert row["kubeletPath"] == {"reason": "ConnectionRefused", "message": "refused"}


def test_a_node_of_no_profile_claims_nothing() -> None:
    for raw in (bare("n"), virtual("vk-docker")):
        row = told(raw)
        assert row["profile"] is None
        assert not any(seen["claimed"] for seen in row["capabilities"])


@given(nodes)
def test_the_verdict_told_is_the_one_that_the_operator_acts_by(raw: Json) -> None:
    expected = decide(facts(raw), catalogue(), remembered(facts(raw), NOW), moment(0)).verdict
    known = told(raw)
    assert known["conformant"] == expected.conformant
    assert [seen["reason"] for seen in known["findings"]] == [seen.reason.value for seen in expected.findings]
    assert known["node"] == told(raw, [])["node"] == raw["metadata"]["name"]


def test_a_taint_in_conflict_is_explained_by_its_evidence() -> None:
    row = told(agent(taints=[TAINT]))
    assert row["identity"] == {
        "kind": "conflicting",
        "evidence": [
            "k3s.io/node-args begins with agent",
            "kubelet version +k3s",
            "provider ID k3s://",
            "provider taint",
        ],
    }
