"""What an administrator brings to a control plane: the kind, the operator's rights, and the operator."""

import http.client
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from clusterconform.cli.demo import shipped
from clusterconform.cli.demo.profiles import PROFILES
from clusterconform.contract.names import NAMESPACE, SERVICE_ACCOUNT
from clusterconform.sandbox.control_plane import ControlPlane
from clusterconform.sandbox.programs import Program
from clusterconform.sandbox.waiting import wait_until

ACCOUNT: Final = f"system:serviceaccount:{NAMESPACE}:{SERVICE_ACCOUNT}"
# What the program ``clusterconform`` consists of; that one need not be on anybody's PATH.
_MAIN: Final = "from clusterconform.cli.main import main; main()"
_FILES: Final = (shipped.CRD, shipped.NAMESPACE, shipped.RBAC, shipped.FENCE)
_SERVED_SECONDS: Final = 30.0
_READY_SECONDS: Final = 60.0
_ANSWER_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """The running operator.

    Attributes:
        program: its process.
        port: where on 127.0.0.1 it serves health and metrics.
    """

    program: Program
    port: int

    @property
    def log(self) -> Path:
        """Its log."""
        return self.program.log

    def repaired(self) -> set[str]:
        """Give the names of the nodes that it has told to have repaired."""
        lines = self.log.read_text(errors="replace").splitlines()
        return {line.split("node=", 1)[1].split(" ", 1)[0] for line in lines if "node repaired  node=" in line}


def locate() -> list[Path]:
    """Give the paths of the shipped files that the operator needs.

    Raises:
        ShippedFileMissingError: one of them is not there.
    """
    return [shipped.shipped(name) for name in _FILES]


def install(plane: ControlPlane) -> list[str]:
    """Apply the shipped files that the operator needs, and give their names.

    Raises:
        ShippedFileMissingError: one of them is not there.
        SandboxFailed: the new kind was not served in time.
    """
    for path in locate():
        shipped.apply_file(plane.admin, path)
    wait_until(
        lambda: plane.admin.answers(PROFILES),
        what="the API server serves RuntimeProfiles",
        seconds=_SERVED_SECONDS,
        programs=plane.programs.running,
    )
    plane.vacate()
    return list(_FILES)


def start_operator(plane: ControlPlane) -> Operator:
    """Start the operator with the rights that it is shipped with, and wait until it is ready.

    Raises:
        SandboxFailed: it ended, or was not ready in time.
    """
    port = plane.ports.take()
    kubeconfig = plane.service_account_kubeconfig(NAMESPACE, SERVICE_ACCOUNT)
    command = [
        sys.executable,
        "-P",
        "-c",
        _MAIN,
        "run",
        f"--kubeconfig={kubeconfig}",
        "--bound=enforce",
        f"--listen=127.0.0.1:{port}",
        "--log-format=text",
    ]
    # It is killed at the end like everything else, so what it keeps in files goes where the rest goes.
    program = plane.programs.start("operator", command, environment={"TMPDIR": str(plane.folder("operator"))})
    wait_until(
        lambda: _ready(port),
        what="the operator is ready",
        seconds=_READY_SECONDS,
        programs=[program],
    )
    return Operator(program=program, port=port)


def _ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_ANSWER_SECONDS)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
