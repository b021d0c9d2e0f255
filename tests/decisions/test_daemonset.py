"""The probe's DaemonSet: contract §4.2 field by field (C11), and how it is kept (C12, C13, D15)."""

import copy
from typing import Any

import pytest
from builders import AGENT_SPEC, profile

from clusterconform.decisions.daemonset import (
    DAEMONSET_PATH,
    DAEMONSETS_PATH,
    creation,
    daemonset,
    is_wanted,
    mark_of,
    removal,
    replacement,
    step,
)

Json = dict[str, Any]
IMAGE = "rancher/mirrored-pause:3.6"


def stored(image: str = IMAGE, **metadata: Any) -> Json:
    seen: Json = copy.deepcopy(daemonset(image))
    seen["metadata"] |= {"uid": "u1", "resourceVersion": "5", "generation": 3, **metadata}
    return seen


def test_C11_it_reads_as_the_contract_has_it() -> None:
    seen = daemonset(IMAGE)
    assert seen["metadata"] == {
        "name": "dks-runtime-probe",
        "namespace": "clusterconform-system",
        "labels": {
            "app.kubernetes.io/name": "dks-runtime-probe",
            "app.kubernetes.io/managed-by": "nodecap",
        },
    }
    spec = seen["spec"]
    assert spec["selector"] == {"matchLabels": {"app.kubernetes.io/name": "dks-runtime-probe"}}
    assert spec["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%"}}
    assert spec["template"]["metadata"] == {"labels": {"app.kubernetes.io/name": "dks-runtime-probe"}}
    pod = spec["template"]["spec"]
    required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required["nodeSelectorTerms"] == [
        {"matchExpressions": [{"key": "outpost.dhnt.io/runtime", "operator": "NotIn", "values": ["virtual"]}]}
    ]
    assert [(one["key"], one["operator"], one.get("effect")) for one in pod["tolerations"]] == [
        ("outpost.dhnt.io/runtime-unavailable", "Exists", "NoSchedule"),
        ("node-role.kubernetes.io/master", "Exists", "NoSchedule"),
        ("node-role.kubernetes.io/control-plane", "Exists", "NoSchedule"),
        ("CriticalAddonsOnly", "Exists", None),
    ]
    assert pod["terminationGracePeriodSeconds"] == 0
    assert set(pod) == {"affinity", "tolerations", "terminationGracePeriodSeconds", "containers"}
    (container,) = pod["containers"]
    assert container == {
        "name": "probe",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "resources": {
            "requests": {"cpu": "1m", "memory": "4Mi"},
            "limits": {"cpu": "10m", "memory": "16Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "runAsUser": 65534,
            "capabilities": {"drop": ["ALL"]},
        },
    }


@pytest.mark.parametrize(
    ("image", "expected"), [("", IMAGE), ("  ", IMAGE), ("example.com/p:1", "example.com/p:1")]
)
def test_C12_a_blank_image_is_the_contract_s(image: str, expected: str) -> None:
    assert daemonset(image)["spec"]["template"]["spec"]["containers"][0]["image"] == expected


def test_C12_one_that_is_not_there_is_made() -> None:
    request = step(None, IMAGE, None)
    assert request == creation(IMAGE)
    assert (request.method, request.path) == ("POST", DAEMONSETS_PATH)


def test_D15_one_that_we_have_not_written_yet_is_replaced_whatever_it_says() -> None:
    request = step(stored(), IMAGE, None)
    assert request == replacement(stored(), IMAGE)
    assert (request.method, request.path) == ("PUT", DAEMONSET_PATH)
    assert request.body["metadata"]["resourceVersion"] == "5"


def test_C12_one_that_nobody_changed_since_our_write_is_left_alone() -> None:
    assert step(stored(), IMAGE, mark_of(stored(), IMAGE)) is None


@pytest.mark.parametrize(
    "seen",
    [
        stored(generation=4),
        stored(uid="u2"),
        stored(labels={"app.kubernetes.io/name": "dks-runtime-probe"}),
    ],
    ids=["D15 any field of the spec", "another object", "labels"],
)
def test_D15_one_that_somebody_changed_is_put_back(seen: Json) -> None:
    request = step(seen, IMAGE, mark_of(stored(), IMAGE))
    assert request is not None
    assert (request.method, request.body["spec"]) == ("PUT", daemonset(IMAGE)["spec"])


def test_C12_another_image_in_the_profile_is_written() -> None:
    request = step(stored(), "example.com/p:1", mark_of(stored(), IMAGE))
    assert request is not None
    assert request.method == "PUT"


def test_D15_another_selector_cannot_be_changed_so_it_goes_first() -> None:
    seen = stored()
    seen["spec"]["selector"] = {"matchLabels": {"app": "other"}}
    assert step(seen, IMAGE, mark_of(seen, IMAGE)) == removal(seen)
    assert removal(seen).body["preconditions"] == {"uid": "u1"}


def test_one_that_is_being_deleted_is_waited_for() -> None:
    assert step(stored(deletionTimestamp="2026-08-01T00:00:00Z"), IMAGE, None) is None


def test_annotations_of_others_stay() -> None:
    seen = stored(annotations={"example.com/x": "1"})
    assert replacement(seen, IMAGE).body["metadata"]["annotations"] == {"example.com/x": "1"}


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, True),
        ({"runtimeProbe": {"mode": "Observe"}}, True),
        ({"runtimeProbe": {"mode": "Off"}}, False),
        ({"enforcement": "Observe"}, None),
        ({"enforcement": "Observe", "runtimeProbe": {"mode": "Off"}}, None),
    ],
)
def test_C13_off_takes_it_away_and_a_profile_that_observes_leaves_it_as_it_is(
    changes: Json, wanted: bool | None
) -> None:
    assert is_wanted(profile("k3s", **{**AGENT_SPEC, **changes})) is wanted
    assert is_wanted(None) is None
    assert is_wanted(profile("vk-podman")) is None
