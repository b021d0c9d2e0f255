from dataclasses import replace
from typing import Any

import pytest
from builders import TAINT, agent, at, bare, catalogue, conformant, facts, marks, virtual
from server import LostTestError
from story import Story

from clusterconform.contract.facts import Taint
from clusterconform.contract.memory import EMPTY, NodeMemory
from clusterconform.contract.names import BACKEND_LABEL, HOST_LABEL, NODE_ARGS_ANNOTATION, RUNTIME_LABEL
from clusterconform.contract.plan import (
    BACKEND_MARK,
    CONDITION_MARK,
    HOST_MARK,
    PROVIDER_TAINT_MARK,
    RUNTIME_MARK,
    MarksPatch,
)
from clusterconform.contract.verdicts import Catalogue, IdentityKind, Reason
from clusterconform.decisions.planning import Decision, decide, marks_rejected, marks_written

Json = dict[str, Any]

BUILT_IN = catalogue()
OBSERVING = catalogue(k3s={"enforcement": "Observe"}, vk_podman={"enforcement": "Observe"})
ADOPTING = catalogue(k3s={"adopt": "ByEvidence"}, vk_podman={"adopt": "ByEvidence"})
WITHOUT_PODMAN = Catalogue(
    profiles={name: row for name, row in BUILT_IN.profiles.items() if name != "vk-podman"}, refusals={}
)
NOTHING = Catalogue(profiles={}, refusals={})
MAINTENANCE: Json = {"key": "maintenance", "value": "disk", "effect": "NoSchedule"}
MINUTE = 60.0


def look(raw: Json, profiles: Catalogue = BUILT_IN) -> Decision:
    return decide(facts(raw), profiles, EMPTY, at(0))


def reasons(made: Decision) -> list[Reason]:
    return [finding.reason for finding in made.verdict.findings]


# --- one patch per drifted node ----------------------------------------------------------------------------


@pytest.mark.parametrize("raw", [agent(), virtual()], ids=["agent", "virtual"])
def test_a_node_in_order_is_left_alone(raw: Json) -> None:
    made = look(raw)
    assert made.plan.marks is None
    assert made.verdict.findings == ()
    assert made.verdict.conformant


def test_everything_that_drifted_is_put_right_by_one_patch() -> None:
    raw = virtual(
        labels={RUNTIME_LABEL: "agent", BACKEND_LABEL: None, HOST_LABEL: ""},
        taints=[MAINTENANCE],
        conditions=[conformant()],
    )
    made = look(raw)
    every = tuple(sorted([RUNTIME_MARK, BACKEND_MARK, HOST_MARK, PROVIDER_TAINT_MARK]))
    assert made.plan.marks is not None
    assert replace(made.plan.marks, why="") == MarksPatch(
        labels={RUNTIME_LABEL: "virtual", BACKEND_LABEL: "vk-podman", HOST_LABEL: "laptop"},
        taints=(
            Taint("maintenance", "disk", "NoSchedule"),
            Taint("virtual-kubelet.io/provider", "outpost", "NoSchedule"),
        ),
        listed=every,
        marks=every,
    )
    story = Story(raw, BUILT_IN)
    story.act(0)
    assert len(story.server.requests) == 1
    assert story.look(1).verdict.conformant


def test_B101_the_marks_that_are_written_are_listed_by_the_same_patch() -> None:
    story = Story(virtual(labels={RUNTIME_LABEL: None}), BUILT_IN)
    story.act(0)
    assert len(story.server.requests) == 1
    assert (story.labels[RUNTIME_LABEL], story.listed) == ("virtual", RUNTIME_MARK)


def test_marks_are_added_to_those_that_are_listed_already() -> None:
    story = Story(virtual(taints=[], annotations=marks(HOST_MARK, "label:of-another-release")), BUILT_IN)
    story.act(0)
    assert story.listed == f"label:of-another-release,{HOST_MARK},{PROVIDER_TAINT_MARK}"


def test_no_annotation_of_ours_lies_on_a_node_that_we_never_repaired() -> None:
    for raw in (agent(), virtual()):
        story = Story(raw, BUILT_IN)
        for second in (0, 10, 20, 3600):
            story.act(second)
        assert story.listed is None
        assert story.condition == ("True", "Conforms")


def test_labels_alone_leave_the_taint_list_out_of_the_patch() -> None:
    made = look(virtual(labels={RUNTIME_LABEL: None}, taints=[MAINTENANCE, TAINT]))
    assert made.plan.marks is not None
    assert made.plan.marks.taints is None


def test_B71_a_taint_is_corrected_in_its_old_place_and_the_others_keep_their_times() -> None:
    timed = {**MAINTENANCE, "timeAdded": "2026-07-30T00:00:00Z"}
    old = {**TAINT, "value": "old"}
    last = {
        "key": "node.kubernetes.io/unreachable",
        "effect": "NoExecute",
        "timeAdded": "2026-07-31T00:00:00Z",
    }
    story = Story(virtual(taints=[timed, old, last]), BUILT_IN)
    story.act(0)
    assert story.taints == [timed, TAINT, last]


def test_B69_the_provider_key_with_another_effect_stays_as_it_is() -> None:
    foreign = {**TAINT, "effect": "NoExecute", "value": "other"}
    story = Story(virtual(taints=[foreign]), BUILT_IN)
    story.act(0)
    assert story.taints == [foreign, TAINT]


def test_B19_a_taint_that_another_writer_added_meanwhile_makes_the_patch_lose_and_the_next_one_keeps_it() -> None:
    story = Story(virtual(taints=[]), BUILT_IN)
    seen, made = facts(story.server.raw), story.look(0)
    story.others(lambda raw: raw["spec"].update(taints=[MAINTENANCE]))
    with pytest.raises(LostTestError):
        story.server.carry_out(seen, made.plan)
    assert story.taints == [MAINTENANCE]
    story.act(1)
    assert story.taints == [MAINTENANCE, TAINT]


# --- what is ours, and what is taken back ------------------------------------------------------------------


def became_an_agent(**changes: Any) -> Json:
    """A k3s agent that was labelled vk-podman by mistake and has its backend label corrected."""
    return agent(taints=[MAINTENANCE, TAINT], **changes)


def test_B77_a_taint_that_is_listed_and_no_longer_wanted_is_taken_back_and_unlisted() -> None:
    story = Story(became_an_agent(annotations=marks(PROVIDER_TAINT_MARK, RUNTIME_MARK)), BUILT_IN)
    made = story.act(0)
    assert reasons(made) == [Reason.MARK_UNWANTED]
    assert (story.taints, story.listed) == ([MAINTENANCE], RUNTIME_MARK)
    assert story.look(1).plan.marks is None


def test_B77_with_the_last_mark_the_annotation_itself_goes_and_with_the_last_taint_the_list() -> None:
    story = Story(agent(taints=[TAINT], annotations=marks(PROVIDER_TAINT_MARK)), BUILT_IN)
    story.act(0)
    assert (story.taints, story.listed) == ([], None)
    assert "taints" not in story.server.raw["spec"]


def test_B77_a_taint_that_is_not_listed_is_never_taken_back() -> None:
    story = Story(became_an_agent(annotations=marks(RUNTIME_MARK)), BUILT_IN)
    for second in range(0, 7200, 60):
        story.act(second)
    assert story.taints == [MAINTENANCE, TAINT]


def test_taking_back_and_writing_share_one_patch() -> None:
    raw = became_an_agent(labels={RUNTIME_LABEL: "virtual"}, annotations=marks(PROVIDER_TAINT_MARK))
    made = look(raw)
    assert made.plan.marks is not None
    assert replace(made.plan.marks, why="") == MarksPatch(
        labels={RUNTIME_LABEL: "agent"},
        taints=(Taint("maintenance", "disk", "NoSchedule"),),
        listed=(RUNTIME_MARK,),
        marks=(RUNTIME_MARK, PROVIDER_TAINT_MARK),
    )


# --- who is not kept to the contract -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("profiles", "says"),
    [
        pytest.param(OBSERVING, "RuntimeProfile vk-podman only observes", id="observe"),
        pytest.param(WITHOUT_PODMAN, "no RuntimeProfile is named vk-podman", id="deleted"),
        pytest.param(
            catalogue(vk_podman={"providerTaint": False}), "its RuntimeProfile is not accepted", id="refused"
        ),
        pytest.param(
            catalogue(vk_podman={"capabilities": ["flying"]}),
            "RuntimeProfile vk-podman is not accepted",
            id="unreadable",
        ),
        pytest.param(NOTHING, "no RuntimeProfile is named vk-podman", id="no profiles at all"),
    ],
)
def test_B24_without_an_enforcing_profile_the_condition_turns_unknown_once_and_nothing_else_is_written(
    profiles: Catalogue, says: str
) -> None:
    story = Story(virtual(labels={RUNTIME_LABEL: "agent"}, taints=[], conditions=[conformant()]), profiles)
    made = story.act(0)
    assert made.plan.marks is None
    assert made.plan.condition is not None
    assert made.plan.condition.text == ("Unknown", "NotEnforced", says)
    for second in (1, 60, 3600):
        assert not story.act(second).plan
    assert (story.taints, story.labels[RUNTIME_LABEL], story.listed) == ([], "agent", None)


@pytest.mark.parametrize("profiles", [OBSERVING, WITHOUT_PODMAN, NOTHING], ids=["observe", "deleted", "none"])
def test_without_an_enforcing_profile_a_node_without_our_condition_is_not_written_at_all(
    profiles: Catalogue,
) -> None:
    story = Story(virtual(labels={RUNTIME_LABEL: None}, taints=[]), profiles)
    for second in (0, 30, 3600):
        made = story.act(second)
        assert not made.plan
        assert made.recheck_after is None
    assert story.server.requests == []


def test_observing_still_says_what_it_sees() -> None:
    made = look(virtual(labels={RUNTIME_LABEL: None}, taints=[], port=10250), OBSERVING)
    assert reasons(made) == [
        Reason.RUNTIME_LABEL_DRIFTED,
        Reason.PROVIDER_TAINT_DRIFTED,
        Reason.KUBELET_ENDPOINT_ADVERTISED,
    ]
    assert not made.verdict.conformant


def test_B24_a_deleted_profile_s_marks_stay_as_they_are() -> None:
    story = Story(virtual(taints=[]), BUILT_IN)
    story.act(0)
    story.act(10)
    story.profiles = WITHOUT_PODMAN
    before = (dict(story.labels), story.taints, story.listed)
    for second in (20, 30, 3600):
        story.act(second)
    assert (story.labels, story.taints, story.listed) == before
    assert story.condition == ("Unknown", "NotEnforced")


def test_a_profile_that_comes_back_starts_afresh() -> None:
    story = Story(virtual(labels={RUNTIME_LABEL: None}), BUILT_IN)
    story.look(0)
    story.profiles = OBSERVING
    assert story.look(25).memory == EMPTY
    story.profiles = BUILT_IN
    made = story.act(40)
    assert (made.plan.condition, made.recheck_after) == (None, 30.0)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(agent(labels={"type": "virtual-kubelet", RUNTIME_LABEL: None, HOST_LABEL: None}), id="agent"),
        pytest.param(
            virtual(provider_id="k3s://n", taints=[], port=10250, labels={HOST_LABEL: None}), id="virtual"
        ),
    ],
)
def test_a_conflicting_node_gets_its_condition_and_nothing_else(raw: Json) -> None:
    story = Story(raw, BUILT_IN)
    made = story.act(0)
    assert made.verdict.identity.kind is IdentityKind.CONFLICTING
    assert reasons(made) == [Reason.IDENTITY_CONFLICT]
    assert (made.plan.marks, story.condition) == (None, ("False", "IdentityConflict"))
    for second in (1, 60, 3600):
        assert not story.act(second).plan
    assert story.server.raw["metadata"] == raw["metadata"]
    assert story.server.raw["spec"] == raw["spec"]


def test_a_conflicting_node_of_an_observing_profile_is_not_written_at_all() -> None:
    assert not look(agent(labels={"type": "virtual-kubelet"}), OBSERVING).plan


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(bare("n"), id="nothing known"),
        pytest.param(agent(labels={BACKEND_LABEL: None}), id="agent without condition"),
        pytest.param(virtual(labels={BACKEND_LABEL: None}), id="virtual without condition"),
        pytest.param(virtual("vk-docker"), id="unknown backend"),
    ],
)
def test_a_node_of_no_profile_is_never_written(raw: Json) -> None:
    story = Story(raw, BUILT_IN)
    for second in (0, 10, 30, 3600):
        assert not story.act(second).plan
    assert story.server.raw == raw


# --- getting the backend back ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "backend"),
    [
        pytest.param(agent(labels={BACKEND_LABEL: None}, conditions=[conformant()]), "k3s", id="agent"),
        pytest.param(virtual(labels={BACKEND_LABEL: None}, conditions=[conformant()]), "vk-podman", id="virtual"),
        pytest.param(agent(labels={BACKEND_LABEL: ""}, conditions=[conformant()]), "k3s", id="empty"),
    ],
)
def test_B74_a_node_with_our_condition_and_single_evidence_gets_its_backend_back(raw: Json, backend: str) -> None:
    story = Story(raw, BUILT_IN)
    made = story.act(0)
    assert made.verdict.identity.kind is IdentityKind.MANAGED
    assert reasons(made) == [Reason.BACKEND_LABEL_MISSING]
    assert (story.labels[BACKEND_LABEL], story.listed) == (backend, BACKEND_MARK)
    assert story.look(1).verdict.conformant


def test_a_node_with_our_condition_and_evidence_of_both_classes_gets_nothing_back() -> None:
    raw = agent(labels={BACKEND_LABEL: None, "type": "virtual-kubelet"}, conditions=[conformant()])
    story = Story(raw, BUILT_IN)
    made = story.act(0)
    assert (made.verdict.identity.kind, made.plan.marks) == (IdentityKind.UNIDENTIFIED, None)
    assert story.condition == ("Unknown", "NotEnforced")


@pytest.mark.parametrize(
    ("raw", "backend"),
    [
        (agent(labels={BACKEND_LABEL: None, RUNTIME_LABEL: None, HOST_LABEL: None}), "k3s"),
        (virtual(labels={BACKEND_LABEL: None, RUNTIME_LABEL: None, HOST_LABEL: None}), "vk-podman"),
    ],
    ids=["agent", "virtual"],
)
def test_a_profile_that_adopts_by_evidence_labels_the_node_with_one_patch(raw: Json, backend: str) -> None:
    story = Story(raw, ADOPTING)
    story.act(0)
    assert len(story.server.requests) == 1
    assert story.labels[BACKEND_LABEL] == backend
    assert story.listed == ",".join(sorted([BACKEND_MARK, HOST_MARK, RUNTIME_MARK]))
    story.profiles = BUILT_IN
    assert story.look(1).verdict.conformant


# --- refused for good --------------------------------------------------------------------------------------


def refused_story() -> Story:
    story = Story(virtual(labels={RUNTIME_LABEL: None}), BUILT_IN)
    made = story.look(0)
    assert made.plan.marks is not None
    story.memory = marks_rejected(story.memory, made.plan.marks, "admission webhook says no")
    return story


def test_a_rejected_patch_is_not_sent_again_and_the_condition_says_why() -> None:
    story = refused_story()
    made = story.act(1)
    assert made.plan.marks is None
    assert reasons(made) == [Reason.WRITE_REJECTED, Reason.RUNTIME_LABEL_DRIFTED]
    assert story.condition == ("False", "WriteRejected")
    assert made.plan.condition is not None
    assert made.plan.condition.message.startswith("the API server refuses our patch: admission webhook says no; ")
    for second in (2, 60, 3600, 100_000):
        assert not story.act(second).plan


def test_a_rejected_patch_is_sent_again_once_something_else_drifts_too() -> None:
    story = refused_story()
    story.others(lambda raw: raw["spec"].pop("taints"))
    made = story.act(60)
    assert made.plan.marks is not None
    assert made.plan.marks.marks == (RUNTIME_MARK, PROVIDER_TAINT_MARK)
    assert story.memory.rejected is None
    assert story.look(61).verdict.conformant


def test_a_rejected_patch_is_sent_again_once_the_profile_wants_something_else() -> None:
    story = Story(virtual(taints=[]), BUILT_IN)
    made = story.look(0)
    assert made.plan.marks is not None
    story.memory = marks_rejected(story.memory, made.plan.marks, "no")
    story.profiles = catalogue(vk_podman={"providerTaintValue": "podman"})
    assert story.look(1).plan.marks is not None


def test_a_rejected_patch_is_sent_again_when_the_drift_went_away_and_came_back() -> None:
    story = refused_story()
    story.others(lambda raw: raw["metadata"]["labels"].update({RUNTIME_LABEL: "virtual"}))
    for second in (10, 20, 30):
        story.act(second)
    assert story.condition == ("True", "Conforms")
    story.others(lambda raw: raw["metadata"]["labels"].pop(RUNTIME_LABEL))
    assert story.act(100).plan.marks is not None


def test_a_condition_alone_is_never_taken_for_the_rejected_patch() -> None:
    story = refused_story()
    story.others(lambda raw: raw["metadata"]["labels"].update({RUNTIME_LABEL: "virtual"}))
    assert story.look(10).verdict.findings == ()


# --- contested ---------------------------------------------------------------------------------------------


def revert(raw: Json) -> None:
    raw["metadata"]["labels"][RUNTIME_LABEL] = "agent"


def test_B59_a_label_put_back_each_minute_is_fought_for_three_rounds_then_left_for_an_hour_then_again() -> None:
    story = Story(virtual(), BUILT_IN)
    written = []
    for minute in range(68):
        story.others(revert)
        written.append(story.act(minute * MINUTE).plan.marks is not None)
    assert written == [True] * 3 + [False] * 60 + [True] * 3 + [False] * 2


def test_B59_a_contested_label_is_reported_and_the_condition_written_once() -> None:
    story = Story(virtual(), BUILT_IN)
    conditions = []
    for minute in range(60):
        story.others(revert)
        conditions.append(story.act(minute * MINUTE).plan.condition)
    made = story.look(3600)
    assert made.verdict.contested == (RUNTIME_MARK,)
    assert reasons(made) == [Reason.CONTESTED]
    assert made.recheck_after == 180.0
    assert [write.reason for write in conditions if write] == ["Contested"]
    assert story.condition == ("False", "Contested")


def test_B59_virtual_kubelet_s_annotations_are_never_touched_in_a_quarrel() -> None:
    story = Story(virtual(), BUILT_IN)
    for minute in range(10):
        story.others(revert)
        story.act(minute * MINUTE)
    annotations = story.server.raw["metadata"]["annotations"]
    assert annotations["virtual-kubelet.io/last-applied-node-status"] == "{}"


def test_B74_two_writers_who_alternate_do_not_keep_us_writing() -> None:
    story = Story(virtual(), BUILT_IN)
    plans = []
    for minute in range(60):
        story.labels[RUNTIME_LABEL] = ("agent", "other")[minute % 2]
        plans.append(story.act(minute * MINUTE).plan)
    assert sum(plan.marks is not None for plan in plans) == 3
    assert sum(plan.condition is not None for plan in plans) == 1


def test_while_one_mark_is_contested_the_others_are_still_put_right() -> None:
    story = Story(virtual(), BUILT_IN)
    for minute in range(4):
        story.others(revert)
        story.act(minute * MINUTE)
    story.others(lambda raw: raw["spec"].pop("taints"))
    made = story.act(4 * MINUTE)
    assert made.plan.marks is not None
    assert made.plan.marks.marks == (PROVIDER_TAINT_MARK,)
    assert made.plan.marks.labels == {}
    assert story.taints == [TAINT]


def test_B72_a_taint_removed_by_hand_now_and_then_is_always_put_back() -> None:
    story = Story(virtual(), BUILT_IN)
    for round_ in range(20):
        story.others(lambda raw: raw["spec"].pop("taints"))
        assert story.act(round_ * 400.0).plan.marks is not None
        assert story.taints == [TAINT]


def test_once_the_habit_ends_the_node_heals_by_itself() -> None:
    story = Story(virtual(), BUILT_IN)
    for minute in range(4):
        story.others(revert)
        story.act(minute * MINUTE)
    assert story.condition == ("False", "Contested")
    made = story.look(3 * MINUTE + 3600)
    assert made.plan.marks is not None
    story.act(3 * MINUTE + 3600)
    story.look(3 * MINUTE + 3601)
    made = story.act(3 * MINUTE + 3612)
    assert story.condition == ("True", "Conforms")
    assert made.verdict.contested == ()


def test_a_contested_node_that_others_put_right_conforms() -> None:
    story = Story(virtual(), BUILT_IN)
    for minute in range(4):
        story.others(revert)
        story.act(minute * MINUTE)
    story.others(lambda raw: raw["metadata"]["labels"].update({RUNTIME_LABEL: "virtual"}))
    assert story.look(4 * MINUTE).verdict.conformant


def set_condition(story: Story, status: str) -> None:
    def change(raw: Json) -> None:
        raw["status"]["conditions"][1:] = [conformant(status, "SomebodyElse", "mine")]

    story.others(change)


def test_our_condition_put_back_again_and_again_is_contested_like_any_mark() -> None:
    story = Story(virtual(), BUILT_IN)
    story.look(0)
    writes = []
    for minute in range(1, 60):
        set_condition(story, "False")
        writes.append(story.act(minute * MINUTE).plan.condition is not None)
    assert writes == [True] * 3 + [False] * 56
    assert CONDITION_MARK in story.memory.contested


def test_a_quarrel_over_one_text_does_not_hold_back_another() -> None:
    story = Story(virtual(port=10250), BUILT_IN)
    for minute in range(5):
        set_condition(story, "Maybe")
        story.act(minute * MINUTE)
    story.others(lambda raw: raw["status"].pop("daemonEndpoints"))
    story.look(5 * MINUTE)
    story.act(6 * MINUTE)
    assert story.condition == ("True", "Conforms")


def test_a_condition_that_turns_with_the_node_is_no_quarrel() -> None:
    story = Story(virtual(), BUILT_IN)
    for round_ in range(12):
        start = round_ * MINUTE
        story.others(lambda raw: raw["status"].update(daemonEndpoints={"kubeletEndpoint": {"Port": 10250}}))
        story.act(start)
        assert story.condition == ("False", "KubeletEndpointAdvertised")
        story.others(lambda raw: raw["status"].pop("daemonEndpoints"))
        story.look(start + 10)
        story.act(start + 20)
        assert story.condition == ("True", "Conforms")


def test_unknown_put_back_again_and_again_is_contested_like_any_mark() -> None:
    story = Story(virtual(conditions=[conformant()]), OBSERVING)
    writes = []
    for minute in range(60):
        set_condition(story, "True")
        writes.append(story.act(minute * MINUTE).plan.condition is not None)
    assert writes == [True] * 3 + [False] * 57


# --- when to look again ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "memory", "after"),
    [
        pytest.param(virtual(), EMPTY, 10.0, id="clean"),
        pytest.param(virtual(), NodeMemory(clean_since=at(-10).uptime), None, id="clean long enough"),
        pytest.param(virtual(taints=[]), EMPTY, 30.0, id="drifted"),
        pytest.param(virtual(taints=[]), NodeMemory(drift_since=at(-30).uptime), None, id="drifted long enough"),
        pytest.param(virtual(port=1), EMPTY, None, id="a flaw waits for a change"),
        pytest.param(
            virtual(), NodeMemory(contested={RUNTIME_MARK: at(7).uptime}), 7.0, id="contested before clean"
        ),
        pytest.param(
            virtual(), NodeMemory(contested={RUNTIME_MARK: at(70).uptime}), 10.0, id="clean before contested"
        ),
    ],
)
def test_a_decision_says_when_it_may_differ_although_nothing_changed(
    raw: Json, memory: NodeMemory, after: float | None
) -> None:
    assert decide(facts(raw), BUILT_IN, memory, at(0)).recheck_after == after


def test_a_node_that_waits_for_nothing_is_never_looked_at_again() -> None:
    story = Story(virtual(), BUILT_IN)
    story.act(0)
    assert story.act(10).recheck_after is None
    assert story.look(11).memory is story.look(12).memory


def test_a_decision_depends_on_its_input_alone() -> None:
    raw = virtual(labels={RUNTIME_LABEL: None}, taints=[MAINTENANCE], port=1)
    memory = NodeMemory(repairs={RUNTIME_MARK: (1.0, 2.0)}, drift_since=3.0)
    assert decide(facts(raw), BUILT_IN, memory, at(50)) == decide(facts(raw), BUILT_IN, memory, at(50))
    assert memory == NodeMemory(repairs={RUNTIME_MARK: (1.0, 2.0)}, drift_since=3.0)


def test_a_node_whose_args_hold_half_a_character_can_still_be_written_about() -> None:
    args = f'["agent","--node-label","{HOST_LABEL}=\\ud800"]'
    made = look(agent(labels={HOST_LABEL: None}, annotations={NODE_ARGS_ANNOTATION: args}))
    assert made.plan.condition is not None
    assert made.plan.condition.message.encode()


def test_after_a_write_the_memory_knows_when_each_mark_was_written() -> None:
    made = look(virtual(labels={RUNTIME_LABEL: None}, taints=[]))
    assert made.plan.marks is not None
    memory = marks_written(made.memory, made.plan.marks, at(1))
    assert memory.repairs == {RUNTIME_MARK: (at(1).uptime,), PROVIDER_TAINT_MARK: (at(1).uptime,)}
