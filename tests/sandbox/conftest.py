"""A Go compiler that compiles nothing, and parts that it can build."""

import sys
from pathlib import Path

import pytest

from clusterconform.sandbox.parts import Part

FAKE_GO = f"""#!{sys.executable}
import os, pathlib, sys, time
here = pathlib.Path(__file__).parent
if sys.argv[1] == "version":
    print((here / "version").read_text())
    raise SystemExit
with (here / "calls").open("a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
print("go: downloading example.com/tool v1.0.0", file=sys.stderr)
print("example.com/tool/inner", file=sys.stderr)
print("example.com/tool", file=sys.stderr, flush=True)
(here / "pid").write_text(str(os.getpid()))
while (here / "hold").exists():
    time.sleep(0.01)
if (here / "fail").exists():
    print("tool.go:7:1: syntax error: unexpected newline", file=sys.stderr)
    raise SystemExit(1)
out = pathlib.Path(sys.argv[sys.argv.index("-o") + 1])
out.write_text("#!/bin/sh\\necho built\\n")
out.chmod(0o755)
"""


class FakeGo:
    """A ``go`` on the PATH. Touch ``fail`` or ``hold`` in its directory to make builds fail or last."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.says("go version go1.26.0 linux/amd64")
        write_program(directory / "go", FAKE_GO)

    def says(self, version: str) -> None:
        (self.directory / "version").write_text(version)

    def will(self, behaviour: str) -> None:
        (self.directory / behaviour).touch()

    def will_not(self, behaviour: str) -> None:
        (self.directory / behaviour).unlink()

    @property
    def calls(self) -> list[str]:
        calls = self.directory / "calls"
        return calls.read_text().splitlines() if calls.exists() else []

    @property
    def pid(self) -> int | None:
        pid = self.directory / "pid"
        return int(text) if pid.exists() and (text := pid.read_text()) else None


def write_program(path: Path, text: str) -> Path:
    """Write an executable script."""
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def search_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only directory on the PATH, empty at first."""
    directory = tmp_path / "path"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return directory


@pytest.fixture
def go(search_path: Path) -> FakeGo:
    return FakeGo(search_path)


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a module that pins ``tool`` and ``other``."""
    module = tmp_path / "modules" / "example"
    module.mkdir(parents=True)
    (module / "go.mod").write_text("module example\n")
    (module / "go.sum").write_text("example.com/tool v1.0.0 h1:abc\n")
    monkeypatch.setattr("clusterconform.sandbox.parts.MODULES", module.parent)
    return module


@pytest.fixture
def tool(modules: Path) -> Part:
    return part_named("tool")


@pytest.fixture
def other(modules: Path) -> Part:
    return part_named("other")


def part_named(name: str) -> Part:
    return Part(
        name=name,
        version="v1.0.0",
        source=f"example.com/{name}",
        package=f"example.com/{name}",
        module="example",
        purpose="tests",
        build_seconds=1,
        version_text=f"{name} v1.0.0\n",
    )


def alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
