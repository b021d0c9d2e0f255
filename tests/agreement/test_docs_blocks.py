"""Every block of every page is run by a test, and what a ``console`` block shows is what its commands print.

A line of a ``console`` block that begins with ``$`` is run from the root of the repository; the lines up to the
next one are all that it prints. ``make golden`` writes down what is printed now. Any other block is asked for by
the test that runs it (``docs_blocks.block``), or stands below with the reason why none can.
"""

import ast
import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from docs_blocks import INSTALL, Block, block, blocks_of, pages, section

from clusterconform.cli.main import main

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
_CONSOLE = re.compile(r"(?ms)^```console\n(.*?)^```$")

# What no test here can run, and why.
EXEMPT = {
    ("README.md", "make demo"): "tests/e2e/test_demo.py plays the same program, with --once",
    ("README.md", "make test"): "it is what runs this test",
    ("docs/sandbox.md", "clusterconform sandbox"): "tests/e2e/test_demo.py plays it, with --once",
    ("docs/ci.md", "# .gitlab-ci.yml"): "needs GitLab, and a chart of the reader's",
    ("docs/ci.md", "# .github/workflows/conformance.yaml"): "needs GitHub, and manifests of the reader's",
    ("docs/install.md", "podman build"): "needs podman and a registry with a base image; the page says so",
}


def said(text: str) -> str:
    """``text`` with what its commands print now."""
    commands = [line for line in text.splitlines() if line.startswith("$ ")]
    return "".join(f"{command}\n{_run(command[2:])}" for command in commands)


def _run(command: str, place: Path = ROOT) -> str:
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=place,
        env={**os.environ, "PATH": programs, "COLUMNS": "100"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout


BLOCKS = [seen for page in pages() for seen in blocks_of(page)]
CONSOLE = [seen for seen in BLOCKS if seen.language == "console"]


@pytest.mark.parametrize("seen", CONSOLE, ids=[f"{seen.page}-{seen.start[:40]}" for seen in CONSOLE])
def test_a_block_says_what_its_commands_print(seen: Block) -> None:
    assert seen.text == said(seen.text)


@functools.cache
def _asked_for() -> set[tuple[str, str]]:
    """Page and beginning of each block that a test asks for, by the code of the tests."""
    found = set()
    for file in TESTS.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "block":
                words = [word.value for word in node.args if isinstance(word, ast.Constant)]
                assert len(words) == 2, f"{file}: a block is asked for by two words that stand there"
                found.add((str(words[0]), str(words[1])))
    return found


def _walked() -> list[str]:
    """The blocks of the sections that the tests name that walk through them."""
    trees = [ast.parse((TESTS / "e2e" / name).read_text()) for name in ("test_install.py", "test_helm.py")]
    words = {
        node.value
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    titles = re.findall(r"(?m)^## (.+)$", (ROOT / INSTALL).read_text())
    return [text for title in titles if title in words for text in section(INSTALL, title)]


@pytest.mark.parametrize("page", pages())
def test_every_block_of_a_page_is_run_by_a_test_or_exempt_with_a_reason(page: str) -> None:
    known = [start for of, start in (*_asked_for(), *EXEMPT) if of == page]
    walked = _walked() if page == INSTALL else []
    idle = [
        seen.start
        for seen in blocks_of(page)
        if seen.language != "console"
        and seen.text not in walked
        and not any(seen.text.lstrip("\n").startswith(start) for start in known)
    ]
    assert idle == []


def test_no_block_is_missed_by_the_way_in_which_they_are_found() -> None:
    for page in pages():
        fences = re.findall(r"(?m)^ *```", (ROOT / page).read_text())
        assert len(fences) == 2 * len(blocks_of(page)), page


@pytest.mark.parametrize(("page", "start"), EXEMPT)
def test_an_exemption_is_of_a_block_that_there_is_and_that_nobody_runs(page: str, start: str) -> None:
    assert any(seen.text.startswith(start) for seen in blocks_of(page))
    assert (page, start) not in _asked_for()


# --- blocks that need no cluster ------------------------------------------------------------------------------


def _called(*arguments: str, given: str = "") -> Result:
    return CliRunner().invoke(main, [*arguments], input=given)


def _shape(value: Any) -> Any:
    """The names of the fields of ``value``; of a list, those of its entries."""
    if isinstance(value, dict):
        return {name: _shape(inner) for name, inner in value.items()}
    return [_shape(inner) for inner in value[:1]] if isinstance(value, list) else None


def test_the_answer_of_check_in_the_docs_is_one() -> None:
    shown = json.loads(block("docs/check.md", "{"))
    answer = json.loads(_called("check", str(ROOT / "docs" / "examples" / "nodes.yaml"), "-o", "json").stdout)
    assert _shape(shown) == _shape(answer)
    (finding,) = shown["findings"]
    placeless = {"file": "", "line": 0}
    assert finding | placeless in [row | placeless for row in answer["findings"]]


def test_the_answer_of_simulate_in_the_docs_has_the_fields_of_one() -> None:
    shown = json.loads(block("docs/simulate.md", "{"))
    answer = json.loads(_called("simulate", str(ROOT / "docs" / "examples" / "nodes.yaml")).stdout)
    for value in (shown, answer):
        value["diagnostics"] = []  # the prose tells their fields
        value["nodes"] = [node for node in value["nodes"] if node["reasons"] == ["RuntimeLabelDrifted"]]
        for node in value["nodes"]:
            for request in node["requests"]:
                request["body"] = None
    assert _shape(shown) == _shape(answer)


def test_the_passes_in_the_docs_can_be_played(tmp_path: Path) -> None:
    passes = block("docs/simulate.md", "- {now: ")
    file = tmp_path / "passes.yaml"
    file.write_text(passes)
    done = _called("simulate", str(ROOT / "docs" / "examples" / "nodes.yaml"), "--passes", str(file))
    assert done.exit_code == 0, done.stderr
    played = json.loads(done.stdout)["passes"]
    assert [seen["now"] for seen in played] == [step["now"] for step in yaml.safe_load(passes)]


def test_the_profile_in_the_readme_keeps_the_contract() -> None:
    done = _called("check", "-", given=block("README.md", "apiVersion: outpost.dhnt.io/v1alpha1"))
    assert (done.exit_code, done.stdout) == (
        0,
        "checked 1 profiles, 0 nodes, 0 workloads: 0 errors, 0 warnings\n",
    )


@pytest.mark.parametrize(
    ("spec", "cure", "rule"),
    [
        (
            {"nodeSelector": {"outpost.dhnt.io/runtime": "virtual"}},
            block("docs/w1-never-scheduled.md", "tolerations:"),
            "W1",
        ),
        (
            {"tolerations": [{"operator": "Exists"}], "volumes": [{"name": "v", "hostPath": {"path": "/"}}]},
            block("docs/w2-not-served.md", "affinity:"),
            "W2",
        ),
    ],
)
def test_the_cure_in_the_docs_is_one(spec: dict[str, Any], cure: str, rule: str) -> None:
    def rules(spec: dict[str, Any]) -> list[str]:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
        return [
            row["rule"]
            for row in json.loads(_called("check", "-o", "json", given=json.dumps(pod)).stdout)["findings"]
        ]

    assert rules(spec) == [rule]
    assert rules(spec | yaml.safe_load(cure)) == []


def test_the_fleet_whose_speed_is_told_conforms(tmp_path: Path) -> None:
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    said_there = _run(block("docs/check.md", "python docs/examples/fleet_of_5000.py"), tmp_path)
    assert "checked 0 profiles, 5000 nodes, 0 workloads: 0 errors, " in said_there


if __name__ == "__main__":
    for name in pages():
        path = ROOT / name
        path.write_text(_CONSOLE.sub(lambda found: f"```console\n{said(found.group(1))}```", path.read_text()))
