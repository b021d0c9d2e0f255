from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from builders import AGENT_SPEC, BORN, TAINT, VIRTUAL_SPEC, agent, catalogue, facts, profile_object, virtual

from clusterconform.contract.matrix import MATRIX, node_name
from clusterconform.contract.names import BACKEND_LABEL, RUNTIME_LABEL
from clusterconform.contract.profile import (
    RESULT_CHANNELS,
    STREAMING,
    Capability,
    NodeClass,
    ProfileObject,
    Refusal,
    RuntimeProfile,
)
from clusterconform.contract.settings import AddressReconcile, NodeGC, RuntimeProbe
from clusterconform.contract.verdicts import Reason
from clusterconform.decisions.gate import (
    Breach,
    accept,
    judge_built_node,
    judge_profile,
    judge_set,
)

K3S, PODMAN = MATRIX["k3s"], MATRIX["vk-podman"]
ROWS = list(MATRIX.values())
VIRTUAL = [row for row in ROWS if row.node_class is NodeClass.VIRTUAL]
FLAGS = [
    ("subject_to_node_gc", "subjectToNodeGC"),
    ("subject_to_runtime_probe", "subjectToRuntimeProbe"),
    ("subject_to_address_reconcile", "subjectToAddressReconcile"),
]


def without(row: RuntimeProfile, *capabilities: Capability) -> RuntimeProfile:
    return replace(row, capabilities=tuple(seen for seen in row.capabilities if seen not in capabilities))


def changed(row: RuntimeProfile, **changes: Any) -> RuntimeProfile:
    return replace(row, **changes)


def found(breaches: Sequence[Breach]) -> list[tuple[str, str]]:
    return [(breach.rule, breach.path) for breach in breaches]


def test_the_built_in_matrix_breaks_no_rule() -> None:
    assert judge_set(MATRIX.values()) == []


def test_R1_a_manifest_whose_name_is_not_its_backend_is_no_profile() -> None:
    contract = profile_object("vk-podman", {**VIRTUAL_SPEC, "backend": "vk-native"}).contract
    assert isinstance(contract, Refusal)
    assert (contract.path, "(R1)" in contract.reason) == ("spec.backend", True)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.backend)
def test_R2_every_profile_serves_pod_lifecycle(row: RuntimeProfile) -> None:
    assert found(judge_profile(without(row, Capability.POD_LIFECYCLE))) == [("R2", "spec.capabilities")]


def test_R3_an_agent_carries_the_label_agent() -> None:
    assert found(judge_profile(replace(K3S, runtime_label_value="virtual"))) == [("R3", "spec.runtimeLabelValue")]


@pytest.mark.parametrize("missing", STREAMING)
def test_R3_an_agent_serves_the_whole_streaming_set_and_not_just_any_of_it(missing: Capability) -> None:
    (breach,) = judge_profile(without(K3S, missing))
    assert (breach.rule, breach.path) == ("R3", "spec.capabilities")
    assert breach.message.endswith(f"missing: {missing}")


def test_R3_all_missing_streaming_capabilities_are_named_at_once() -> None:
    (breach,) = judge_profile(without(K3S, *STREAMING))
    assert breach.message.endswith(f"missing: {' '.join(STREAMING)}")


def test_R3_an_agent_carries_no_provider_taint() -> None:
    assert found(judge_profile(replace(K3S, provider_taint=True))) == [("R3", "spec.providerTaint")]


@pytest.mark.parametrize(("flag", "field"), FLAGS)
def test_R3_an_agent_is_subject_to_every_node_reconciler(flag: str, field: str) -> None:
    assert found(judge_profile(changed(K3S, **{flag: False}))) == [("R3", f"spec.{field}")]


@pytest.mark.parametrize("row", VIRTUAL, ids=lambda row: row.backend)
def test_R4_a_virtual_backend_carries_the_label_virtual(row: RuntimeProfile) -> None:
    assert found(judge_profile(replace(row, runtime_label_value="agent"))) == [("R4", "spec.runtimeLabelValue")]


@pytest.mark.parametrize("claimed", STREAMING)
def test_R4_B56_a_virtual_backend_claims_no_streaming_capability(claimed: Capability) -> None:
    (breach,) = judge_profile(replace(PODMAN, capabilities=(*PODMAN.capabilities, claimed)))
    assert (breach.rule, breach.path) == ("R4", "spec.capabilities")
    assert breach.message == f"class virtual must not claim: {claimed}"


@pytest.mark.parametrize("missing", RESULT_CHANNELS)
def test_R4_a_virtual_backend_serves_both_result_channels(missing: Capability) -> None:
    (breach,) = judge_profile(without(PODMAN, missing))
    assert (breach.rule, breach.path) == ("R4", "spec.capabilities")
    assert breach.message.endswith(f"missing: {missing}")


def test_R4_a_virtual_backend_carries_the_provider_taint() -> None:
    assert found(judge_profile(replace(PODMAN, provider_taint=False))) == [("R4", "spec.providerTaint")]


@pytest.mark.parametrize(("flag", "field"), FLAGS)
def test_R4_a_virtual_backend_is_subject_to_no_node_reconciler(flag: str, field: str) -> None:
    assert found(judge_profile(changed(PODMAN, **{flag: True}))) == [("R4", f"spec.{field}")]


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"node_gc": NodeGC()}, "spec.nodeGC"),
        ({"runtime_probe": RuntimeProbe()}, "spec.runtimeProbe"),
        ({"address_reconcile": AddressReconcile()}, "spec.addressReconcile"),
    ],
)
def test_R4_a_virtual_backend_has_no_settings_for_one(changes: dict[str, Any], path: str) -> None:
    assert found(judge_profile(changed(PODMAN, **changes))) == [("R4", path)]


@pytest.mark.parametrize("suffix", ["", "-podman", "-vk-podman-", "vk-podman", "-vk-native"])
def test_R4_a_virtual_backend_s_suffix_is_a_dash_and_its_name(suffix: str) -> None:
    assert found(judge_profile(replace(PODMAN, node_name_suffix=suffix))) == [("R4", "spec.nodeNameSuffix")]


def test_every_rule_that_a_profile_breaks_is_reported_and_not_only_the_first() -> None:
    broken = replace(
        PODMAN,
        capabilities=(Capability.KUBELET_EXEC,),
        runtime_label_value="agent",
        node_name_suffix="",
        provider_taint=False,
        subject_to_node_gc=True,
        node_gc=NodeGC(),
    )
    assert found(judge_profile(broken)) == [
        ("R2", "spec.capabilities"),
        ("R4", "spec.runtimeLabelValue"),
        ("R4", "spec.capabilities"),
        ("R4", "spec.capabilities"),
        ("R4", "spec.providerTaint"),
        ("R4", "spec.subjectToNodeGC"),
        ("R4", "spec.nodeGC"),
        ("R4", "spec.nodeNameSuffix"),
    ]


def test_a_breach_reads_as_one_sentence_with_path_and_rule() -> None:
    (breach,) = judge_profile(replace(K3S, provider_taint=True))
    assert str(breach) == "spec.providerTaint: class agent carries no provider taint (R3)"


def test_R5_a_class_other_than_the_two_is_refused() -> None:
    contract = profile_object("vk-x", {**VIRTUAL_SPEC, "class": "sandbox"}).contract
    assert isinstance(contract, Refusal)
    assert contract.path == "spec.class"


@pytest.mark.parametrize(
    ("rows", "messages"),
    [
        pytest.param(VIRTUAL, ["exactly one profile of class agent, not 0: []"], id="no agent"),
        pytest.param(
            [K3S, replace(K3S, backend="k0s"), PODMAN],
            ["exactly one profile of class agent, not 2: ['k0s', 'k3s']"],
            id="two agents",
        ),
        pytest.param([K3S], ["at least one profile of class virtual"], id="no virtual"),
        pytest.param(
            [],
            ["exactly one profile of class agent, not 0: []", "at least one profile of class virtual"],
            id="none at all",
        ),
    ],
)
def test_R5_a_set_has_exactly_one_agent_and_at_least_one_virtual_backend(
    rows: list[RuntimeProfile], messages: list[str]
) -> None:
    breaches = judge_set(rows)
    assert [breach.message for breach in breaches] == messages
    assert {breach.rule for breach in breaches} == {"R5"}


def test_a_set_is_judged_row_by_row_and_then_as_a_whole() -> None:
    broken = [without(row, Capability.POD_LIFECYCLE) for row in VIRTUAL]
    assert [breach.rule for breach in judge_set(iter(broken))] == ["R2", "R2", "R2", "R5"]


# --- built nodes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", VIRTUAL, ids=lambda row: row.backend)
def test_R10_R13_a_virtual_node_built_on_laptop_is_what_its_profile_promises(row: RuntimeProfile) -> None:
    built = facts(virtual(row.backend, "laptop"))
    assert built.name == f"laptop-{row.backend}"
    assert judge_built_node(built, row, "laptop") == []


def test_R10_R12_an_agent_built_on_laptop_is_what_its_profile_promises() -> None:
    assert judge_built_node(facts(agent("laptop-abc123", "laptop")), K3S, "laptop") == []
    assert judge_built_node(facts(agent("laptop", "laptop")), K3S, "laptop") == []


def test_R10_the_names_of_two_backends_on_one_host_differ() -> None:
    assert len({node_name("laptop", backend) for backend in MATRIX}) == len(MATRIX)


@pytest.mark.parametrize("name", ["laptop", "laptop-vk-native", "desk-vk-podman", "laptop-vk-podman-2"])
def test_R10_a_virtual_node_of_another_name_is_refused(name: str) -> None:
    breaches = judge_built_node(facts(virtual(name=name)), PODMAN, "laptop")
    assert found(breaches) == [("R10", "metadata.name")]
    assert breaches[0].message == f"must be laptop-vk-podman, not {name}"


@pytest.mark.parametrize("name", ["laptops", "laptop2-abc123", "pi-abc123", ""])
def test_R10_an_agent_whose_name_does_not_begin_with_its_base_is_refused(name: str) -> None:
    assert found(judge_built_node(facts(agent(name, "laptop")), K3S, "laptop")) == [("R10", "metadata.name")]


@pytest.mark.parametrize("key", [RUNTIME_LABEL, BACKEND_LABEL])
@pytest.mark.parametrize("value", [None, "", "other"])
def test_R10_a_built_node_without_its_labels_is_refused(key: str, value: str | None) -> None:
    expected = [("R10", f"metadata.labels[{key}]")]
    assert found(judge_built_node(facts(virtual(labels={key: value})), PODMAN, "laptop")) == expected
    assert found(judge_built_node(facts(agent(labels={key: value})), K3S, "pi")) == expected


@pytest.mark.parametrize(
    "taints",
    [
        pytest.param(None, id="absent"),
        pytest.param([], id="empty"),
        pytest.param([{**TAINT, "effect": "NoExecute"}], id="another effect"),
        pytest.param([{**TAINT, "key": "virtual-kubelet.io/Provider"}], id="another key"),
    ],
)
def test_R10_a_virtual_node_without_the_provider_taint_is_refused(taints: list[Any] | None) -> None:
    (breach,) = judge_built_node(facts(virtual(taints=taints)), PODMAN, "laptop")
    assert (breach.rule, breach.path) == ("R10", "spec.taints")
    assert breach.message == "must hold virtual-kubelet.io/provider"


def test_R10_R12_an_agent_with_the_provider_taint_is_refused() -> None:
    breaches = judge_built_node(facts(agent(taints=[TAINT])), K3S, "pi")
    assert found(breaches) == [("R10", "spec.taints"), ("R12", "metadata")]


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": {"type": "virtual-kubelet"}},
        {"annotations": {"virtual-kubelet.io/last-applied-object-meta": "{}"}},
    ],
    ids=["label", "annotation"],
)
def test_R12_an_agent_that_is_taken_for_virtual_is_refused(changes: dict[str, Any]) -> None:
    assert found(judge_built_node(facts(agent(**changes)), K3S, "pi")) == [("R12", "metadata")]


@pytest.mark.parametrize(
    "changes",
    [
        {"provider_id": "k3s://laptop"},
        {"kubelet_version": "v1.37.2+k3s1"},
        {"annotations": {"k3s.io/node-args": '["agent"]'}},
    ],
    ids=["provider ID", "version", "node-args"],
)
def test_R13_a_virtual_node_that_is_taken_for_an_agent_is_refused(changes: dict[str, Any]) -> None:
    breaches = judge_built_node(facts(virtual(**changes)), PODMAN, "laptop")
    assert found(breaches) == [("R13", "metadata")]
    assert breaches[0].message.startswith("a node of class virtual shows: ")


# --- which profiles act ------------------------------------------------------------------------------------


def seen_at(name: str, created: str | None, **spec: Any) -> ProfileObject:
    usual = AGENT_SPEC if spec.pop("agent", False) else VIRTUAL_SPEC
    return profile_object(name, {**usual, **spec}, creationTimestamp=created)


def test_the_four_seeded_profiles_are_all_accepted() -> None:
    judged = catalogue()
    assert sorted(judged.accepted) == sorted(MATRIX)
    assert judged.refusals == {}


def test_B22_of_two_agent_profiles_the_older_stays_accepted_and_the_younger_is_told_why() -> None:
    judged = catalogue(seen_at("k0s", "2026-07-09T00:00:00Z", agent=True))
    assert "k3s" in judged.accepted
    assert "k0s" not in judged.accepted
    assert "k0s" in judged.profiles
    refusal = judged.refusals["k0s"]
    assert refusal.reason is Reason.ANOTHER_AGENT_PROFILE
    assert refusal.message == "k3s is the older profile of class agent; there is exactly one (R5)"


def test_B22_the_older_profile_acts_whatever_it_is_called() -> None:
    judged = catalogue(seen_at("k0s", "2026-06-30T00:00:00Z", agent=True))
    assert "k0s" in judged.accepted
    assert judged.refusals["k3s"].reason is Reason.ANOTHER_AGENT_PROFILE


@pytest.mark.parametrize(
    ("created", "acts"),
    [
        pytest.param([BORN, "2026-07-01T08:00:00Z", "2026-07-01T10:00:00Z"], "b", id="by creation"),
        pytest.param([BORN, BORN, BORN], "a", id="by name within one second"),
        pytest.param([None, None, BORN], "c", id="one without a time is the youngest"),
        pytest.param([None, None, None], "a", id="by name without times"),
        pytest.param(["2026-07-01T10:00:00+02:00", BORN, BORN], "a", id="by time, not by its text"),
    ],
)
def test_B22_no_order_of_the_input_makes_the_accepted_agent_flap(created: list[str | None], acts: str) -> None:
    objects = [seen_at(name, time, agent=True) for name, time in zip("abc", created, strict=True)]
    for order in permutations([*objects, seen_at("vk-x", BORN)]):
        judged = accept(order)
        assert sorted(judged.accepted) == [acts, "vk-x"]
        assert sorted(judged.refusals) == sorted({*"abc"} - {acts})


def test_without_times_as_in_files_the_built_in_agent_counts_as_the_older() -> None:
    judged = accept([seen_at("a-agent", None, agent=True), seen_at("k3s", None, agent=True)])
    assert list(judged.accepted) == ["k3s"]


def test_an_agent_profile_that_breaks_a_rule_does_not_keep_a_good_one_out() -> None:
    judged = accept([seen_at("k0s", BORN, agent=True, providerTaint=True), seen_at("k3s", None, agent=True)])
    assert list(judged.accepted) == ["k3s"]
    assert judged.refusals["k0s"].reason is Reason.INVALID


def test_a_profile_that_breaks_its_class_s_rules_is_known_but_does_not_act() -> None:
    judged = catalogue(vk_podman={"providerTaint": False, "subjectToNodeGC": True})
    assert "vk-podman" in judged.profiles
    assert "vk-podman" not in judged.accepted
    refusal = judged.refusals["vk-podman"]
    assert refusal.reason is Reason.INVALID
    assert refusal.message == (
        "spec.providerTaint: class virtual needs the provider taint (R4); "
        "spec.subjectToNodeGC: class virtual is subject to no node reconciler: subjectToNodeGC (R4)"
    )


def test_an_unreadable_profile_is_refused_with_its_path_and_is_not_known() -> None:
    judged = catalogue(vk_podman={"class": "sandbox"})
    assert "vk-podman" not in judged.profiles
    assert judged.refusals["vk-podman"].reason is Reason.INVALID
    assert judged.refusals["vk-podman"].message.startswith("spec.class: ")


def test_a_fourth_virtual_backend_is_one_more_object_and_no_code() -> None:
    assert "vk-wasm" in catalogue(profile_object("vk-wasm", VIRTUAL_SPEC)).accepted


def test_no_profiles_at_all_are_an_empty_catalogue() -> None:
    judged = accept([])
    assert (judged.profiles, judged.refusals, judged.accepted) == ({}, {}, {})
