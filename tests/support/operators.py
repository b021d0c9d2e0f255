"""The operator as a user runs it: a process of its own, under the shipped ServiceAccount."""

import json
import os
import signal
import subprocess
import sysconfig
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from clusterconform.sandbox.admin import RequestRefused
from clusterconform.sandbox.control_plane import ControlPlane
from clusterconform.sandbox.waiting import wait_until

PROGRAM = Path(sysconfig.get_path("scripts")) / "clusterconform"
ROOT = Path(__file__).parents[2]
NODES = "/api/v1/nodes"
PROFILES = "/apis/outpost.dhnt.io/v1alpha1/runtimeprofiles"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
STATE = "/api/v1/namespaces/clusterconform-system/configmaps/clusterconform-state"


class OperatorProcess:
    """A running ``clusterconform run`` and what it said."""

    def __init__(
        self,
        kubeconfig: Path,
        *flags: str,
        program: Sequence[str | Path] = (PROGRAM,),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.port = 0
        self.lines: list[dict[str, Any]] = []
        self.rubbish: list[str] = []
        command = [*map(str, program), "run", "--kubeconfig", str(kubeconfig), "--listen", "127.0.0.1:0", *flags]
        self._process = subprocess.Popen(
            command,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            try:
                entry = json.loads(line)
            except ValueError:
                self.rubbish.append(line)
                continue
            self.port = entry.get("port", self.port)
            self.lines.append(entry)

    @property
    def pid(self) -> int:
        return self._process.pid

    def said(self, message: str, **fields: str) -> list[dict[str, Any]]:
        """The lines with this message and these fields."""
        return [
            line
            for line in list(self.lines)
            if line["message"] == message and all(line.get(name) == value for name, value in fields.items())
        ]

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of a health path; 0 where nobody listens."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def metric(self, name: str) -> float:
        """The sum of a metric's samples."""
        lines = self.get("/metrics")[1].splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.split("{")[0].split(" ")[0] == name)

    def resident(self) -> int:
        """Its resident memory in KiB, as Linux counts it."""
        status = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        (line,) = [line for line in status if line.startswith("VmRSS:")]
        return int(line.split()[1])

    def await_ready(self) -> None:
        wait_until(
            lambda: not self.running or (self.port != 0 and self.get("/readyz")[0] == 200),
            what="the operator is ready",
            seconds=60,
        )
        assert self.running, self.rubbish

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def kill(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def wait(self, seconds: float = 20) -> int:
        """Exit code, once it has ended by itself."""
        code = self._process.wait(seconds)
        self._reader.join()
        assert self._process.stderr is not None
        self._process.stderr.close()
        return code

    def stop(self) -> int:
        """Ask it to end as Kubernetes would, and give its exit code."""
        if self.running:
            self.kill(signal.SIGTERM)
        try:
            return self.wait()
        except subprocess.TimeoutExpired:
            self.kill(signal.SIGKILL)
            self.wait()
            raise


@contextmanager
def operator(
    kubeconfig: Path,
    *flags: str,
    ready: bool = True,
    program: Sequence[str | Path] = (PROGRAM,),
    environment: Mapping[str, str] | None = None,
) -> Iterator[OperatorProcess]:
    """An operator that runs for the length of the block and then stops in order, without a traceback."""
    process = OperatorProcess(kubeconfig, *flags, program=program, environment=environment)
    try:
        if ready:
            process.await_ready()
        yield process
    finally:
        code = process.stop()
    assert code == 0, process.rubbish
    assert not process.rubbish, process.rubbish
    bad = [line for line in process.lines if "exception" in line]
    assert not bad, bad


class World:
    """The cluster as a test sees it."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane, self.admin = plane, plane.admin

    def node(self, name: str) -> dict[str, Any]:
        stored: dict[str, Any] = self.admin.get(f"{NODES}/{name}")
        return stored

    def create(self, name: str, **parts: Any) -> dict[str, Any]:
        """A bare Node: ``labels``, ``annotations``, ``taints``, ``status``, ``provider_id``."""
        metadata = {"name": name}
        metadata |= {key: parts[key] for key in ("labels", "annotations") if key in parts}
        spec = {"taints": parts["taints"]} if "taints" in parts else {}
        if "provider_id" in parts:
            spec["providerID"] = parts["provider_id"]
        manifest = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec}
        manifest["status"] = parts.get("status", {})
        stored: dict[str, Any] = self.admin.create(NODES, manifest)
        return stored

    def patch(self, name: str, change: dict[str, Any]) -> dict[str, Any]:
        stored: dict[str, Any] = self.admin.patch(f"{NODES}/{name}", change)
        return stored

    def label(self, name: str, **labels: str | None) -> None:
        """Set or remove our labels, written without their prefix."""
        self.patch(name, {"metadata": {"labels": {f"outpost.dhnt.io/{key}": to for key, to in labels.items()}}})

    def labels(self, name: str) -> dict[str, str]:
        """Our labels of a node, without their prefix."""
        labels = self.node(name)["metadata"].get("labels") or {}
        prefix = "outpost.dhnt.io/"
        return {key.removeprefix(prefix): value for key, value in labels.items() if key.startswith(prefix)}

    def taints(self, name: str) -> list[tuple[str, str, str]]:
        taints = self.node(name)["spec"].get("taints") or []
        return [(taint["key"], taint.get("value", ""), taint["effect"]) for taint in taints]

    def condition(self, name: str) -> tuple[str, str]:
        """Status and reason of our condition; empty where it is absent."""
        for seen in self.node(name)["status"].get("conditions") or []:
            if seen["type"] == "RuntimeConformant":
                return seen["status"], seen["reason"]
        return "", ""

    def profile(self, name: str) -> dict[str, Any]:
        stored: dict[str, Any] = self.admin.get(f"{PROFILES}/{name}")
        return stored

    def profile_condition(self, name: str, kind: str) -> tuple[str, str]:
        for seen in self.profile(name).get("status", {}).get("conditions") or []:
            if seen["type"] == kind:
                return seen["status"], seen["reason"]
        return "", ""

    def until(self, condition: Callable[[], bool], what: str, seconds: float = 30) -> None:
        wait_until(condition, what=what, seconds=seconds)

    def until_condition(self, name: str, status: str, reason: str, seconds: float = 45) -> None:
        self.until(
            lambda: self.condition(name) == (status, reason), f"{name} is {status}/{reason}", seconds=seconds
        )

    def gone(self, path: str) -> bool:
        try:
            self.admin.get(path)
        except RequestRefused as refused:
            return refused.status == 404
        return False

    def delete(self, path: str) -> None:
        """Delete an object and wait until it is gone; one that is gone already is as good."""
        if not self.gone(path):
            self.admin.delete(path)
            self.until(lambda: self.gone(path), f"{path} is gone")

    def requests(self, user: str = "system:serviceaccount:clusterconform-system:clusterconform") -> list[Any]:
        """What the audit log holds of ``user``'s requests, in order."""
        entries = [json.loads(line) for line in self.plane.audit_lines()]
        return [entry for entry in entries if entry["user"]["username"] == user]

    def writes_to(self, name: str) -> list[Any]:
        """Our writes to a node and its subresources."""
        return [
            entry
            for entry in self.requests()
            if entry.get("objectRef", {}).get("resource") == "nodes"
            and entry["objectRef"].get("name") == name
            and entry["verb"] not in {"get", "list", "watch"}
        ]


def install(plane: ControlPlane) -> World:
    """Namespace and CRD on a control plane of a test's own."""
    world = World(plane)
    plane.admin.create(
        "/api/v1/namespaces", yaml.safe_load((ROOT / "deploy" / "base" / "namespace.yaml").read_text())
    )
    plane.vacate()
    plane.admin.create(CRDS, yaml.safe_load((ROOT / "crds" / "runtimeprofiles.yaml").read_text()))
    world.until(lambda: plane.admin.answers(PROFILES), "the CRD is served")
    return world
