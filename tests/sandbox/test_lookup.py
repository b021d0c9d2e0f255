"""Where a part is looked for, in which order."""

from pathlib import Path

import pytest

from clusterconform.sandbox.builder import Builder, default_cache
from clusterconform.sandbox.parts import Part


def program(directory: Path, name: str = "tool", *, says: str = "tool v1.0.0") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


def find(tmp_path: Path, part: Part, assets: Path | None = None) -> Path | None:
    with Builder(tmp_path / "cache", assets) as builder:
        return builder.find(part)


def test_a_part_that_is_nowhere_is_not_found(tmp_path: Path, search_path: Path, tool: Part) -> None:
    assert find(tmp_path, tool) is None


def test_the_named_directory_comes_before_all_others(
    tmp_path: Path, search_path: Path, tool: Part, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(search_path)
    program(tmp_path / "kubebuilder")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "kubebuilder"))
    mine = program(tmp_path / "assets", says="anything")
    assert find(tmp_path, tool, tmp_path / "assets") == mine


def test_the_directory_of_kubebuilder_comes_before_the_path(
    tmp_path: Path, search_path: Path, tool: Part, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(search_path)
    theirs = program(tmp_path / "kubebuilder")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "kubebuilder"))
    assert find(tmp_path, tool, tmp_path / "assets") == theirs


def test_a_program_on_the_path_counts_if_it_says_the_pinned_version(
    tmp_path: Path, search_path: Path, tool: Part
) -> None:
    on_path = program(search_path)
    assert find(tmp_path, tool) == on_path


@pytest.mark.parametrize("says", ["tool v1.0.1", "tool v1.0.0-rc.1", ""])
def test_a_program_on_the_path_of_another_version_does_not_count(
    tmp_path: Path, search_path: Path, tool: Part, says: str
) -> None:
    program(search_path, says=says)
    assert find(tmp_path, tool) is None


def test_a_program_on_the_path_that_fails_does_not_count(tmp_path: Path, search_path: Path, tool: Part) -> None:
    program(search_path).write_text("#!/bin/sh\necho 'tool v1.0.0'\nexit 1\n")
    assert find(tmp_path, tool) is None


def test_a_file_that_cannot_be_run_does_not_count(tmp_path: Path, search_path: Path, tool: Part) -> None:
    program(tmp_path / "assets").chmod(0o644)
    assert find(tmp_path, tool, tmp_path / "assets") is None


def test_the_cache_is_below_the_users_cache_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache() == tmp_path / "clusterconform"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_cache() == tmp_path / ".cache" / "clusterconform"
