import copy
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from builders import BORN, TAINT, agent, bare, conformant, facts, node, ready, virtual

from clusterconform.contract.facts import (
    Condition,
    NodeFacts,
    NodeView,
    Taint,
    UnreadableNodeError,
    decode_node,
    decode_node_list,
    marks_listed,
    read_node,
    reduced,
    view_node,
)
from clusterconform.contract.names import (
    BACKEND_LABEL,
    HOST_LABEL,
    IDENTITY_LABELS,
    MARKS_ANNOTATION,
    NODE_ARGS_ANNOTATION,
    RUNTIME_LABEL,
)

Json = dict[str, Any]


def decoded(raw: object) -> NodeView:
    return decode_node(json.dumps(raw).encode())


def test_an_agent_is_read_whole() -> None:
    raw = agent(
        labels={"node-role.kubernetes.io/master": "true"},
        annotations={NODE_ARGS_ANNOTATION: '["agent"]', "outpost.dhnt.io/keep": "yes"},
        taints=[
            {**TAINT, "timeAdded": BORN},
            {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
        ],
        conditions=[conformant()],
    )
    born = datetime(2026, 7, 1, 9, tzinfo=UTC)
    assert facts(raw) == NodeFacts(
        name=facts(raw).name,
        uid=facts(raw).uid,
        resource_version="7",
        created_at=born,
        terminating=False,
        labels={
            RUNTIME_LABEL: "agent",
            BACKEND_LABEL: "k3s",
            HOST_LABEL: "pi",
            "node-role.kubernetes.io/master": "true",
        },
        has_labels=True,
        annotations={NODE_ARGS_ANNOTATION: '["agent"]', "outpost.dhnt.io/keep": "yes"},
        has_annotations=True,
        virtual_kubelet_annotations=False,
        provider_id="k3s://pi-4c7adeb6",
        kubelet_version="v1.37.2+k3s1",
        kubelet_port=10250,
        addresses=None,
        unschedulable=False,
        # The taint makes the node look virtual, but it claims to be an agent: its Ready transition counts.
        taints=(
            Taint("virtual-kubelet.io/provider", "outpost", "NoSchedule", BORN),
            Taint("node.kubernetes.io/unreachable", "", "NoExecute"),
        ),
        ready=Condition("True", "KubeletReady", "kubelet is posting ready status", born),
        conformant=Condition("True", "Conforms", "as it was", datetime(2026, 7, 2, 10, tzinfo=UTC)),
    )
    assert (facts(raw).name, facts(raw).uid) == ("pi-4c7adeb6", "uid-1")


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"metadata": {}},
        {"metadata": {}, "spec": None, "status": None},
        {"spec": {"taints": None, "providerID": None}, "status": {"conditions": None}},
        {"spec": {}, "status": {}},
        {"status": {"daemonEndpoints": None, "nodeInfo": None}},
        {"status": {"daemonEndpoints": {"kubeletEndpoint": None}, "nodeInfo": {"kubeletVersion": None}}},
        {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": None}}}},
        {
            "metadata": {
                "uid": None,
                "resourceVersion": None,
                "creationTimestamp": None,
                "deletionTimestamp": None,
                "labels": None,
                "annotations": None,
            }
        },
    ],
    ids=repr,
)
def test_null_and_absent_parts_are_as_good_as_empty_ones(raw: Json) -> None:
    seen = facts(raw)
    assert (seen.name, seen.uid, seen.resource_version, seen.created_at) == ("", "", "", None)
    assert (seen.labels, seen.annotations, seen.taints, seen.ready, seen.conformant) == (
        {},
        {},
        None,
        None,
        None,
    )
    assert (seen.has_labels, seen.has_annotations, seen.terminating) == (False, False, False)
    assert (seen.provider_id, seen.kubelet_version, seen.kubelet_port) == ("", "", 0)


def test_a_patch_can_tell_an_absent_map_or_list_from_an_empty_one() -> None:
    absent, empty = facts(node("n")), facts(bare("n", taints=[]))
    assert (absent.has_labels, absent.has_annotations, absent.taints) == (False, False, None)
    assert (empty.has_labels, empty.has_annotations, empty.taints) == (True, True, ())


def test_a_map_that_reduction_empties_is_still_there() -> None:
    seen = facts(node("n", labels={"color": "red"}, annotations={"color": "red"}))
    assert (seen.labels, seen.annotations) == ({}, {})
    assert (seen.has_labels, seen.has_annotations) == (True, True)


def test_null_entries_of_lists_are_passed_over() -> None:
    raw = agent(taints=[None, TAINT, None], conditions=[None, conformant()])
    raw["status"]["conditions"].insert(0, None)
    seen = facts(raw)
    assert seen.taints == (Taint("virtual-kubelet.io/provider", "outpost", "NoSchedule"),)
    assert seen.ready is not None
    assert seen.conformant is not None


@pytest.mark.parametrize(
    "image",
    [{"names": None, "sizeBytes": 1}, {"names": [None], "sizeBytes": None}, None, {"names": 5}],
    ids=repr,
)
def test_images_are_never_looked_at(image: object) -> None:
    raw = agent()
    raw["status"]["images"] = [image]
    assert facts(raw) == facts(agent())
    assert decoded(raw) == decoded(agent())


@pytest.mark.parametrize("kind", ["MCEHardwareErrors", "InterlinkConnectivity", "DrainScheduled", "", "ready"])
def test_B37_a_condition_of_a_foreign_type_is_left_out(kind: str) -> None:
    foreign = {"type": kind, "status": "Maybe", "reason": None, "weight": 5}
    assert view_node(agent(conditions=[foreign])) == view_node(agent())


def test_B54_a_condition_and_taint_of_a_route_controller_are_nothing_to_us() -> None:
    unavailable = {"key": "node.kubernetes.io/network-unavailable", "effect": "NoSchedule"}
    raw = virtual(conditions=[{"type": "NetworkUnavailable", "status": "True"}], taints=[TAINT, unavailable])
    assert facts(raw).taints == (
        Taint("virtual-kubelet.io/provider", "outpost", "NoSchedule"),
        Taint("node.kubernetes.io/network-unavailable", "", "NoSchedule"),
    )
    assert facts(raw).ready == facts(virtual()).ready


def test_of_110_labels_only_the_few_that_are_read_are_kept() -> None:
    labels = {f"example.com/label-{number}": str(number) for number in range(104)}
    roles = {f"node-role.kubernetes.io/{role}": "" for role in ("control-plane", "master")}
    raw = virtual(labels=labels | roles)
    assert len(raw["metadata"]["labels"]) == 111
    assert facts(raw).labels == {
        "type": "virtual-kubelet",
        RUNTIME_LABEL: "virtual",
        BACKEND_LABEL: "vk-podman",
        HOST_LABEL: "laptop",
        **roles,
    }


def test_B42_a_foreign_annotation_of_250_kB_is_dropped() -> None:
    big = "x" * 250_000
    view = decoded(agent(annotations={"example.com/state": big, "virtual-kubelet.io/last": big}))
    assert view.metadata.annotations is not None
    assert sum(len(value or "") for value in view.metadata.annotations.values()) < 200
    assert facts(agent(annotations={"example.com/state": big})) == facts(agent())


def test_virtual_kubelet_s_annotations_are_seen_without_their_values() -> None:
    seen = facts(virtual())
    assert seen.virtual_kubelet_annotations
    assert seen.annotations == {}
    assert not facts(agent()).virtual_kubelet_annotations


def test_a_null_label_counts_as_empty_and_its_key_as_present() -> None:
    raw = agent()
    raw["metadata"]["labels"] |= {HOST_LABEL: None, "node-role.kubernetes.io/control-plane": None}
    seen = facts(raw)
    assert seen.labels[HOST_LABEL] == ""
    assert "node-role.kubernetes.io/control-plane" in seen.labels


def test_a_null_annotation_counts_as_empty() -> None:
    raw = agent()
    raw["metadata"]["annotations"] = {NODE_ARGS_ANNOTATION: None, MARKS_ANNOTATION: None}
    assert facts(raw).annotations == {NODE_ARGS_ANNOTATION: "", MARKS_ANNOTATION: ""}
    assert marks_listed(facts(raw)) == ()


@pytest.mark.parametrize("kind", ["Ready", "RuntimeConformant"])
def test_of_two_conditions_of_one_type_the_first_decides(kind: str) -> None:
    raw = node("n")
    raw["status"]["conditions"] = [
        {"type": kind, "status": "False", "reason": "First"},
        {"type": kind, "status": "True", "reason": "Second"},
    ]
    seen = facts(raw).ready if kind == "Ready" else facts(raw).conformant
    assert seen == Condition("False", "First", "", None)


@pytest.mark.parametrize("transition", [None, "", "yesterday", "2026-01-01 00:00:00Z"], ids=repr)
def test_B34_a_transition_that_is_no_time_is_none(transition: str | None) -> None:
    raw = node("n")
    raw["status"]["conditions"] = [ready("False", lastTransitionTime=transition)]
    seen = facts(raw).ready
    assert seen is not None
    assert seen.transition is None


def test_B84_a_node_without_a_ready_condition_has_none() -> None:
    raw = agent()
    raw["status"]["conditions"] = []
    assert facts(raw).ready is None


@pytest.mark.parametrize("text", [None, ""], ids=repr)
def test_a_null_reason_or_message_counts_as_empty(text: str | None) -> None:
    seen = facts(agent(conditions=[conformant("True", text, text)])).conformant
    assert seen is not None
    assert (seen.reason, seen.message) == ("", "")


def test_an_agent_s_ready_transition_is_kept_whatever_other_taints_it_has() -> None:
    seen = facts(agent(taints=[{"key": "maintenance", "effect": "NoSchedule"}])).ready
    assert seen is not None
    assert seen.transition == datetime(2026, 7, 1, 9, tzinfo=UTC)


def _by_label(raw: Json) -> None:
    raw["metadata"]["labels"] = {"type": "virtual-kubelet"}


def _by_annotation(raw: Json) -> None:
    raw["metadata"]["annotations"] = {"virtual-kubelet.io/last-applied-object-meta": None}


def _by_taint(raw: Json) -> None:
    raw["spec"]["taints"] = [{"key": "virtual-kubelet.io/provider", "value": "any", "effect": "NoExecute"}]


@pytest.mark.parametrize("mark", [_by_label, _by_annotation, _by_taint])
def test_the_ready_transition_of_a_virtual_node_is_left_out(mark: Callable[[Json], None]) -> None:
    raw = node("n", conditions=[conformant()])
    mark(raw)
    view = decoded(raw)
    assert view.status is not None
    seen = [
        (entry.type, entry.status, entry.last_transition_time)
        for entry in view.status.conditions or []
        if entry is not None
    ]
    assert seen == [("Ready", "True", None), ("RuntimeConformant", "True", "2026-07-02T10:00:00Z")]


@pytest.mark.parametrize(
    "raw",
    [
        agent(),
        agent(conditions=[conformant(), None, {"type": "DiskPressure"}], taints=[TAINT, None]),
        virtual(),
        virtual(labels={"node-role.kubernetes.io/agent": ""}, deleted=BORN),
        bare("n"),
        node("n", taints=[]),
        {"metadata": {"name": "n"}},
        {},
    ],
)
def test_text_and_values_give_the_same_view(raw: Json) -> None:
    assert decoded(raw) == view_node(raw)


def test_a_view_is_read_from_any_buffer() -> None:
    line = json.dumps(agent()).encode()
    assert decode_node(bytearray(line)) == decode_node(memoryview(line)) == decode_node(line)


def test_viewing_does_not_change_the_object() -> None:
    raw = agent(conditions=[conformant()], annotations={"example.com/a": "b"}, taints=[TAINT])
    before = copy.deepcopy(raw)
    view_node(raw)
    assert raw == before


def test_reducing_twice_changes_nothing_more() -> None:
    once = view_node(virtual(conditions=[conformant()]))
    assert reduced(copy.deepcopy(once)) == once


# The wrong value, and where the error says it is.
WRONG = [
    ({"metadata": None}, "$.metadata"),
    ({"metadata": []}, "$.metadata"),
    ({"metadata": {"name": 5}}, "$.metadata.name"),
    ({"metadata": {"name": None}}, "$.metadata.name"),
    ({"metadata": {"labels": []}}, "$.metadata.labels"),
    ({"metadata": {"labels": {"type": 5}}}, "$.metadata.labels[...]"),
    ({"metadata": {"labels": {"foreign": True}}}, "$.metadata.labels[...]"),
    ({"metadata": {"annotations": {"a": {}}}}, "$.metadata.annotations[...]"),
    ({"metadata": {"creationTimestamp": 1767225600}}, "$.metadata.creationTimestamp"),
    ({"spec": "taints"}, "$.spec"),
    ({"spec": {"taints": {}}}, "$.spec.taints"),
    ({"spec": {"taints": [TAINT, "x"]}}, "$.spec.taints[1]"),
    ({"spec": {"taints": [{"key": None}]}}, "$.spec.taints[0].key"),
    ({"spec": {"taints": [{"value": 1}]}}, "$.spec.taints[0].value"),
    ({"spec": {"providerID": 1}}, "$.spec.providerID"),
    ({"status": {"conditions": {}}}, "$.status.conditions"),
    ({"status": {"conditions": [{"type": "Ready", "status": True}]}}, "$.status.conditions[0].status"),
    ({"status": {"nodeInfo": {"kubeletVersion": 1}}}, "$.status.nodeInfo.kubeletVersion"),
    (
        {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": "10250"}}}},
        "$.status.daemonEndpoints.kubeletEndpoint.Port",
    ),
    (
        {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 1.5}}}},
        "$.status.daemonEndpoints.kubeletEndpoint.Port",
    ),
]


@pytest.mark.parametrize(("raw", "where"), WRONG, ids=[f"{where} {raw}" for raw, where in WRONG])
@pytest.mark.parametrize("read", [decoded, view_node], ids=["text", "values"])
def test_a_wrong_type_is_unreadable_and_the_error_says_where(
    read: Callable[[Json], NodeView], raw: Json, where: str
) -> None:
    with pytest.raises(UnreadableNodeError) as unreadable:
        read(raw)
    assert str(unreadable.value).endswith(f"at `{where}`")
    assert unreadable.value.__cause__ is not None


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"5",
        b'"node"',
        b"{'metadata': {}}",
        b'{"a":NaN}',
        b'{"metadata":{"name":"\xff"}}',
    ],
    ids=repr,
)
def test_what_is_no_json_object_is_unreadable(text: bytes) -> None:
    with pytest.raises(UnreadableNodeError):
        decode_node(text)


def test_an_unreadable_node_is_a_value_error() -> None:
    assert issubclass(UnreadableNodeError, ValueError)


def _heartbeat(raw: Json) -> None:
    raw["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-08-01T12:00:10Z"


def _images(raw: Json) -> None:
    raw["status"]["images"] = [{"names": ["registry/a:1"], "sizeBytes": 5}]


def _capacity(raw: Json) -> None:
    raw["status"]["allocatable"] = {"memory": "1Gi"}


def _addresses(raw: Json) -> None:
    raw["status"]["addresses"] = [{"type": "InternalIP", "address": "10.0.0.1"}]


def _managed_fields(raw: Json) -> None:
    raw["metadata"]["managedFields"] = [{"manager": "k3s", "time": BORN, "fieldsV1": {"f:status": {}}}]


def _foreign_condition(raw: Json) -> None:
    raw["status"]["conditions"].append({"type": "DiskPressure", "status": "True"})


def _foreign_label(raw: Json) -> None:
    raw["metadata"]["labels"]["example.com/zone"] = "b"


def _foreign_annotation(raw: Json) -> None:
    raw["metadata"]["annotations"]["example.com/state"] = "b"


def _heartbeat_of_ours(raw: Json) -> None:
    raw["status"]["conditions"][1]["lastHeartbeatTime"] = "2026-08-01T12:00:10Z"


@pytest.mark.parametrize(
    "change",
    [
        _heartbeat,
        _heartbeat_of_ours,
        _images,
        _capacity,
        _managed_fields,
        _foreign_condition,
        _foreign_label,
        _foreign_annotation,
    ],
)
@pytest.mark.parametrize("build", [agent, virtual])
def test_what_no_decision_reads_changes_nothing_in_the_view(
    build: Callable[..., Json], change: Callable[[Json], None]
) -> None:
    before, after = build(conditions=[conformant()]), build(conditions=[conformant()])
    change(after)
    assert before != after
    assert decoded(before) == decoded(after)


def _virtual_kubelet_s_state(raw: Json) -> None:
    raw["metadata"]["annotations"]["virtual-kubelet.io/last-applied-node-status"] = '{"conditions":[]}'


def _ready_transition(raw: Json) -> None:
    raw["status"]["conditions"][0]["lastTransitionTime"] = "2026-08-01T12:00:10Z"


@pytest.mark.parametrize("change", [_virtual_kubelet_s_state, _ready_transition, _addresses])
def test_a_heartbeat_of_a_virtual_kubelet_changes_nothing_in_the_view(change: Callable[[Json], None]) -> None:
    after = virtual()
    change(after)
    assert decoded(virtual()) == decoded(after)


def _taint(raw: Json) -> None:
    raw["spec"]["taints"] = [{**TAINT, "value": "other"}]


def _time_added(raw: Json) -> None:
    raw["spec"]["taints"] = [{**TAINT, "timeAdded": BORN}]


def _foreign_taint(raw: Json) -> None:
    raw["spec"]["taints"] = [TAINT, {"key": "maintenance", "effect": "NoSchedule"}]


def _label(raw: Json) -> None:
    raw["metadata"]["labels"][RUNTIME_LABEL] = "other"


def _role(raw: Json) -> None:
    raw["metadata"]["labels"]["node-role.kubernetes.io/control-plane"] = ""


def _own_annotation(raw: Json) -> None:
    raw["metadata"]["annotations"][MARKS_ANNOTATION] = "label:a"


def _port(raw: Json) -> None:
    raw["status"]["daemonEndpoints"] = {"kubeletEndpoint": {"Port": 10251}}


def _version(raw: Json) -> None:
    raw["status"]["nodeInfo"]["kubeletVersion"] = "v1.38.0"


def _ready_status(raw: Json) -> None:
    raw["status"]["conditions"][0]["status"] = "Unknown"


def _own_condition(raw: Json) -> None:
    raw["status"]["conditions"].append(conformant("False"))


def _deletion(raw: Json) -> None:
    raw["metadata"]["deletionTimestamp"] = BORN


def _successor(raw: Json) -> None:
    raw["metadata"]["uid"] = "uid-2"


def _provider_id(raw: Json) -> None:
    raw["spec"]["providerID"] = "k3s://other"


@pytest.mark.parametrize(
    "change",
    [
        _taint,
        _time_added,
        _foreign_taint,
        _label,
        _role,
        _own_annotation,
        _port,
        _version,
        _ready_status,
        _own_condition,
        _deletion,
        _successor,
        _provider_id,
    ],
)
@pytest.mark.parametrize("build", [agent, virtual])
def test_what_a_decision_reads_changes_the_view(
    build: Callable[..., Json], change: Callable[[Json], None]
) -> None:
    after = build()
    change(after)
    assert decoded(build()) != decoded(after)
    assert read_node(decoded(build())) != read_node(decoded(after))


@pytest.mark.parametrize(
    ("text", "listed"),
    [
        ("", ()),
        (",,", ()),
        ("label:a", ("label:a",)),
        ("taint:b,label:a", ("label:a", "taint:b")),
        (",label:a,", ("label:a",)),
    ],
)
def test_the_marks_listed_are_sorted_and_none_is_empty(text: str, listed: tuple[str, ...]) -> None:
    assert marks_listed(facts(agent(annotations={MARKS_ANNOTATION: text}))) == listed


def test_a_node_without_our_annotation_lists_no_marks() -> None:
    assert marks_listed(facts(agent())) == ()


def test_the_three_identity_labels_are_those_of_the_contract() -> None:
    assert IDENTITY_LABELS == (
        "outpost.dhnt.io/runtime",
        "outpost.dhnt.io/backend",
        "outpost.dhnt.io/host",
    )


def page(*items: object, **metadata: str) -> bytes:
    return json.dumps({"kind": "NodeList", "metadata": metadata, "items": list(items)}).encode()


def test_a_page_of_a_list_is_read_node_by_node_with_the_list_s_resource_version() -> None:
    raws = (agent(conditions=[conformant()]), virtual())
    views, version = decode_node_list(page(*raws, resourceVersion="42"))
    assert views == [view_node(raw) for raw in raws]
    assert version == "42"


@pytest.mark.parametrize("text", [b'{"items":null}', b'{"items":[],"metadata":{}}'])
def test_a_page_without_nodes_is_an_empty_one(text: bytes) -> None:
    assert decode_node_list(text) == ([], "")


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"kind":"Status","code":500}', page(5), page({"spec": 5})])
def test_B04_what_is_no_list_is_unreadable_and_never_an_empty_one(text: bytes) -> None:
    with pytest.raises(UnreadableNodeError):
        decode_node_list(text)
