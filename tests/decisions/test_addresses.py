"""What a node's addresses should read, by mode; numbered as the module's rules."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from builders import AGENT_SPEC, address, agent, at, bare, catalogue, facts, marks, profile_object, virtual
from server import FakeServer

from clusterconform.contract.memory import EMPTY
from clusterconform.contract.names import (
    ENDPOINT_ANNOTATION,
    K3S_EXTERNAL_IP_ANNOTATION,
    RUNTIME_LABEL,
)
from clusterconform.contract.plan import K3S_EXTERNAL_IP_MARK
from clusterconform.contract.verdicts import Catalogue, Reason
from clusterconform.decisions.addresses import (
    AddressVerdict,
    as_values,
    diagnostics,
    endpoint_rejected,
    endpoint_written,
)
from clusterconform.decisions.agents import Agents
from clusterconform.decisions.planning import Decision, decide
from clusterconform.decisions.world import as_stored

Json = dict[str, Any]

HOME, PORT = "127.0.226.242", 23058  # of "pi"
OURS, STALE = address("ExternalIP", HOME), address("ExternalIP", "127.0.9.9")
REAL = address("ExternalIP", "203.0.113.5")
INTERNAL, HOSTNAME = address("InternalIP", "10.0.0.1"), address("Hostname", "pi-4c7adeb6")


def of_mode(mode: str, **more: Any) -> Catalogue:
    return catalogue(k3s={"addressReconcile": {"mode": mode, **more}})


def look(raw: Json, mode: str = "Status", *others: Json, memory: Any = EMPTY, **settings: Any) -> Decision:
    profiles = of_mode(mode, **settings)
    agents = Agents(profiles)
    for other in (raw, *others):
        agents.observe(facts(other))
    node = facts(raw)
    return decide(node, profiles, memory, at(0), agents.around(node, at(0).wall))


def after(raw: Json, mode: str = "Status", *others: Json, **settings: Any) -> Json:
    """The node with what is written to it until nothing more is."""
    server = FakeServer(as_stored("a test's node", raw))
    for _ in range(3):
        made = look(server.raw, mode, *others, **settings)
        server.carry_out(facts(server.raw), made.plan)
    again = look(server.raw, mode, *others, **settings)
    assert again.plan.endpoint is None
    assert again.plan.marks is None
    return server.raw


def verdict_of(made: Decision) -> AddressVerdict:
    assert made.address is not None
    return made.address


def reason_of(made: Decision) -> Reason:
    return verdict_of(made).finding.reason


# --- rules 1 and 2: the list ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        pytest.param([], [OURS], id="B57 no list"),
        pytest.param([HOSTNAME], [HOSTNAME, OURS], id="B57 a host name only"),
        pytest.param(None, [OURS], id="absent"),
        pytest.param([None], [OURS], id="null entries"),
        pytest.param([INTERNAL, HOSTNAME], [INTERNAL, HOSTNAME, OURS], id="appended last"),
        pytest.param(
            [address("InternalIP", "fd00::2"), INTERNAL, HOSTNAME],
            [address("InternalIP", "fd00::2"), INTERNAL, HOSTNAME, OURS],
            id="B14 B67 dual stack",
        ),
        pytest.param([INTERNAL, STALE, HOSTNAME], [INTERNAL, HOSTNAME, OURS], id="an older one of ours goes"),
        pytest.param([STALE, OURS, INTERNAL], [INTERNAL, OURS], id="A18 D25 first wrong, second right"),
        pytest.param([OURS, STALE], [OURS], id="D25 duplicates of ours collapse"),
        pytest.param([INTERNAL, REAL], [OURS, INTERNAL, REAL], id="B66 before a real one"),
        pytest.param([REAL, OURS, INTERNAL], [OURS, REAL, INTERNAL], id="A18 a real one first"),
        pytest.param(
            [address("ExternalIP", "127.0.0.5"), INTERNAL],
            [OURS, address("ExternalIP", "127.0.0.5"), INTERNAL],
            id="127.0.0.x is a real one",
        ),
    ],
)
def test_rule_2_ours_takes_its_place_and_all_others_stay(
    before: Sequence[Json] | None, expected: list[Json]
) -> None:
    status = after(agent(addresses=before))["status"]
    assert (status["addresses"], status["daemonEndpoints"]["kubeletEndpoint"]["Port"]) == (expected, PORT)


@pytest.mark.parametrize(
    "right",
    [[OURS], [INTERNAL, OURS, HOSTNAME], [OURS, REAL, INTERNAL], [INTERNAL, OURS, REAL]],
    ids=["alone", "anywhere", "before a real one", "before it, behind another"],
)
def test_rule_1_a_node_that_is_right_is_left_alone(right: list[Json]) -> None:
    made = look(agent(addresses=right, port=PORT))
    assert made.plan.endpoint is None
    assert reason_of(made) is Reason.ENDPOINT_PUBLISHED
    assert verdict_of(made).patched


@pytest.mark.parametrize(
    "wrong",
    [[], [STALE], [REAL, OURS], [OURS, STALE], [INTERNAL]],
    ids=["none", "another of ours", "behind a real one", "beside another of ours", "no ExternalIP"],
)
def test_rule_1_a_node_that_is_not_right_is_known_as_such(wrong: list[Json]) -> None:
    made = look(agent(addresses=wrong, port=PORT))
    assert made.plan.endpoint is not None
    assert reason_of(made) is Reason.ENDPOINT_MISSING


def test_A8_a_right_address_with_a_wrong_port_is_put_right_and_the_list_left_alone() -> None:
    write = look(agent(addresses=[OURS], port=10250)).plan.endpoint
    assert write is not None
    assert (write.addresses, write.port, write.pin) == (None, PORT, None)


def test_B66_a_real_external_ip_is_reported() -> None:
    made = look(agent(addresses=[REAL, INTERNAL]))
    assert verdict_of(made).real == ("203.0.113.5",)


def test_B17_a_patch_of_labels_carries_no_status_and_the_endpoint_waits_for_the_next_look() -> None:
    server = FakeServer(agent(labels={RUNTIME_LABEL: None}, addresses=[INTERNAL]))
    made = look(server.raw)
    server.carry_out(facts(server.raw), made.plan)
    assert [request.path for request in server.requests] == ["/api/v1/nodes/pi-4c7adeb6"]
    assert server.raw["status"]["addresses"] == [INTERNAL]
    assert made.plan.endpoint is not None


# --- rule 3: who is withheld ---------------------------------------------------------------------------------


def named(name: str, born: str, **changes: Any) -> Json:
    raw = agent(name, **changes)
    raw["metadata"] |= {"creationTimestamp": born, "uid": name}
    return raw


def test_B12_the_younger_of_two_on_one_endpoint_gives_it_up_and_keeps_the_rest() -> None:
    elder = named("pi-1", "2026-07-01T00:00:00Z", addresses=[INTERNAL, OURS], port=PORT)
    younger = named("pi-2", "2026-07-02T00:00:00Z", addresses=[INTERNAL, OURS], port=PORT)
    assert look(elder, "Status", younger).plan.endpoint is None
    assert reason_of(look(younger, "Status", elder)) is Reason.PORT_COLLISION
    assert after(younger, "Status", elder)["status"]["addresses"] == [INTERNAL]


def test_a_withheld_node_that_carries_nothing_of_ours_is_not_written() -> None:
    elder = named("pi-1", "2026-07-01T00:00:00Z")
    for mode in ("Status", "Pinned", "Annotation"):
        younger = named("pi-2", "2026-07-02T00:00:00Z", addresses=[REAL], port=10250)
        assert look(younger, mode, elder).plan.endpoint is None


def test_D9_a_ghost_gives_its_address_up() -> None:
    ghost = named("pi-1", "2026-07-01T00:00:00Z", addresses=[OURS, HOSTNAME], port=PORT)
    ghost["status"]["conditions"][0]["status"] = "Unknown"
    rejoined = named("pi-2", "2026-07-02T00:00:00Z")
    assert after(ghost, "Status", rejoined)["status"]["addresses"] == [HOSTNAME]
    assert verdict_of(look(rejoined, "Status", ghost)).publish


def test_the_only_address_of_a_withheld_node_may_be_ours() -> None:
    ghost = named("pi-1", "2026-07-01T00:00:00Z", addresses=[OURS], port=PORT)
    ghost["status"]["conditions"][0]["status"] = "False"
    assert "addresses" not in after(ghost, "Status", named("pi-2", "2026-07-02T00:00:00Z"))["status"]


# --- rule 4: modes -------------------------------------------------------------------------------------------


def test_rule_4_pinned_writes_the_annotation_in_the_same_request() -> None:
    server = FakeServer(agent(addresses=[INTERNAL]))
    server.carry_out(facts(server.raw), look(server.raw, "Pinned").plan)
    (request,) = server.requests
    assert request.path == "/api/v1/nodes/pi-4c7adeb6/status"
    assert server.raw["metadata"]["annotations"][ENDPOINT_ANNOTATION] == f"{HOME}:{PORT}"
    assert server.raw["status"]["addresses"] == [INTERNAL, OURS]


def test_rule_4_pinned_is_quiet_where_annotation_and_status_are_right() -> None:
    raw = agent(addresses=[OURS], port=PORT, annotations={ENDPOINT_ANNOTATION: f"{HOME}:{PORT}"})
    assert look(raw, "Pinned").plan.endpoint is None


def test_rule_4_pinned_without_a_policy_goes_on_as_status() -> None:
    raw = agent(addresses=[INTERNAL], port=PORT, annotations={ENDPOINT_ANNOTATION: f"{HOME}:{PORT}"})
    write = look(raw, "Pinned").plan.endpoint
    assert write is not None
    assert (write.addresses is not None, write.port, write.pin) == (True, None, None)


@pytest.mark.parametrize("mode", ["Status", "Annotation", "Off"])
def test_rule_4_every_other_mode_takes_the_pin_away(mode: str) -> None:
    raw = agent(addresses=[OURS], port=PORT, annotations={ENDPOINT_ANNOTATION: f"{HOME}:{PORT}"})
    write = look(raw, mode).plan.endpoint
    assert write is not None
    assert (write.addresses, write.port, write.pin) == (None, None, "")
    assert ENDPOINT_ANNOTATION not in after(raw, mode)["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, HOME),
        ("203.0.113.5", f"{HOME},203.0.113.5"),
        (f"127.0.9.9, 203.0.113.5,{HOME}", f"{HOME},203.0.113.5"),
    ],
    ids=["absent", "B66 a real one stays", "older ones of ours go"],
)
def test_rule_4_annotation_puts_ours_first_for_the_cloud_controller(value: str | None, expected: str) -> None:
    raw = agent(addresses=[INTERNAL], port=PORT, annotations={K3S_EXTERNAL_IP_ANNOTATION: value})
    written = after(raw, "Annotation")
    assert written["metadata"]["annotations"][K3S_EXTERNAL_IP_ANNOTATION] == expected
    assert written["metadata"]["annotations"]["outpost.dhnt.io/managed-marks"] == K3S_EXTERNAL_IP_MARK
    assert written["status"]["addresses"] == [INTERNAL]


def test_rule_4_annotation_still_puts_the_port_right() -> None:
    assert after(agent(port=10250), "Annotation")["status"]["daemonEndpoints"] == {
        "kubeletEndpoint": {"Port": PORT}
    }


# --- rule 5: off ---------------------------------------------------------------------------------------------


def test_rule_5_off_leaves_the_list_to_the_kubelet_and_another_publisher() -> None:
    raw = agent(addresses=[INTERNAL, STALE], port=10250)
    made = look(raw, "Off")
    assert made.plan.endpoint is None
    assert made.plan.marks is None
    assert reason_of(made) is Reason.SWITCHED_OFF


@pytest.mark.parametrize(
    ("listed", "value", "expected"),
    [
        (True, f"{HOME},203.0.113.5", "203.0.113.5"),
        (True, HOME, None),
        (False, HOME, HOME),
    ],
    ids=["the real one stays", "ours goes", "what we did not write stays"],
)
def test_rule_5_off_takes_back_what_we_wrote_into_k3s_annotation(
    listed: bool, value: str, expected: str | None
) -> None:
    note = {K3S_EXTERNAL_IP_ANNOTATION: value, **(marks(K3S_EXTERNAL_IP_MARK) if listed else {})}
    annotations = after(agent(annotations=note), "Off")["metadata"]["annotations"]
    assert annotations.get(K3S_EXTERNAL_IP_ANNOTATION) == expected
    assert "outpost.dhnt.io/managed-marks" not in annotations


# --- rule 6: the limit, and refusals -------------------------------------------------------------------------


def test_rule_6_B13_twelve_writes_a_minute_and_then_the_node_waits_and_says_so() -> None:
    memory, raw = EMPTY, agent(addresses=[INTERNAL])
    for _ in range(12):
        made = look(raw, memory=memory)
        assert made.plan.endpoint is not None
        memory = endpoint_written(made.memory, at(0).uptime)
    made = look(raw, memory=replace(memory, clean_since=0.0))
    assert made.plan.endpoint is None
    assert made.recheck_after == 60.0
    assert reason_of(made) is Reason.ADDRESS_CONTESTED


def test_rule_6_writes_of_more_than_a_minute_ago_count_no_more() -> None:
    old = tuple(at(0).uptime - 60 for _ in range(12))
    memory = look(agent(addresses=[INTERNAL]), memory=EMPTY).memory
    for uptime in old:
        memory = endpoint_written(memory, uptime)
    made = look(agent(addresses=[INTERNAL]), memory=memory)
    assert made.plan.endpoint is not None
    assert made.memory.endpoint_writes == ()


def test_a_write_that_is_refused_for_good_is_not_sent_again_until_something_changes() -> None:
    raw = agent(addresses=[INTERNAL])
    first = look(raw)
    assert first.plan.endpoint is not None
    memory = endpoint_rejected(first.memory, first.plan.endpoint, "no such thing")
    again = look(raw, memory=memory)
    assert again.plan.endpoint is None
    assert (reason_of(again), "no such thing" in verdict_of(again).finding.message) == (
        Reason.WRITE_REJECTED,
        True,
    )
    changed = look(agent(addresses=[HOSTNAME]), memory=memory)
    assert changed.plan.endpoint is not None
    assert changed.memory.endpoint_rejected is None


# --- whom it is for ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(virtual(addresses=[OURS], port=10250), id="A9 B16 managed"),
        pytest.param(bare("n", labels={RUNTIME_LABEL: "virtual"}), id="by label"),
        pytest.param(bare("stock", labels={"type": "virtual-kubelet"}), id="stock virtual-kubelet"),
        pytest.param(
            bare("n", annotations={"virtual-kubelet.io/last-applied-node-status": "{}"}), id="by annotation"
        ),
        pytest.param(
            bare("n", taints=[{"key": "virtual-kubelet.io/provider", "value": "mock", "effect": "NoSchedule"}]),
            id="by taint",
        ),
        pytest.param(bare("laptop-vk-podman"), id="by name"),
        pytest.param(agent(labels={"type": "virtual-kubelet"}), id="an agent that is a virtual node"),
    ],
)
@pytest.mark.parametrize("mode", ["Status", "Pinned", "Annotation", "Off"])
def test_a_virtual_node_is_never_addressed_whatever_it_carries(raw: Json, mode: str) -> None:
    made = look(raw, mode)
    assert made.plan.endpoint is None
    assert made.plan.marks is None
    assert (reason_of(made), verdict_of(made).endpoint) == (Reason.VIRTUAL_NODE, None)


@pytest.mark.parametrize(
    "raw",
    [bare("n"), bare("n", labels=None, annotations=None), agent(labels={"outpost.dhnt.io/backend": "k0s"})],
    ids=["bare", "without maps", "unknown backend"],
)
def test_who_is_neither_claimed_nor_virtual_is_addressed_where_the_profile_includes_it(raw: Json) -> None:
    assert after(raw)["status"]["addresses"]
    left = look(raw, includeUnidentified=False)
    assert (left.plan.endpoint, reason_of(left)) == (None, Reason.UNIDENTIFIED)


def test_a_backend_that_nobody_knows_is_left_alone_unless_something_says_agent() -> None:
    made = look(bare("fir-vk-wasm", labels={"outpost.dhnt.io/backend": "vk-wasm"}))
    assert (made.plan.endpoint, reason_of(made)) == (None, Reason.UNKNOWN_BACKEND)
    evident = bare("fir-1", labels={"outpost.dhnt.io/backend": "k0s"}, provider_id="k3s://fir-1")
    assert look(evident).plan.endpoint is not None


def test_B22_a_node_of_another_agent_profile_is_left_alone() -> None:
    other = profile_object("k0s", AGENT_SPEC, creationTimestamp="2026-07-05T00:00:00Z")
    raw = agent(labels={"outpost.dhnt.io/backend": "k0s"})
    profiles = catalogue(other)
    agents = Agents(profiles)
    agents.observe(facts(raw))
    made = decide(facts(raw), profiles, EMPTY, at(0), agents.around(facts(raw), at(0).wall))
    assert (made.plan.endpoint, reason_of(made)) == (None, Reason.PROFILE_NOT_ACCEPTED)


def test_without_an_enforcing_agent_profile_nothing_is_published() -> None:
    raw = agent(addresses=[INTERNAL])
    for profiles in (catalogue(k3s={"enforcement": "Observe"}), Catalogue(profiles={}, refusals={})):
        agents = Agents(profiles)
        agents.observe(facts(raw))
        made = decide(facts(raw), profiles, EMPTY, at(0), agents.around(facts(raw), at(0).wall))
        assert made.plan.endpoint is None


def test_a_node_that_is_being_deleted_is_not_addressed() -> None:
    assert look(agent(addresses=[INTERNAL], deleted="2026-08-01T00:00:00Z")).plan.endpoint is None


def test_the_ports_of_the_profile_are_used() -> None:
    made = look(agent(), portBase=40000, portSlots=10)
    endpoint = verdict_of(made).endpoint
    assert endpoint is not None
    assert 40000 <= endpoint.port < 40010


def test_a_range_of_ports_that_overlaps_the_node_ports_is_refused_with_the_reason() -> None:
    refused = of_mode("Status", portBase=29000, portSlots=2000)
    assert "NodePort" in refused.refusals["k3s"].message


# --- what is printed -----------------------------------------------------------------------------------------


def test_A13_the_diagnostics_of_a_settled_and_an_unpatched_node() -> None:
    settled = agent("settled", addresses=[address("ExternalIP", "127.0.133.58")], port=26490, annotations=_plain)
    unpatched = agent("unpatched", port=None, annotations=_plain)
    assert diagnostics(facts(settled), verdict_of(look(settled))) == {
        "node_name": "settled",
        "expected_external_ip": "127.0.133.58",
        "observed_external_ip": "127.0.133.58",
        "expected_kubelet_port": 26490,
        "observed_kubelet_port": 26490,
        "patched": True,
    }
    row = diagnostics(facts(unpatched), verdict_of(look(unpatched)))
    assert set(row) == {"node_name", "expected_external_ip", "expected_kubelet_port", "patched"}
    assert row["patched"] is False


_plain = {"k3s.io/node-args": None}


def test_the_endpoint_of_a_node_as_it_is_printed() -> None:
    made = look(agent(addresses=[REAL]))
    assert as_values(verdict_of(made)) == {
        "routingName": "pi",
        "address": HOME,
        "port": PORT,
        "publish": True,
        "reason": "EndpointMissing",
        "realExternalIPs": ["203.0.113.5"],
    }
    assert as_values(verdict_of(look(virtual()))) == {
        "routingName": None,
        "address": None,
        "port": None,
        "publish": False,
        "reason": "VirtualNode",
        "realExternalIPs": [],
    }
