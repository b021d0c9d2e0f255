"""The verdict of the probe: rows C1-C20 of contract §4.6, bettered by D15-D17, and the rules of the module."""

from dataclasses import replace
from typing import Any

import pytest
from builders import BORN, START, agent, at, bare, catalogue, facts, probe_pod, ready, virtual
from server import FakeServer

from clusterconform.contract.memory import EMPTY, NodeMemory
from clusterconform.contract.names import (
    MARKS_ANNOTATION,
    RUNTIME_READY_LABEL,
    UNAVAILABLE_REASON_ANNOTATION,
)
from clusterconform.contract.plan import (
    PROBE_MARKS,
    RUNTIME_READY_MARK,
    UNAVAILABLE_REASON_MARK,
    UNAVAILABLE_TAINT_MARK,
)
from clusterconform.contract.probe import is_probe, read_probe
from clusterconform.contract.settings import RuntimeProbe
from clusterconform.contract.times import format_time
from clusterconform.contract.verdicts import Catalogue, Reason
from clusterconform.decisions import sandbox
from clusterconform.decisions.agents import Agents
from clusterconform.decisions.planning import Decision, decide, marks_written
from clusterconform.decisions.sandbox import Runtime, pick, too_many

Json = dict[str, Any]

KEY = "outpost.dhnt.io/runtime-unavailable"
TAINT = {"key": KEY, "value": "sandbox", "effect": "NoSchedule"}
FOREIGN = {"key": "example.com/maintenance", "value": "disk", "effect": "NoExecute"}
NAME = "pi-4c7adeb6"
FIXED_TEXT = "runtime sandbox probe did not become Ready"


def ago(seconds: float) -> str:
    return format_time(at(-seconds).wall)


def profiles(**probe: Any) -> Catalogue:
    settings = {"stabilization": "0s", **probe}
    return catalogue(k3s={"runtimeProbe": settings, "addressReconcile": {"mode": "Off"}})


def unready(seconds: float, **parts: Any) -> Json:
    return probe_pod(NAME, ready_status="False", created=ago(seconds), **parts)


def agents_of(rules: Catalogue, nodes: list[Json], pods: list[Json]) -> Agents:
    agents = Agents(rules)
    for raw in nodes:
        agents.observe(facts(raw))
    for pod in pods:
        agents.observe_pod(read_probe(pod))
    for raw in nodes:
        agents.around(facts(raw), START)
    return agents


def look(
    raw: Json, *pods: Json, rules: Catalogue | None = None, memory: NodeMemory = EMPTY, second: float = 0
) -> Decision:
    rules = rules or profiles()
    agents = agents_of(rules, [raw], list(pods))
    return decide(facts(raw), rules, memory, at(second), agents.around(facts(raw), at(second).wall))


def after(raw: Json, *pods: Json, rules: Catalogue | None = None) -> Json:
    """The node with the marks of its probe, and nothing more to write."""
    server = FakeServer(raw)
    made = look(raw, *pods, rules=rules)
    if made.plan.marks:
        server.carry_out(facts(raw), replace(made.plan, condition=None))
        assert look(server.raw, *pods, rules=rules).plan.marks is None
    return server.raw


def marked(raw: Json) -> tuple[str | None, list[Json], str | None]:
    """Label, taints and reason of a node."""
    metadata = raw["metadata"]
    return (
        (metadata.get("labels") or {}).get(RUNTIME_READY_LABEL),
        raw["spec"].get("taints") or [],
        (metadata.get("annotations") or {}).get(UNAVAILABLE_REASON_ANNOTATION),
    )


def verdict(raw: Json, *pods: Json, **settings: Any) -> tuple[str, Reason]:
    rules = profiles(**settings)
    seen = agents_of(rules, [raw], list(pods)).around(facts(raw), START).probe
    assert seen is not None
    return seen.runtime.value, seen.cause.reason


def untouched(raw: Json, *pods: Json, **settings: Any) -> bool:
    return after(raw, *pods, rules=profiles(**settings)) == raw


SICK = agent(
    taints=[{**TAINT, "timeAdded": BORN}],
    labels={RUNTIME_READY_LABEL: "false"},
    annotations={UNAVAILABLE_REASON_ANNOTATION: FIXED_TEXT},
)


# --- the contract's rows -------------------------------------------------------------------------------------


@pytest.mark.parametrize("raw", [bare(NAME), bare(NAME, labels=None, annotations=None), agent()])
def test_C1_a_ready_probe_labels_the_node(raw: Json) -> None:
    assert verdict(raw, probe_pod(NAME)) == ("ready", Reason.RUNTIME_READY)
    assert marked(after(raw, probe_pod(NAME))) == ("true", [], None)


def test_C1_a_node_without_any_condition_counts_by_its_pod() -> None:
    raw = bare(NAME)
    raw["status"]["conditions"] = []
    assert marked(after(raw, probe_pod(NAME))) == ("true", [], None)


def test_C2_an_unready_probe_of_ten_seconds_is_no_verdict() -> None:
    assert verdict(agent(), unready(10)) == ("none", Reason.PROBE_STARTING)
    assert untouched(agent(), unready(10))


def test_C3_an_unready_probe_of_three_minutes_taints() -> None:
    assert verdict(agent(), unready(180)) == ("unavailable", Reason.RUNTIME_UNAVAILABLE)
    taint = {**TAINT, "timeAdded": format_time(START)}
    assert marked(after(agent(), unready(180))) == ("false", [taint], FIXED_TEXT)


def test_C4_recovery_takes_taint_and_reason_away_listed_or_not() -> None:
    assert marked(after(SICK, probe_pod(NAME))) == ("true", [], None)
    listed = after(agent(), unready(180))
    recovered = after(listed, probe_pod(NAME))
    assert marked(recovered) == ("true", [], None)
    assert recovered["metadata"]["annotations"][MARKS_ANNOTATION] == RUNTIME_READY_MARK


def test_C5_a_ready_probe_applied_twice_changes_nothing_more() -> None:
    raw = after(agent(), probe_pod(NAME))
    assert after(raw, probe_pod(NAME)) == raw


def test_C6_a_foreign_taint_is_kept_through_failure_and_recovery() -> None:
    failed = after(agent(taints=[FOREIGN]), unready(180))
    assert FOREIGN in marked(failed)[1]
    assert marked(after(failed, probe_pod(NAME)))[1] == [FOREIGN]


def test_C7_no_probe_no_verdict() -> None:
    assert verdict(agent()) == ("none", Reason.NO_PROBE)
    assert untouched(agent())
    assert untouched(SICK)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(virtual(name=NAME), id="R12 virtual"),
        pytest.param(bare(NAME, labels={"type": "virtual-kubelet"}), id="stock virtual-kubelet"),
        pytest.param(agent(labels={"outpost.dhnt.io/runtime": "virtual"}, taints=[]), id="by label alone"),
    ],
)
def test_C8_a_virtual_node_is_never_probed(raw: Json) -> None:
    made = look(raw, unready(600))
    assert not set(made.plan.marks.marks if made.plan.marks else ()) & set(PROBE_MARKS)


def test_C8_an_unidentified_node_is_probed_where_the_profile_includes_it() -> None:
    assert not untouched(bare(NAME), unready(600))
    rules = profiles(includeUnidentified=False)
    assert after(bare(NAME), unready(600), rules=rules) == bare(NAME)


def test_C9_a_ready_probe_wins() -> None:
    pods = [unready(60, name="a"), probe_pod(NAME, name="b", created=ago(10))]
    assert _picked(*pods) == _picked(*reversed(pods)) == "b"


def test_C9_the_last_ready_probe_in_list_order_wins() -> None:
    assert _picked(probe_pod(NAME, name="a"), probe_pod(NAME, name="b"), unready(1, name="c")) == "b"


def test_C10_of_unready_probes_the_oldest_is_picked() -> None:
    assert _picked(unready(1, name="a"), unready(600, name="b")) == "b"
    assert _picked(unready(600, name="a"), unready(1, name="b")) == "a"


def _picked(*pods: Json) -> str | None:
    picked = pick(read_probe(pod) for pod in pods)
    return picked.name if picked else None


def test_C14_exactly_two_minutes_is_a_verdict() -> None:
    assert verdict(agent(), unready(120)) == ("unavailable", Reason.RUNTIME_UNAVAILABLE)
    assert verdict(agent(), unready(119)) == ("none", Reason.PROBE_STARTING)


def test_C15_without_a_creation_time_there_is_no_verdict() -> None:
    pod = probe_pod(NAME, ready_status="False", created=None, transition=ago(600))
    assert verdict(agent(), pod) == ("none", Reason.PROBE_UNDATABLE)
    assert untouched(agent(), pod)


def test_C15_a_pod_without_a_creation_time_counts_as_the_oldest() -> None:
    assert _picked(unready(600, name="a"), probe_pod(NAME, name="b", ready_status="False", created=None)) == "b"
    assert _picked(probe_pod(NAME, name="b", ready_status="False", created=None), unready(600, name="a")) == "b"


def test_C16_another_effect_of_our_key_is_put_right_and_keeps_its_time() -> None:
    wrong = {"key": KEY, "value": "other", "effect": "NoExecute", "timeAdded": BORN}
    written = after(agent(taints=[FOREIGN, wrong]), unready(180))
    assert marked(written)[1] == [FOREIGN, {**TAINT, "timeAdded": BORN}]


def test_C18_recovery_takes_every_taint_of_our_key_away() -> None:
    two = [TAINT, FOREIGN, {**TAINT, "effect": "NoExecute"}]
    assert marked(after(agent(taints=two), probe_pod(NAME)))[1] == [FOREIGN]


def test_D24_two_taints_of_our_key_collapse_to_one() -> None:
    two = [{**TAINT, "effect": "NoExecute", "timeAdded": BORN}, FOREIGN, TAINT]
    assert marked(after(agent(taints=two), unready(180)))[1] == [{**TAINT, "timeAdded": BORN}, FOREIGN]


def test_C19_D16_grace_counts_from_the_last_transition_and_not_from_the_creation() -> None:
    blip = probe_pod(NAME, ready_status="False", created=ago(86400 * 5), transition=ago(20))
    assert verdict(agent(), blip) == ("none", Reason.PROBE_STARTING)
    lasting = probe_pod(NAME, ready_status="False", created=ago(86400 * 5), transition=ago(120))
    assert verdict(agent(), lasting) == ("unavailable", Reason.RUNTIME_UNAVAILABLE)


def test_C20_the_marks_read_as_the_contract_has_them() -> None:
    assert sorted(PROBE_MARKS) == [
        "annotation:outpost.dhnt.io/runtime-unavailable-reason",
        "label:outpost.dhnt.io/runtime-ready",
        "taint:outpost.dhnt.io/runtime-unavailable",
    ]


# --- no evidence, and its cause ------------------------------------------------------------------------------


@pytest.mark.parametrize("pod", [unready(600), probe_pod(NAME)], ids=["unready", "B48 ready"])
@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_B48_D16_on_a_node_that_is_not_ready_nothing_counts(pod: Json, status: str) -> None:
    for raw in (agent(), SICK):
        dead = {**raw, "status": {**raw["status"], "conditions": [ready(status)]}}
        assert verdict(dead, pod) == ("none", Reason.NODE_NOT_READY)
        assert untouched(dead, pod)


def test_B49_a_ready_probe_stays_valid_however_old_its_transition_is() -> None:
    assert verdict(agent(), probe_pod(NAME, transition=ago(86400 * 3)))[0] == "ready"


def test_D16_a_pod_that_is_being_deleted_does_not_speak_b76() -> None:
    assert verdict(agent(), unready(600, deleted=ago(1))) == ("none", Reason.PROBE_TERMINATING)
    assert verdict(SICK, probe_pod(NAME, deleted=ago(1))) == ("none", Reason.PROBE_TERMINATING)
    healthy = agent(labels={RUNTIME_READY_LABEL: "true"})
    assert untouched(healthy, unready(600, deleted=ago(1)))


def test_D16_a_pod_on_a_cordoned_node_is_no_evidence_against_it_but_a_ready_one_for_it() -> None:
    cordoned = agent()
    cordoned["spec"]["unschedulable"] = True
    assert verdict(cordoned, unready(600)) == ("none", Reason.NODE_UNSCHEDULABLE)
    assert verdict(cordoned, probe_pod(NAME)) == ("ready", Reason.RUNTIME_READY)


@pytest.mark.parametrize("waiting", ["ErrImagePull", "ImagePullBackOff", "InvalidImageName"])
def test_D16_a_pod_that_waits_for_its_image_is_no_evidence(waiting: str) -> None:
    assert verdict(agent(), unready(600, waiting=waiting)) == ("none", Reason.IMAGE_PULL_FAILING)


@pytest.mark.parametrize("waiting", ["ContainerCreating", "CrashLoopBackOff", "CreateContainerError"])
def test_a_pod_that_waits_for_its_sandbox_is_evidence(waiting: str) -> None:
    assert verdict(agent(), unready(600, waiting=waiting))[0] == "unavailable"


def test_a_pod_without_a_node_is_ignored_and_named_where_its_affinity_tells_whom_it_is_for() -> None:
    field = {"key": "metadata.name", "operator": "In", "values": [NAME]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    assert verdict(agent(), probe_pod(None, name="lost", ready_status="False")) == ("none", Reason.NO_PROBE)
    meant = probe_pod(None, name="meant", ready_status="False", affinity=affinity)
    assert verdict(agent(), meant) == ("none", Reason.PROBE_UNSCHEDULED)


def test_a_pod_of_a_node_that_is_gone_disturbs_nobody() -> None:
    agents = agents_of(profiles(), [agent()], [probe_pod("gone"), probe_pod(NAME)])
    agents.observe(facts(bare("other")))
    agents.forget("gone")
    assert agents.around(facts(agent()), START).probe is not None


def test_a_pod_of_another_namespace_or_another_name_is_no_probe() -> None:
    pod = probe_pod(NAME)
    assert is_probe(pod)
    assert not is_probe({**pod, "metadata": {**pod["metadata"], "namespace": "kube-system"}})
    assert not is_probe({**pod, "metadata": {**pod["metadata"], "labels": {}}})
    assert not is_probe({})


def test_the_cause_of_a_verdict_names_what_the_container_waits_for() -> None:
    seen = sandbox.judge(
        facts(agent()), [read_probe(unready(600, waiting="CreateContainerError"))], RuntimeProbe(), START
    )
    assert "CreateContainerError" in seen.cause.message


def test_a_verdict_that_time_alone_may_change_says_when() -> None:
    seen = sandbox.judge(facts(agent()), [read_probe(unready(100))], RuntimeProbe(), START)
    assert seen.recheck_after == 20.0


# --- stabilization -------------------------------------------------------------------------------------------


def test_rule_6_a_verdict_is_put_on_the_node_when_it_has_held() -> None:
    rules = profiles(stabilization="30s")
    first = look(agent(), probe_pod(NAME), rules=rules)
    assert (first.plan.marks, first.memory.probe) == (None, ("ready", at(0).uptime))
    assert first.recheck_after is not None
    assert first.recheck_after <= 30
    early = look(agent(), probe_pod(NAME), rules=rules, memory=first.memory, second=29)
    assert early.plan.marks is None
    due = look(agent(), probe_pod(NAME), rules=rules, memory=early.memory, second=30)
    assert due.plan.marks is not None


def test_rule_6_another_verdict_or_none_begins_anew() -> None:
    rules = profiles(stabilization="30s")
    first = look(agent(), probe_pod(NAME), rules=rules)
    other = look(agent(), unready(600), rules=rules, memory=first.memory, second=20)
    assert other.memory.probe == ("unavailable", at(20).uptime)
    assert look(agent(), rules=rules, memory=other.memory, second=25).memory.probe is None


def test_rule_6_a_runtime_that_comes_and_goes_is_no_quarrel_with_another_writer() -> None:
    memory, raw = EMPTY, agent()
    for second in range(0, 600, 60):
        pod = probe_pod(NAME) if second % 120 else unready(600)
        made = look(raw, pod, memory=memory, second=second)
        assert made.plan.marks is not None
        assert made.verdict.contested == ()
        server = FakeServer(raw)
        server.carry_out(facts(raw), replace(made.plan, condition=None))
        raw, memory = server.raw, marks_written(made.memory, made.plan.marks, at(second))


def test_a_mark_that_another_writer_keeps_taking_away_is_contested() -> None:
    memory = EMPTY
    for second in range(3):
        made = look(agent(), probe_pod(NAME), memory=memory, second=second)
        assert made.plan.marks is not None
        memory = marks_written(made.memory, made.plan.marks, at(second))
    made = look(agent(), probe_pod(NAME), memory=memory, second=4)
    assert (made.plan.marks, made.verdict.contested) == (None, (RUNTIME_READY_MARK,))


# --- too many ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tainted", "agents", "percent", "held"),
    [
        (1, 1, 50, False),
        (1, 2, 50, False),
        (2, 2, 50, True),
        (5, 10, 50, False),
        (6, 10, 50, True),
        (1, 1000, 0, True),
        (1000, 1000, 100, False),
        (0, 0, 50, False),
        (0, 10, 0, False),
    ],
)
def test_rule_7_more_than_so_many_percent_are_held(tainted: int, agents: int, percent: int, held: bool) -> None:
    assert too_many(tainted, agents, RuntimeProbe(max_unavailable_percent=percent)) is held


def test_rule_7_B52_no_further_node_is_tainted_while_too_many_would_be_and_it_is_said() -> None:
    nodes = [agent(f"pi-{index}") for index in range(4)]
    pods = [probe_pod(f"pi-{index}", ready_status="False", created=ago(600)) for index in range(4)]
    rules = profiles()
    agents = agents_of(rules, nodes, pods)
    for raw in nodes:
        around = agents.around(facts(raw), START)
        assert around.probe is not None
        assert (around.probe.runtime, around.probe.held) == (Runtime.UNAVAILABLE, True)
        assert around.probe.cause.reason is Reason.MASS_UNAVAILABLE
        assert "4 of 4" in around.probe.cause.message
        assert decide(facts(raw), rules, EMPTY, at(0), around).plan.marks is None


def test_rule_7_who_is_tainted_stays_so_and_who_recovers_is_freed() -> None:
    nodes = [
        agent(taints=[TAINT]),
        *(agent(f"pi-{index}") for index in range(2)),
        agent("pi-9", taints=[TAINT], labels={RUNTIME_READY_LABEL: "false"}),
    ]
    pods = [
        *(probe_pod(name, ready_status="False", created=ago(600)) for name in (NAME, "pi-0", "pi-1")),
        probe_pod("pi-9"),
    ]
    rules = profiles()
    agents = agents_of(rules, nodes, pods)
    assert agents.is_mass()
    plans = [decide(facts(raw), rules, EMPTY, at(0), agents.around(facts(raw), START)).plan for raw in nodes]
    assert [plan.marks is not None for plan in plans] == [True, False, False, True]


def test_rule_7_a_tainted_node_without_a_verdict_counts_as_tainted() -> None:
    nodes = [SICK, agent("pi-1"), agent("pi-2")]
    agents = agents_of(
        profiles(), nodes, [probe_pod(name, ready_status="False", created=ago(600)) for name in ("pi-1",)]
    )
    assert agents.is_mass()


def test_rule_7_a_node_that_goes_counts_no_more() -> None:
    nodes = [agent("pi-1"), agent("pi-2"), agent("pi-3")]
    pods = [probe_pod(name, ready_status="False", created=ago(600)) for name in ("pi-1", "pi-2")]
    agents = agents_of(profiles(), nodes, pods)
    assert agents.is_mass()
    agents.forget("pi-1")
    assert not agents.is_mass()


# --- modes, and what is left behind --------------------------------------------------------------------------


def test_observing_tells_the_verdict_and_writes_nothing() -> None:
    assert verdict(agent(), unready(600), mode="Observe")[0] == "unavailable"
    assert untouched(agent(), unready(600), mode="Observe")


def test_D17_off_takes_back_the_marks_that_it_left_and_no_others() -> None:
    sick = after(agent(taints=[FOREIGN]), unready(180))
    clean = after(sick, rules=profiles(mode="Off"))
    assert marked(clean) == (None, [FOREIGN], None)
    assert MARKS_ANNOTATION not in clean["metadata"]["annotations"]


def test_B77_off_keeps_marks_that_our_annotation_does_not_list() -> None:
    assert untouched(SICK, mode="Off")


def test_what_is_written_is_listed() -> None:
    sick = after(agent(), unready(180))
    assert set(sick["metadata"]["annotations"][MARKS_ANNOTATION].split(",")) == {
        RUNTIME_READY_MARK,
        UNAVAILABLE_TAINT_MARK,
        UNAVAILABLE_REASON_MARK,
    }


def test_a_node_with_a_broken_runtime_may_conform() -> None:
    assert look(agent(), unready(600)).verdict.conformant


def test_one_patch_carries_conformance_and_probe() -> None:
    raw = agent(labels={"outpost.dhnt.io/runtime": None})
    server = FakeServer(raw)
    server.carry_out(facts(raw), look(raw, probe_pod(NAME)).plan)
    assert len(server.requests) == 1
    assert server.raw["metadata"]["labels"]["outpost.dhnt.io/runtime"] == "agent"
    assert marked(server.raw)[0] == "true"


def test_without_an_enforcing_profile_nothing_is_marked() -> None:
    rules = catalogue(k3s={"enforcement": "Observe", "runtimeProbe": {"stabilization": "0s"}})
    made = look(agent(), unready(600), rules=rules)
    assert made.plan.marks is None
