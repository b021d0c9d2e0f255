import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from builders import START, VIRTUAL_SPEC, agent, at, bare, catalogue, facts, profile_object, ready, virtual

from clusterconform.contract.memory import EMPTY
from clusterconform.contract.names import BACKEND_LABEL, RUNTIME_LABEL
from clusterconform.contract.profile import ProfileObject
from clusterconform.contract.verdicts import Finding, Reason
from clusterconform.decisions.planning import decide
from clusterconform.decisions.summary import SAMPLES, Judged, first_reason, node_counts, status_of

Json = dict[str, Any]

PODMAN = profile_object("vk-podman", VIRTUAL_SPEC, generation=3)
NOW = "2026-08-01T12:00:00Z"


def judged(raw: Json, failure: str = "") -> Judged:
    node = facts(raw)
    return Judged(node=node, verdict=decide(node, catalogue(), EMPTY, at(0)).verdict, failure=failure)


def status(
    nodes: Sequence[Judged] = (),
    *,
    profile: ProfileObject = PODMAN,
    refusal: Finding | None = None,
    complete: bool = True,
) -> Json:
    return dict(status_of(profile, refusal, nodes, complete=complete, now=START))


def conditions(shown: Json) -> list[tuple[str, str, str]]:
    return [(seen["type"], seen["status"], seen["reason"]) for seen in shown["conditions"]]


def test_a_profile_whose_nodes_all_conform_is_ready() -> None:
    shown = status([judged(virtual()), judged(virtual(host="desk"))])
    assert conditions(shown) == [
        ("Accepted", "True", "Accepted"),
        ("Conformant", "True", "Conforms"),
        ("Ready", "True", "Conforms"),
    ]
    assert (shown["observedGeneration"], "samples" in shown, shown["truncated"]) == (3, False, False)
    assert shown["servesKubeletStreaming"] is False


def test_a_profile_without_nodes_is_ready_and_says_so() -> None:
    assert conditions(status())[1:] == [("Conformant", "True", "NoNodes"), ("Ready", "True", "NoNodes")]


def test_one_node_amiss_makes_the_profile_not_conformant_and_is_named_with_its_reason() -> None:
    shown = status([judged(virtual()), judged(virtual(host="desk", port=10250))])
    assert conditions(shown)[1:] == [
        ("Conformant", "False", "NodesNotConformant"),
        ("Ready", "False", "NodesNotConformant"),
    ]
    assert shown["conditions"][1]["message"] == "1 of 2 nodes do not conform: KubeletEndpointAdvertised"
    assert shown["samples"] == [
        {
            "name": "desk-vk-podman",
            "reason": "KubeletEndpointAdvertised",
            "message": "a virtual node advertises kubelet port 10250",
        }
    ]


def test_a_refused_profile_is_neither_accepted_nor_ready_and_both_say_why() -> None:
    shown = status([judged(virtual())], refusal=Finding(Reason.INVALID, "why"))
    assert conditions(shown) == [
        ("Accepted", "False", "Invalid"),
        ("Conformant", "True", "Conforms"),
        ("Ready", "False", "Invalid"),
    ]


def test_a_profile_that_cannot_be_read_shows_no_capabilities() -> None:
    unreadable = profile_object("vk-podman", {**VIRTUAL_SPEC, "capabilities": ["flying"]})
    shown = status(profile=unreadable, refusal=Finding(Reason.INVALID, "why"))
    assert "servesKubeletStreaming" not in shown


@pytest.mark.parametrize("nodes", [[], [judged(virtual())], [judged(virtual(port=1))]], ids=["no", "good", "bad"])
def test_B04_before_all_nodes_are_known_nothing_is_concluded(nodes: list[Judged]) -> None:
    assert conditions(status(nodes, complete=False))[1:] == [
        ("Conformant", "Unknown", "EvidenceIncomplete"),
        ("Ready", "Unknown", "EvidenceIncomplete"),
    ]


def test_failing_writes_keep_a_profile_from_being_ready_before_anything_unknown_does() -> None:
    shown = status([judged(virtual(), failure="403: forbidden")], complete=False)
    assert conditions(shown)[1:] == [
        ("Conformant", "Unknown", "EvidenceIncomplete"),
        ("Ready", "False", "WritesFailing"),
    ]
    assert "laptop-vk-podman: 403: forbidden" in shown["conditions"][2]["message"]
    assert shown["samples"][0]["reason"] == "WritesFailing"


def test_B46_a_failure_is_shown_as_long_as_it_is_told_and_no_longer() -> None:
    assert status([judged(virtual(), failure="no")])["samples"]
    assert "samples" not in status([judged(virtual())])


def test_nodes_are_counted_by_what_is_amiss_with_them() -> None:
    shown = status(
        [
            judged(virtual()),
            judged(virtual(taints=[])),
            judged(virtual(provider_id="k3s://n")),
            judged(virtual(labels={BACKEND_LABEL: None})),
            replace(judged(virtual()), node=facts({**virtual(), "status": {"conditions": [ready("Unknown")]}})),
            replace(judged(virtual()), node=facts({**virtual(), "status": {"conditions": []}})),
        ]
    )
    assert shown["nodes"] == {
        "total": 5,
        "conformant": 3,
        "drifted": 1,
        "conflicting": 1,
        "contested": 0,
        "notReady": 2,
        "unidentified": 1,
    }


def test_a_contested_node_is_counted_as_contested() -> None:
    node = judged(virtual())
    contested = replace(node, verdict=replace(node.verdict, contested=("label:a",)))
    assert status([contested])["nodes"]["contested"] == 1


def test_B44_12000_nodes_of_253_characters_make_a_small_status_with_right_counts() -> None:
    suffix = "-vk-podman"
    template = judged(virtual(port=10250))
    names = [f"{number:05}".ljust(253 - len(suffix), "x") + suffix for number in range(12_000)]
    nodes = [replace(template, node=replace(template.node, name=name)) for name in reversed(names)]  # type: ignore[arg-type]
    shown = status(nodes)
    assert len(json.dumps(shown)) < 32_000
    assert (shown["nodes"]["total"], shown["nodes"]["drifted"]) == (12_000, 12_000)
    assert [sample["name"] for sample in shown["samples"]] == names[:SAMPLES]
    assert shown["truncated"]


def test_exactly_as_many_nodes_as_samples_are_not_truncated() -> None:
    nodes = [judged(virtual(host=f"h{number:02}", port=1)) for number in range(SAMPLES)]
    shown = status(nodes)
    assert (len(shown["samples"]), shown["truncated"]) == (SAMPLES, False)
    assert SAMPLES == 20


def test_a_long_message_is_cut() -> None:
    shown = status([judged(virtual(), failure="x" * 5000)])
    assert len(shown["samples"][0]["message"]) == 512
    assert len(shown["conditions"][2]["message"]) == 512


def test_B47_a_first_condition_transitions_now_and_afterwards_only_with_its_status() -> None:
    first = status([judged(virtual())])
    assert {seen["lastTransitionTime"] for seen in first["conditions"]} == {NOW}
    days = ["2026-07-01T00:00:00Z", "2026-07-02T00:00:00Z", "2026-07-03T00:00:00Z"]
    shown = [{**seen, "lastTransitionTime": day} for seen, day in zip(first["conditions"], days, strict=True)]
    for entries in (shown, shown[::-1]):
        known = replace(PODMAN, status={"conditions": entries})
        same, turned = status([judged(virtual())], profile=known), status([judged(virtual(port=1))], profile=known)
        assert [seen["lastTransitionTime"] for seen in same["conditions"]] == days
        assert [seen["lastTransitionTime"] for seen in turned["conditions"]] == [days[0], NOW, NOW]


@pytest.mark.parametrize(
    "shown",
    [{}, {"conditions": None}, {"conditions": []}, {"conditions": [None, "x", {}, {"type": "Ready"}]}],
    ids=repr,
)
def test_an_odd_status_on_the_server_is_as_good_as_none(shown: Json) -> None:
    assert status(profile=replace(PODMAN, status=shown)) == status()


def test_the_same_input_gives_the_same_status_whatever_the_order() -> None:
    nodes = [judged(virtual(host=host, port=1)) for host in ("c", "a", "b")]
    assert status(nodes)["samples"] == status(nodes[::-1])["samples"]


def test_nodes_are_counted_by_profile_and_first_reason() -> None:
    raws = [
        virtual(),
        virtual(host="desk"),
        virtual(port=1, taints=[]),
        agent(),
        bare("n"),
        virtual("vk-docker"),
    ]
    unlabelled = agent(labels={BACKEND_LABEL: None})
    verdicts = [judged(raw).verdict for raw in [*raws, unlabelled]]
    assert node_counts(verdicts) == {
        ("vk-podman", "Conforms"): 2,
        ("vk-podman", "KubeletEndpointAdvertised"): 1,
        ("k3s", "Conforms"): 1,
        ("", "Unidentified"): 2,
        ("", "UnknownBackend"): 1,
    }


def test_the_first_reason_passes_over_advice() -> None:
    assert first_reason(judged(virtual(name="vk-0")).verdict) is Reason.CONFORMS
    odd = virtual(name="vk-0", labels={RUNTIME_LABEL: None})
    assert first_reason(judged(odd).verdict) is Reason.RUNTIME_LABEL_DRIFTED
