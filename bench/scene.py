"""A cluster with a fleet at rest: etcd and API server of the sandbox, nothing else.

No controller manager and no scheduler run: what is measured is the operator against the API server, and two
cores are few.
"""

import asyncio
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
import yaml
from msgspec import Struct

from bench import fleet
from bench.bare import Job, Result
from bench.client import Call, Credentials, get, lines, open_session
from bench.processes import cpu_seconds
from clusterconform.contract.names import API_VERSION, PLURAL, RUNTIME_LABEL
from clusterconform.sandbox.builder import Builder
from clusterconform.sandbox.control_plane import ADMINISTRATORS, ControlPlane
from clusterconform.sandbox.programs import Program
from clusterconform.sandbox.waiting import wait_until

ROOT: Final = Path(__file__).parents[1]
OPERATOR: Final = "bench-operator"
CLIENT: Final = "bench-client"

_REPAIR_SECONDS: Final = 600.0
_BARE_SECONDS: Final = 900.0
_REQUEST_TOTAL: Final = re.compile(r"^apiserver_request_total\{(.*)\} ([0-9.e+]+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')


class _Metadata(Struct):
    name: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class _Node(Struct):
    metadata: _Metadata


class _Event(Struct):
    type: str
    object: _Node


class _Nodes(Struct):
    class _Metadata(Struct):
        resourceVersion: str  # noqa: N815 - the wire's name

    metadata: _Metadata
    items: list[_Node]


_EVENT: Final = msgspec.json.Decoder(_Event)
_NODES: Final = msgspec.json.Decoder(_Nodes)


class Scene:
    """The cluster, its nodes, and what the bench does to them.

    Attributes:
        plane: the control plane.
        right: by node, the value that its runtime label should have.
    """

    def __init__(self, plane: ControlPlane) -> None:
        """Furnish ``plane`` with the CRD, the namespace and the profiles; no nodes yet."""
        self.plane = plane
        self.right: dict[str, str] = {}
        folder = plane.folder("bench")
        certificate, key = plane.authority.client(CLIENT, ADMINISTRATORS).write(folder, CLIENT)
        authority = folder / "ca.crt"
        authority.write_bytes(plane.authority.certificate)
        self.credentials = Credentials(
            server=plane.server, authority=str(authority), certificate=str(certificate), key=str(key)
        )
        # The same kind of credential and the same rights as the bare client's: neither may be dearer.
        self.kubeconfig = plane.kubeconfig_for(OPERATOR, ADMINISTRATORS)
        self._folder, self._jobs = folder, 0
        self._furnish()

    def _furnish(self) -> None:
        profiles = f"/apis/{API_VERSION}/{PLURAL}"
        crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        for path, file in (
            (crds, "crds/runtimeprofiles.yaml"),
            ("/api/v1/namespaces", "deploy/base/namespace.yaml"),
            (profiles, "crds/profiles.yaml"),
        ):
            if path == profiles:
                wait_until(lambda: self.plane.admin.answers(profiles), what="the CRD is served", seconds=30)
            for manifest in yaml.safe_load_all((ROOT / file).read_text()):
                self.plane.admin.create(path, manifest)
        self.plane.vacate()

    def populate(self, count: int) -> None:
        """Create ``count`` nodes at rest."""
        nodes = fleet.manifests(count, now=datetime.now(UTC))
        self.right = fleet.right_labels(nodes)
        self._all_done(self.bare(fleet.creations(nodes)), count)

    def bare(self, calls: Sequence[Call]) -> Result:
        """Send ``calls`` by the bare client, in a process of its own, as fast as it goes."""
        return self.finish(self.start_bare(calls))

    def start_bare(
        self, calls: Sequence[Call], *, per_second: float = 0.0, seconds: float = 0.0
    ) -> tuple[Program, Path]:
        """Start the bare client; ``finish`` gives its result."""
        self._jobs += 1
        job, result = self._folder / f"{self._jobs}.job", self._folder / f"{self._jobs}.result"
        work = Job(credentials=self.credentials, calls=list(calls), per_second=per_second, seconds=seconds)
        job.write_bytes(msgspec.msgpack.encode(work))
        command = [sys.executable, "-m", "bench.bare", str(job), str(result)]
        return self.plane.programs.start("bare", command, environment=self.environment), result

    def finish(self, started: tuple[Program, Path]) -> Result:
        """Wait for a bare client and give its result.

        Raises:
            ProgramEnded: it failed; the message is its last word.
            TimeoutError: it does not end.
        """
        program, file = started
        deadline = time.monotonic() + _BARE_SECONDS
        while program.running:
            if time.monotonic() > deadline:
                program.kill()
                raise TimeoutError("the bare client does not end")
            time.sleep(0.02)
        if not file.exists():
            program.check()
        return msgspec.msgpack.decode(file.read_bytes(), type=Result)

    @property
    def environment(self) -> dict[str, str]:
        """Variables for the processes of the bench: where its package lies, before whatever was there."""
        return {"PYTHONPATH": ":".join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}

    def drift(self, value: str) -> None:
        """Make the runtime label of every node ``value``."""
        self._all_done(self.bare(fleet.drifts(self.right, value)), len(self.right))

    def floor(self, value: str) -> tuple[Result, float]:
        """Drift every node, then put all right by the bare client with the operator's own requests.

        Returns:
            How that went, and the CPU seconds of the API server and etcd.
        """
        self.drift(value)
        calls = fleet.repairs(asyncio.run(self._read(fleet.NODES)), now=datetime.now(UTC))
        before = self._server_cpu()
        result = self.bare(calls)
        self._all_done(result, len(self.right))
        return result, self._server_cpu() - before

    def _server_cpu(self) -> float:
        parts = (self.plane.etcd, self.plane.api_server)
        return sum(cpu_seconds(part.pid) for part in parts if part is not None)

    def await_right(self, resume: Program) -> tuple[float, float]:
        """Let ``resume`` go on until every node's runtime label is right.

        Watched by one plain watch, opened before: the API server encodes each event once for all watches, so
        this costs it one more write to a socket.

        Returns:
            The seconds that it took, and the CPU seconds of the API server and etcd in that time.

        Raises:
            TimeoutError: some labels never get right.
        """
        return asyncio.run(asyncio.wait_for(self._await_right(resume), _REPAIR_SECONDS))

    async def _await_right(self, program: Program) -> tuple[float, float]:
        started = cpu = 0.0
        async with open_session(self.credentials) as session:
            while True:
                nodes = _NODES.decode(await get(session, fleet.NODES))
                wrong = {node.metadata.name for node in nodes.items if not self._is_right(node)}
                query = f"{fleet.NODES}?watch=1&resourceVersion={nodes.metadata.resourceVersion}"
                async with session.get(query) as response:
                    if not started:
                        started, cpu = time.monotonic(), self._server_cpu()
                        program.resume()
                    # A watch that the API server closes is opened anew, from a new list.
                    async for line in lines(response):
                        node = _EVENT.decode(line).object
                        if self._is_right(node):
                            wrong.discard(node.metadata.name)
                        if not wrong:
                            return time.monotonic() - started, self._server_cpu() - cpu

    def _is_right(self, node: _Node) -> bool:
        return node.metadata.labels.get(RUNTIME_LABEL) == self.right.get(node.metadata.name)

    def annotated(self, prefix: str) -> list[str]:
        """Names of the nodes with an annotation that begins with ``prefix``."""
        nodes = _NODES.decode(asyncio.run(self._read(fleet.NODES))).items
        return [
            node.metadata.name
            for node in nodes
            if any(key.startswith(prefix) for key in node.metadata.annotations)
        ]

    def unannotate(self, names: Sequence[str], key: str) -> None:
        """Take annotation ``key`` off these nodes."""
        body = msgspec.json.encode({"metadata": {"annotations": {key: None}}})
        kind = "application/merge-patch+json"
        self._all_done(
            self.bare([Call("PATCH", f"{fleet.NODES}/{name}", kind, body) for name in names]), len(names)
        )

    def requests(self) -> Counter[tuple[str, str, str, str]]:
        """By verb, resource, subresource and code, how many requests the API server has answered so far."""
        text = asyncio.run(self._read("/metrics")).decode()
        counts = Counter[tuple[str, str, str, str]]()
        for labels, value in _REQUEST_TOTAL.findall(text):
            of = dict(_LABEL.findall(labels))
            counts[of["verb"], of["resource"], of["subresource"], of["code"]] += int(float(value))
        return counts

    async def _read(self, path: str) -> bytes:
        async with open_session(self.credentials) as session:
            return await get(session, path)

    @staticmethod
    def _all_done(result: Result, count: int) -> None:
        if result.answered != count:
            raise RuntimeError(f"the bare client was to be answered {count} times, but got {result.codes}")


@contextmanager
def scene(count: int, *, audit: bool = False) -> Iterator[Scene]:
    """Start a cluster with ``count`` nodes at rest; it ends with the context."""
    with Builder() as builder, ControlPlane(builder, audit=audit) as plane:
        staged = Scene(plane)
        staged.populate(count)
        yield staged
