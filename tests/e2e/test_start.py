"""How the operator starts, waits, survives, and says what is missing: each in one clear sentence."""

import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from operators import CRDS, NODES, PROFILES, PROGRAM, ROOT, OperatorProcess, World, install, operator

from clusterconform.sandbox.control_plane import ControlPlane
from clusterconform.sandbox.nodes import virtual_node

NOW = datetime.now(UTC)  # noqa: TID251 - the programs live in real time
CRD = yaml.safe_load((ROOT / "crds" / "runtimeprofiles.yaml").read_text())
NAMESPACE = yaml.safe_load((ROOT / "deploy" / "base" / "namespace.yaml").read_text())


def _refused(plane: ControlPlane) -> tuple[int, str]:
    """Exit code and last word of an operator that cannot start."""
    command = [str(PROGRAM), "run", "--kubeconfig", str(plane.kubeconfig), "--listen", "127.0.0.1:0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr.strip().splitlines()[-1]


def test_each_thing_missing_is_one_sentence_and_exit_code_2(bare: ControlPlane) -> None:
    code, said = _refused(bare)
    assert (code, "namespace clusterconform-system is missing" in said) == (2, True), said
    bare.admin.create("/api/v1/namespaces", NAMESPACE)
    code, said = _refused(bare)
    assert (code, "CRD runtimeprofiles.outpost.dhnt.io is missing" in said) == (2, True), said
    old = yaml.safe_load((ROOT / "crds" / "runtimeprofiles.yaml").read_text())
    status = old["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    del status["properties"]["nodes"]["properties"]["contested"]
    old["spec"]["versions"][0]["additionalPrinterColumns"] = []
    bare.admin.create(CRDS, old)
    World(bare).until(lambda: bare.admin.answers(PROFILES), "the CRD is served")
    code, said = _refused(bare)
    assert (code, "is older than this program" in said, "status.nodes.contested" in said) == (
        2,
        True,
        True,
    ), said


def test_an_operator_started_before_its_api_server_waits_with_one_line_and_then_works(
    bare: ControlPlane,
) -> None:
    world = install(bare)
    world.create("oak-vk-podman", labels={"outpost.dhnt.io/backend": "vk-podman"})
    bare.stop_api_server()
    with operator(bare.kubeconfig, "--bound", "enforce", ready=False) as process:
        world.until(lambda: bool(process.said("waiting for the API server")), "it says that it waits")
        assert process.get("/livez")[0] == 200
        assert process.get("/readyz")[0] == 503
        bare.start_api_server()
        process.await_ready()
        world.until(lambda: world.labels("oak-vk-podman").get("runtime") == "virtual", "the node is repaired")
        assert len(process.said("waiting for the API server")) == 1


def test_a_killed_api_server_is_survived_and_drift_made_meanwhile_is_repaired(bare: ControlPlane) -> None:
    world = install(bare)
    world.create("oak-vk-podman", labels={"outpost.dhnt.io/backend": "vk-podman"})
    with operator(bare.kubeconfig, "--bound", "enforce") as process:
        world.until(lambda: world.labels("oak-vk-podman").get("runtime") == "virtual", "the node is repaired")
        bare.kill_api_server()
        world.until(lambda: not bare.admin.answers("/readyz"), "the API server is gone")
        bare.start_api_server()
        world.label("oak-vk-podman", runtime="agent")
        world.until(lambda: world.labels("oak-vk-podman")["runtime"] == "virtual", "repaired again", seconds=60)
        assert process.get("/livez")[0] == 200


def test_the_observe_bound_is_the_default_computes_everything_and_writes_no_node(
    account: Path, world: World
) -> None:
    world.create("oak-vk-podman", labels={"outpost.dhnt.io/backend": "vk-podman"})
    world.create("liar", labels={"outpost.dhnt.io/backend": "vk-podman"}, provider_id="k3s://liar")
    before = len(world.requests())
    with operator(account):
        world.until(
            lambda: world.profile("vk-podman").get("status", {}).get("nodes", {}).get("conflicting") == 1,
            "the status counts them",
        )
        assert world.profile("vk-podman")["status"]["nodes"]["drifted"] == 1
    writes = [
        entry
        for entry in world.requests()[before:]
        if entry.get("objectRef", {}).get("resource") == "nodes" and entry["verb"] not in {"get", "list", "watch"}
    ]
    assert writes == []


def test_without_the_slim_stream_the_end_is_the_same(account: Path, world: World) -> None:
    name = world.admin.create(NODES, virtual_node("ash", "vk-podman", now=NOW))["metadata"]["name"]
    with operator(account, "--bound", "enforce", "--whole-stream"):
        world.create("oak-vk-podman", labels={"outpost.dhnt.io/backend": "vk-podman"})
        world.label(name, runtime="agent")
        world.until(lambda: world.labels(name)["runtime"] == "virtual", "the drift is repaired")
        world.until_condition("oak-vk-podman", "True", "Conforms")
        nodes = [node["metadata"]["name"] for node in world.admin.get(NODES)["items"]]
        count = sum(world.labels(node).get("backend") == "vk-podman" for node in nodes)
        world.delete(f"{NODES}/{name}")
        world.until(
            lambda: world.profile("vk-podman")["status"]["nodes"]["total"] == count - 1,
            "the deleted one is not counted",
        )


def test_a_missing_right_is_named_and_the_other_work_goes_on_b91(
    bare: ControlPlane,
) -> None:
    world = install(bare)
    rbac = [item for item in yaml.safe_load_all((ROOT / "deploy" / "base" / "rbac.yaml").read_text()) if item]
    for item in rbac:
        if item["kind"] == "ClusterRole":
            for rule in item["rules"]:
                if rule["resources"] == ["nodes"] and "patch" in rule["verbs"]:
                    rule["verbs"].remove("patch")
        _create(bare, item)
    account = bare.service_account_kubeconfig("clusterconform-system", "clusterconform")
    world.create("oak-vk-podman", labels={"outpost.dhnt.io/backend": "vk-podman"})
    world.admin.create(NODES, virtual_node("ash", "vk-native", now=NOW))
    with operator(account, "--bound", "enforce") as process:
        world.until(lambda: bool(process.said("write failed", node="oak-vk-podman")), "the refusal is logged")
        assert 'cannot patch resource "nodes"' in process.said("write failed")[0]["error"]
        world.until(
            lambda: world.profile_condition("vk-podman", "Ready") == ("False", "WritesFailing"),
            "the profile names it",
        )
        world.until_condition("ash-vk-native", "True", "Conforms")  # another right, another kind of write


def _create(plane: ControlPlane, item: dict[str, Any]) -> None:
    group, _, version = item["apiVersion"].rpartition("/")
    base = f"/apis/{group}/{version}" if group else f"/api/{version}"
    namespace = item["metadata"].get("namespace")
    place = f"/namespaces/{namespace}" if namespace else ""
    plane.admin.create(f"{base}{place}/{item['kind'].lower()}s", item)


def test_a_port_that_is_taken_is_one_sentence_and_exit_code_2(account: Path, world: World) -> None:
    with operator(account) as first:
        command = [str(PROGRAM), "run", "--kubeconfig", str(account), "--listen", f"127.0.0.1:{first.port}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert f"cannot listen on 127.0.0.1:{first.port}" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_it_stops_in_order_within_seconds(account: Path, world: World) -> None:
    process = OperatorProcess(account)
    process.await_ready()
    assert process.stop() == 0
    assert process.said("stopped")
