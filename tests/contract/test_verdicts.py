import pytest
from builders import START, profile

from clusterconform.contract.plan import ConditionWrite, MarksPatch, Plan
from clusterconform.contract.verdicts import (
    ADVICE,
    Catalogue,
    Finding,
    Identity,
    IdentityKind,
    NodeVerdict,
    Reason,
)

MANAGED = Identity(kind=IdentityKind.MANAGED, profile=None, evidence=frozenset())


@pytest.mark.parametrize("reason", sorted(ADVICE))
def test_a_node_with_nothing_but_advice_conforms(reason: Reason) -> None:
    assert NodeVerdict(identity=MANAGED, findings=(Finding(reason, ""),)).conformant


@pytest.mark.parametrize("reason", sorted(set(Reason) - ADVICE))
def test_a_node_with_any_other_finding_does_not_conform(reason: Reason) -> None:
    findings = (Finding(Reason.HOST_NAME_MISMATCH, ""), Finding(reason, ""))
    assert not NodeVerdict(identity=MANAGED, findings=findings).conformant


def test_a_reason_is_one_word_as_conditions_want_it() -> None:
    assert [reason for reason in Reason if not (reason.isalpha() and reason[0].isupper())] == []


def test_a_refused_profile_is_known_but_does_not_act() -> None:
    judged = Catalogue(
        profiles={"k3s": profile("k3s"), "vk-x": profile("vk-x")},
        refusals={"vk-x": Finding(Reason.INVALID, "why"), "gone": Finding(Reason.INVALID, "why")},
    )
    assert list(judged.accepted) == ["k3s"]


def test_only_a_plan_with_something_to_write_is_true() -> None:
    condition = ConditionWrite(status="True", reason="", message="", transition=START, heartbeat=START)
    assert not Plan()
    assert Plan(marks=MarksPatch())
    assert Plan(condition=condition)


def test_the_times_of_a_condition_are_no_part_of_its_text() -> None:
    condition = ConditionWrite(status="True", reason="R", message="m", transition=START, heartbeat=START)
    assert condition.text == ("True", "R", "m")
