"""``status``: what is told of whatever an operator, an older one or none wrote down; looks: golden outputs."""

from datetime import timedelta
from typing import Any

import pytest
from builders import START, VIRTUAL_SPEC, manifest

from clusterconform.contract.lease import LeaseRecord, read_lease
from clusterconform.contract.profile import read_profile
from clusterconform.decisions.glance import glance, leader_of


def lease(**spec: Any) -> LeaseRecord:
    return read_lease({"metadata": {"uid": "u", "resourceVersion": "1"}, "spec": spec})


def at(seconds_ago: float) -> str:
    moment = START - timedelta(seconds=seconds_ago)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (None, ("", False)),
        (lease(), ("", False)),
        (lease(holderIdentity="", renewTime=at(1)), ("", False)),
        (lease(holderIdentity="a"), ("a", False)),
        (lease(holderIdentity="a", renewTime="soon", leaseDurationSeconds=15), ("a", False)),
        (lease(holderIdentity="a", renewTime=at(0), leaseDurationSeconds=15), ("a", True)),
        (lease(holderIdentity="a", renewTime=at(15), leaseDurationSeconds=15), ("a", True)),
        (lease(holderIdentity="a", renewTime=at(18), leaseDurationSeconds=15), ("a", False)),
        (lease(holderIdentity="a", renewTime=at(-5), leaseDurationSeconds=15), ("a", True)),
    ],
)
def test_who_leads_is_who_renewed_in_time(seen: LeaseRecord | None, expected: tuple[str, bool]) -> None:
    leader = leader_of(seen, START)
    assert (leader.holder, leader.alive) == expected


@pytest.mark.parametrize(
    "status",
    [
        None,
        {},
        {"nodes": None, "conditions": None, "nodeGC": None},
        {"nodes": 7, "conditions": {"a": 1}, "nodeGC": []},
        {"conditions": [None, 7, {"type": "Ready"}], "nodeGC": {"held": [7, None, {"name": "n"}]}},
    ],
)
def test_any_status_is_answered(status: Any) -> None:
    raw = {**manifest("vk-x", VIRTUAL_SPEC), "status": status}
    value = glance([raw], [read_profile(raw)], None, START)
    (profile,) = value["profiles"]
    assert profile["name"] == "vk-x"
    assert set(profile["nodes"].values()) == {0}


def test_a_profile_that_nobody_reported_on_is_unknown_and_says_so() -> None:
    raw = manifest("vk-x", VIRTUAL_SPEC)
    (profile,) = glance([raw], [read_profile(raw)], None, START)["profiles"]
    assert (profile["accepted"], profile["ready"]) == ("Unknown", "Unknown")
    assert profile["message"] == "no operator has reported on it yet"


def test_a_profile_that_cannot_be_read_is_shown_all_the_same() -> None:
    raw = manifest("vk-x", {**VIRTUAL_SPEC, "class": "other"})
    (profile,) = glance([raw], [read_profile(raw)], None, START)["profiles"]
    assert (profile["class"], profile["accepted"]) == (None, "False")


def test_an_edit_that_no_operator_has_seen_is_told() -> None:
    raw = manifest("vk-x", VIRTUAL_SPEC, generation=2)
    (profile,) = glance([raw], [read_profile({**raw, "status": {"observedGeneration": 1}})], None, START)[
        "profiles"
    ]
    assert profile["observed"] is False


def test_the_last_report_is_the_last_write_of_a_status_by_us() -> None:
    def written(manager: str, subresource: str, hour: int) -> dict[str, Any]:
        return {"manager": manager, "subresource": subresource, "time": f"2026-08-01T{hour:02}:00:00Z"}

    raw = manifest("vk-x", VIRTUAL_SPEC)
    raw["metadata"]["managedFields"] = [
        written("clusterconform", "status", 9),
        written("clusterconform", "", 10),
        written("kubectl", "status", 11),
    ]
    assert glance([raw], [read_profile(raw)], None, START)["lastReport"] == "2026-08-01T09:00:00Z"
