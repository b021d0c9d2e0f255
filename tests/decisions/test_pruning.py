"""What ``prune`` takes off a node: what is ours, and never anything else. On an API server: tests/e2e."""

from typing import Any

import pytest
from builders import TAINT, agent, conformant, facts, marks, virtual

from clusterconform.contract.names import (
    ENDPOINT_ANNOTATION,
    K3S_EXTERNAL_IP_ANNOTATION,
    MARKS_ANNOTATION,
    RUNTIME_LABEL,
)
from clusterconform.decisions.pruning import Pruning, prune

ANNOTATION = f"/metadata/annotations/{MARKS_ANNOTATION.replace('/', '~1')}"


def pruned(raw: dict[str, Any]) -> Pruning:
    found = prune(facts(raw), raw)
    assert found is not None
    return found


def written(raw: dict[str, Any]) -> dict[str, Any]:
    """By path, what the patch puts there or takes away; what it tests is left out."""
    ops = pruned(raw).requests[0].body
    return {op["path"]: op.get("value", "removed") for op in ops if op["op"] != "test"}


@pytest.mark.parametrize("raw", [agent(), virtual(), virtual(taints=None), agent(labels={"x": "y"})])
def test_a_node_that_we_never_wrote_on_is_left_alone(raw: dict[str, Any]) -> None:
    assert prune(facts(raw), raw) is None


def test_a_condition_alone_goes_without_a_patch_of_marks() -> None:
    found = pruned(agent(conditions=[conformant()]))
    assert found.marks == ("condition",)
    (request,) = found.requests
    assert request.path == "/api/v1/nodes/pi-4c7adeb6/status"
    assert request.content_type == "application/strategic-merge-patch+json"


def test_only_listed_labels_go() -> None:
    raw = virtual(annotations=marks(f"label:{RUNTIME_LABEL}"))
    assert written(raw) == {"/metadata/labels/outpost.dhnt.io~1runtime": "removed", ANNOTATION: "removed"}


def test_of_taints_only_ours_goes_and_all_others_stay_in_order() -> None:
    others = [{"key": "a", "effect": "NoSchedule"}, {**TAINT, "effect": "NoExecute"}]
    raw = virtual(taints=[others[0], TAINT, others[1]], annotations=marks(f"taint:{TAINT['key']}"))
    assert written(raw)["/spec/taints"] == others


def test_a_taint_that_is_not_listed_stays() -> None:
    assert "/spec/taints" not in written(virtual(annotations=marks(f"label:{RUNTIME_LABEL}")))


def test_real_addresses_beside_ours_stay_in_the_annotation_of_k3s() -> None:
    path = f"/metadata/annotations/{K3S_EXTERNAL_IP_ANNOTATION.replace('/', '~1')}"
    listed = marks(f"annotation:{K3S_EXTERNAL_IP_ANNOTATION}")
    both = {**listed, K3S_EXTERNAL_IP_ANNOTATION: "127.0.7.8, 203.0.113.5"}
    assert written(agent(annotations=both))[path] == "203.0.113.5"
    alone = {**listed, K3S_EXTERNAL_IP_ANNOTATION: "127.0.7.8"}
    assert written(agent(annotations=alone))[path] == "removed"


def test_the_recorded_endpoint_is_ours_alone_and_goes_whether_listed_or_not() -> None:
    raw = agent(annotations={ENDPOINT_ANNOTATION: "127.0.7.8:21000"})
    path = "/metadata/annotations/outpost.dhnt.io~1kubelet-endpoint"
    assert written(raw) == {path: "removed"}
    assert pruned(raw).marks == (f"annotation:{ENDPOINT_ANNOTATION}",)
    raw = agent(annotations={ENDPOINT_ANNOTATION: "127.0.7.8:21000", **marks(f"label:{RUNTIME_LABEL}")})
    assert written(raw)[path] == "removed"


@pytest.mark.parametrize("mark", ["x:unknown", "label:", "nonsense"])
def test_a_mark_of_an_unknown_kind_stays_and_so_does_its_line(mark: str) -> None:
    raw = virtual(annotations=marks(f"label:{RUNTIME_LABEL}", mark))
    found = pruned(raw)
    assert found.unknown == (mark,)
    assert written(raw)[ANNOTATION] == mark


def test_everything_that_is_changed_is_tested_first() -> None:
    raw = virtual(annotations=marks(f"taint:{TAINT['key']}"))
    ops = pruned(raw).requests[0].body
    assert [(op["op"], op["path"]) for op in ops[:3]] == [
        ("test", "/metadata/uid"),
        ("test", ANNOTATION),
        ("test", "/spec/taints"),
    ]
