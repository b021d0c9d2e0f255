"""From the earliest CRD to this one: what was stored stays valid, and no version undoes what another wrote.

tests/data/crd/earliest.yaml is the CRD of the first version that stored objects; it is never edited. The objects
are the accepted ones of tests/data/crd/accepted.yaml, as far as that version took them.
"""

import contextlib
import subprocess
from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml
from operators import CRDS, PROFILES, PROGRAM, ROOT, World, operator
from versions import CURRENT, apply_crd, newer, served

from clusterconform.contract.profile import Refusal, read_profile
from clusterconform.handlers.preflight import missing_paths
from clusterconform.sandbox.admin import RequestRefused
from clusterconform.sandbox.builder import Builder
from clusterconform.sandbox.control_plane import ControlPlane

Json = dict[str, Any]

TABLES: Final = ROOT / "tests" / "data" / "crd"
EARLIEST: Final[Json] = yaml.safe_load((TABLES / "earliest.yaml").read_text())
ROWS: Final[list[Json]] = yaml.safe_load((TABLES / "accepted.yaml").read_text())["rows"]
NAMESPACE: Final = yaml.safe_load((ROOT / "deploy" / "base" / "namespace.yaml").read_text())


def profile(number: int, spec: Json) -> Json:
    """An object with the spec of a row, under a name of its own."""
    name = f"{spec['backend']}-{number}"
    return {
        "apiVersion": "outpost.dhnt.io/v1alpha1",
        "kind": "RuntimeProfile",
        "metadata": {"name": name},
        "spec": renamed(spec, name),
    }


def renamed(spec: Json, name: str) -> Json:
    """``spec`` with another backend, also where something follows from it."""
    made = {**spec, "backend": name}
    if made.get("nodeNameSuffix"):
        made["nodeNameSuffix"] = f"-{name}"
    return made


class Upgraded:
    """A control plane on which objects were stored by the earliest CRD, and the current one was applied after."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane, self.world = plane, World(plane)
        plane.admin.create("/api/v1/namespaces", NAMESPACE)
        plane.vacate()
        plane.admin.create(CRDS, EARLIEST)
        self.world.until(lambda: plane.admin.answers(PROFILES), "the earliest CRD is served")
        self.stored = {item["metadata"]["name"]: item for item in self._store()}
        self.said = self._too_old()
        apply_crd(plane, CURRENT)
        self.world.until(lambda: served(plane, "requireFence"), "the current schema is served")

    def _store(self) -> Iterator[Json]:
        for number, row in enumerate(ROWS):
            if row.get("name"):
                continue
            # Where a value came later, the earliest refuses it.
            with contextlib.suppress(RequestRefused):
                yield self.plane.admin.create(PROFILES, profile(number, row["spec"]))

    def _too_old(self) -> tuple[int, str]:
        """What this operator says of the earliest CRD."""
        command = [str(PROGRAM), "run", "--kubeconfig", str(self.plane.kubeconfig), "--listen", "127.0.0.1:0"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stderr.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def upgraded(builder: Builder) -> Iterator[Upgraded]:
    with ControlPlane(builder, audit=True) as plane:
        yield Upgraded(plane)


def test_the_operator_says_of_the_earliest_crd_that_it_is_too_old(upgraded: Upgraded) -> None:
    code, said = upgraded.said
    assert code == 2
    assert "is older than this program" in said
    assert missing_paths(EARLIEST)
    assert missing_paths(CURRENT) == []


def test_objects_of_every_kind_were_stored_by_the_earliest(upgraded: Upgraded) -> None:
    assert {item["spec"]["class"] for item in upgraded.stored.values()} == {"agent", "virtual"}
    assert len(upgraded.stored) > 5


def test_what_was_stored_reads_as_it_did(upgraded: Upgraded) -> None:
    for name, before in upgraded.stored.items():
        after = upgraded.world.profile(name)
        assert (
            after["spec"].items()
            >= {key: value for key, value in before["spec"].items() if not isinstance(value, dict)}.items()
        )
        for block in ("nodeGC", "runtimeProbe", "addressReconcile"):
            assert after["spec"].get(block, {}).items() >= before["spec"].get(block, {}).items()
        assert not isinstance(read_profile(after).contract, Refusal)


def test_what_was_stored_can_be_labelled_edited_and_its_status_written(upgraded: Upgraded) -> None:
    admin = upgraded.plane.admin
    for name in upgraded.stored:
        path = f"{PROFILES}/{name}"
        admin.patch(path, {"metadata": {"annotations": {"example.com/x": "y"}}})
        admin.patch(path, {"spec": {"enforcement": "Observe"}})
        admin.patch(f"{path}/status", {"status": {"observedGeneration": 2}})
        assert upgraded.world.profile(name)["spec"]["enforcement"] == "Observe"


def test_no_field_that_was_stored_has_left_the_schema() -> None:
    def paths(schema: Json, place: str = "") -> set[str]:
        schema = schema.get("items", schema)
        inner = schema.get("properties", {})
        return {place}.union(*(paths(part, f"{place}.{name}") for name, part in inner.items()))

    earliest, current = (
        paths(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]) for crd in (EARLIEST, CURRENT)
    )
    assert earliest - current == set()
    assert EARLIEST["spec"]["versions"][0]["name"] in {version["name"] for version in CURRENT["spec"]["versions"]}


def test_an_operator_that_is_older_than_the_crd_neither_crashes_nor_undoes(upgraded: Upgraded) -> None:
    """Runs last on this control plane: the CRD stays the newer one."""
    plane, world = upgraded.plane, upgraded.world
    apply_crd(plane, newer())
    world.until(lambda: served(plane, "forecast"), "the newer schema is served")
    capabilities = ["pod-lifecycle", "termination-log-tail", "transient-app-route"]
    spec = {"backend": "vk-new", "class": "virtual", "capabilities": capabilities, "tomorrow": "otherwise"}
    made = {"apiVersion": "outpost.dhnt.io/v1alpha1", "kind": "RuntimeProfile", "metadata": {"name": "vk-new"}}
    plane.admin.create(PROFILES, {**made, "spec": spec})
    plane.admin.patch(f"{PROFILES}/vk-new/status", {"status": {"forecast": "sunny"}})
    world.create("oak-vk-new", labels={"outpost.dhnt.io/backend": "vk-new"})
    with operator(plane.kubeconfig, "--bound", "enforce"):
        world.until_condition("oak-vk-new", "True", "Conforms")
        world.until(lambda: world.profile_condition("vk-new", "Ready")[0] == "True", "the profile is Ready")
    after = world.profile("vk-new")
    assert after["spec"]["tomorrow"] == "otherwise"
    assert after["status"]["forecast"] == "sunny"
