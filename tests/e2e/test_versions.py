"""Versions side by side: what a newer one wrote, what an older one wrote, and both of them on one Lease.

On a real API server: this version meets the objects of another, leads for at least one pass of reaping, and stops
in order. Nothing that it does not know is lost where it rewrites an object, and nothing spent is given back.
"""

import copy
import json
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from operators import CRDS, NODES, PROFILES, ROOT, STATE, OperatorProcess, World, operator
from reaping_crashes import HASTY, LEDGER, now
from versions import CURRENT, newer, under_number

from clusterconform.cli.demo.shipped import apply_file
from clusterconform.contract.lease import LEASE_PATH, unheld
from clusterconform.contract.names import (
    HEARD_ANNOTATION,
    LEDGER_CONFIGMAP,
    LEDGER_KEY,
    MARKS_ANNOTATION,
    NAMESPACE,
    PROBE_NAME,
    RESYNCED_ANNOTATION,
    SERVICE_ACCOUNT,
    STATE_CONFIGMAP,
    TERM_KEY,
    TRUST_KEY,
)
from clusterconform.contract.times import format_time
from clusterconform.sandbox.builder import Builder
from clusterconform.sandbox.control_plane import ControlPlane
from clusterconform.sandbox.nodes import agent_node, virtual_node

Json = dict[str, Any]

CONFIGMAPS: Final = LEDGER.rpartition("/")[0]
DAEMONSET: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/{PROBE_NAME}"
BUILT_IN: Final[Mapping[str, Json]] = {
    manifest["metadata"]["name"]: manifest
    for manifest in yaml.safe_load_all((ROOT / "crds" / "profiles.yaml").read_text())
}
SETTINGS: Final = {
    "grace": "1m",
    "interval": "10s",
    "settle": "0s",
    "minUptime": "0s",
    "maxReapedPercentPerDay": 100,
}
KEPT: Final = {"example.com/tomorrow": "kept", "outpost.dhnt.io/tomorrow": "kept"}
# One of a kind that is not known yet, one with more keys than are known, and one that is about no node.
LINES: Final[tuple[Json, ...]] = (
    {"event": "evacuated", "node": "fir-00000000", "uid": "u-1", "pods": [1, 2]},
    {"event": "deleted", "node": "elm-00000000", "uid": "u-2", "cost": 0.5},
    {"event": "announced", "tomorrow": {"deep": ["x"]}},
)


@contextmanager
def plane_with(builder: Builder, crd: Json) -> Iterator[World]:
    """A control plane with everything that is shipped, but with another CRD, and nothing of ours stored yet."""
    with ControlPlane(builder, audit=True) as plane:
        world = World(plane)
        plane.admin.create(
            "/api/v1/namespaces", yaml.safe_load((ROOT / "deploy" / "base" / "namespace.yaml").read_text())
        )
        for name in ("rbac.yaml", "admission.yaml"):
            apply_file(plane.admin, ROOT / "deploy" / "base" / name)
        plane.admin.create(CRDS, crd)
        world.until(lambda: plane.admin.answers(PROFILES), "the CRD is served")
        yield world


def account(world: World) -> Path:
    return world.plane.service_account_kubeconfig(NAMESPACE, SERVICE_ACCOUNT)


def configmap(world: World, name: str, data: Mapping[str, str], **more: Any) -> Json:
    metadata = {"name": name, "namespace": NAMESPACE, **more.pop("metadata", {})}
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data), **more}
    stored: Json = world.admin.create(CONFIGMAPS, manifest)
    return stored


def lines(*events: Json) -> str:
    """A ledger's text; its lines are ten minutes old and less."""
    began = now() - timedelta(minutes=10)
    times = [format_time(began + timedelta(minutes=number)) for number in range(len(events))]
    return "".join(json.dumps({"at": at, **event}) + "\n" for at, event in zip(times, events, strict=True))


def profile(world: World, name: str, **spec: Any) -> None:
    """A built-in profile with ``spec`` in its own."""
    manifest = copy.deepcopy(BUILT_IN[name])
    manifest["spec"] |= spec
    world.admin.create(PROFILES, manifest)


def lead_for_a_pass(world: World) -> None:
    """This version leads until it has ended a pass and reported on it, and stops in order."""
    with operator(account(world), "--bound", "enforce", *HASTY) as process:
        name = "clusterconform_reaping_passes_total"
        world.until(lambda: process.metric(name) >= 2, "two passes have ended", seconds=90)
        world.until(lambda: "lastPass" in reaping(world), "and were reported")


def reaping(world: World) -> Json:
    found: Json = world.profile("k3s").get("status", {}).get("nodeGC", {})
    return found


# --- what a newer version wrote ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Met:
    """What this version met, and the cluster afterwards."""

    world: World
    before: Mapping[str, Json]

    def now(self, path: str) -> Json:
        stored: Json = self.world.admin.get(path)
        return stored


def apply_status(world: World, name: str, manager: str, kind: str) -> None:
    """A status with a field and a condition that this version does not know."""
    condition = {
        "type": kind,
        "status": "True",
        "reason": "NoClouds",
        "message": "",
        "observedGeneration": 1,
        "lastTransitionTime": format_time(now()),
    }
    body = {
        "apiVersion": "outpost.dhnt.io/v1alpha1",
        "kind": "RuntimeProfile",
        "metadata": {"name": name},
        "status": {"forecast": "sunny", "conditions": [condition]},
    }
    path = f"{PROFILES}/{name}/status?fieldManager={manager}&force=true"
    world.admin.request("PATCH", path, body, content_type="application/apply-patch+yaml")


def furnish_newer(world: World) -> None:
    """The objects of a version to come."""
    admin = world.admin
    configmap(world, STATE_CONFIGMAP, {"seeded": "k3s,vk-native,vk-ollama,vk-podman,vk-tomorrow", "later": "kept"})
    request = unheld()
    metadata = {**request.body["metadata"], "annotations": KEPT}
    spec = {"holderIdentity": "", "leaseTransitions": 7, "leaseDurationSeconds": 6}
    uid = admin.create(request.path, {**request.body, "metadata": metadata, "spec": spec})["metadata"]["uid"]
    data = {
        LEDGER_KEY: lines(*LINES),
        TRUST_KEY: '{"seconds":7200.0,"cause":null,"history":[1,2,{"x":"y"}]}',
        TERM_KEY: f"7/host_1_abcd/{uid}",
        "complete": "true",
        "later.json": "{}",
    }
    about = {"labels": {"example.com/tomorrow": "kept"}, "annotations": KEPT}
    configmap(world, LEDGER_CONFIGMAP, data, metadata=about, binaryData={"later.bin": "AAEC"})
    profile(world, "k3s", nodeGC={**SETTINGS, "maxDeletes": 3, "tomorrow": "otherwise"}, tomorrow="otherwise")
    profile(world, "vk-podman")
    profile(world, "vk-native")
    made = copy.deepcopy(BUILT_IN["vk-ollama"])
    made["metadata"]["name"] = "vk-tomorrow"
    made["spec"] |= {"backend": "vk-tomorrow", "nodeNameSuffix": "-vk-tomorrow", "enforcement": "Tomorrow"}
    admin.create(PROFILES, made)
    apply_status(world, "vk-podman", "another-writer", "Sunny")
    apply_status(world, "vk-native", "clusterconform", "Windy")
    marked = virtual_node("pine", "vk-podman", now=now(), extra_labels={"outpost.dhnt.io/tomorrow": "kept"})
    marked["metadata"]["labels"].pop("outpost.dhnt.io/runtime")
    listed = "annotation:outpost.dhnt.io/tomorrow,label:outpost.dhnt.io/tomorrow,lamp:outpost.dhnt.io/tomorrow"
    marked["metadata"]["annotations"] |= {**KEPT, MARKS_ANNOTATION: listed}
    for raw in (marked, virtual_node("ash", "vk-tomorrow", now=now()), agent_node("beech", now=now())):
        admin.create(NODES, raw)


NEWER: Final = (
    *(LEDGER, LEASE_PATH, STATE),
    *(f"{PROFILES}/{name}" for name in ("k3s", "vk-podman", "vk-native", "vk-tomorrow")),
    *(f"{NODES}/{name}" for name in ("pine-vk-podman", "ash-vk-tomorrow")),
)


@pytest.fixture(scope="module")
def met(builder: Builder) -> Iterator[Met]:
    with plane_with(builder, newer()) as world:
        furnish_newer(world)
        before = {path: world.admin.get(path) for path in NEWER}
        assert before[f"{PROFILES}/k3s"]["spec"]["nodeGC"]["tomorrow"] == "otherwise", "the newer CRD stores it"
        lead_for_a_pass(world)
        yield Met(world, before)


def test_a_newer_ledger_keeps_its_lines_and_everything_beside_them(met: Met) -> None:
    before, after = met.before[LEDGER], met.now(LEDGER)
    assert after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"], "it was written"
    assert after["data"][LEDGER_KEY].startswith(before["data"][LEDGER_KEY])
    rest = {key: value for key, value in before["data"].items() if key not in {LEDGER_KEY, TRUST_KEY, TERM_KEY}}
    assert after["data"].items() >= rest.items()
    assert after["binaryData"] == before["binaryData"]
    for part in ("labels", "annotations"):
        assert after["metadata"][part].items() >= before["metadata"][part].items()


def test_lines_of_unknown_events_are_spent(met: Met) -> None:
    assert met.world.profile_condition("k3s", "ReapingAllowed") == ("False", "BudgetSpent")
    assert reaping(met.world)["reapedInWindow"] == len(LINES)


def test_what_a_newer_version_knows_of_trust_goes_back_as_it_came(met: Met) -> None:
    before, after = (json.loads(seen["data"][TRUST_KEY]) for seen in (met.before[LEDGER], met.now(LEDGER)))
    assert after["seconds"] > before["seconds"], "it was written"
    assert (after["cause"], after["history"]) == (None, before["history"])


def test_a_newer_lease_is_held_and_released_with_its_annotations_and_its_count(met: Met) -> None:
    after = met.now(LEASE_PATH)
    own = {RESYNCED_ANNOTATION, HEARD_ANNOTATION}
    assert {key: text for key, text in after["metadata"]["annotations"].items() if key not in own} == KEPT
    assert after["metadata"]["labels"] == met.before[LEASE_PATH]["metadata"]["labels"]
    assert (after["spec"]["holderIdentity"], after["spec"]["leaseTransitions"]) == ("", 8)


def test_a_newer_state_is_left_as_it_is(met: Met) -> None:
    assert met.now(STATE)["data"] == met.before[STATE]["data"]


def test_no_spec_is_touched(met: Met) -> None:
    for path in NEWER:
        if path.startswith(PROFILES):
            assert met.now(path)["spec"] == met.before[path]["spec"]


def test_what_another_writer_put_into_a_status_stays(met: Met) -> None:
    status = met.now(f"{PROFILES}/vk-podman")["status"]
    assert status["forecast"] == "sunny"
    kinds = {seen["type"] for seen in status["conditions"]}
    assert kinds >= {"Sunny", "Accepted", "Ready"}


def test_of_what_operators_wrote_into_a_status_only_that_stays_which_the_leader_keeps_true(met: Met) -> None:
    status = met.now(f"{PROFILES}/vk-native")["status"]
    assert "forecast" not in status
    assert {seen["type"] for seen in status["conditions"]} == {"Accepted", "Conformant", "Ready"}


def test_a_repair_leaves_the_marks_of_a_newer_version_listed(met: Met) -> None:
    before = met.before[f"{NODES}/pine-vk-podman"]["metadata"]
    after = met.now(f"{NODES}/pine-vk-podman")["metadata"]
    assert after["labels"]["outpost.dhnt.io/runtime"] == "virtual", "it was repaired"
    listed, kept = (set(seen["annotations"][MARKS_ANNOTATION].split(",")) for seen in (after, before))
    assert listed == {*kept, "label:outpost.dhnt.io/runtime"}
    assert after["labels"].items() >= before["labels"].items()
    assert after["annotations"].items() >= KEPT.items()


def test_a_profile_with_a_value_that_is_not_known_yet_is_not_accepted_and_its_node_stays(met: Met) -> None:
    assert met.world.profile_condition("vk-tomorrow", "Accepted")[0] == "False"
    before, after = met.before[f"{NODES}/ash-vk-tomorrow"], met.now(f"{NODES}/ash-vk-tomorrow")
    for part in ("labels", "annotations"):
        assert after["metadata"][part] == before["metadata"][part]
    assert after["spec"] == before["spec"]


# --- what an older version wrote ---------------------------------------------------------------------------


def furnish_older(world: World) -> None:
    """The objects as they were before any field that came later: only what was there from the beginning."""
    admin = world.admin
    configmap(world, STATE_CONFIGMAP, {"seeded": "k3s,vk-native,vk-ollama,vk-podman"})
    request = unheld()
    admin.create(request.path, {**request.body, "metadata": {"name": request.body["metadata"]["name"]}})
    configmap(world, LEDGER_CONFIGMAP, {LEDGER_KEY: lines({"event": "deleted", "node": "elm-00000000"})})
    for name in ("k3s", "vk-podman"):
        spec = {key: BUILT_IN[name]["spec"][key] for key in ("backend", "class", "capabilities")}
        settings = {"nodeGC": SETTINGS} if name == "k3s" else {}
        made = {**BUILT_IN[name], "spec": {**spec, **settings}}
        admin.create(PROFILES, made)
    raw = virtual_node("pine", "vk-podman", now=now())
    del raw["metadata"]["annotations"]
    stood = {"type": "RuntimeConformant", "status": "True", "reason": "Conforms", "message": "old words"}
    raw["status"]["conditions"].append(stood)
    admin.create(NODES, raw)


def test_what_an_older_version_wrote_is_taken_up_and_nothing_of_it_is_lost(builder: Builder) -> None:
    with plane_with(builder, copy.deepcopy(CURRENT)) as world:
        furnish_older(world)
        met = Met(world, {path: world.admin.get(path) for path in (LEDGER, STATE, f"{NODES}/pine-vk-podman")})
        lead_for_a_pass(world)
        ledger = met.now(LEDGER)["data"]
        assert ledger[LEDGER_KEY].startswith(met.before[LEDGER]["data"][LEDGER_KEY])
        assert json.loads(ledger[TRUST_KEY])["cause"] is None
        # It does not tell that it was there from the beginning, so it counts as spent.
        assert world.profile_condition("k3s", "ReapingAllowed") == ("False", "BudgetSpent")
        assert met.now(STATE)["data"] == met.before[STATE]["data"]
        assert world.condition("pine-vk-podman") == ("True", "Conforms")
        assert world.profile_condition("vk-podman", "Accepted")[0] == "True"
        before, after = met.before[f"{NODES}/pine-vk-podman"], met.now(f"{NODES}/pine-vk-podman")
        assert after["metadata"]["labels"] == before["metadata"]["labels"]
        assert not after["metadata"].get("annotations")
        assert met.now(LEASE_PATH)["spec"]["leaseTransitions"] == 1


# --- both on one Lease -------------------------------------------------------------------------------------


class Shared:
    """A fleet at rest, and two versions that share its Lease."""

    def __init__(self, world: World, other: Mapping[str, str]) -> None:
        self.world, self._other, self._stack = world, other, ExitStack()
        world.plane.vacate()
        raws = [virtual_node(host, "vk-podman", now=now()) for host in ("oak", "elm")]
        raws += [virtual_node("fir", "vk-native", now=now()), agent_node("beech", now=now())]
        self.names = [world.admin.create(NODES, raw)["metadata"]["name"] for raw in raws]

    def start(self, *, newer: bool) -> OperatorProcess:
        environment = self._other if newer else None
        process = OperatorProcess(account(self.world), "--bound", "enforce", *HASTY, environment=environment)
        self._stack.callback(lambda: process.running and process.stop())
        process.await_ready()
        assert (f'version="{NEWER_NUMBER}"' in process.get("/metrics")[1]) is newer
        return process

    def until_looked_over(self, process: OperatorProcess, host: str) -> None:
        """Wait until ``process`` leads, and has looked at every node for the second time and last.

        A node that comes now tells: it gets its condition when it has been clean for as long as the others.
        """
        lead: Callable[[], bool] = lambda: process.metric("clusterconform_leader") == 1  # noqa: E731
        self.world.until(lead, "it leads", seconds=60)
        self.world.until(lambda: process.metric("clusterconform_sync_age_seconds") >= 0, "it is synced")
        self.world.admin.create(NODES, virtual_node(host, "vk-podman", now=now()))
        self.world.until_condition(f"{host}-vk-podman", "True", "Conforms", seconds=60)

    def writes(self) -> dict[str, int]:
        return {name: len(self.world.writes_to(name)) for name in self.names}

    def probe(self) -> int:
        """How often what the probe's pods are made of was changed; each time all of them start anew."""
        generation: int = self.world.admin.get(DAEMONSET)["metadata"]["generation"]
        return generation

    def close(self) -> None:
        self._stack.close()


NEWER_NUMBER: Final = "77.0.0"


@pytest.fixture
def shared(builder: Builder, tmp_path: Path) -> Iterator[Shared]:
    with plane_with(builder, copy.deepcopy(CURRENT)) as world:
        shared = Shared(world, under_number(NEWER_NUMBER, tmp_path))
        try:
            yield shared
        finally:
            shared.close()


def test_two_versions_take_over_from_one_another_and_write_no_node_for_it(shared: Shared) -> None:
    older = shared.start(newer=False)
    shared.until_looked_over(older, "first")
    for name in shared.names:
        shared.world.until_condition(name, "True", "Conforms")
    younger = shared.start(newer=True)
    before, probe = shared.writes(), shared.probe()
    assert all(before.values())
    assert older.stop() == 0
    shared.until_looked_over(younger, "second")
    assert shared.writes() == before
    again = shared.start(newer=False)
    younger.kill(signal.SIGKILL)
    younger.wait()
    shared.until_looked_over(again, "third")
    assert shared.writes() == before
    assert shared.probe() == probe
    assert again.stop() == 0
    assert not [line for process in (older, younger, again) for line in process.lines if "exception" in line]
