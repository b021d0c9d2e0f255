"""What an image is made of, and what SECURITY.md says of it."""

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Final

import pytest
from deployment import ROOT, overlay_objects

CONTAINERFILE: Final = (ROOT / "Containerfile").read_text()
SECURITY: Final = (ROOT / "SECURITY.md").read_text()


def pinned(lock: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Version and hashes of each package of a lock file."""
    blocks = re.split(r"(?m)^(?=[a-z0-9])", (ROOT / lock).read_text())
    found = {}
    for block in filter(None, blocks):
        name, version = re.match(r"([\w.-]+)==([\w.+!-]+)", block).groups()  # type: ignore[union-attr]
        found[name] = (version, frozenset(re.findall(r"--hash=(sha256:[0-9a-f]{64})", block)))
    return found


def test_the_image_holds_what_is_tested_and_only_what_runs() -> None:
    everything, runs = pinned("requirements.lock"), pinned("requirements-run.lock")
    assert runs.items() <= everything.items()
    assert all(hashes for _, hashes in everything.values())
    assert not {"pytest", "mypy", "ruff", "hypothesis", "kmock"} & runs.keys()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    direct = {re.split(r"[<>=]", wanted)[0].lower() for wanted in project["dependencies"]}
    assert direct <= {name.lower() for name in runs}


def test_the_image_is_built_in_two_stages_from_locks_and_runs_as_nobody() -> None:
    assert len(re.findall(r"(?m)^FROM ", CONTAINERFILE)) == 2
    assert set(re.findall(r"(?m)^FROM (\S+)", CONTAINERFILE)) == {"${PYTHON}"}
    installs = re.findall(r"pip install ([^&\n]*)", CONTAINERFILE)
    assert installs
    assert all("--require-hashes" in line or "--no-deps" in line for line in installs)
    last = CONTAINERFILE.rpartition("\nFROM ")[2]
    (user,) = re.findall(r"(?m)^USER (\d+):\d+$", last)
    pod = overlay_objects("observe")["Deployment", "clusterconform-system", "clusterconform"]["spec"]["template"]
    assert int(user) == pod["spec"]["securityContext"]["runAsUser"] != 0


def test_everything_that_the_image_copies_is_let_in_and_exists() -> None:
    let_in = (ROOT / ".containerignore").read_text().splitlines()
    copied = [
        name for line in re.findall(r"(?m)^COPY (?!--from)(.*)$", CONTAINERFILE) for name in line.split()[:-1]
    ]
    assert copied
    for name in copied:
        assert (ROOT / name).exists()
        assert f"!{name}" in let_in


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(test_[a-z0-9_]+)`", SECURITY))))
def test_every_test_that_security_names_exists(name: str) -> None:
    tracked = subprocess.run(["git", "ls-files", "tests"], cwd=ROOT, capture_output=True, text=True, check=True)
    files = [ROOT / file for file in tracked.stdout.splitlines() if file.endswith(".py")]
    assert any(f"def {name}(" in file.read_text() for file in files if file.is_file())


def test_every_file_that_security_names_exists() -> None:
    paths = re.findall(r"`((?:tests|deploy|operator)/[\w./-]+)`|\]\(([\w./-]+)\)", SECURITY)
    named = [Path(first or second) for first, second in paths]
    assert named
    assert [str(path) for path in named if not (ROOT / path).exists()] == []
