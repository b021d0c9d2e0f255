"""docs/install.md, walked through: each block is run, and the operator's processes play its pods."""

import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from docs_blocks import INSTALL, section
from operators import NODES, PROFILES
from walk import Walk, marks

from clusterconform.sandbox.builder import Builder
from clusterconform.sandbox.control_plane import ControlPlane
from clusterconform.sandbox.nodes import agent_node, virtual_node


@pytest.fixture
def walk(builder: Builder, tmp_path: Path) -> Iterator[Walk]:
    with ControlPlane(builder, audit=True) as plane:
        plane.start_controller_manager()
        walk = Walk(plane, tmp_path)
        try:
            yield walk
        finally:
            walk.close()


@pytest.mark.timeout(500)
def test_the_page_can_be_walked_through(walk: Walk) -> None:
    world, admin = walk.world, walk.plane.admin
    at = datetime.now(UTC)  # noqa: TID251 - the programs live in real time
    drifted = virtual_node("oak", "vk-podman", now=at)
    drifted["metadata"]["labels"].pop("outpost.dhnt.io/runtime")
    drifted["spec"]["taints"] = []
    names = [
        admin.create(NODES, raw)["metadata"]["name"]
        for raw in (drifted, virtual_node("ash", "vk-native", now=at), agent_node("elm", now=at))
    ]
    before = {name: marks(world.node(name)) for name in names}

    first, *looks = section(INSTALL, "1. Look")
    walk.run(first)
    walk.roll_out()
    walk.leader()
    world.until(lambda: not world.gone(f"{PROFILES}/vk-podman"), "the profiles are seeded")
    world.until(lambda: walk.drifted("vk-podman") == 1, "it sees the drift")
    shown = [walk.run(block) for block in looks]
    assert "vk-podman" in shown[0]
    assert f"/api/v1/nodes/{drifted['metadata']['name']}" in shown[1]
    assert {name: marks(world.node(name)) for name in names} == before
    writes = [entry for name in names for entry in world.writes_to(name)]
    assert writes == []

    walk.section("2. Act")
    walk.roll_out()
    world.until_condition("oak-vk-podman", "True", "Conforms", seconds=60)
    assert world.labels("oak-vk-podman")["runtime"] == "virtual"

    (holder,) = walk.section("3. Lose the leader")
    assert holder
    lost = walk.leader()
    lost.kill(signal.SIGKILL)
    assert lost.wait() == -signal.SIGKILL
    world.label("oak-vk-podman", runtime="agent")
    world.until(lambda: world.labels("oak-vk-podman")["runtime"] == "virtual", "its heir repairs", seconds=60)
    walk.pods.remove(lost)
    assert walk.section("3. Lose the leader") not in ([holder], [""])

    walk.section("4. Upgrade")
    walk.roll_out()
    walk.leader()
    world.until_condition("oak-vk-podman", "True", "Conforms", seconds=60)

    scale, *rest = section(INSTALL, "5. Uninstall")[0].splitlines()
    walk.run(scale)
    walk.roll_out()
    assert walk.pods == []
    for command in rest:
        walk.run(command)
    assert {name: marks(world.node(name)) for name in names} == before
    assert world.gone("/api/v1/namespaces/clusterconform-system")
    assert not admin.answers(PROFILES)
    left = walk.run("kubectl get clusterroles,clusterrolebindings,validatingadmissionpolicies -o name")
    left += walk.run("kubectl get validatingadmissionpolicybindings,roles,rolebindings -A -o name")
    assert "clusterconform" not in left
