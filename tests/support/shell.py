"""Somebody at a shell, with kubectl, our program and a kubeconfig at its usual place."""

import os
import subprocess
import sysconfig
from pathlib import Path

from deployment import ROOT, kubectl_program


class Shell:
    """Runs what stands in the docs, from the root of the repository."""

    def __init__(self, kubeconfig: Path, home: Path, *programs: Path) -> None:
        """Be at home in ``home``, with further ``programs`` to call."""
        place = home / ".kube" / "config"
        place.parent.mkdir(exist_ok=True)
        place.write_text(kubeconfig.read_text())
        called = [Path(kubectl_program()), *programs]
        folders = [sysconfig.get_path("scripts"), *(str(path.parent) for path in called)]
        self._environment = {
            **os.environ,
            "PATH": os.pathsep.join([*folders, os.environ["PATH"]]),
            "HOME": str(home),
        }
        self._environment.pop("KUBECONFIG", None)

    def end(self, lines: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """How ``lines`` end, with ``given`` on standard input."""
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", lines],
            cwd=ROOT,
            env=self._environment,
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def run(self, lines: str, given: str = "") -> str:
        """What ``lines`` print; they must end well."""
        done = self.end(lines, given)
        assert done.returncode == 0, f"{lines}{done.stdout}{done.stderr}"
        return done.stdout
