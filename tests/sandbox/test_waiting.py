"""Waiting ends with the condition, the deadline, or the end of a program."""

import sys
from pathlib import Path

import pytest

from clusterconform.sandbox.programs import Programs
from clusterconform.sandbox.waiting import SandboxFailed, wait_until


def test_a_condition_that_holds_is_asked_once() -> None:
    answers = iter([True, False])
    wait_until(lambda: next(answers), what="it holds", seconds=0)
    assert list(answers) == [False]


def test_a_condition_is_asked_until_it_holds() -> None:
    answers = iter([False, False, True])
    wait_until(lambda: next(answers), what="it holds", seconds=10, pause=0)
    assert list(answers) == []


def test_waiting_in_vain_is_one_sentence() -> None:
    with pytest.raises(SandboxFailed, match=r"^Waited in vain for 0\.01 seconds until pigs fly\.$"):
        wait_until(lambda: False, what="pigs fly", seconds=0.01, pause=0)


def test_a_program_that_ends_ends_the_waiting_with_its_last_words(tmp_path: Path) -> None:
    programs = Programs(tmp_path)
    program = programs.start("pig", [sys.executable, "-c", "raise SystemExit('no wings')"])
    with pytest.raises(SandboxFailed, match="until pigs fly: pig ended with code 1: no wings") as failure:
        wait_until(lambda: False, what="pigs fly", seconds=30, programs=[program])
    assert failure.value.log == "no wings"
    programs.close()
