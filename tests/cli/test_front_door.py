"""What every command has: help that fits a screen, wrong words refused with the nearest, completion, a plugin."""

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner
from terminal import on_a_terminal

from clusterconform.cli.formats import Word
from clusterconform.cli.main import main

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
COMMANDS = main.list_commands(main.make_context("clusterconform", ["-h"], resilient_parsing=True))
LIVE = {"check", "doctor", "explain", "ledger", "prune", "reap", "status"}
# What starts something, or prints what a shell reads, gives no answer that could have another form.
SILENT = {"completion", "run", "sandbox"}
# A terminal has at least so many lines; run has the most options, and is started by a manifest.
SCREEN, SCREEN_OF_RUN = 30, 40


def said(*arguments: str) -> str:
    """What is printed."""
    done = CliRunner(env={"COLUMNS": "100"}).invoke(main, [*arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def command_of(name: str) -> click.Command:
    """The command of that name."""
    found = main.get_command(click.Context(main), name)
    assert found is not None
    return found


def options(command: str) -> list[click.Option]:
    """The options of a command."""
    return [param for param in command_of(command).params if isinstance(param, click.Option)]


def refusal(*arguments: str) -> str:
    """The last line with which the arguments are refused."""
    done = CliRunner().invoke(main, [*arguments])
    assert done.exit_code == 2, done.output
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_a_screen_and_shows_two_examples(command: str) -> None:
    text = said(command, "--help")
    assert len(text.splitlines()) <= (SCREEN_OF_RUN if command == "run" else SCREEN)
    assert len(re.findall(rf"(?m)^  .*clusterconform {command}\b", text)) >= 2


def test_the_help_of_the_program_fits_a_screen_and_shows_two_examples() -> None:
    text = said("--help")
    assert len(text.splitlines()) <= SCREEN
    assert len(re.findall(r"(?m)^ +clusterconform \w+", text)) >= 2


@pytest.mark.parametrize("command", sorted({*COMMANDS} - SILENT))
def test_a_command_that_answers_can_do_so_as_a_table_as_json_and_as_yaml(command: str) -> None:
    (output,) = [option for option in options(command) if "--output" in option.opts]
    assert isinstance(output.type, Word)
    assert {"table", "json", "yaml"} <= {*output.type.choices}
    assert "-o" in output.opts


@pytest.mark.parametrize("command", COMMANDS)
def test_every_choice_of_words_names_the_nearest_and_every_flag_too(command: str) -> None:
    for option in command_of(command).params:
        if isinstance(option.type, click.Choice):
            assert isinstance(option.type, Word), option.name
        for flag in [flag for flag in option.opts if flag.startswith("--") and len(flag) > 5]:
            assert flag in refusal(command, flag[:-2] + flag[-1] + flag[-2])


@pytest.mark.parametrize("command", sorted(LIVE))
def test_a_command_that_asks_a_cluster_has_the_usual_flags(command: str) -> None:
    text = said(command, "--help")
    for flag in ("--kubeconfig", "--context", "--output", "table", "json", "yaml", "Exit codes: 0"):
        assert flag in text


@pytest.mark.parametrize(
    ("arguments", "nearest"),
    [
        (["chek"], "check"),
        (["statsu"], "status"),
        (["exlpain", "x"], "explain"),
        (["doctr"], "doctor"),
        (["status", "--ouput", "json"], "--output"),
        (["status", "--kubecofig", "x"], "--kubeconfig"),
        (["status", "-o", "jsno"], "json"),
        (["check", "-o", "junt"], "junit"),
        (["manifests", "profile"], "profiles"),
        (["completion", "bsh"], "bash"),
        (["matrix", "-o", "yml"], "yaml"),
        (["ledger", "--folow"], "--follow"),
        (["run", "--bound", "enforced"], "enforce"),
        (["simulate", "-o", "tabel"], "table"),
        (["reap", "x", "-o", "jsn"], "json"),
    ],
)
def test_a_wrong_word_is_refused_with_the_nearest(arguments: list[str], nearest: str) -> None:
    assert f"Did you mean '{nearest}'?" in refusal(*arguments)


def test_a_word_that_is_near_to_none_is_refused_all_the_same() -> None:
    assert "No such command 'xyz'" in refusal("xyz")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_each_shell(shell: str) -> None:
    assert "_CLUSTERCONFORM_COMPLETE" in said("completion", shell)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("clusterconform ", set(COMMANDS)),
        ("clusterconform st", {"status"}),
        ("clusterconform status --o", {"--output"}),
        ("clusterconform status --output ", {"table", "json", "yaml"}),
    ],
)
def test_completion_completes(words: str, expected: set[str]) -> None:
    place = {
        "_CLUSTERCONFORM_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    done = subprocess.run(
        [BIN / "clusterconform"],
        env={**os.environ, **place},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert {line.partition(",")[2] for line in done.stdout.splitlines()} == expected


def test_kubectl_finds_us_as_a_plugin() -> None:
    scripts = {script.name: script.value for script in entry_points(group="console_scripts")}
    assert scripts["kubectl-conform"] == scripts["clusterconform"]
    done = subprocess.run(
        [BIN / "kubectl-conform", "matrix", "-o", "json"], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == said("matrix", "-o", "json")


@pytest.mark.parametrize("command", [*COMMANDS, ""])
def test_help_waits_for_no_library_that_it_does_not_need(command: str) -> None:
    arguments = [command, "--help"] if command else ["--help"]
    code = (
        "import sys; from clusterconform.cli.main import main\n"
        f"try:\n    main({arguments!r})\nexcept SystemExit:\n    pass\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted(loaded & {'kopf', 'kubernetes', 'aiohttp', 'pykube', 'requests'}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr.strip() == "[]"


def test_colours_are_for_terminals_and_not_under_no_color(tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text("{apiVersion: v1, kind: Node, metadata: {name: n}}")
    command: list[str | Path] = [BIN / "clusterconform", "check", file, "-o", "table"]
    place = {key: text for key, text in os.environ.items() if key != "NO_COLOR"}
    place |= {"TERM": "xterm-256color", "COLUMNS": "300"}
    assert "\x1b[31m" in on_a_terminal(command, place)
    assert "\x1b[31m" not in on_a_terminal(command, {**place, "NO_COLOR": "1"})


# --- manifests ------------------------------------------------------------------------------------------------


def test_the_manifests_are_the_shipped_files_in_the_order_of_applying() -> None:
    printed = [item for item in yaml.safe_load_all(said("manifests")) if item]
    kinds = [item["kind"] for item in printed]
    assert kinds[:2] == ["CustomResourceDefinition", "Namespace"]
    assert "RuntimeProfile" not in kinds
    files = [ROOT / "crds" / "runtimeprofiles.yaml", *sorted((ROOT / "deploy" / "base").glob("*.yaml"))]
    shipped = [
        item
        for file in files
        for item in yaml.safe_load_all(file.read_text())
        # What kustomize reads is no object of a cluster.
        if item and item.get("kind", "Kustomization") != "Kustomization"
    ]
    assert sorted(map(str, printed)) == sorted(map(str, shipped))


def test_the_profiles_are_printed_when_asked_for() -> None:
    printed = [item for item in yaml.safe_load_all(said("manifests", "profiles")) if item]
    assert printed == [item for item in yaml.safe_load_all((ROOT / "crds" / "profiles.yaml").read_text()) if item]


def test_the_same_in_json_and_as_a_table() -> None:
    objects = yaml.safe_load(said("manifests", "crd", "namespace", "-o", "json"))["items"]
    assert [item["kind"] for item in objects] == ["CustomResourceDefinition", "Namespace"]
    assert "Namespace                 clusterconform-system" in said(
        "manifests", "crd", "namespace", "-o", "table"
    )
