"""The Grafana dashboard asks for metrics that there are, by labels that they have, and shows each of them."""

import json
import re
from typing import Any, Final

import pytest
from deployment import DEPLOY

from clusterconform.contract.verdicts import Reason
from clusterconform.effects.metrics import Metrics

Json = dict[str, Any]

DASHBOARD: Final[Json] = json.loads((DEPLOY / "dashboard.json").read_text())
PANELS: Final[list[Json]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES: Final[list[str]] = [target["expr"] for panel in PANELS for target in panel["targets"]]
METRIC: Final = re.compile(r"clusterconform_\w+")
# What Prometheus adds to every series.
ADDED: Final = {"instance", "job"}


def exported() -> dict[str, set[str]]:
    """The series that we export, with their labels."""
    found = {}
    registry = Metrics().registry
    for collector in {*registry._names_to_collectors.values()}:
        kind, name, labels = collector._type, collector._name, collector._labelnames  # type: ignore[attr-defined]
        suffix = {"counter": "_total", "info": "_info"}.get(kind, "")
        found[f"{name}{suffix}"] = {*labels, *(("version", "python") if kind == "info" else ())}
    return found


def test_every_metric_of_the_registry_is_known_here() -> None:
    families = {family.name for family in Metrics().registry.collect()}
    assert {re.sub(r"_(total|info)$", "", name) for name in exported()} == families


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_asks_for_series_and_labels_that_there_are(query: str) -> None:
    series = exported()
    asked = set(METRIC.findall(query))
    assert asked
    assert asked <= series.keys()
    known = set.union(*(series[name] for name in asked)) | ADDED
    grouped = {
        word.strip() for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", query) for word in group.split(",")
    }
    assert grouped | set(re.findall(r"[{,](\w+)=", query)) <= known


@pytest.mark.parametrize("panel", PANELS, ids=[panel["title"] for panel in PANELS])
def test_a_panel_says_what_it_shows(panel: Json) -> None:
    assert panel["description"].endswith(".")
    for target in panel["targets"]:
        named = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        assert named <= set(re.findall(r"\w+", "".join(re.findall(r"by \(([^)]*)\)", target["expr"]))))


def test_no_metric_is_left_out() -> None:
    assert exported().keys() - set(METRIC.findall(" ".join(QUERIES))) == set()


def test_counters_are_asked_for_their_increase_and_gauges_for_what_they_are() -> None:
    for query in QUERIES:
        for name in METRIC.findall(query):
            ranged = re.search(rf"(rate|increase)\({name}\[", query) is not None
            assert ranged is name.endswith("_total"), query


def test_a_reason_that_is_asked_for_is_one() -> None:
    for value in re.findall(r'reason="(\w+)"', " ".join(QUERIES)):
        assert value in {reason.value for reason in Reason}


def test_panels_have_numbers_of_their_own_and_do_not_lie_on_one_another() -> None:
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    cells = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
