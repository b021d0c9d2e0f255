"""What the docs say of the command line is what the program has: checks, fields, commands, rules."""

import json
import re
from pathlib import Path

import pytest
from docs_blocks import block

from clusterconform.cli.main import main
from clusterconform.decisions.diagnosis import CHECKS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GOLDEN = ROOT / "tests" / "data" / "golden"


def cells(page: str, heading: str) -> list[str]:
    """The first cells of the table in ``page`` that is headed so, without its code marks."""
    text = (DOCS / page).read_text()
    table = re.search(rf"(?m)^\| {heading} \|.*\n\|[-| ]+\n((?:\|.*\n)+)", text)
    assert table is not None
    return [row.split("|")[1].strip() for row in table.group(1).splitlines()]


def test_every_check_of_doctor_is_documented_in_its_order() -> None:
    assert tuple(cell.strip("`") for cell in cells("doctor.md", "check")) == CHECKS


def test_every_field_of_explain_is_documented_in_its_order() -> None:
    fields = [name for cell in cells("cli.md", "field") for name in re.findall(r"`(\w+)(?:\[\])?`", cell)]
    assert fields == list(json.loads((GOLDEN / "explain-agent.json").read_text()))


def test_every_command_is_in_the_table() -> None:
    named = {word for cell in cells("cli.md", "command") for word in re.findall(r"`(\w+)", cell)}
    commands = set(main.list_commands(main.make_context("clusterconform", ["-h"], resilient_parsing=True)))
    assert named == commands - {"completion"}


def test_the_status_in_the_docs_is_what_is_printed() -> None:
    shown = block("docs/cli.md", "PROFILE    READY").splitlines()
    printed = (GOLDEN / "status.table").read_text().splitlines()
    assert [line for line in shown if line not in printed] == []


@pytest.mark.parametrize("rule", ["W1", "W2"])
def test_each_rule_for_workloads_has_a_page(rule: str) -> None:
    (page,) = DOCS.glob(f"{rule.lower()}-*.md")
    assert page.read_text().startswith(f"# {rule}: ")


def test_every_page_that_help_speaks_of_exists() -> None:
    spoken = {
        name
        for file in (ROOT / "operator" / "clusterconform" / "cli").glob("*.py")
        for name in re.findall(r"Docs: (docs/[\w-]+\.md)", file.read_text())
    }
    assert len(spoken) >= 5
    assert [name for name in spoken if not (ROOT / name).exists()] == []
