"""The rooms: where things are, how large they may be, and who may know whom."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from clusterconform.contract.verdicts import Reason

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "operator"
MODULES = sorted((SOURCES / "clusterconform").rglob("*.py"))
PACKAGES = [module for module in MODULES if module.name == "__init__.py"]
MODULE_LINES, FUNCTION_LINES = 400, 60


def of(module: Path) -> str:
    """The name under which a failing test shows a module."""
    return str(module.relative_to(SOURCES))


def test_the_source_root_is_no_package() -> None:
    """With an ``__init__.py`` it would take the place of the standard library's ``operator``.

    ``python -m pytest`` from here would then die inside ``collections`` before it collected a test.
    """
    assert not (SOURCES / "__init__.py").exists()


def test_there_are_modules_to_look_at() -> None:
    assert len(MODULES) > 40
    assert len(PACKAGES) >= 6


@pytest.mark.parametrize("module", MODULES, ids=of)
def test_no_module_is_longer_than_400_lines(module: Path) -> None:
    assert len(module.read_text().splitlines()) <= MODULE_LINES


@pytest.mark.parametrize("module", MODULES, ids=of)
def test_no_function_is_longer_than_60_lines(module: Path) -> None:
    """From its name to its end, without what decorates it."""
    tree = ast.parse(module.read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lengths = {node.name: (node.end_lineno or 0) - node.lineno + 1 for node in functions}
    assert {name: length for name, length in lengths.items() if length > FUNCTION_LINES} == {}


@pytest.mark.parametrize("package", PACKAGES, ids=of)
def test_a_package_has_a_doorplate_and_no_code(package: Path) -> None:
    tree = ast.parse(package.read_text())
    assert ast.get_docstring(tree)
    assert len(tree.body) == 1


@pytest.mark.parametrize("module", MODULES, ids=of)
def test_a_module_says_what_it_is(module: Path) -> None:
    assert ast.get_docstring(ast.parse(module.read_text()))


@pytest.mark.parametrize("module", MODULES, ids=of)
def test_no_module_is_a_drawer(module: Path) -> None:
    """What has no name has no home yet."""
    drawers = {"utils", "util", "helpers", "helper", "common", "manager", "base", "misc"}
    assert not drawers & set(module.relative_to(SOURCES).with_suffix("").parts)


def test_the_rooms_know_each_other_only_in_the_agreed_order() -> None:
    """The contracts of import-linter in pyproject.toml."""
    program = Path(sys.executable).with_name("lint-imports")
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    done = subprocess.run(
        [program, "--no-cache"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_every_reason_stands_in_the_docs_and_none_that_is_none() -> None:
    text = (ROOT / "docs" / "conditions.md").read_text()
    table = re.search(r"^\| Reason \|.*?(?:\n\n|\Z)", text, re.DOTALL | re.MULTILINE)
    assert table is not None
    words = re.findall(r"^\| `(\w+)` \|", table.group(), re.MULTILINE)
    assert set(words) == {reason.value for reason in Reason}
    assert len(words) == len(set(words))


def test_every_reason_of_the_enum_says_what_it_means() -> None:
    source = (SOURCES / "clusterconform" / "contract" / "verdicts.py").read_text()
    (enum,) = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == "Reason"]
    members = [node for node in enum.body if isinstance(node, ast.Assign)]
    followed = [
        after
        for member, after in zip(enum.body, enum.body[1:], strict=False)
        if isinstance(member, ast.Assign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
    ]
    assert len(followed) == len(members)
