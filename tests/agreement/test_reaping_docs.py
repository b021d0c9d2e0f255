"""The page that tells what may be deleted, and the alerts, say what the code does."""

import ast
import re
from pathlib import Path

import pytest
import yaml

from clusterconform.contract.settings import NodeGC
from clusterconform.contract.verdicts import Reason
from clusterconform.effects.metrics import Metrics

ROOT = Path(__file__).parents[2]
DECISIONS = ROOT / "operator" / "clusterconform" / "decisions"
PAGE = (ROOT / "docs" / "reaping.md").read_text()
RULES = yaml.safe_load((ROOT / "deploy" / "alerts.yaml").read_text())["groups"][0]["rules"]


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def reasons_in(tree: ast.AST) -> list[str]:
    """The values of the ``Reason.X`` in a piece of code, in order."""
    named = [
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Reason"
    ]
    return [Reason[name].value for name in named]


def test_each_objection_to_one_node_stands_there_and_nothing_else() -> None:
    told = re.findall(r"\| `(\w+)` \|$", section("What speaks for a single node"), re.MULTILINE)
    known = set(reasons_in(ast.parse((DECISIONS / "staleness.py").read_text())))
    # The pass itself reads the Lease.
    assert set(told) == known - {Reason.STALE} | {Reason.LEASE_UNREADABLE}
    assert len(told) == len(set(told))


def test_the_guards_of_the_fleet_stand_there_in_their_order() -> None:
    told = re.findall(r"^\| (\d+) \| .+? \| `(\w+)` \|", section("What holds the whole fleet"), re.MULTILINE)
    tree = ast.parse((DECISIONS / "fleet.py").read_text())
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    order = next(
        [name.id for name in loop.iter.elts if isinstance(name, ast.Name)]
        for loop in ast.walk(functions["admit"])
        if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Tuple)
    )
    guards = [reasons_in(functions[name])[0] for name in order]
    assert [(str(number), reason) for number, reason in enumerate(guards, start=1)] == told


def test_the_defaults_that_it_names_are_the_defaults() -> None:
    defaults = NodeGC()
    assert f"`grace` ({defaults.grace.text[:2]} h)" in PAGE
    assert f"`settle` ({defaults.settle.text[:1]} min)" in PAGE
    assert f"`minUptime` ({defaults.min_uptime.text[:1]} h)" in PAGE
    assert f"`maxStalePercent` ({defaults.max_stale_percent} %)" in PAGE
    assert f"`maxReapedPercentPerDay` ({defaults.max_reaped_percent_per_day} %)" in PAGE
    assert f"`maxDeletes` ({defaults.max_deletes})" in PAGE


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_an_alert_has_a_page_and_asks_for_metrics_that_there_are(rule: dict[str, object]) -> None:
    page = ROOT / str(rule["annotations"]["runbook_url"])  # type: ignore[index]
    assert page.read_text().startswith(f"# {rule['alert']}\n")
    exported = {
        sample for family in Metrics().registry.collect() for sample in (family.name, f"{family.name}_total")
    }
    asked = set(re.findall(r"clusterconform_\w+", str(rule["expr"])))
    assert asked
    assert asked <= exported


def test_no_page_is_without_an_alert() -> None:
    pages = {f"docs/alerts/{page.name}" for page in (ROOT / "docs" / "alerts").iterdir()}
    assert pages == {rule["annotations"]["runbook_url"] for rule in RULES}
