"""Probe, endpoints and the proven path together: kwok agents, the scheduler, our rights, forwarders as tunnel.

One control plane for the file. Each test begins by waiting for the state that it needs, and leaves it as it was.
"""

import shutil
import subprocess
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from operators import PROFILES, ROOT, OperatorProcess, World, install, operator

from clusterconform.cli.demo.shipped import apply_file
from clusterconform.contract.matrix import MATRIX
from clusterconform.contract.profile import manifest_of
from clusterconform.sandbox.admin import RequestRefused
from clusterconform.sandbox.builder import Builder
from clusterconform.sandbox.control_plane import ControlPlane
from clusterconform.sandbox.fleet import Fleet
from clusterconform.sandbox.kwok import kept_alive
from clusterconform.sandbox.nodes import agent_name, agent_node, virtual_node
from clusterconform.sandbox.tunnel import Tunnel

HOSTS = ("alder", "birch", "cedar", "elm")
STOCK = "stock-virtual-kubelet"
DAEMONSET = "/apis/apps/v1/namespaces/clusterconform-system/daemonsets/dks-runtime-probe"
PODS = "/api/v1/namespaces/clusterconform-system/pods"
TAINT = ("outpost.dhnt.io/runtime-unavailable", "sandbox", "NoSchedule")
REASON = "outpost.dhnt.io/runtime-unavailable-reason"
OFF = {"mode": "Off"}
QUICK = {"grace": "1s", "stabilization": "0s"}


@dataclass
class Stage:
    """The control plane with everything that is shipped, its fleet, and the tunnel."""

    plane: ControlPlane
    world: World
    fleet: Fleet
    tunnel: Tunnel
    running: OperatorProcess

    @property
    def agents(self) -> list[str]:
        return [agent_name(host, 0) for host in HOSTS]

    def settings(self, **changes: Any) -> None:
        """Edit the agent profile."""
        self.plane.admin.patch(f"{PROFILES}/k3s", {"spec": changes})

    def condition(self, kind: str) -> tuple[str, str]:
        return self.world.profile_condition("k3s", kind)

    def status(self, block: str) -> dict[str, Any]:
        found: dict[str, Any] = self.world.profile("k3s").get("status", {}).get(block, {})
        return found

    def probed(self) -> set[str]:
        """The nodes on which a probe pod is."""
        return {str(pod["spec"].get("nodeName")) for pod in self.plane.admin.get(PODS)["items"]}

    def probe_of(self, node: str) -> str:
        """The name of the probe pod on ``node``; empty where there is none."""
        for pod in self.plane.admin.get(PODS)["items"]:
            if pod["spec"].get("nodeName") == node and "deletionTimestamp" not in pod["metadata"]:
                return str(pod["metadata"]["name"])
        return ""

    def rolled_out(self) -> bool:
        """Whether every probe pod is of the DaemonSet as it stands, and Ready: none is about to be replaced."""
        found = self.plane.admin.get(DAEMONSET)
        status, wanted = found.get("status", {}), len(HOSTS)
        numbers = [
            status.get(field) for field in ("updatedNumberScheduled", "numberReady", "desiredNumberScheduled")
        ]
        return status.get("observedGeneration") == found["metadata"]["generation"] and numbers == [wanted] * 3

    def probe_says(self, node: str) -> str:
        """The status of Ready of the probe pod on ``node``; empty where there is none yet."""
        for pod in self.plane.admin.get(PODS)["items"]:
            if pod["spec"].get("nodeName") == node and "deletionTimestamp" not in pod["metadata"]:
                conditions = pod["status"].get("conditions") or []
                return next((str(seen["status"]) for seen in conditions if seen["type"] == "Ready"), "")
        return ""

    def probe_becomes(self, node: str, ready: str) -> None:
        """Let the probe pod on ``node`` report so, as its kubelet would."""
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")  # noqa: TID251 - the programs live in real time
        condition = {"type": "Ready", "status": ready, "lastTransitionTime": at}
        self.plane.admin.request(
            "PATCH",
            f"{PODS}/{self.probe_of(node)}/status",
            {"status": {"conditions": [condition]}},
            content_type="application/strategic-merge-patch+json",
        )

    def endpoint(self, node: str) -> tuple[str, int]:
        status = self.world.node(node)["status"]
        external = [seen["address"] for seen in status["addresses"] if seen["type"] == "ExternalIP"]
        return (external or [""])[0], status["daemonEndpoints"]["kubeletEndpoint"]["Port"]

    def kubectl(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        program = shutil.which("kubectl") or shutil.which("kubectl", path=sysconfig.get_path("scripts"))
        assert program is not None
        return subprocess.run(
            [program, f"--kubeconfig={self.plane.kubeconfig}", "-n", "clusterconform-system", *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
        )


@pytest.fixture(scope="module")
def stage(builder: Builder) -> Iterator[Stage]:
    """Four agents, a virtual node and a stock virtual-kubelet; addresses off, the probe on and quick."""
    with ControlPlane(builder, audit=True) as plane:
        plane.start_controller_manager()
        plane.start_scheduler()
        world = install(plane)
        for name in ("rbac.yaml", "admission.yaml"):
            apply_file(plane.admin, ROOT / "deploy" / "base" / name)
        for profile in MATRIX.values():
            raw = manifest_of(profile)
            if "runtimeProbe" in raw["spec"]:
                raw["spec"] |= {
                    "runtimeProbe": QUICK,
                    "addressReconcile": {"mode": "Off"},
                    "nodeGC": {"mode": "Off"},
                }
            plane.admin.create(PROFILES, raw)
        fleet = Fleet(plane)
        now = datetime.now(UTC)  # noqa: TID251 - the programs live in real time
        fleet.create_nodes([kept_alive(agent_node(host, now=now)) for host in HOSTS])
        fleet.create_nodes([virtual_node("alder", "vk-podman", now=now)])
        fleet.heartbeats.keep(["alder-vk-podman"])
        fleet.start_kwok()
        fleet.start_virtual_kubelet(STOCK)
        fleet.await_ready([*(agent_name(host, 0) for host in HOSTS), "alder-vk-podman", STOCK])
        assert fleet.kwok_port is not None
        tunnel = Tunnel(fleet.kwok_port)
        account = plane.service_account_kubeconfig("clusterconform-system", "clusterconform")
        try:
            with operator(account, "--bound", "enforce") as running:
                yield Stage(plane, world, fleet, tunnel, running)
        finally:
            tunnel.close()


def test_the_probe_runs_on_every_agent_and_on_no_virtual_node(stage: Stage) -> None:
    world = stage.world
    for name in stage.agents:
        world.until(lambda name=name: world.labels(name).get("runtime-ready") == "true", f"{name} is marked", 60)  # type: ignore[misc]
    world.until(lambda: stage.probed() == set(stage.agents), "a probe is on each agent and nowhere else", 60)
    assert "runtime-ready" not in world.labels("alder-vk-podman")
    assert "runtime-ready" not in world.labels(STOCK)
    world.until(lambda: stage.condition("ProbeHealthy") == ("True", "RuntimeReady"), "the condition says so")
    assert stage.status("runtimeProbe")["ready"] == len(HOSTS)


@pytest.mark.timeout(600)
def test_logs_and_exec_fail_before_an_address_is_published_and_work_after_and_the_condition_says_so(
    stage: Stage,
) -> None:
    world = stage.world
    for name in stage.agents:
        world.until(lambda name=name: stage.probe_says(name) == "True", f"{name} is probed", 60)  # type: ignore[misc]
    pod = stage.probe_of(stage.agents[0])
    for command in (("logs", pod), ("exec", pod, "--", "true")):
        done = stage.kubectl(*command)
        assert done.returncode != 0
        assert "no preferred addresses found" in done.stderr
    what = "streaming is known not to work"
    world.until(lambda: stage.condition("StreamingVerified") == ("False", "StreamingNotVerified"), what, 60)
    world.until(lambda: stage.status("streaming")["notVerified"] == len(HOSTS), "all were tried", 60)
    message = world.profile("k3s")["status"]["conditions"]
    assert any("NoPreferredAddress" in seen["message"] for seen in message if seen["type"] == "StreamingVerified")
    assert stage.condition("AddressesPublished") == ("Unknown", "SwitchedOff")

    stage.settings(addressReconcile={"mode": "Status"})
    for name in stage.agents:
        world.until(lambda name=name: stage.endpoint(name)[0] != "", f"{name} is published")  # type: ignore[misc]
        stage.tunnel.open(*stage.endpoint(name))
    world.until(lambda: stage.condition("AddressesPublished") == ("True", "EndpointPublished"), "it says so")
    pod = stage.probe_of(stage.agents[0])
    assert "its log is real" in stage.kubectl("logs", pod).stdout
    assert stage.kubectl("exec", pod, "--", "echo", "hello").stdout == "hello\n"
    # Whoever was tried before the tunnel stood is tried again when its probe's pod is another.
    for name in stage.agents:
        stage.plane.admin.delete(f"{PODS}/{stage.probe_of(name)}")
    what = "streaming is verified"
    world.until(lambda: stage.condition("StreamingVerified") == ("True", "StreamingVerified"), what, 60)
    assert stage.status("streaming") == {"verified": len(HOSTS), "notVerified": 0, "notTried": 0}
    assert stage.running.metric("clusterconform_streaming_trials_total") >= 2 * len(HOSTS)

    # A forwarder that is down turns its own agent, and no other.
    name = stage.agents[1]
    endpoint = stage.endpoint(name)
    stage.tunnel.cut(*endpoint)
    stage.plane.admin.delete(f"{PODS}/{stage.probe_of(name)}")  # tried again with the next pod, not in 10 min
    expected = {"verified": len(HOSTS) - 1, "notVerified": 1, "notTried": 0}
    world.until(lambda: stage.status("streaming") == expected, "one is not verified", 60)
    said = stage.running.said("streaming tried", node=name, reason="ConnectionRefused")
    assert endpoint[0] in said[-1]["why"]
    assert stage.condition("ProbeHealthy")[0] == "True"
    stage.tunnel.open(*endpoint)
    stage.plane.admin.delete(f"{PODS}/{stage.probe_of(name)}")
    world.until(lambda: stage.condition("StreamingVerified")[0] == "True", "it is verified again", 60)


def test_on_virtual_nodes_nothing_is_published_and_logs_stay_refused(stage: Stage) -> None:
    for name in ("alder-vk-podman", STOCK):
        assert stage.endpoint(name)[0] == ""
    spec = {"nodeName": "alder-vk-podman", "containers": [{"name": "main", "image": "none"}]}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "talker"}, "spec": spec}
    path = "/api/v1/namespaces/default/pods"
    stage.plane.admin.create(path, manifest)
    with pytest.raises(RequestRefused):
        stage.plane.admin.get(f"{path}/talker/log")


def _another_image(spec: dict[str, Any]) -> None:
    spec["template"]["spec"]["containers"][0]["image"] = "example.com/other:1"


def _host_network(spec: dict[str, Any]) -> None:
    spec["template"]["spec"]["hostNetwork"] = True


def _no_tolerations(spec: dict[str, Any]) -> None:
    spec["template"]["spec"]["tolerations"] = []


def _all_nodes(spec: dict[str, Any]) -> None:
    del spec["template"]["spec"]["affinity"]


@pytest.mark.parametrize("drift", [_another_image, _host_network, _no_tolerations, _all_nodes])
def test_drift_in_any_field_of_the_daemonset_is_put_back(
    stage: Stage, drift: Callable[[dict[str, Any]], None]
) -> None:
    admin = stage.plane.admin
    stage.world.until(lambda: not stage.world.gone(DAEMONSET), "the DaemonSet is there")
    before = admin.get(DAEMONSET)

    def drifts() -> bool:
        drifted = admin.get(DAEMONSET)
        drift(drifted["spec"])
        try:
            admin.request("PUT", DAEMONSET, drifted)
        except RequestRefused:  # its controller has just written its status
            return False
        return True

    stage.world.until(drifts, "somebody changes it")
    stage.world.until(lambda: admin.get(DAEMONSET)["spec"] == before["spec"], "it is put back")


def test_a_daemonset_that_is_deleted_or_has_another_selector_is_made_anew(stage: Stage) -> None:
    admin, world = stage.plane.admin, stage.world
    before = admin.get(DAEMONSET)
    admin.delete(DAEMONSET)
    world.until(
        lambda: not world.gone(DAEMONSET) and admin.get(DAEMONSET)["metadata"]["uid"] != before["metadata"]["uid"],
        "it is made anew",
    )
    world.until(lambda: admin.get(DAEMONSET)["spec"] == before["spec"], "it reads as before")
    world.until(lambda: all(stage.probe_of(name) for name in stage.agents), "the probes run again", 60)


def test_the_image_comes_from_the_profile(stage: Stage) -> None:
    stage.settings(runtimeProbe={**QUICK, "image": "example.com/pause:9"})

    def image() -> str:
        containers = stage.plane.admin.get(DAEMONSET)["spec"]["template"]["spec"]["containers"]
        return str(containers[0]["image"])

    stage.world.until(lambda: image() == "example.com/pause:9", "the image is the profile's")
    stage.settings(runtimeProbe={**QUICK, "image": "rancher/mirrored-pause:3.6"})
    stage.world.until(lambda: image() == "rancher/mirrored-pause:3.6", "the image is back")


def test_an_agent_whose_sandboxes_do_not_start_is_marked_and_freed_again(stage: Stage) -> None:
    world, broken = stage.world, stage.agents[2]
    foreign = ("example.com/maintenance", "disk", "PreferNoSchedule")
    key, value, effect = foreign
    world.patch(broken, {"spec": {"taints": [{"key": key, "value": value, "effect": effect}]}})
    # Its kubelet has said the last it will say by itself: nothing puts back what is said for it now.
    world.until(stage.rolled_out, "all probes are of the newest kind", 120)
    world.until(lambda: stage.probe_says(broken) == "True", "its probe is ready", 60)
    stage.probe_becomes(broken, "False")
    world.until(lambda: TAINT in world.taints(broken), "it is tainted", 60)
    assert world.labels(broken)["runtime-ready"] == "false"
    assert world.node(broken)["metadata"]["annotations"][REASON] == "runtime sandbox probe did not become Ready"
    assert foreign in world.taints(broken)
    world.until(lambda: stage.condition("ProbeHealthy") == ("False", "RuntimesUnavailable"), "it is said", 60)
    stage.probe_becomes(broken, "True")
    world.until(lambda: TAINT not in world.taints(broken), "it is freed", 60)
    assert world.labels(broken)["runtime-ready"] == "true"
    assert REASON not in world.node(broken)["metadata"]["annotations"]
    assert foreign in world.taints(broken)


def test_off_takes_the_daemonset_and_the_marks_away(stage: Stage) -> None:
    world = stage.world
    stage.settings(runtimeProbe={**QUICK, "mode": "Off"})
    world.until(lambda: world.gone(DAEMONSET), "the DaemonSet is gone")
    for name in stage.agents:
        world.until(lambda name=name: "runtime-ready" not in world.labels(name), f"{name} is clean")  # type: ignore[misc]
    world.until(lambda: stage.condition("ProbeHealthy") == ("Unknown", "SwitchedOff"), "the condition says so")
    assert stage.condition("StreamingVerified") == ("Unknown", "SwitchedOff")
    stage.settings(runtimeProbe={**QUICK, "mode": "Enforce"})
    world.until(lambda: not world.gone(DAEMONSET), "the DaemonSet is back")


def test_beside_a_stock_virtual_kubelet_nobody_wrote_what_the_other_writes(stage: Stage) -> None:
    assert not stage.world.writes_to(STOCK)
    assert stage.world.node(STOCK)["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] != 0
    refused = [entry for entry in stage.world.requests() if entry["responseStatus"]["code"] in {401, 403}]
    assert [entry for entry in refused if entry.get("objectRef", {}).get("resource") == "nodes"] == []


def test_without_rights_to_its_probe_one_condition_says_so_and_the_rest_goes_on(stage: Stage) -> None:
    role = "/apis/rbac.authorization.k8s.io/v1/namespaces/clusterconform-system/roles/clusterconform"
    admin = stage.plane.admin
    rules = admin.get(role)["rules"]
    kept = [rule for rule in rules if not {"pods", "pods/log", "daemonsets"} & set(rule["resources"])]
    admin.patch(role, {"rules": kept})
    stage.settings(runtimeProbe={**QUICK, "image": "example.com/pause:10"})
    stage.world.until(lambda: stage.condition("ProbeHealthy") == ("False", "ProbeNotKept"), "it is said", 60)
    name = stage.agents[3]
    stage.world.label(name, runtime="virtual")
    stage.world.until(lambda: stage.world.labels(name)["runtime"] == "agent", "nodes are still kept")
    assert len(stage.running.said("the probe cannot be kept")) <= 2  # in the words of each right that is missing
    admin.patch(role, {"rules": rules})
    stage.world.until(lambda: stage.condition("ProbeHealthy")[1] != "ProbeNotKept", "it is kept again", 90)
