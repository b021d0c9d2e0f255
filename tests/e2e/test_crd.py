"""RuntimeProfile on a real API server: what it takes, what it refuses in which words, what it shows.

The tables are tests/data/crd/accepted.yaml and refused.yaml. Objects are created in dry runs; where one has
to exist, it is deleted again.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, Final

import msgspec
import pykube
import pytest
import requests
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clusterconform.cli.live import Live
from clusterconform.contract.names import API_VERSION, CRD_NAME, FIELD_MANAGER, KIND, PLURAL
from clusterconform.contract.profile import Capability, Refusal, read_profile
from clusterconform.decisions.gate import judge_profile
from clusterconform.sandbox.control_plane import ControlPlane

Json = dict[str, Any]
Kubectl = Callable[..., CompletedProcess[str]]

ROOT: Final = Path(__file__).parents[2]
CRD: Final = ROOT / "crds" / "runtimeprofiles.yaml"
TABLES: Final = ROOT / "tests" / "data" / "crd"

DRY_RUN: Final = {"dryRun": "All"}
MERGE: Final = {"Content-Type": "application/merge-patch+json"}
APPLY: Final = {"Content-Type": "application/apply-patch+yaml"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One object of a table, and what becomes of it."""

    case: str
    spec: Json | None
    name: str | None = None
    stored: Mapping[str, Any] | None = None
    absent: tuple[str, ...] = ()
    because: tuple[str, ...] = ()

    @property
    def manifest(self) -> Json:
        return manifest(self.name or (self.spec or {})["backend"], self.spec)


def table(name: str) -> list[Row]:
    rows = yaml.safe_load((TABLES / f"{name}.yaml").read_text())["rows"]
    return [msgspec.convert(row, Row) for row in rows]


def named(row: Row) -> str:
    return row.case


ACCEPTED: Final = table("accepted")
REFUSED: Final = table("refused")
SCHEMA: Final[Json] = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
VIRTUAL: Final[Json] = {
    "backend": "vk-crd",
    "class": "virtual",
    "capabilities": ["pod-lifecycle", "termination-log-tail", "transient-app-route"],
}
AGENT: Final[Json] = {
    "backend": "k3s-crd",
    "class": "agent",
    "capabilities": [
        "pod-lifecycle",
        "kubelet-log-stream",
        "kubelet-exec",
        "kubelet-attach",
        "kubelet-port-forward",
        "kubelet-stats",
    ],
}


def manifest(name: str, spec: Json | None) -> Json:
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec}


def at(document: Json, path: str) -> Any:
    found: Any = document
    for key in path.split("."):
        found = found[key]
    return found


def has(document: Json, path: str) -> bool:
    with suppress(KeyError):
        at(document, path)
        return True
    return False


def put(document: Json, path: str, value: Any) -> None:
    *blocks, field = path.split(".")
    for block in blocks:
        document = document.setdefault(block, {})
    document[field] = value


# How Kubernetes 1.34 says the same.
OLDER_WORDS: Final = {'must be of type int32: "float64"': 'must be of type integer: "number"'}


def complaints(answer: requests.Response) -> list[str]:
    """What a person reads, as "field: text".

    Without the remark that some rules were not checked, and without those that repeat another one.
    """
    causes = answer.json()["details"]["causes"]
    return [f"{cause['field']}: {cause['message']}" for cause in causes if cause["field"] != "<nil>"]


def explains(reason: str, complaint: str) -> bool:
    field, _, text = reason.partition(": ")
    return complaint.startswith(f"{field}: ") and complaint.endswith((text, OLDER_WORDS.get(text, text)))


def model_objection(document: Json) -> str:
    """Why our own reading refuses ``document``; empty where it takes it."""
    contract = read_profile(document).contract
    return str(contract) if isinstance(contract, Refusal) else "; ".join(map(str, judge_profile(contract)))


def strings(schema: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    """Every string below ``schema`` that is not one of a few words."""
    for field, child in schema.get("properties", {}).items():
        yield from strings(child, f"{path}.{field}".lstrip("."))
    if schema["type"] == "string" and "enum" not in schema:
        yield path, schema


def objects(schema: Json, path: str) -> Iterator[tuple[str, Json]]:
    """Every object below ``schema``, those in lists included, in the words of ``kubectl explain``."""
    yield path, schema
    for field, child in schema["properties"].items():
        below = child.get("items", child)
        if "properties" in below:
            yield from objects(below, f"{path}.{field}")


class Profiles:
    """RuntimeProfiles of the API server, as JSON, without any opinion on the answers."""

    def __init__(self, api: pykube.HTTPClient) -> None:
        self._api = api

    def create(self, document: Json, **params: str) -> requests.Response:
        return self._send("POST", "", json=document, params=params)

    def replace(self, document: Json, part: str = "", **params: str) -> requests.Response:
        return self._send("PUT", f"/{document['metadata']['name']}{part}", json=document, params=params)

    def merge(self, name: str, change: Json, part: str = "", **params: str) -> requests.Response:
        return self._send("PATCH", f"/{name}{part}", json=change, params=params, headers=MERGE)

    def apply_status(self, name: str, status: Json) -> requests.Response:
        """As the operator does."""
        document = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "status": status}
        params = {"fieldManager": FIELD_MANAGER, "force": "true", "fieldValidation": "Strict"}
        return self._send("PATCH", f"/{name}/status", json=document, params=params, headers=APPLY)

    def get(self, name: str) -> Json:
        answer = self._send("GET", f"/{name}")
        answer.raise_for_status()
        return dict(answer.json())

    def delete(self, name: str) -> None:
        self._send("DELETE", f"/{name}").raise_for_status()

    def _send(self, method: str, path: str, **options: Any) -> requests.Response:
        answer = self._api.request(method, version=API_VERSION, url=PLURAL + path, **options)
        assert isinstance(answer, requests.Response)
        return answer


@pytest.fixture(scope="module")
def profiles(plane: ControlPlane, crd: None) -> Iterator[Profiles]:
    with Live(plane.kubeconfig) as cluster:  # which leaves no credentials in the shared temporary directory
        yield Profiles(cluster._client())


@pytest.fixture
def stored(profiles: Profiles) -> Iterator[Json]:
    """A virtual profile that exists."""
    answer = profiles.create(manifest("vk-crd", VIRTUAL))
    answer.raise_for_status()
    yield answer.json()
    profiles.delete("vk-crd")


@pytest.mark.parametrize("row", ACCEPTED, ids=named)
def test_the_api_server_takes_it(profiles: Profiles, row: Row) -> None:
    answer = profiles.create(row.manifest, **DRY_RUN)
    assert answer.status_code == 201, answer.json()["message"]
    spec = answer.json()["spec"]
    assert {path: at(spec, path) for path in row.stored or {}} == (row.stored or {})
    assert [path for path in row.absent if has(spec, path)] == []


@pytest.mark.parametrize("row", REFUSED, ids=named)
def test_the_api_server_refuses_it_and_says_why(profiles: Profiles, row: Row) -> None:
    answer = profiles.create(row.manifest, **DRY_RUN)
    assert answer.status_code == 422
    said = complaints(answer)
    unsaid = [reason for reason in row.because if not any(explains(reason, text) for text in said)]
    unexpected = [text for text in said if not any(explains(reason, text) for reason in row.because)]
    assert (unsaid, unexpected) == ([], [])


@pytest.mark.parametrize("row", ACCEPTED + REFUSED, ids=named)
def test_our_own_reading_agrees_with_the_api_server(profiles: Profiles, row: Row) -> None:
    answer = profiles.create(row.manifest, **DRY_RUN)
    objection = model_objection(row.manifest)
    assert (answer.status_code == 201) == (objection == ""), objection or answer.json()["message"]


@pytest.mark.parametrize("row", ACCEPTED, ids=named)
def test_the_defaults_of_the_api_server_are_our_own(profiles: Profiles, row: Row) -> None:
    """What was sent and what was stored read as the same profile."""
    answer = profiles.create(row.manifest, **DRY_RUN)
    assert read_profile(answer.json()).contract == read_profile(row.manifest).contract


@pytest.mark.parametrize(("path", "schema"), [*strings(SCHEMA["properties"]["spec"])])
def test_no_string_is_longer_than_its_bound(profiles: Profiles, path: str, schema: Json) -> None:
    spec = dict(AGENT)
    put(spec, path, "x" * (schema["maxLength"] + 1))
    answer = profiles.create(manifest("k3s-crd", spec), **DRY_RUN)
    assert complaints(answer) == [f"spec.{path}: Too long: may not be more than {schema['maxLength']} bytes"]


def test_an_unknown_field_is_refused_where_the_client_wants_it_strict(profiles: Profiles) -> None:
    answer = profiles.create(manifest("vk-crd", {**VIRTUAL, "colour": "red"}), fieldValidation="Strict", **DRY_RUN)
    assert answer.status_code == 400
    assert answer.json()["message"].endswith('strict decoding error: unknown field "spec.colour"')


def test_an_unknown_field_is_dropped_with_a_warning_otherwise(profiles: Profiles) -> None:
    answer = profiles.create(manifest("vk-crd", {**VIRTUAL, "colour": "red"}), fieldValidation="Warn", **DRY_RUN)
    assert answer.status_code == 201
    assert answer.headers["Warning"] == '299 - "unknown field \\"spec.colour\\""'


@pytest.mark.parametrize(
    ("change", "reasons"),
    [
        pytest.param(
            {**AGENT, "backend": "vk-crd"},
            ["spec.class: class cannot be changed: delete this RuntimeProfile and create another"],
            id="class",
        ),
        pytest.param(
            {**VIRTUAL, "backend": "vk-other"},
            [
                "spec.backend: backend cannot be changed: create another RuntimeProfile",
                'spec.backend: spec.backend is "vk-other": write the same in both (R1)',
            ],
            id="backend",
        ),
    ],
)
def test_what_cannot_be_changed_later(profiles: Profiles, stored: Json, change: Json, reasons: list[str]) -> None:
    answer = profiles.replace({**stored, "spec": change}, **DRY_RUN)
    assert answer.status_code == 422
    said = complaints(answer)
    assert len(said) == len(reasons)
    assert all(any(explains(reason, text) for text in said) for reason in reasons)


def test_every_other_field_can_be_changed_and_taken_out_again(profiles: Profiles, stored: Json) -> None:
    written = {
        "enforcement": "Observe",
        "adopt": "ByEvidence",
        "providerTaintValue": "x",
        "providerTaint": True,
    }
    answer = profiles.merge("vk-crd", {"spec": written})
    assert answer.status_code == 200
    assert answer.json()["metadata"]["generation"] == stored["metadata"]["generation"] + 1
    answer = profiles.merge("vk-crd", {"spec": dict.fromkeys(written)})
    assert answer.status_code == 200
    assert answer.json()["spec"] == stored["spec"]


def test_a_refused_edit_leaves_the_profile_as_it_was(profiles: Profiles, stored: Json) -> None:
    answer = profiles.merge("vk-crd", {"spec": {"subjectToNodeGC": True}})
    assert answer.status_code == 422
    assert profiles.get("vk-crd") == stored


STATUS: Final[Json] = {
    "observedGeneration": 1,
    "servesKubeletStreaming": False,
    "nodes": {
        "total": 9,
        "conformant": 5,
        "drifted": 4,
        "conflicting": 2,
        "contested": 1,
        "notReady": 3,
        "stale": 6,
        "unidentified": 7,
    },
    "nodeGC": {
        "eligible": 4,
        "stale": 1,
        "reapedInWindow": 2,
        "budgetLeft": 1,
        "trustedSince": "2026-08-01T11:00:00Z",
        "lastDoubt": "MassStale",
        "nextPass": "2026-08-01T13:00:00Z",
    },
    "samples": [
        {"name": f"host-{number}-vk-crd", "reason": "HostUnknown", "message": "nothing tells the host"}
        for number in range(20)
    ],
    "truncated": True,
    "conditions": [
        {
            "type": "Accepted",
            "status": "True",
            "observedGeneration": 1,
            "lastTransitionTime": "2026-08-01T12:00:00Z",
            "reason": "Accepted",
            "message": "keeps R1 to R5",
        },
        {
            "type": "Ready",
            "status": "False",
            "observedGeneration": 1,
            "lastTransitionTime": "2026-08-01T12:00:00Z",
            "reason": "NodesNotConformant",
            "message": "4 of 9 nodes do not conform",
        },
    ],
}


def test_the_status_is_not_written_with_the_spec(profiles: Profiles, stored: Json) -> None:
    assert "status" not in stored
    answer = profiles.create(
        {**manifest("vk-crd-2", {**VIRTUAL, "backend": "vk-crd-2"}), "status": STATUS}, **DRY_RUN
    )
    assert answer.status_code == 201
    assert "status" not in answer.json()
    for answer in (
        profiles.replace({**stored, "status": STATUS}),
        profiles.merge("vk-crd", {"status": STATUS}),
    ):
        assert answer.status_code == 200
        assert answer.json() == stored


def test_the_spec_is_not_written_with_the_status(profiles: Profiles, stored: Json) -> None:
    change = {"spec": {"enforcement": "Observe"}, "status": {"observedGeneration": 1}}
    answer = profiles.merge("vk-crd", change, "/status")
    assert answer.status_code == 200
    assert answer.json()["spec"] == stored["spec"]
    assert answer.json()["metadata"]["generation"] == stored["metadata"]["generation"]


def test_a_whole_status_is_stored_as_it_was_written(profiles: Profiles, stored: Json) -> None:
    """And so is the next one: nothing of the first is left, and nothing changes its order."""
    answer = profiles.apply_status("vk-crd", STATUS)
    assert answer.status_code == 200, answer.json()["message"]
    assert answer.json()["status"] == STATUS
    following = {
        **STATUS,
        "truncated": False,
        "samples": [{"name": "a", "reason": "Contested"}, *STATUS["samples"][7:2:-1]],
    }
    assert profiles.apply_status("vk-crd", following).json()["status"] == following
    assert profiles.apply_status("vk-crd", {"observedGeneration": 2}).json()["status"] == {"observedGeneration": 2}


def test_a_status_names_no_more_than_twenty_nodes(profiles: Profiles, stored: Json) -> None:
    samples = [{"name": f"node-{number}", "reason": "HostUnknown"} for number in range(21)]
    answer = profiles.merge("vk-crd", {"status": {"samples": samples}}, "/status")
    assert complaints(answer) == ["status.samples: Too many: 21: must have at most 20 items"]


def test_a_table_of_profiles_shows_what_an_operator_asks_first(
    profiles: Profiles, kubectl: Kubectl, stored: Json
) -> None:
    profiles.merge("vk-crd", {"status": STATUS}, "/status").raise_for_status()
    header, row = kubectl("get", "rtp", "vk-crd").stdout.splitlines()
    assert header.split() == ["NAME", "CLASS", "NODES", "CONFORMANT", "DRIFTED", "READY", "AGE"]
    assert row.split()[:-1] == ["vk-crd", "virtual", "9", "5", "4", "False"]


def test_a_wide_table_of_profiles_shows_why(profiles: Profiles, kubectl: Kubectl, stored: Json) -> None:
    profiles.merge("vk-crd", {"status": STATUS}, "/status").raise_for_status()
    header, row = kubectl("get", "rtp", "vk-crd", "-o", "wide").stdout.splitlines()
    assert header.split()[7:] == [
        "ENFORCEMENT",
        "ACCEPTED",
        "CONFLICTING",
        "CONTESTED",
        "NOTREADY",
        "REAPING",
        "STREAMING",
        "REASON",
        "MESSAGE",
    ]
    assert row.split(maxsplit=14)[7:] == [
        "Enforce",
        "True",
        "2",
        "1",
        "3",
        "false",
        "NodesNotConformant",
        "4 of 9 nodes do not conform",
    ]


def test_profiles_can_be_selected_by_class(profiles: Profiles, kubectl: Kubectl, stored: Json) -> None:
    def selected(node_class: str) -> list[str]:
        return kubectl("get", "rtp", "--field-selector", f"spec.class={node_class}", "-o", "name").stdout.split()

    assert f"runtimeprofile.{CRD_NAME.partition('.')[2]}/vk-crd" in selected("virtual")
    assert f"runtimeprofile.{CRD_NAME.partition('.')[2]}/vk-crd" not in selected("agent")


@pytest.mark.parametrize(
    ("path", "schema"),
    [
        *objects(SCHEMA["properties"]["spec"], "rtp.spec"),
        *objects(SCHEMA["properties"]["status"], "rtp.status"),
    ],
)
def test_every_field_is_explained(crd: None, kubectl: Kubectl, path: str, schema: Json) -> None:
    shown = " ".join(kubectl("explain", path).stdout.split())
    assert [field for field, child in schema["properties"].items() if child["description"] not in shown] == []


def test_kubectl_shows_the_reason_of_a_refusal(crd: None, kubectl: Kubectl) -> None:
    bad = yaml.safe_dump(manifest("vk-crd", {**VIRTUAL, "providerTaint": False}))
    refused = kubectl("create", "--dry-run=server", "-f", "-", input=bad)
    assert refused.returncode == 1
    said = (
        'The RuntimeProfile "vk-crd" is invalid: spec.providerTaint: Invalid value: class virtual carries '
        "the provider taint: write true, or leave the field out (R4)"
    )
    assert said in refused.stderr.replace('"object": ', "")  # which 1.34 says of every rule


def test_the_built_in_profiles_are_taken(crd: None, kubectl: Kubectl) -> None:
    applied = kubectl(
        "apply",
        "--server-side",
        "--dry-run=server",
        "--validate=strict",
        "-f",
        str(ROOT / "crds" / "profiles.yaml"),
    )
    assert applied.returncode == 0, applied.stderr
    assert len(applied.stdout.splitlines()) == 4


NOTHING: Final = st.none()
DURATIONS: Final = (
    st.sampled_from(["0s", "1s", "10s", "1m", "30m", "1h", "24h", "168h", "8760h", "0", "1d", "-1h", "", "1h\n"])
    | st.from_regex(r"\A([0-9]{1,4}(\.[0-9]{1,3})?(ms|s|m|h)){1,4}\Z")
    | NOTHING
)
NUMBERS: Final = st.integers(-1, 102) | st.floats(0, 100) | NOTHING
PORTS: Final = st.sampled_from([1, 1024, 21000, 29999, 30000, 32767, 32768, 65535]) | st.integers(0, 65537)
TRUTHS: Final = st.booleans() | NOTHING
WORDS: Final = st.sampled_from(["", "-", "-a", "a", "A", "a.b", "a\n", "é", "a" * 53, "-" + "a" * 52, "x" * 64])
SUFFIXES: Final = WORDS | st.just("-vk-crd")
MODES: Final = st.sampled_from(["Live", "DryRun", "Off", "Enforce", "Observe", "Status", "Pinned", "off"])
BLOCKS: Final = st.sampled_from([{}, [], "Off"]) | NOTHING
FIELDS: Final[dict[str, st.SearchStrategy[Any]]] = {
    "backend": WORDS,
    "class": st.sampled_from(["agent", "virtual", "Agent"]),
    "capabilities": st.lists(st.sampled_from([*map(str, Capability), "fly"]), max_size=9, unique=True),
    "runtimeLabelValue": st.sampled_from(["agent", "virtual", ""]) | NOTHING,
    "nodeNameSuffix": SUFFIXES | NOTHING,
    "providerTaint": TRUTHS,
    "subjectToNodeGC": TRUTHS,
    "subjectToRuntimeProbe": TRUTHS,
    "subjectToAddressReconcile": TRUTHS,
    "enforcement": MODES,
    "providerTaintValue": WORDS,
    "adopt": st.sampled_from(["Never", "ByEvidence", "Always"]),
    "nodeGC": BLOCKS,
    "runtimeProbe": BLOCKS,
    "addressReconcile": BLOCKS,
    **{
        f"nodeGC.{field}": DURATIONS
        for field in ("grace", "interval", "settle", "minUptime", "futureTolerance", "clockJumpTolerance")
    },
    **{f"nodeGC.{field}": NUMBERS for field in ("maxDeletes", "maxStalePercent", "maxReapedPercentPerDay")},
    **{f"nodeGC.{field}": TRUTHS for field in ("reearnTrust", "leaseWitness", "requireFence")},
    "nodeGC.mode": MODES,
    "nodeGC.selfHost": WORDS,
    "runtimeProbe.mode": MODES,
    "runtimeProbe.image": WORDS,
    "runtimeProbe.grace": DURATIONS,
    "runtimeProbe.stabilization": DURATIONS,
    "runtimeProbe.maxUnavailablePercent": NUMBERS,
    "addressReconcile.mode": MODES,
    "addressReconcile.portBase": PORTS,
    "addressReconcile.portSlots": PORTS,
}


@st.composite
def specs(draw: st.DrawFn) -> Json:
    """A sound spec with up to two changes, so that a good part of them are still sound."""
    spec: Json = {**draw(st.sampled_from([AGENT, VIRTUAL])), "backend": "vk-crd"}
    # Blocks before what stands in them; a block that is no block takes nothing in.
    for path in sorted(draw(st.sets(st.sampled_from(sorted(FIELDS)), max_size=2))):
        block, _, field = path.rpartition(".")
        if field and isinstance(spec.get(block, {}), dict):
            put(spec, path, draw(FIELDS[path]))
    return spec


@pytest.mark.long
@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(spec=specs())
def test_our_own_reading_agrees_with_the_api_server_on_any_spec(profiles: Profiles, spec: Json) -> None:
    document = manifest("vk-crd", spec)
    answer = profiles.create(document, **DRY_RUN)
    objection = model_objection(document)
    assert (answer.status_code == 201) == (objection == ""), objection or answer.json()["message"]
    if answer.status_code == 201:
        assert read_profile(answer.json()).contract == read_profile(document).contract
