"""The sandbox's programs work together, and leave nothing behind."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from clusterconform.sandbox.admin import RequestRefused
from clusterconform.sandbox.builder import Builder
from clusterconform.sandbox.command_lines import NodeLifecycle
from clusterconform.sandbox.control_plane import ControlPlane
from clusterconform.sandbox.fleet import Fleet, mixed_fleet
from clusterconform.sandbox.kwok import kept_alive
from clusterconform.sandbox.nodes import agent_name, agent_node, virtual_node
from clusterconform.sandbox.tunnel import Tunnel
from clusterconform.sandbox.waiting import SandboxFailed, wait_until

NOW = datetime.now(UTC)  # noqa: TID251 - the programs live in real time

# Opens a sandbox, tells where it lives and what runs in it, and waits to be asked to end.
SANDBOX = """
import json, sys, time
from clusterconform.sandbox.builder import Builder
from clusterconform.sandbox.control_plane import ControlPlane
from clusterconform.sandbox.parts import VERSIONS
with Builder(kubernetes=VERSIONS[sys.argv[1]]) as builder, ControlPlane(builder) as plane:
    pids = [program.pid for program in plane.programs.running]
    print(json.dumps({"directory": str(plane.directory), "pids": pids}), flush=True)
    time.sleep(600)
"""


def node(plane: ControlPlane, name: str) -> dict[str, Any]:
    stored = plane.admin.get(f"/api/v1/nodes/{name}")
    assert isinstance(stored, dict)
    return stored


def exists(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_the_api_server_tells_its_pinned_version(plane: ControlPlane) -> None:
    version, pinned = plane.admin.get("/version"), plane.builder.kubernetes
    assert version["gitVersion"] == pinned.version
    assert f"{version['major']}.{version['minor']}" == pinned.minor


def test_admission_policies_are_served_but_for_the_mutating_ones_before_1_36(plane: ControlPlane) -> None:
    resources = plane.admin.get("/apis/admissionregistration.k8s.io/v1")["resources"]
    kinds = {resource["name"] for resource in resources}
    assert "validatingadmissionpolicies" in kinds
    assert ("mutatingadmissionpolicies" in kinds) is plane.builder.kubernetes.pins_addresses


def test_a_certificate_makes_its_holder_a_member_of_its_groups(plane: ControlPlane) -> None:
    config = json.loads(plane.kubeconfig_for("jane", ["devs"]).read_text())
    assert config["clusters"][0]["cluster"]["server"] == plane.server
    assert plane.kubeconfig_for("jane", ["devs"]) == plane.kubeconfig_for("jane", ["devs"])
    assert plane.kubeconfig_for("jane", ["devs"]) != plane.kubeconfig_for("jane", ["ops"])


def test_a_service_account_gets_a_token_for_its_namespace(plane: ControlPlane) -> None:
    config = json.loads(plane.service_account_kubeconfig("default", "default").read_text())
    assert config["users"][0]["user"]["token"].count(".") == 2
    assert config["contexts"][0]["context"]["namespace"] == "default"


def test_a_service_account_that_is_absent_gets_none(plane: ControlPlane) -> None:
    with pytest.raises(SandboxFailed, match=r"^No token for the service account default/nobody: .*404\)\.$"):
        plane.service_account_kubeconfig("default", "nobody")


def test_requests_are_recorded_when_they_are_done(plane: ControlPlane) -> None:
    with pytest.raises(RequestRefused):
        plane.admin.get("/api/v1/nodes/nobody-knows")

    def recorded() -> list[dict[str, Any]]:
        events = map(json.loads, plane.audit_lines())
        return [event for event in events if event["requestURI"] == "/api/v1/nodes/nobody-knows"]

    wait_until(lambda: bool(recorded()), what="the request is in the audit log", seconds=10)
    (event,) = recorded()
    assert event["stage"] == "ResponseComplete"
    assert event["responseStatus"]["code"] == 404
    assert event["user"]["username"] == "sandbox-admin"


def test_the_api_server_comes_back_at_its_address_with_its_data(plane: ControlPlane) -> None:
    server = plane.server
    for end in (plane.stop_api_server, plane.kill_api_server):
        before = plane.admin.get("/api/v1/namespaces/default")["metadata"]["uid"]
        end()
        assert not plane.admin.answers("/readyz")
        plane.start_api_server()
        assert plane.server == server
        assert plane.admin.get("/api/v1/namespaces/default")["metadata"]["uid"] == before


def test_an_api_server_that_cannot_start_says_why(builder: Builder) -> None:
    plane = ControlPlane(builder, api_server_flags=["--no-such-flag"])
    with pytest.raises(SandboxFailed, match=r"kube-apiserver ended with code 1: .*no-such-flag"):
        plane.start()
    with pytest.raises(SandboxFailed, match="not running"):
        _ = plane.directory


def test_kwok_keeps_an_agent_ready_until_it_is_silenced(plane: ControlPlane, fleet: Fleet) -> None:
    plane.start_controller_manager(NodeLifecycle(monitor_period=1, monitor_grace_period=12))
    lost = agent_node("lost", now=NOW, silent_since=NOW)
    name = lost["metadata"]["name"]
    fleet.create_nodes([kept_alive(lost)])
    fleet.await_ready([name])
    fleet.silence([name])
    wait_until(lambda: name not in fleet.ready(), what="the silent agent is missed", seconds=60)
    fleet.revive([name])
    fleet.await_ready([name])
    plane.start_controller_manager()


def test_heartbeats_keep_a_virtual_node_ready(plane: ControlPlane, fleet: Fleet) -> None:
    manifest = virtual_node("lark", "vk-podman", now=NOW, silent_since=NOW)
    fleet.create_nodes([manifest])
    fleet.heartbeats.keep(["lark-vk-podman"])
    fleet.await_ready(["lark-vk-podman"])
    assert node(plane, "lark-vk-podman")["spec"]["taints"][0] == manifest["spec"]["taints"][0]


def test_a_real_kubelet_registers_and_becomes_ready(plane: ControlPlane, fleet: Fleet) -> None:
    name = agent_name("kite", 0)
    labels = {"outpost.dhnt.io/runtime": "agent"}
    kubelet = fleet.start_hollow_kubelet(name, labels=labels, annotations={"k3s.io/hostname": name})
    fleet.await_ready([name])
    stored = node(plane, name)
    assert stored["metadata"]["labels"].items() >= labels.items()
    assert stored["metadata"]["annotations"]["k3s.io/hostname"] == name
    assert stored["status"]["nodeInfo"]["kubeletVersion"] == plane.builder.kubernetes.version
    kubelet.stop()


def test_a_stock_virtual_kubelet_registers_and_becomes_ready(plane: ControlPlane, fleet: Fleet) -> None:
    kubelet = fleet.start_virtual_kubelet("stock")
    fleet.await_ready(["stock"])
    stored = node(plane, "stock")
    assert stored["metadata"]["labels"]["type"] == "virtual-kubelet"
    assert "virtual-kubelet.io/last-applied-node-status" in stored["metadata"]["annotations"]
    assert {"key": "virtual-kubelet.io/provider", "value": "mock", "effect": "NoSchedule"} in stored["spec"][
        "taints"
    ]
    kubelet.stop()


@pytest.fixture
def tunnel(fleet: Fleet) -> Iterator[Tunnel]:
    assert fleet.kwok_port is not None
    tunnel = Tunnel(fleet.kwok_port)
    yield tunnel
    tunnel.close()


def test_logs_of_an_agent_pass_through_its_tunnel(plane: ControlPlane, fleet: Fleet, tunnel: Tunnel) -> None:
    name = agent_name("heron", 0)
    fleet.create_nodes([kept_alive(agent_node("heron", now=NOW))])
    pods = "/api/v1/namespaces/default/pods"
    spec = {"nodeName": name, "containers": [{"name": "main", "image": "none"}]}
    plane.admin.create(pods, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "talker"}, "spec": spec})
    wait_until(
        lambda: plane.admin.get(f"{pods}/talker")["status"]["phase"] == "Running",
        what="the pod runs",
        seconds=30,
    )
    with pytest.raises(RequestRefused, match="no preferred addresses found"):
        plane.admin.get(f"{pods}/talker/log")
    port = plane.ports.take()
    tunnel.open("127.0.3.4", port)
    status = {
        "addresses": [{"type": "ExternalIP", "address": "127.0.3.4"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }
    strategic = "application/strategic-merge-patch+json"
    plane.admin.request("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, content_type=strategic)
    assert "its log is real" in plane.admin.get(f"{pods}/talker/log")


def test_a_mixed_fleet_becomes_ready_and_ends_without_a_trace(builder: Builder) -> None:
    with ControlPlane(builder) as plane:
        directory = plane.directory
        plane.start_controller_manager()
        plane.start_scheduler()
        fleet = mixed_fleet(plane, 40)
        assert len(fleet.ready()) == 40
        pids = [program.pid for program in plane.programs.running]
        assert len(pids) == 7
        sockets = set(Path("/tmp").glob("kubelet_remote_*.sock"))  # noqa: S108 - kubemark's choice
    assert not any(map(exists, pids))
    assert not directory.exists()
    left = set(Path("/tmp").glob("kubelet_remote_*.sock"))  # noqa: S108 - kubemark's choice
    assert len(left & sockets) < len(sockets)


@pytest.mark.parametrize(
    ("number", "leaves_files"),
    [(signal.SIGTERM, False), (signal.SIGINT, False), (signal.SIGKILL, True)],
    ids=lambda it: it.name if isinstance(it, signal.Signals) else "",
)
def test_a_sandbox_that_is_asked_to_end_leaves_nothing(
    number: signal.Signals, *, leaves_files: bool, builder: Builder, tmp_path: Path
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SANDBOX, builder.kubernetes.minor],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path)},
    ) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        process.send_signal(number)
        process.wait(30)
    wait_until(lambda: not any(map(exists, told["pids"])), what="all programs are gone", seconds=10)
    # After SIGKILL nobody is left to remove them; the next sandbox does.
    assert Path(told["directory"]).exists() is leaves_files
