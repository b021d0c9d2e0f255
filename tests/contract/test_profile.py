from datetime import UTC, datetime
from typing import Any

import pytest
from builders import AGENT_SPEC, VIRTUAL_SPEC, manifest, profile, profile_object

from clusterconform.contract.matrix import MATRIX
from clusterconform.contract.profile import (
    Adoption,
    Enforcement,
    NodeClass,
    Refusal,
    RuntimeProfile,
    manifest_of,
    read_profile,
)
from clusterconform.contract.settings import AddressMode, ProbeMode, ReapingMode
from clusterconform.contract.times import Duration

Json = dict[str, Any]


def refusal_of(name: str, spec: Json) -> Refusal:
    contract = profile_object(name, spec).contract
    assert isinstance(contract, Refusal), f"accepted: {contract}"
    return contract


def test_a_virtual_spec_of_five_lines_gets_everything_that_its_class_decides() -> None:
    assert profile_object("vk-wasm", VIRTUAL_SPEC).contract == RuntimeProfile(
        backend="vk-wasm",
        node_class=NodeClass.VIRTUAL,
        capabilities=MATRIX["vk-podman"].capabilities,
        runtime_label_value="virtual",
        node_name_suffix="-vk-wasm",
        provider_taint=True,
        subject_to_node_gc=False,
        subject_to_runtime_probe=False,
        subject_to_address_reconcile=False,
        enforcement=Enforcement.ENFORCE,
        provider_taint_value="outpost",
        adopt=Adoption.NEVER,
        node_gc=None,
        runtime_probe=None,
        address_reconcile=None,
    )


def test_an_agent_spec_without_blocks_gets_the_defaults_of_the_contract() -> None:
    seen = profile("k3s")
    assert seen == MATRIX["k3s"]
    gc, probe, address = seen.node_gc, seen.runtime_probe, seen.address_reconcile
    assert gc is not None
    assert probe is not None
    assert address is not None
    assert (gc.mode, gc.grace.text, gc.max_deletes, gc.interval.text) == (ReapingMode.LIVE, "24h", 3, "1h")
    assert (gc.settle.text, gc.min_uptime.text, gc.max_stale_percent) == ("5m", "1h", 50)
    assert (gc.future_tolerance.text, gc.clock_jump_tolerance.text, gc.self_host) == ("5m", "10m", "")
    assert (gc.max_reaped_percent_per_day, gc.reearn_trust, gc.lease_witness, gc.require_fence) == (
        25,
        True,
        True,
        True,
    )
    assert (probe.mode, probe.grace.text, probe.max_unavailable_percent) == (ProbeMode.ENFORCE, "2m", 50)
    assert probe.include_unidentified
    assert (address.mode, address.port_base, address.port_slots) == (AddressMode.STATUS, 21000, 9000)
    assert address.include_unidentified


def test_what_a_spec_writes_out_is_kept_even_where_a_rule_will_refuse_it() -> None:
    odd = profile(
        "vk-podman",
        runtimeLabelValue="agent",
        nodeNameSuffix="",
        providerTaint=False,
        subjectToNodeGC=True,
        enforcement="Observe",
        providerTaintValue="",
        adopt="ByEvidence",
        runtimeProbe={},
    )
    assert (odd.runtime_label_value, odd.node_name_suffix, odd.provider_taint) == ("agent", "", False)
    assert (odd.subject_to_node_gc, odd.subject_to_runtime_probe) == (True, False)
    assert (odd.enforcement, odd.adopt) == (Enforcement.OBSERVE, Adoption.BY_EVIDENCE)
    assert odd.provider_taint_value == ""
    assert odd.runtime_probe is not None


def test_the_settings_of_an_agent_are_read_field_by_field() -> None:
    seen = profile(
        "k3s",
        nodeGC={
            "mode": "DryRun",
            "grace": "48h",
            "maxDeletes": 100,
            "interval": "10s",
            "selfHost": "pi.home",
        },
        runtimeProbe={"mode": "Off", "image": "pause:1", "stabilization": "0s"},
        addressReconcile={"mode": "Pinned", "portBase": 40000, "portSlots": 25536},
    )
    gc, probe, address = seen.node_gc, seen.runtime_probe, seen.address_reconcile
    assert gc is not None
    assert probe is not None
    assert address is not None
    assert (gc.mode, gc.grace, gc.max_deletes) == (ReapingMode.DRY_RUN, Duration("48h"), 100)
    assert (gc.interval.seconds, gc.self_host) == (10, "pi.home")
    assert (probe.mode, probe.image, probe.stabilization.seconds) == (ProbeMode.OFF, "pause:1", 0)
    assert (address.mode, address.port_base + address.port_slots) == (AddressMode.PINNED, 65536)


@pytest.mark.parametrize("block", ["nodeGC", "runtimeProbe", "addressReconcile"])
def test_an_empty_block_is_the_defaults(block: str) -> None:
    assert profile("k3s", **{block: {}}) == MATRIX["k3s"]


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        pytest.param(
            "vk-podman",
            dict.fromkeys(
                (
                    "runtimeLabelValue",
                    "nodeNameSuffix",
                    "providerTaint",
                    "subjectToNodeGC",
                    "subjectToRuntimeProbe",
                    "subjectToAddressReconcile",
                    "enforcement",
                    "providerTaintValue",
                    "adopt",
                    "nodeGC",
                    "runtimeProbe",
                    "addressReconcile",
                )
            ),
            id="every optional field",
        ),
        pytest.param("k3s", {"nodeGC": {"grace": None, "mode": None, "maxDeletes": None}}, id="in nodeGC"),
        pytest.param("k3s", {"runtimeProbe": {"image": None, "grace": None}}, id="in runtimeProbe"),
        pytest.param("k3s", {"addressReconcile": {"portBase": None}}, id="in addressReconcile"),
    ],
)
def test_null_on_a_field_with_a_default_means_the_default(name: str, spec: Json) -> None:
    assert profile(name, **spec) == MATRIX[name]


@pytest.mark.parametrize("field", ["backend", "class", "capabilities"])
@pytest.mark.parametrize("absent", [True, False], ids=["absent", "null"])
def test_a_required_field_is_required(field: str, absent: bool) -> None:
    raw = manifest("vk-podman", VIRTUAL_SPEC)
    raw["spec"][field] = None
    if absent:
        del raw["spec"][field]
    assert read_profile(raw).contract == Refusal("spec", f"Object missing required field `{field}`")


@pytest.mark.parametrize("spec", [None, [], "spec", 5, True], ids=repr)
def test_a_manifest_without_a_spec_is_refused_and_still_named(spec: object) -> None:
    seen = read_profile({"metadata": {"name": "vk-podman"}, "spec": spec})
    assert (seen.name, seen.contract) == ("vk-podman", Refusal("spec", "is required"))
    assert read_profile({"metadata": {"name": "vk-podman"}}).contract == Refusal("spec", "is required")


# Name, spec, path, what the reason says.
REFUSED = [
    pytest.param(
        "vk-x",
        {"capabilities": ["pod-lifecycle", "kubelet-flog"]},
        "spec.capabilities[1]",
        "kubelet-flog",
        id="unknown capability",
    ),
    pytest.param(
        "vk-x",
        {"capabilities": ["pod-lifecycle", "kubelet-exec", "pod-lifecycle"]},
        "spec",
        "pod-lifecycle twice",
        id="duplicate capability",
    ),
    pytest.param("vk-x", {"capabilities": []}, "spec.capabilities", ">= 1", id="no capability"),
    pytest.param("vk-x", {"capabilities": [None]}, "spec.capabilities[0]", "null", id="null capability"),
    pytest.param("vk-x", {"capabilities": "pod-lifecycle"}, "spec.capabilities", "array", id="no list"),
    pytest.param("vk-x", {"class": "hybrid"}, "spec.class", "hybrid", id="R5 unknown class"),
    pytest.param("vk-x", {"class": "Agent"}, "spec.class", "Agent", id="R5 class in capitals"),
    pytest.param("vk-x", {"backend": "vk-y"}, "spec.backend", "(R1): vk-x is not vk-y", id="R1"),
    pytest.param("vk-x", {"backend": ""}, "spec.backend", ">= 1", id="B102 empty backend"),
    pytest.param("vk-x", {"backend": "VK-X"}, "spec.backend", "regex", id="backend in capitals"),
    pytest.param("vk-x", {"backend": "vk_x"}, "spec.backend", "regex", id="backend with underscore"),
    pytest.param("vk-x", {"backend": "vk-"}, "spec.backend", "regex", id="backend ends with a dash"),
    pytest.param("vk-x\n", {}, "spec.backend", "regex", id="backend with a line end"),
    pytest.param("a" * 53, {}, "spec.backend", "<= 52", id="B94 backend too long"),
    pytest.param("vk-x", {"nodeNameSuffix": "vk-x"}, "spec.nodeNameSuffix", "regex", id="suffix without dash"),
    pytest.param("vk-x", {"nodeNameSuffix": "-vk-x\n"}, "spec.nodeNameSuffix", "regex", id="suffix, line end"),
    pytest.param("vk-x", {"runtimeLabelValue": "real"}, "spec.runtimeLabelValue", "real", id="runtime label"),
    pytest.param("vk-x", {"providerTaint": "true"}, "spec.providerTaint", "bool", id="word for a switch"),
    pytest.param("vk-x", {"subjectToNodeGC": 0}, "spec.subjectToNodeGC", "bool", id="number for a switch"),
    pytest.param("vk-x", {"enforcement": "enforce"}, "spec.enforcement", "enforce", id="enforcement"),
    pytest.param("vk-x", {"adopt": "Always"}, "spec.adopt", "Always", id="adopt"),
    pytest.param("vk-x", {"providerTaintValue": "a b"}, "spec.providerTaintValue", "regex", id="B69 taint value"),
    pytest.param(
        "vk-x", {"providerTaintValue": "a\n"}, "spec.providerTaintValue", "regex", id="B69 value, line end"
    ),
    pytest.param(
        "vk-x", {"providerTaintValue": "a" * 64}, "spec.providerTaintValue", "<= 63", id="B69 long value"
    ),
    pytest.param("k3s", {"nodeGC": []}, "spec.nodeGC", "object", id="block is a list"),
    pytest.param("k3s", {"nodeGC": {"mode": "On"}}, "spec.nodeGC.mode", "On", id="mode"),
    pytest.param("k3s", {"nodeGC": {"maxDeletes": 0}}, "spec.nodeGC.maxDeletes", ">= 1", id="no deletes"),
    pytest.param("k3s", {"nodeGC": {"maxDeletes": 101}}, "spec.nodeGC.maxDeletes", "<= 100", id="101 deletes"),
    pytest.param("k3s", {"nodeGC": {"maxDeletes": "3"}}, "spec.nodeGC.maxDeletes", "int", id="text, no number"),
    pytest.param("k3s", {"nodeGC": {"maxDeletes": True}}, "spec.nodeGC.maxDeletes", "int", id="bool, no number"),
    pytest.param(
        "k3s",
        {"nodeGC": {"maxStalePercent": 0}},
        "spec.nodeGC.maxStalePercent",
        ">= 1",
        id="no stale percent",
    ),
    pytest.param(
        "k3s", {"nodeGC": {"maxStalePercent": 101}}, "spec.nodeGC.maxStalePercent", "<= 100", id="101 percent"
    ),
    pytest.param("k3s", {"nodeGC": {"maxDeletes": 3.5}}, "spec.nodeGC.maxDeletes", "int", id="no whole number"),
    pytest.param("k3s", {"nodeGC": {"selfHost": "a b"}}, "spec.nodeGC.selfHost", "regex", id="self host"),
    pytest.param(
        "k3s", {"nodeGC": {"selfHost": "a" * 64}}, "spec.nodeGC.selfHost", "<= 63", id="B94 long self host"
    ),
    pytest.param(
        "k3s",
        {"runtimeProbe": {"maxUnavailablePercent": 101}},
        "spec.runtimeProbe.maxUnavailablePercent",
        "<= 100",
        id="101 percent unavailable",
    ),
    pytest.param(
        "k3s",
        {"addressReconcile": {"portBase": 65536, "portSlots": 1}},
        "spec.addressReconcile.portBase",
        "<= 65535",
        id="no port",
    ),
    pytest.param(
        "k3s",
        {"addressReconcile": {"portBase": 1024, "portSlots": 64513}},
        "spec.addressReconcile.portSlots",
        "<= 64512",
        id="more slots than ports",
    ),
    pytest.param(
        "k3s",
        {"addressReconcile": {"portBase": 65535, "portSlots": 2}},
        "spec.addressReconcile",
        "must not exceed 65536",
        id="one beyond the last port",
    ),
    pytest.param("vk-x", {"nodeNameSuffix": "-" + "a" * 53}, "spec.nodeNameSuffix", "<= 53", id="B94 long suffix"),
    pytest.param("k3s", {"runtimeProbe": {"image": ""}}, "spec.runtimeProbe.image", ">= 1", id="empty image"),
    pytest.param(
        "k3s", {"runtimeProbe": {"image": "x" * 513}}, "spec.runtimeProbe.image", "<= 512", id="long image"
    ),
    pytest.param(
        "k3s",
        {"runtimeProbe": {"maxUnavailablePercent": -1}},
        "spec.runtimeProbe.maxUnavailablePercent",
        ">= 0",
        id="negative percent",
    ),
    pytest.param(
        "k3s",
        {"addressReconcile": {"portBase": 1023}},
        "spec.addressReconcile.portBase",
        ">= 1024",
        id="privileged port",
    ),
    pytest.param(
        "k3s",
        {"addressReconcile": {"portBase": 60000}},
        "spec.addressReconcile",
        "must not exceed 65536",
        id="beyond the last port",
    ),
    pytest.param(
        "k3s",
        {"addressReconcile": {"portBase": 21001}},
        "spec.addressReconcile",
        "NodePort range",
        id="the last port is a NodePort",
    ),
    pytest.param(
        "k3s",
        {"addressReconcile": {"portBase": 32767, "portSlots": 1}},
        "spec.addressReconcile",
        "NodePort range",
        id="the first port is a NodePort",
    ),
]


@pytest.mark.parametrize(("name", "changes", "path", "says"), REFUSED)
def test_a_bad_spec_is_refused_with_path_and_reason(name: str, changes: Json, path: str, says: str) -> None:
    refusal = refusal_of(name, {**(AGENT_SPEC if name == "k3s" else VIRTUAL_SPEC), **changes})
    assert refusal.path == path
    assert says in refusal.reason


@pytest.mark.parametrize(
    ("base", "slots"),
    [(1024, 1), (21000, 9000), (29999, 1), (32768, 32768), (65535, 1), (1024, 28976)],
)
def test_ports_up_to_a_bound_are_accepted(base: int, slots: int) -> None:
    address = profile("k3s", addressReconcile={"portBase": base, "portSlots": slots}).address_reconcile
    assert address is not None
    assert (address.port_base, address.port_slots) == (base, slots)


@pytest.mark.parametrize("given", ["", "1d", "-1s", "1 h", "90", "1h30", "1" * 17 + "s", "5s\n"], ids=repr)
def test_a_bad_duration_is_refused_where_it_stands(given: str) -> None:
    refusal = refusal_of("k3s", {**AGENT_SPEC, "nodeGC": {"grace": given}})
    assert refusal.path == "spec.nodeGC.grace"
    assert refusal.reason.startswith("must be a duration such as 90s or 1h30m, not ")


@pytest.mark.parametrize("given", [90, 1.5, True, [], ["1h"], {"text": "1h"}], ids=repr)
def test_a_duration_is_a_text(given: object) -> None:
    refusal = refusal_of("k3s", {**AGENT_SPEC, "nodeGC": {"grace": given}})
    assert refusal.path == "spec.nodeGC.grace"
    assert refusal.reason.startswith("must be a duration such as 90s or 1h30m, not ")


# Block, field, the least, just below it, the greatest, just above it, both bounds as the reason shows them.
BOUNDS = [
    ("nodeGC", "grace", "1m", "59s", "8760h", "8760h1s", "1m and 8760h"),
    ("nodeGC", "interval", "10s", "9999ms", "168h", "168h1s", "10s and 168h"),
    ("nodeGC", "settle", "0s", None, "24h", "24h1s", "0s and 24h"),
    ("nodeGC", "minUptime", "0s", None, "168h", "168h1ms", "0s and 168h"),
    ("nodeGC", "futureTolerance", "0ms", None, "24h", "1441m", "0s and 24h"),
    ("nodeGC", "clockJumpTolerance", "1s", "999ms", "24h", "24h1s", "1s and 24h"),
    ("runtimeProbe", "grace", "1s", "0.999s", "24h", "24.001h", "1s and 24h"),
    ("runtimeProbe", "stabilization", "0s", None, "1h", "61m", "0s and 1h"),
]


@pytest.mark.parametrize(
    ("block", "field", "least", "below", "greatest", "above", "shown"),
    BOUNDS,
    ids=[f"{block}.{field}" for block, field, *_ in BOUNDS],
)
def test_a_duration_has_bounds(
    *, block: str, field: str, least: str, below: str | None, greatest: str, above: str, shown: str
) -> None:
    for good in (least, greatest):
        # The grace bounds the interval from above, so it is at its greatest unless it is the subject itself.
        fitting = {"grace": "8760h"} if block == "nodeGC" and field != "grace" else {}
        tight = {"interval": "10s"} if field == "grace" and block == "nodeGC" else {}
        assert profile("k3s", **{block: {**fitting, **tight, field: good}}).backend == "k3s"
    for bad in filter(None, (below, above)):
        refusal = refusal_of("k3s", {**AGENT_SPEC, block: {field: bad}})
        assert refusal == Refusal(f"spec.{block}", f"{field} must be between {shown}, not {bad}")


def test_the_interval_of_reaping_may_reach_but_not_exceed_the_grace() -> None:
    assert profile("k3s", nodeGC={"grace": "2h", "interval": "120m"}).backend == "k3s"
    refusal = refusal_of("k3s", {**AGENT_SPEC, "nodeGC": {"grace": "2h", "interval": "121m"}})
    assert refusal == Refusal("spec.nodeGC", "interval must not exceed grace")


def test_a_whole_number_with_a_point_is_a_number_as_the_api_server_takes_it() -> None:
    gc = profile("k3s", nodeGC={"maxDeletes": 5.0}).node_gc
    assert gc is not None
    assert gc.max_deletes == 5


def test_a_field_that_nobody_knows_is_passed_over_as_the_api_server_prunes_it() -> None:
    assert profile("vk-podman", color="red", nodeSelector={}) == MATRIX["vk-podman"]


@pytest.mark.parametrize("spec", [{1: 2}, {"nodeGC": {1: 2}}, {"capabilities": {"a": 1}}, {"class": {}}], ids=repr)
def test_a_spec_of_any_shape_is_refused_and_never_raises(spec: Json) -> None:
    contract = read_profile(
        {"metadata": {"name": "k3s"}, "spec": {"backend": "k3s", **AGENT_SPEC, **spec}}
    ).contract
    assert isinstance(contract, Refusal)
    assert contract.path.startswith("spec")


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"metadata": None},
        {"metadata": []},
        {"metadata": {}},
        {"metadata": {"name": None}},
        {"metadata": {"name": ""}},
        {"metadata": {"name": 5}},
    ],
    ids=repr,
)
def test_a_manifest_without_a_name_cannot_even_be_refused_by_name(raw: Json) -> None:
    with pytest.raises(Refusal) as refused:
        read_profile({**raw, "spec": {}})
    assert str(refused.value) == "metadata.name: must be a name"


def test_the_metadata_and_the_status_are_read_beside_the_contract() -> None:
    raw = manifest("vk-podman", VIRTUAL_SPEC, uid="u-1", generation=4, creationTimestamp="2026-07-01T09:00:00Z")
    raw["status"] = {"observedGeneration": 3}
    seen = read_profile(raw)
    assert (seen.name, seen.uid, seen.generation) == ("vk-podman", "u-1", 4)
    assert seen.created_at == datetime(2026, 7, 1, 9, tzinfo=UTC)
    assert seen.contract == MATRIX["vk-podman"]
    assert seen.status == {"observedGeneration": 3}


def test_only_texts_under_our_own_group_are_read_of_the_annotations() -> None:
    annotations = {
        "outpost.dhnt.io/approve-reap": "pi-1/uid-1",
        "outpost.dhnt.io/odd": 5,
        "outpost.dhnt.iox/near": "x",
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
    }
    seen = profile_object("vk-podman", VIRTUAL_SPEC, annotations=annotations)
    assert seen.annotations == {"outpost.dhnt.io/approve-reap": "pi-1/uid-1"}


@pytest.mark.parametrize("annotations", [None, [], "text", 5], ids=repr)
def test_annotations_of_another_shape_are_as_good_as_none(annotations: object) -> None:
    assert profile_object("vk-podman", VIRTUAL_SPEC, annotations=annotations).annotations == {}


@pytest.mark.parametrize("metadata", [{}, {"uid": None, "generation": None, "creationTimestamp": None}])
@pytest.mark.parametrize("status", [None, [], "ok"], ids=repr)
def test_metadata_as_in_a_file_is_as_good_as_absent(metadata: Json, status: object) -> None:
    seen = read_profile({**manifest("vk-podman", VIRTUAL_SPEC, **metadata), "status": status})
    assert (seen.uid, seen.created_at, seen.generation, seen.status) == ("", None, 0, {})


@pytest.mark.parametrize("backend", sorted(MATRIX))
def test_a_profile_survives_its_own_manifest(backend: str) -> None:
    row = MATRIX[backend]
    raw = manifest_of(row)
    assert (raw["apiVersion"], raw["kind"]) == ("outpost.dhnt.io/v1alpha1", "RuntimeProfile")
    seen = read_profile(raw)
    assert (seen.name, seen.contract) == (backend, row)


def test_the_manifest_of_a_changed_profile_keeps_what_was_changed() -> None:
    changed = profile("vk-podman", enforcement="Observe", adopt="ByEvidence", providerTaintValue="podman")
    assert read_profile(manifest_of(changed)).contract == changed


@pytest.mark.parametrize("backend", sorted(MATRIX))
def test_a_manifest_holds_only_what_json_holds(backend: str) -> None:
    def plain(value: object) -> bool:
        if isinstance(value, dict):
            return all(type(key) is str and plain(item) for key, item in value.items())
        if isinstance(value, list):
            return all(map(plain, value))
        return type(value) in {str, bool}

    assert plain(manifest_of(MATRIX[backend]))


def test_only_an_agent_s_manifest_has_blocks_and_they_are_left_to_the_crd_s_defaults() -> None:
    for backend, row in MATRIX.items():
        blocks = [manifest_of(row)["spec"].get(block) for block in ("nodeGC", "runtimeProbe", "addressReconcile")]
        assert blocks.count({}) == (3 if backend == "k3s" else 0)
        assert blocks.count(None) == (0 if backend == "k3s" else 3)


def test_a_refusal_reads_as_one_sentence() -> None:
    assert str(Refusal("spec.class", "is required")) == "spec.class: is required"
