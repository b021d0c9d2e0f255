import json
from typing import Any

import pytest
from builders import (
    TAINT,
    VIRTUAL_SPEC,
    agent,
    bare,
    catalogue,
    conformant,
    facts,
    marks,
    profile,
    profile_object,
    virtual,
)

from clusterconform.contract.facts import NodeFacts
from clusterconform.contract.matrix import MATRIX
from clusterconform.contract.names import BACKEND_LABEL, HOST_LABEL, NODE_ARGS_ANNOTATION
from clusterconform.contract.plan import PROVIDER_TAINT_MARK, RUNTIME_MARK
from clusterconform.contract.verdicts import (
    AGENT_EVIDENCE,
    Catalogue,
    Evidence,
    Identity,
    IdentityKind,
    Reason,
)
from clusterconform.decisions.identity import classify, evidence_of, host_of, node_args

Json = dict[str, Any]

K3S, PODMAN = MATRIX["k3s"], MATRIX["vk-podman"]
BUILT_IN = catalogue()
ADOPTING = catalogue(k3s={"adopt": "ByEvidence"}, vk_podman={"adopt": "ByEvidence"})

# Each kind of evidence, alone, on a node that says nothing else.
ALONE: dict[Evidence, Json] = {
    Evidence.NODE_ARGS: bare("n", annotations={NODE_ARGS_ANNOTATION: '["agent","--debug"]'}),
    Evidence.PROVIDER_ID: bare("n", provider_id="k3s://n"),
    Evidence.KUBELET_VERSION: bare("n", kubelet_version="v1.37.2+k3s1"),
    Evidence.TYPE_LABEL: bare("n", labels={"type": "virtual-kubelet"}),
    Evidence.ANNOTATIONS: bare("n", annotations={"virtual-kubelet.io/last-applied-object-meta": ""}),
    Evidence.PROVIDER_TAINT: bare("n", taints=[{**TAINT, "value": "azure"}]),
    Evidence.NAME_SUFFIX: bare("laptop-vk-podman"),
}
OF_AGENT = sorted(AGENT_EVIDENCE)
OF_VIRTUAL = sorted(set(Evidence) - AGENT_EVIDENCE)


def judge(raw: Json, profiles: Catalogue = BUILT_IN) -> Identity:
    return classify(facts(raw), profiles)


def seen_on(raw: Json) -> frozenset[Evidence]:
    return evidence_of(facts(raw), BUILT_IN.profiles.values())


def claiming(backend: str, raw: Json) -> Json:
    metadata = raw["metadata"]
    return {**raw, "metadata": {**metadata, "labels": {**metadata["labels"], BACKEND_LABEL: backend}}}


def with_args(*words: object) -> NodeFacts:
    return facts(agent(annotations={NODE_ARGS_ANNOTATION: json.dumps(words)}))


# --- the claim ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("raw", [agent(), bare("n", labels={BACKEND_LABEL: "k3s"})], ids=["usual", "bare"])
def test_rule_1_a_claim_that_names_the_agent_s_profile_makes_the_node_managed_by_it(raw: Json) -> None:
    identity = judge(raw)
    assert (identity.kind, identity.profile, identity.finding) == (IdentityKind.MANAGED, K3S, None)


@pytest.mark.parametrize("backend", [backend for backend in MATRIX if backend != "k3s"])
def test_rule_1_a_claim_that_names_a_virtual_profile_makes_the_node_managed_by_it(backend: str) -> None:
    for raw in (virtual(backend), bare("n", labels={BACKEND_LABEL: backend})):
        identity = judge(raw)
        assert (identity.kind, identity.profile) == (IdentityKind.MANAGED, MATRIX[backend])


def test_rule_1_a_wrong_runtime_label_beside_a_claim_is_no_conflict() -> None:
    raw = agent(labels={"outpost.dhnt.io/runtime": "virtual"})
    assert judge(raw).kind is IdentityKind.MANAGED


def test_rule_1_a_claim_of_a_profile_that_is_not_accepted_says_so() -> None:
    identity = judge(virtual(), catalogue(vk_podman={"providerTaint": False}))
    assert identity.kind is IdentityKind.MANAGED
    assert identity.finding is not None
    assert identity.finding.reason is Reason.PROFILE_NOT_ACCEPTED


@pytest.mark.parametrize("kind", OF_VIRTUAL)
def test_rule_2_any_virtual_evidence_contradicts_the_claim_of_an_agent(kind: Evidence) -> None:
    identity = judge(claiming("k3s", ALONE[kind]))
    assert (identity.kind, identity.profile) == (IdentityKind.CONFLICTING, K3S)
    assert identity.finding is not None
    assert identity.finding.reason is Reason.IDENTITY_CONFLICT
    assert identity.finding.message == f"claims backend k3s of class agent, but: {kind}"


@pytest.mark.parametrize("kind", OF_AGENT)
def test_rule_2_any_agent_evidence_contradicts_the_claim_of_a_virtual_backend(kind: Evidence) -> None:
    identity = judge(claiming("vk-podman", ALONE[kind]))
    assert (identity.kind, identity.profile) == (IdentityKind.CONFLICTING, PODMAN)
    assert identity.finding is not None
    assert identity.finding.message == f"claims backend vk-podman of class virtual, but: {kind}"


def test_rule_2_the_suffix_of_another_virtual_backend_is_no_contradiction() -> None:
    assert judge(virtual("vk-podman", name="laptop-vk-native")).kind is IdentityKind.MANAGED


def test_rule_2_a_contradiction_is_found_whether_or_not_the_profile_is_accepted() -> None:
    refused = catalogue(k3s={"subjectToNodeGC": False})
    assert judge(claiming("k3s", ALONE[Evidence.TYPE_LABEL]), refused).kind is IdentityKind.CONFLICTING


@pytest.mark.parametrize("claim", ["vk-docker", "K3S", "agent", " ", "virtual"])
def test_rule_3_a_claim_that_names_no_profile_is_an_unknown_backend(claim: str) -> None:
    identity = judge(agent(labels={BACKEND_LABEL: claim}))
    assert (identity.kind, identity.profile) == (IdentityKind.UNKNOWN_BACKEND, None)
    assert identity.finding is not None
    assert identity.finding.reason is Reason.UNKNOWN_BACKEND
    assert identity.finding.message == f"no RuntimeProfile is named {claim}"


def test_rule_3_a_claim_of_a_profile_that_cannot_be_read_is_not_called_unknown() -> None:
    identity = judge(virtual(), catalogue(vk_podman={"capabilities": ["flying"]}))
    assert identity.kind is IdentityKind.UNKNOWN_BACKEND
    assert identity.finding is not None
    assert identity.finding.reason is Reason.PROFILE_NOT_ACCEPTED


# --- no claim ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("claim", [None, ""], ids=["absent", "empty"])
@pytest.mark.parametrize("kind", OF_AGENT)
def test_rule_4_with_our_condition_any_agent_evidence_gives_the_backend_back(
    kind: Evidence, claim: str | None
) -> None:
    raw = ALONE[kind] if claim is None else claiming(claim, ALONE[kind])
    raw = {**raw, "status": {**raw["status"], "conditions": [conformant()]}}
    assert (judge(raw).kind, judge(raw).profile) == (IdentityKind.MANAGED, K3S)


def test_rule_4_with_our_condition_the_name_s_suffix_gives_a_virtual_backend_back() -> None:
    for backend in ("vk-podman", "vk-native", "vk-ollama"):
        identity = judge(virtual(backend, labels={BACKEND_LABEL: None}, conditions=[conformant()]))
        assert (identity.kind, identity.profile) == (IdentityKind.MANAGED, MATRIX[backend])


@pytest.mark.parametrize("status", ["True", "False", "Unknown"])
def test_rule_4_our_condition_counts_whatever_it_reads(status: str) -> None:
    raw = agent(labels={BACKEND_LABEL: None}, conditions=[conformant(status)])
    assert judge(raw).kind is IdentityKind.MANAGED


@pytest.mark.parametrize("raw", [agent, virtual])
def test_rule_4_without_our_condition_the_evidence_alone_gives_nothing_back(raw: Any) -> None:
    identity = judge(raw(labels={BACKEND_LABEL: None}))
    assert identity.kind is IdentityKind.UNIDENTIFIED
    assert identity.finding is not None
    assert identity.finding.reason is Reason.UNIDENTIFIED
    named = "k3s" if raw is agent else "vk-podman"
    assert identity.finding.message == f"no label {BACKEND_LABEL}; its evidence names {named}"


@pytest.mark.parametrize("kind", sorted(set(OF_VIRTUAL) - {Evidence.NAME_SUFFIX}))
def test_rule_4_virtual_evidence_without_a_suffix_names_none_of_several_backends(kind: Evidence) -> None:
    identity = judge({**ALONE[kind], "status": {"conditions": [conformant()]}})
    assert (identity.kind, identity.profile) == (IdentityKind.UNIDENTIFIED, None)
    assert identity.finding is not None
    assert identity.finding.message == f"no label {BACKEND_LABEL}"


def test_rule_4_virtual_evidence_names_the_only_virtual_backend() -> None:
    only = catalogue(
        vk_native={"providerTaint": False},
        vk_ollama={"providerTaint": False},
        vk_podman={"adopt": "ByEvidence"},
    )
    identity = judge(ALONE[Evidence.TYPE_LABEL], only)
    assert (identity.kind, identity.profile and identity.profile.backend) == (
        IdentityKind.MANAGED,
        "vk-podman",
    )


def test_rule_4_a_name_that_ends_with_two_suffixes_names_none() -> None:
    both = catalogue(profile_object("podman", VIRTUAL_SPEC))
    identity = judge(virtual(labels={BACKEND_LABEL: None}, conditions=[conformant()]), both)
    assert (identity.kind, identity.profile) == (IdentityKind.UNIDENTIFIED, None)


@pytest.mark.parametrize(
    ("raw", "backend"),
    [(agent(labels={BACKEND_LABEL: None}), "k3s"), (virtual(labels={BACKEND_LABEL: None}), "vk-podman")],
    ids=["agent", "virtual"],
)
def test_rule_4_a_profile_that_adopts_by_evidence_takes_an_unlabelled_node_in(raw: Json, backend: str) -> None:
    identity = judge(raw, ADOPTING)
    assert (identity.kind, identity.profile) == (IdentityKind.MANAGED, ADOPTING.profiles[backend])


def test_rule_4_a_profile_that_adopts_takes_in_only_its_own() -> None:
    assert judge(virtual("vk-native", labels={BACKEND_LABEL: None}), ADOPTING).kind is IdentityKind.UNIDENTIFIED
    assert judge(bare("n"), ADOPTING).kind is IdentityKind.UNIDENTIFIED


def test_rule_4_a_profile_that_is_not_accepted_gives_nothing_back() -> None:
    refused = catalogue(k3s={"adopt": "ByEvidence", "subjectToNodeGC": False})
    identity = judge(agent(labels={BACKEND_LABEL: None}, conditions=[conformant()]), refused)
    assert (identity.kind, identity.profile) == (IdentityKind.UNIDENTIFIED, None)


def test_B09_an_agent_seconds_old_and_without_labels_is_unidentified() -> None:
    raw = bare("pi-4c7adeb6", provider_id="k3s://pi-4c7adeb6")
    assert judge(raw).kind is IdentityKind.UNIDENTIFIED


def test_B102_an_empty_or_null_claim_is_no_claim_and_matches_no_profile() -> None:
    for value in ("", None):
        raw = bare("n")
        raw["metadata"]["labels"][BACKEND_LABEL] = value
        assert judge(raw).kind is IdentityKind.UNIDENTIFIED


def test_B102_a_profile_with_an_empty_suffix_is_not_the_profile_of_every_node() -> None:
    lax = profile("vk-lax", nodeNameSuffix="")
    assert evidence_of(facts(bare("n")), [lax]) == frozenset()
    assert host_of(facts(bare("n")), lax) is None


def test_an_agent_profile_s_suffix_is_no_virtual_evidence() -> None:
    odd = profile("k3s", nodeNameSuffix="-agent")
    assert evidence_of(facts(bare("pi-agent")), [odd]) == frozenset()


def test_with_no_profiles_at_all_every_claim_is_unknown_and_every_other_node_unidentified() -> None:
    nothing = Catalogue(profiles={}, refusals={})
    assert judge(agent(), nothing).kind is IdentityKind.UNKNOWN_BACKEND
    assert judge(agent(labels={BACKEND_LABEL: None}), nothing).kind is IdentityKind.UNIDENTIFIED


# --- our own marks -----------------------------------------------------------------------------------------


def test_rule_5_a_taint_that_our_annotation_lists_is_no_evidence() -> None:
    ours = marks(PROVIDER_TAINT_MARK)
    assert Evidence.PROVIDER_TAINT not in seen_on(bare("n", taints=[TAINT], annotations=ours))
    assert Evidence.PROVIDER_TAINT in seen_on(bare("n", taints=[TAINT], annotations=marks(RUNTIME_MARK)))


def test_rule_5_a_node_labelled_by_mistake_is_healed_by_correcting_the_label() -> None:
    mislabelled = agent(
        labels={BACKEND_LABEL: "vk-podman"},
        annotations=marks(PROVIDER_TAINT_MARK) | {NODE_ARGS_ANNOTATION: None},
        taints=[TAINT],
        provider_id=None,
        kubelet_version="v1.37.2",
    )
    assert judge(mislabelled).kind is IdentityKind.MANAGED
    assert judge(claiming("k3s", mislabelled)).kind is IdentityKind.MANAGED


def test_rule_5_B69_a_provider_taint_of_another_effect_is_evidence_beside_ours() -> None:
    foreign = {**TAINT, "effect": "NoExecute"}
    raw = bare("n", taints=[TAINT, foreign], annotations=marks(PROVIDER_TAINT_MARK))
    assert Evidence.PROVIDER_TAINT in seen_on(raw)


@pytest.mark.parametrize("agent_kind", OF_AGENT)
@pytest.mark.parametrize("virtual_kind", OF_VIRTUAL)
def test_rule_6_evidence_of_both_classes_names_no_profile_and_contradicts_either_claim(
    agent_kind: Evidence, virtual_kind: Evidence
) -> None:
    one, other = ALONE[agent_kind], ALONE[virtual_kind]
    raw = {
        "metadata": {
            **other["metadata"],
            "labels": {**one["metadata"]["labels"], **other["metadata"]["labels"]},
            "annotations": {**one["metadata"]["annotations"], **other["metadata"]["annotations"]},
        },
        "spec": {**one["spec"], **other["spec"]},
        "status": {**one["status"], "conditions": [conformant()]},
    }
    assert seen_on(raw) == {agent_kind, virtual_kind}
    assert (judge(raw, ADOPTING).kind, judge(raw).profile) == (IdentityKind.UNIDENTIFIED, None)
    for backend in ("k3s", "vk-podman"):
        assert judge(claiming(backend, raw)).kind is IdentityKind.CONFLICTING


# --- evidence ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(Evidence))
def test_each_kind_of_evidence_is_seen_alone(kind: Evidence) -> None:
    assert seen_on(ALONE[kind]) == {kind}


def test_a_node_that_says_nothing_shows_no_evidence() -> None:
    assert seen_on(bare("n")) == frozenset()
    assert seen_on({}) == frozenset()


def test_our_own_labels_are_no_evidence() -> None:
    raw = bare(
        "n",
        labels={"outpost.dhnt.io/runtime": "virtual", BACKEND_LABEL: "vk-podman", HOST_LABEL: "n"},
    )
    assert seen_on(raw) == frozenset()


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(bare("n", provider_id="aws:///i-1"), id="another provider"),
        pytest.param(bare("n", provider_id="xk3s://n"), id="the prefix is not at the start"),
        pytest.param(bare("n", kubelet_version="v1.37.2-k3s1"), id="k3s without a plus"),
        pytest.param(bare("n", kubelet_version="v1.37.2+rke2r1"), id="another distribution"),
        pytest.param(bare("n", labels={"type": "virtual"}), id="another type"),
        pytest.param(bare("n", annotations={"virtual-kubelet.io": "x"}), id="annotation without a slash"),
        pytest.param(bare("n", annotations={"x.virtual-kubelet.io/a": "x"}), id="a longer domain"),
        pytest.param(bare("n", taints=[{"key": "virtual-kubelet.io/other", "effect": "NoSchedule"}]), id="key"),
        pytest.param(bare("-vk-podman"), id="nothing before the suffix"),
        pytest.param(bare("laptop-vk-podman-2"), id="the suffix is not at the end"),
        pytest.param(bare("laptop-VK-PODMAN"), id="the suffix in capitals"),
        pytest.param(bare("n", port=10250), id="B64 a kubelet port"),
    ],
)
def test_what_only_resembles_evidence_is_none(raw: Json) -> None:
    assert seen_on(raw) == frozenset()


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "agent",
        "[",
        '["agent"',
        '["agent",]',
        "['agent']",
        '{"0":"agent"}',
        '"agent"',
        "null",
        "5",
        "true",
        "NaN",
        '["agent",NaN]',
        '["agent",Infinity]',
        '["agent",-Infinity]',
        '["agent",5]',
        '["agent",["x"]]',
        '["agent",{}]',
        '["agent",true]',
        '["agent"] x',
        '["agent"]["agent"]',
        "[" * 5000 + '"agent"' + "]" * 5000,
        "[" * 200_000,
        '["agent",' + "9" * 5000 + "]",
        "\x00",
        "\ufeff[]",
    ],
    ids=lambda text: repr(text[:20]),
)
def test_node_args_that_are_no_json_array_of_strings_are_empty(text: str) -> None:
    raw = bare("n", annotations={NODE_ARGS_ANNOTATION: text})
    assert node_args(facts(raw)) == []
    assert seen_on(raw) == frozenset()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", []),
        ('["agent"]', ["agent"]),
        (' [ "agent" ]\n', ["agent"]),
        ('["agent",null,"x"]', ["agent", "", "x"]),
        ("[null]", [""]),
        ('["agent","\\u00fc"]', ["agent", "ü"]),
        ('["agent","\\ud83d\\ude00"]', ["agent", "😀"]),
        ('["agent","a\\ud800b"]', ["agent", "a\ufffdb"]),
    ],
    ids=lambda value: ascii(value)[:30],
)
def test_node_args_are_read_as_the_contract_reads_them(text: str, words: list[str]) -> None:
    assert node_args(facts(agent(annotations={NODE_ARGS_ANNOTATION: text}))) == words


@pytest.mark.parametrize(
    "words", [["server"], ["server", "agent"], [None, "agent"], ["--debug", "agent"], ["Agent"], []]
)
def test_node_args_whose_first_word_is_not_agent_are_no_evidence(words: list[str | None]) -> None:
    raw = bare("n", annotations={NODE_ARGS_ANNOTATION: json.dumps(words)})
    assert Evidence.NODE_ARGS not in seen_on(raw)


# --- the host ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "host"),
    [
        pytest.param(["agent", "--node-label", f"{HOST_LABEL}=pi"], "pi", id="split"),
        pytest.param(["agent", f"--node-label={HOST_LABEL}=pi"], "pi", id="joined"),
        pytest.param(
            ["agent", "--node-label", "a=b", f"--node-label={HOST_LABEL}=pi", "--debug"],
            "pi",
            id="among others",
        ),
        pytest.param(["agent", "--node-label", f"{HOST_LABEL}=a=b"], "a=b", id="a value with an equals sign"),
        pytest.param(["server", "--node-label", f"{HOST_LABEL}=pi"], "pi", id="a server's own label"),
        pytest.param(["agent", None, "--node-label", f"{HOST_LABEL}=pi"], "pi", id="a null element"),
        pytest.param(["agent", "--node-label", f"{HOST_LABEL}="], None, id="empty value"),
        pytest.param(["agent", "--node-label", HOST_LABEL], None, id="no value"),
        pytest.param(["agent", "--node-label"], None, id="flag without a word"),
        pytest.param(["agent", "--node-label", None], None, id="flag before null"),
        pytest.param(["agent", "--node-label", f"x{HOST_LABEL}=pi"], None, id="longer key"),
        pytest.param(["agent", "--node-label", f"{HOST_LABEL}-name=pi"], None, id="key with a tail"),
        pytest.param(["agent", f"{HOST_LABEL}=pi"], None, id="no flag"),
        pytest.param(["agent", "--node-taint", f"{HOST_LABEL}=pi"], None, id="another flag"),
        pytest.param(["agent", "--node-name", "pi"], None, id="node-name split"),
        pytest.param(["agent", "--node-name=pi"], None, id="node-name joined"),
        pytest.param(["agent", "--with-node-id"], None, id="nothing"),
        pytest.param([], None, id="empty"),
    ],
)
def test_an_agent_s_host_is_told_by_its_own_node_label_and_never_by_node_name(
    words: list[str | None], host: str | None
) -> None:
    assert host_of(with_args(*words), K3S) == host


def test_an_agent_without_readable_args_has_no_host() -> None:
    for text in (None, "", "[", '{"--node-label":"x"}'):
        assert host_of(facts(agent(annotations={NODE_ARGS_ANNOTATION: text})), K3S) is None


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("laptop-vk-podman", "laptop"),
        ("a.b-vk-podman", "a.b"),
        ("laptop-vk-podman-vk-podman", "laptop-vk-podman"),
        ("-vk-podman", None),
        ("laptop-vk-native", None),
        ("laptop", None),
        ("", None),
    ],
)
def test_a_virtual_node_s_host_is_its_name_without_the_suffix(name: str, host: str | None) -> None:
    assert host_of(facts(bare(name)), PODMAN) == host


def test_node_args_tell_nothing_of_a_virtual_node_s_host() -> None:
    raw = bare("n", annotations={NODE_ARGS_ANNOTATION: f'["agent","--node-label={HOST_LABEL}=pi"]'})
    assert host_of(facts(raw), PODMAN) is None
