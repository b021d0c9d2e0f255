"""The Helm section of docs/install.md, walked through with the real helm, and what is left when it is over."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
import yaml
from docs_blocks import INSTALL, section
from operators import NODES, PROFILES
from walk import DEPLOYMENT, Walk, marks

from clusterconform.contract.matrix import MATRIX
from clusterconform.contract.names import CRD_NAME
from clusterconform.sandbox.builder import Builder
from clusterconform.sandbox.control_plane import ControlPlane
from clusterconform.sandbox.nodes import agent_node, virtual_node
from clusterconform.sandbox.parts import HELM

Thing = tuple[str, str, str]

CHART: Final = "clusterconform deploy/chart --namespace default"
PINNING: Final = ("MutatingAdmissionPolicy", "", "clusterconform-pin-endpoint")
# They come and go by themselves: Events, and the Leases and endpoints of whoever runs.
FLEETING: Final = ("events", "events.events.k8s.io", "leases.coordination.k8s.io")


@pytest.fixture
def helm(builder: Builder) -> Path:
    """The program."""
    return builder.provide(HELM)


@pytest.fixture
def walk(builder: Builder, helm: Path, tmp_path: Path) -> Iterator[Walk]:
    with ControlPlane(builder, audit=True) as plane:
        plane.start_controller_manager()
        walk = Walk(plane, tmp_path, helm)
        try:
            yield walk
        finally:
            walk.close()


def everything(walk: Walk) -> set[Thing]:
    """Kind, namespace and name of all that the API server stores, but for what is fleeting."""
    kinds = [
        kind for kind in walk.run("kubectl api-resources --verbs=list -o name").split() if kind not in FLEETING
    ]
    found = yaml.safe_load(walk.run(f"kubectl get -A -o yaml {','.join(kinds)}"))["items"]
    return {
        (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"])
        for item in found
        if item["kind"] != "ComponentStatus"  # asked for at that moment, stored nowhere
    }


@pytest.mark.timeout(500)
def test_install_upgrade_and_uninstall_leave_the_crd_and_the_profiles(walk: Walk) -> None:
    world, admin = walk.world, walk.plane.admin
    at = datetime.now(UTC)  # noqa: TID251 - the programs live in real time
    drifted = virtual_node("oak", "vk-podman", now=at)
    drifted["metadata"]["labels"].pop("outpost.dhnt.io/runtime")
    names = [admin.create(NODES, raw)["metadata"]["name"] for raw in (drifted, agent_node("elm", now=at))]
    nodes = {name: marks(world.node(name)) for name in names}
    before = everything(walk)
    install, upgrade, uninstall = section(INSTALL, "With Helm")

    walk.run(install)
    assert "--bound=observe" in str(admin.get(DEPLOYMENT))
    walk.roll_out()
    walk.leader()
    world.until(lambda: not world.gone(f"{PROFILES}/vk-podman"), "the profiles are seeded")
    world.until(lambda: walk.drifted("vk-podman") == 1, "it sees the drift")
    assert world.requests(), "the process has the account that the chart made"
    assert {name: marks(world.node(name)) for name in names} == nodes
    assert [entry for name in names for entry in world.writes_to(name)] == []

    walk.run(upgrade)
    assert "--bound=enforce" in str(admin.get(DEPLOYMENT))
    walk.roll_out()
    world.until_condition("oak-vk-podman", "True", "Conforms", seconds=60)
    assert world.labels("oak-vk-podman")["runtime"] == "virtual"

    pin = f"helm upgrade {CHART} --reuse-values --set pinnedAddresses=true"
    if walk.plane.builder.kubernetes.pins_addresses:
        walk.run(pin)
        assert PINNING in everything(walk)
    else:
        with pytest.raises(AssertionError, match=r"pinnedAddresses needs Kubernetes 1\.36 or newer"):
            walk.run(pin)
        assert "--bound=enforce" in str(admin.get(DEPLOYMENT))

    scale, *rest = uninstall.splitlines()
    walk.run(scale)
    walk.roll_out()
    assert walk.pods == []
    for command in rest:
        walk.run(command)
    assert {name: marks(world.node(name)) for name in names} == nodes
    profiles = {("RuntimeProfile", "", str(backend)) for backend in MATRIX}
    crd = {("CustomResourceDefinition", "", CRD_NAME), ("APIService", "", "v1alpha1.outpost.dhnt.io")}
    world.until(lambda: everything(walk) - before == profiles | crd, "nothing else is left", seconds=60)
    assert before <= everything(walk)
