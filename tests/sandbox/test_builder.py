"""How a part that is nowhere gets built."""

import threading
from pathlib import Path
from typing import Protocol

import pytest

from clusterconform.sandbox.builder import Builder, PartUnavailable, Progress, State, fingerprint
from clusterconform.sandbox.parts import Part
from clusterconform.sandbox.waiting import wait_until


class Go(Protocol):
    """The fake compiler of conftest, as far as these tests use it."""

    @property
    def calls(self) -> list[str]: ...
    @property
    def pid(self) -> int | None: ...
    def says(self, version: str) -> None: ...
    def will(self, behaviour: str) -> None: ...
    def will_not(self, behaviour: str) -> None: ...


def test_a_missing_part_is_built_into_the_cache(tmp_path: Path, go: Go, tool: Part) -> None:
    with Builder(tmp_path / "cache") as builder:
        built = builder.provide(tool)
    assert built == tmp_path / "cache" / f"tool-v1.0.0-{fingerprint(tool)}" / "tool"
    assert built.stat().st_mode & 0o111


def test_a_part_is_built_from_its_pins_alone(tmp_path: Path, go: Go, tool: Part) -> None:
    with Builder(tmp_path / "cache") as builder:
        builder.provide(tool)
    (call,) = go.calls
    assert call.startswith("build -v -trimpath -buildvcs=false -ldflags -s -w -o ")
    assert call.endswith(" example.com/tool")


def test_a_part_that_was_built_is_found_next_time(tmp_path: Path, go: Go, tool: Part) -> None:
    for _ in range(2):
        with Builder(tmp_path / "cache") as builder:
            builder.provide(tool)
    assert len(go.calls) == 1


def test_other_pins_make_another_program(tmp_path: Path, go: Go, tool: Part, modules: Path) -> None:
    with Builder(tmp_path / "cache") as builder:
        builder.provide(tool)
    (modules / "go.sum").write_text("example.com/tool v1.0.0 h1:def\n")
    with Builder(tmp_path / "cache") as builder:
        builder.provide(tool)
    assert len(go.calls) == 2


def test_progress_tells_what_is_going_on(tmp_path: Path, go: Go, tool: Part) -> None:
    news: list[Progress] = []
    with Builder(tmp_path / "cache", report=news.append) as builder:
        builder.provide(tool)
        assert [(one.state, one.detail) for one in news[:-1]] == [
            (State.BUILDING, "compiling example.com/tool v1.0.0"),
            (State.BUILDING, "downloading example.com/tool v1.0.0"),
            (State.BUILDING, "1 packages compiled, now example.com/tool/inner"),
            (State.BUILDING, "2 packages compiled, now example.com/tool"),
        ]
        assert news[-1].state is State.BUILT
        assert [one.elapsed for one in news] == sorted(one.elapsed for one in news)


def test_a_failed_build_is_one_sentence_and_the_end_of_its_output(tmp_path: Path, go: Go, tool: Part) -> None:
    go.will("fail")
    news: list[Progress] = []
    with (
        Builder(tmp_path / "cache", report=news.append) as builder,
        pytest.raises(PartUnavailable) as failure,
    ):
        builder.provide(tool)
    assert str(failure.value).startswith("tool v1.0.0 could not be built (go build ended with 1): ")
    assert failure.value.log.endswith("syntax error: unexpected newline")
    assert failure.value.part == tool
    assert news[-1].state is State.FAILED


def test_a_failed_build_leaves_nothing_in_the_cache(tmp_path: Path, go: Go, tool: Part) -> None:
    go.will("fail")
    with Builder(tmp_path / "cache") as builder, pytest.raises(PartUnavailable):
        builder.provide(tool)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [".tool.lock"]


def test_what_a_killed_build_left_is_removed_by_the_next(tmp_path: Path, go: Go, tool: Part) -> None:
    left = tmp_path / "cache" / f".tool-v1.0.0-{fingerprint(tool)}.4711"
    left.mkdir(parents=True)
    with Builder(tmp_path / "cache") as builder:
        builder.provide(tool)
    assert not left.exists()


def test_parts_are_built_in_the_given_order_in_the_background(
    tmp_path: Path, go: Go, tool: Part, other: Part
) -> None:
    go.will("hold")
    with Builder(tmp_path / "cache") as builder:
        futures = builder.start([other, tool])
        assert list(futures) == [other, tool]
        assert not any(future.done() for future in futures.values())
        go.will_not("hold")
        assert [future.result().name for future in futures.values()] == ["other", "tool"]
    assert [call.rsplit("/", 1)[1] for call in go.calls] == ["other", "tool"]


def test_a_failed_part_does_not_keep_the_next_one_from_being_built(
    tmp_path: Path, go: Go, tool: Part, other: Part
) -> None:
    go.will("fail")
    go.will("hold")
    with Builder(tmp_path / "cache") as builder:
        futures = builder.start([tool])
        wait_until(lambda: len(go.calls) == 1, what="the build runs", seconds=10)
        go.will_not("hold")
        assert futures[tool].exception() is not None
        go.will_not("fail")
        assert builder.provide(other).name == "other"


def test_two_builders_build_a_part_once(tmp_path: Path, go: Go, tool: Part) -> None:
    go.will("hold")
    waiting = threading.Event()

    def notice(news: Progress) -> None:
        if news.state is State.WAITING:
            waiting.set()

    with Builder(tmp_path / "cache") as first, Builder(tmp_path / "cache", report=notice) as second:
        mine = first.start([tool])[tool]
        wait_until(lambda: len(go.calls) == 1, what="the first build runs", seconds=10)
        theirs = second.start([tool])[tool]
        assert waiting.wait(10)
        go.will_not("hold")
        assert mine.result() == theirs.result()
    assert len(go.calls) == 1


def test_closing_ends_the_running_build(tmp_path: Path, go: Go, tool: Part, other: Part) -> None:
    go.will("hold")
    builder = Builder(tmp_path / "cache")
    futures = builder.start([tool, other])
    wait_until(lambda: go.pid is not None, what="the build runs", seconds=10)
    builder.close()
    assert "was stopped" in str(futures[tool].exception())
    assert futures[other].cancelled()
    assert not Path(f"/proc/{go.pid}").exists()
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [".tool.lock"]


def test_closing_ends_the_wait_for_another_process(tmp_path: Path, go: Go, tool: Part) -> None:
    go.will("hold")
    waiting = threading.Event()
    with Builder(tmp_path / "cache") as first:
        first.start([tool])
        wait_until(lambda: len(go.calls) == 1, what="the first build runs", seconds=10)
        second = Builder(tmp_path / "cache", report=lambda _: waiting.set())
        future = second.start([tool])[tool]
        assert waiting.wait(10)
        second.close()
        assert isinstance(future.exception(), PartUnavailable)
        go.will_not("hold")
