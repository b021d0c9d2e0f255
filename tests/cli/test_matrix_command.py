"""``clusterconform matrix`` and the program's front door."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from clusterconform.cli.main import main
from clusterconform.contract.matrix import MATRIX
from clusterconform.contract.profile import Capability, manifest_of

SPECS = [manifest_of(row)["spec"] for row in MATRIX.values()]
PROGRAM = Path(sys.executable).with_name("clusterconform")


def said(*arguments: str) -> str:
    """What is printed."""
    done = CliRunner().invoke(main, [*arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_json_is_the_specs_of_the_built_in_profiles() -> None:
    assert json.loads(said("matrix", "--output", "json")) == SPECS


def test_yaml_says_the_same_as_json() -> None:
    assert yaml.safe_load(said("matrix", "-o", "yaml")) == SPECS


def test_the_table_has_a_column_for_each_backend_and_a_line_for_each_promise() -> None:
    head, *rows = [line.split() for line in said("matrix").splitlines() if line.strip(" ─")]
    assert head == list(MATRIX)
    table = {" ".join(words[: -len(head)]): words[-len(head) :] for words in rows}
    assert table["class"] == ["agent", "virtual", "virtual", "virtual"]
    assert table["runtime label"] == ["agent", "virtual", "virtual", "virtual"]
    assert table["node name suffix"] == ["-", "-vk-podman", "-vk-native", "-vk-ollama"]
    assert table["provider taint"] == ["-", "yes", "yes", "yes"]
    assert table["subject to nodegc"] == ["yes", "-", "-", "-"]
    for capability in Capability:
        served = ["yes" if row.serves(capability) else "-" for row in MATRIX.values()]
        assert table[capability.value] == served


def test_the_table_is_the_default_and_has_no_trailing_blanks_or_colours() -> None:
    text = said("matrix")
    assert text == said("matrix", "--output", "table")
    assert all(line == line.rstrip() for line in text.splitlines())
    assert "\x1b" not in text


@pytest.mark.parametrize("columns", ["20", "40", "300"])
def test_the_table_is_the_same_on_any_terminal(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The README's copy is compared with it."""
    wide = said("matrix")
    monkeypatch.setenv("COLUMNS", columns)
    assert said("matrix") == wide


@pytest.mark.parametrize(
    "arguments", [["matrix", "--output", "xml"], ["matrix", "more"], ["nothing"], ["--nothing"]]
)
def test_wrong_words_end_with_code_2_and_no_traceback(arguments: list[str]) -> None:
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert "Error: " in done.stderr
    assert "Traceback" not in done.stderr


def test_help_lists_the_commands() -> None:
    text = said("--help")
    for command in ("matrix", "run", "sandbox", "simulate"):
        assert f"\n  {command} " in text
    assert said("-h") == text


@pytest.mark.parametrize("command", ["matrix", "run", "sandbox", "simulate"])
def test_each_command_has_help_with_an_example(command: str) -> None:
    text = said(command, "--help")
    assert f"clusterconform {command}" in text
    assert "Examples:" in text


def test_the_version_is_told() -> None:
    assert said("--version").startswith("clusterconform, version ") or "version" in said("--version")


@pytest.mark.parametrize(
    "arguments", [["--help"], ["matrix", "--help"], ["run", "--help"], ["simulate", "--help"]]
)
def test_help_imports_neither_kopf_nor_a_client(arguments: list[str]) -> None:
    """They cost a second that nobody should wait for help."""
    code = (
        "import sys; from clusterconform.cli.main import main\n"
        f"try:\n    main({arguments!r})\nexcept SystemExit:\n    pass\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted(loaded & {'kopf', 'kubernetes', 'aiohttp', 'pykube'}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr.strip() == "[]"


def test_the_program_is_installed() -> None:
    done = subprocess.run(
        [PROGRAM, "matrix", "-o", "json"], capture_output=True, text=True, timeout=60, check=True
    )
    assert json.loads(done.stdout) == SPECS
