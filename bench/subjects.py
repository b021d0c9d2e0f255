"""The operators that are measured, and a running one."""

import http.client
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from bench.processes import await_rest, cpu_seconds, peak_mib
from bench.scene import Scene
from clusterconform.sandbox.programs import Program

PROGRAM: Final = (sys.executable, "-c", "from clusterconform.cli.main import main; main()")
"""Ours, as its installed script would start it, but in this interpreter wherever that script lies."""

_READY_SECONDS: Final = 300.0
# After its first list the operator looks at each node once more when ten clean seconds are over.
_CLEAN_SECONDS: Final = 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """An operator that can be measured.

    Attributes:
        name: as it stands in the tables.
        command: its command line, given a kubeconfig and a free port.
        ours: whether it has our health and metrics.
    """

    name: str
    command: Callable[[Path, int], list[str]]
    ours: bool = True


def _own(*flags: str) -> Callable[[Path, int], list[str]]:
    def command(kubeconfig: Path, port: int) -> list[str]:
        return [
            *PROGRAM,
            *("run", "--kubeconfig", str(kubeconfig), "--bound", "enforce"),
            *("--listen", f"127.0.0.1:{port}"),
            # It is stopped for longer than a leader may be.
            *("--lease-duration", "290s", "--renew-deadline", "280s", *flags),
        ]

    return command


def _kopf(file: str) -> Callable[[Path, int], list[str]]:
    def command(kubeconfig: Path, port: int) -> list[str]:  # noqa: ARG001 - found by KUBECONFIG, serves nothing
        path = str(Path(__file__).with_name(file))
        return [sys.executable, "-m", "kopf", "run", "--standalone", "--all-namespaces", "--quiet", path]

    return command


OURS: Final = Subject(name="ours", command=_own())
REPLICA: Final = Subject(
    name="a replica", command=_own("--lease-duration", "15s", "--renew-deadline", "10s", "--retry-period", "2s")
)
"""Ours with the times of a default installation; it is not stopped for long, but ended."""
WHOLE_STREAM: Final = Subject(name="ours, whole stream", command=_own("--whole-stream"))
NAIVE: Final = Subject(name="naive Kopf", command=_kopf("naive_operator.py"), ours=False)
TEXTBOOK: Final = Subject(name="textbook Kopf", command=_kopf("textbook_operator.py"), ours=False)


class Running:
    """An operator that runs."""

    def __init__(self, subject: Subject, program: Program, port: int, started: float) -> None:
        self.subject, self.program = subject, program
        self._port, self._started = port, started

    def await_ready(self) -> float:
        """Wait until ``/readyz`` answers 200; give the seconds since the start of the process.

        Raises:
            ProgramEnded: it has ended.
            TimeoutError: it does not get ready.
        """
        deadline = time.monotonic() + _READY_SECONDS
        while not self._answers("/readyz"):
            self.program.check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.program.name} does not get ready")
            time.sleep(0.02)
        return time.monotonic() - self._started

    def settle(self) -> None:
        """Wait until it has nothing more to do. Raises as ``processes.await_rest``."""
        if self.subject.ours:
            self.await_ready()
            time.sleep(_CLEAN_SECONDS)
        await_rest(self.program)

    @property
    def cpu(self) -> float:
        """CPU seconds used so far."""
        return cpu_seconds(self.program.pid)

    @property
    def peak(self) -> float:
        """Peak memory so far in MiB."""
        return peak_mib(self.program.pid)

    def metric(self, name: str, **labels: str) -> float:
        """The sum of its metric's samples that carry ``labels``."""
        families = text_string_to_metric_families(self._get("/metrics").decode())
        samples = [sample for family in families for sample in family.samples if sample.name == name]
        return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())

    def leads_synced(self) -> bool:
        """Whether it leads, and knows all nodes and profiles since."""
        return self.metric("clusterconform_leader") == 1 and self.metric("clusterconform_sync_age_seconds") >= 0

    def _answers(self, path: str) -> bool:
        try:
            self._get(path)
        except (OSError, http.client.HTTPException):
            return False
        return True

    def _get(self, path: str) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        if response.status != http.HTTPStatus.OK:
            raise http.client.HTTPException(f"{path}: {response.status}")
        return body


@contextmanager
def running(scene: Scene, subject: Subject, name: str = "") -> Iterator[Running]:
    """Start ``subject`` on ``scene``, as ``name`` where more than one runs; it ends with the context."""
    port = scene.plane.ports.take()
    environment = scene.environment | {"KUBECONFIG": str(scene.kubeconfig)}
    started = time.monotonic()
    program = scene.plane.programs.start(
        (name or subject.name).replace(" ", "-"), subject.command(scene.kubeconfig, port), environment=environment
    )
    try:
        yield Running(subject, program, port, started)
    finally:
        program.stop()
