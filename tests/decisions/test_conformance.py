from typing import Any

import pytest
from builders import BORN, TAINT, agent, bare, facts, marks, profile, virtual

from clusterconform.contract.facts import Taint
from clusterconform.contract.matrix import MATRIX
from clusterconform.contract.names import BACKEND_LABEL, HOST_LABEL, NODE_ARGS_ANNOTATION, RUNTIME_LABEL
from clusterconform.contract.plan import BACKEND_MARK, HOST_MARK, PROVIDER_TAINT_MARK, RUNTIME_MARK
from clusterconform.contract.profile import RuntimeProfile
from clusterconform.contract.verdicts import Finding, Reason
from clusterconform.decisions.conformance import Drift, drifts_of, flaws_of

Json = dict[str, Any]

K3S, PODMAN = MATRIX["k3s"], MATRIX["vk-podman"]
KEY = TAINT["key"]
WANTED = Taint(KEY, "outpost", "NoSchedule")


def drifts(raw: Json, row: RuntimeProfile) -> list[Drift]:
    return drifts_of(facts(raw), row)


def flaws(raw: Json, row: RuntimeProfile) -> list[Reason]:
    return [flaw.reason for flaw in flaws_of(facts(raw), row)]


@pytest.mark.parametrize("backend", sorted(MATRIX))
def test_a_node_in_order_has_neither_drift_nor_flaw(backend: str) -> None:
    raw = agent() if backend == "k3s" else virtual(backend)
    assert drifts(raw, MATRIX[backend]) == []
    assert flaws(raw, MATRIX[backend]) == []


# --- labels ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        pytest.param(None, "absent", id="absent"),
        pytest.param("", "absent", id="empty"),
        pytest.param("virtual", "virtual", id="of the other class"),
        pytest.param("Agent", "Agent", id="capital"),
    ],
)
def test_rule_1_the_runtime_label_is_the_profile_s(value: str | None, shown: str) -> None:
    assert drifts(agent(labels={RUNTIME_LABEL: value}), K3S) == [
        Drift(
            mark=RUNTIME_MARK,
            finding=Finding(Reason.RUNTIME_LABEL_DRIFTED, f"{RUNTIME_LABEL} is {shown}, not agent"),
            label=(RUNTIME_LABEL, "agent"),
        )
    ]


def test_rule_1_a_null_runtime_label_counts_as_absent() -> None:
    raw = virtual()
    raw["metadata"]["labels"][RUNTIME_LABEL] = None
    (drift,) = drifts(raw, PODMAN)
    assert drift.label == (RUNTIME_LABEL, "virtual")
    assert drift.finding.message == f"{RUNTIME_LABEL} is absent, not virtual"


@pytest.mark.parametrize("value", [None, ""], ids=["absent", "empty"])
def test_rule_2_an_absent_backend_label_is_put_back(value: str | None) -> None:
    assert drifts(agent(labels={BACKEND_LABEL: value}), K3S) == [
        Drift(
            mark=BACKEND_MARK,
            finding=Finding(Reason.BACKEND_LABEL_MISSING, f"{BACKEND_LABEL} is absent, not k3s"),
            label=(BACKEND_LABEL, "k3s"),
        )
    ]


@pytest.mark.parametrize("host", ["pi", "other", "FOO_bar.example.com", "-not valid-", "x" * 300])
def test_rule_3_a_host_label_that_is_there_is_never_changed(host: str) -> None:
    for raw, row in (
        (agent(host="pi", labels={HOST_LABEL: host}), K3S),
        (virtual(labels={HOST_LABEL: host}), PODMAN),
    ):
        assert drifts(raw, row) == []
        assert Reason.HOST_UNKNOWN not in flaws(raw, row)


@pytest.mark.parametrize("value", [None, ""], ids=["absent", "empty"])
def test_rule_3_B74_an_agent_s_absent_host_label_is_derived_from_its_args(value: str | None) -> None:
    raw = agent(labels={HOST_LABEL: value})
    (drift,) = drifts(raw, K3S)
    assert (drift.mark, drift.label, drift.finding.reason) == (
        HOST_MARK,
        (HOST_LABEL, "pi"),
        Reason.HOST_LABEL_MISSING,
    )
    assert flaws(raw, K3S) == []


def test_rule_3_a_virtual_node_s_absent_host_label_is_derived_from_its_name() -> None:
    (drift,) = drifts(virtual(labels={HOST_LABEL: None}), PODMAN)
    assert (drift.mark, drift.label) == (HOST_MARK, (HOST_LABEL, "laptop"))


@pytest.mark.parametrize(
    ("raw", "row"),
    [
        pytest.param(
            agent(labels={HOST_LABEL: None}, annotations={NODE_ARGS_ANNOTATION: None}), K3S, id="no args"
        ),
        pytest.param(
            agent(labels={HOST_LABEL: None}, annotations={NODE_ARGS_ANNOTATION: '["agent","--node-name","pi"]'}),
            K3S,
            id="only a node name",
        ),
        pytest.param(virtual(labels={HOST_LABEL: None}, name="laptop"), PODMAN, id="no suffix"),
        pytest.param(virtual(labels={HOST_LABEL: None}, name="-vk-podman"), PODMAN, id="nothing but the suffix"),
    ],
)
def test_rule_3_an_absent_host_that_nothing_tells_is_reported_and_not_guessed(
    raw: Json, row: RuntimeProfile
) -> None:
    assert drifts(raw, row) == []
    assert flaws_of(facts(raw), row)[0] == Finding(
        Reason.HOST_UNKNOWN, f"{HOST_LABEL} is absent and nothing tells the host"
    )


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        pytest.param("h" * 64, "h" * 64, id="64 characters"),
        pytest.param("h" * 242, "h" * 80, id="a name of 253"),
        pytest.param("laptop-", "laptop-", id="ends with a dash"),
    ],
)
def test_rule_3_B94_a_host_that_is_no_label_value_is_reported_and_never_shortened(host: str, shown: str) -> None:
    raw = virtual(name=f"{host}-vk-podman", labels={HOST_LABEL: None})
    assert drifts(raw, PODMAN) == []
    assert flaws_of(facts(raw), PODMAN) == [
        Finding(Reason.HOST_UNKNOWN, f"{HOST_LABEL} is absent and {shown} is no label value")
    ]


def test_rule_3_B94_a_host_of_63_characters_is_a_label_value() -> None:
    (drift,) = drifts(virtual(name=f"{'h' * 63}-vk-podman", labels={HOST_LABEL: None}), PODMAN)
    assert drift.label == (HOST_LABEL, "h" * 63)


@pytest.mark.parametrize("host", ["a b", "-pi", "pi-", "pi\n", "über", "a/b", "a,b", "pi "], ids=ascii)
def test_rule_3_B97_a_host_with_invalid_characters_in_the_args_is_reported_and_not_written(host: str) -> None:
    args = f'["agent","--node-label",{_json(HOST_LABEL + "=" + host)}]'
    raw = agent(labels={HOST_LABEL: None}, annotations={NODE_ARGS_ANNOTATION: args})
    assert drifts(raw, K3S) == []
    assert flaws(raw, K3S) == [Reason.HOST_UNKNOWN]


def test_rule_3_B97_a_dotted_host_with_capitals_in_the_args_is_taken_as_it_is() -> None:
    args = f'["agent","--node-label","{HOST_LABEL}=FOO_bar.example.com"]'
    (drift,) = drifts(agent(labels={HOST_LABEL: None}, annotations={NODE_ARGS_ANNOTATION: args}), K3S)
    assert drift.label == (HOST_LABEL, "FOO_bar.example.com")


def _json(text: str) -> str:
    return '"' + text.replace("\n", "\\n") + '"'


# --- the taint ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("taints", [None, []], ids=["absent", "empty"])
def test_rule_4_B72_a_provider_taint_that_was_taken_away_is_put_back(taints: list[Json] | None) -> None:
    assert drifts(virtual(taints=taints), PODMAN) == [
        Drift(
            mark=PROVIDER_TAINT_MARK,
            finding=Finding(Reason.PROVIDER_TAINT_DRIFTED, f"taint {KEY} is absent, not =outpost"),
            taint=WANTED,
        )
    ]


def test_rule_4_B71_a_wrong_value_is_corrected_in_place_and_its_time_kept() -> None:
    old = {**TAINT, "value": "old", "timeAdded": BORN}
    (drift,) = drifts(virtual(taints=[old]), profile("vk-podman", providerTaintValue="podman"))
    assert drift.taint == Taint(KEY, "podman", "NoSchedule", BORN)
    assert drift.finding == Finding(Reason.PROVIDER_TAINT_DRIFTED, f"taint {KEY} is =old, not =podman")


def test_rule_4_B71_an_empty_value_is_a_value_like_any_other() -> None:
    lax = profile("vk-podman", providerTaintValue="")
    assert drifts(virtual(taints=[{"key": KEY, "effect": "NoSchedule"}]), lax) == []
    assert drifts(virtual(taints=[{**TAINT, "value": None}]), lax) == []
    (drift,) = drifts(virtual(), lax)
    assert drift.taint == Taint(KEY, "", "NoSchedule")


@pytest.mark.parametrize("effect", ["NoExecute", "PreferNoSchedule"])
def test_rule_4_B69_the_provider_key_with_another_effect_is_somebody_else_s(effect: str) -> None:
    foreign = {**TAINT, "effect": effect, "value": "other"}
    assert drifts(virtual(taints=[foreign, TAINT]), PODMAN) == []
    (drift,) = drifts(virtual(taints=[foreign]), PODMAN)
    assert drift.taint == WANTED


def test_rule_4_an_agent_without_the_taint_needs_none() -> None:
    assert drifts(agent(taints=[{"key": "maintenance", "effect": "NoSchedule"}]), K3S) == []


def test_rule_5_B77_a_taint_that_we_wrote_and_nobody_wants_any_more_is_taken_back() -> None:
    (drift,) = drifts(agent(taints=[TAINT], annotations=marks(PROVIDER_TAINT_MARK)), K3S)
    assert (drift.mark, drift.taint, drift.label) == (PROVIDER_TAINT_MARK, None, None)
    assert drift.finding.reason is Reason.MARK_UNWANTED


@pytest.mark.parametrize("listed", ["", RUNTIME_MARK, "taint:other", f"{PROVIDER_TAINT_MARK}x"])
def test_rule_5_B77_a_taint_that_we_did_not_write_is_never_taken_back(listed: str) -> None:
    assert drifts(agent(taints=[TAINT], annotations=marks(listed)), K3S) == []


def test_rule_5_B69_a_foreign_effect_is_not_taken_back_although_ours_is_listed() -> None:
    foreign = {**TAINT, "effect": "NoExecute"}
    assert drifts(agent(taints=[foreign], annotations=marks(PROVIDER_TAINT_MARK)), K3S) == []


# --- what only others can put right ------------------------------------------------------------------------


def test_rule_6_a_virtual_node_that_advertises_a_kubelet_port_does_not_conform() -> None:
    assert flaws_of(facts(virtual(port=10250)), PODMAN) == [
        Finding(Reason.KUBELET_ENDPOINT_ADVERTISED, "a virtual node advertises kubelet port 10250")
    ]


@pytest.mark.parametrize("port", [None, 0])
def test_rule_6_port_0_and_no_port_advertise_nothing(port: int | None) -> None:
    assert flaws(virtual(port=port), PODMAN) == []


def test_rule_6_an_agent_may_advertise_its_kubelet() -> None:
    assert flaws(agent(port=10250), K3S) == []


@pytest.mark.parametrize(("name", "host"), [("pi", "pi"), ("pizza-1", "pi"), ("foo-bar", "FOO_bar"), ("x", "pi")])
def test_rule_7_B97_an_agent_whose_name_does_not_begin_with_its_host_is_advised(name: str, host: str) -> None:
    (advice,) = flaws_of(facts(agent(name, host)), K3S)
    assert advice.reason is Reason.HOST_NAME_MISMATCH
    assert advice.message == f"the name does not begin with host {host}-, so the node is never reaped"


@pytest.mark.parametrize(("name", "host"), [("pi-1", "pi"), ("pi-zero-1", "pi"), ("pi-zero-1", "pi-zero")])
def test_rule_7_an_agent_whose_name_begins_with_its_host_is_not_advised(name: str, host: str) -> None:
    assert flaws(agent(name, host), K3S) == []


def test_rule_7_an_agent_without_a_host_label_is_not_advised_about_it() -> None:
    assert flaws(agent("other-1", labels={HOST_LABEL: None}), K3S) == []


def test_rule_7_a_virtual_node_whose_name_does_not_end_with_its_suffix_is_advised() -> None:
    assert flaws_of(facts(virtual(name="vk-0")), PODMAN) == [
        Finding(Reason.NAME_SUFFIX_MISMATCH, "the name does not end with -vk-podman")
    ]


def test_rule_7_an_agent_s_name_need_not_end_with_a_suffix() -> None:
    assert flaws(agent(), profile("k3s", nodeNameSuffix="-agent")) == []


def test_rule_7_a_virtual_node_s_host_need_not_be_in_its_name() -> None:
    assert flaws(virtual(labels={HOST_LABEL: "elsewhere"}), PODMAN) == []


# --- all at once -------------------------------------------------------------------------------------------


def test_everything_amiss_is_found_at_once_and_in_the_order_of_the_rules() -> None:
    raw = bare("laptop-vk-podman", port=10250)
    assert [drift.mark for drift in drifts(raw, PODMAN)] == [
        RUNTIME_MARK,
        BACKEND_MARK,
        HOST_MARK,
        PROVIDER_TAINT_MARK,
    ]
    raw = virtual(name="odd", port=10250, labels={HOST_LABEL: None})
    assert flaws(raw, PODMAN) == [
        Reason.HOST_UNKNOWN,
        Reason.KUBELET_ENDPOINT_ADVERTISED,
        Reason.NAME_SUFFIX_MISMATCH,
    ]


@pytest.mark.parametrize(
    ("heartbeat", "transition"),
    [("2026-08-01T12:00:00Z", BORN), ("2026-08-01T12:00:00Z", "2026-08-01T12:00:00Z")],
)
def test_a_finding_holds_nothing_that_changes_by_itself(heartbeat: str, transition: str) -> None:
    raw = virtual(port=10250, labels={HOST_LABEL: None, RUNTIME_LABEL: None}, taints=[])
    later = virtual(port=10250, labels={HOST_LABEL: None, RUNTIME_LABEL: None}, taints=[])
    later["metadata"]["resourceVersion"] = "999"
    later["status"]["conditions"][0] |= {"lastHeartbeatTime": heartbeat, "lastTransitionTime": transition}
    assert drifts(raw, PODMAN) == drifts(later, PODMAN)
    assert flaws_of(facts(raw), PODMAN) == flaws_of(facts(later), PODMAN)
