"""The alert rules and the dashboard's queries, read by the real promtool; and each alert rings when it should."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from deployment import DEPLOY

from clusterconform.sandbox.builder import Builder
from clusterconform.sandbox.parts import PROMTOOL

Promtool = Callable[..., subprocess.CompletedProcess[str]]

ALERTS: Final = DEPLOY / "alerts.yaml"
RULES: Final[list[dict[str, Any]]] = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
DASHBOARD: Final = json.loads((DEPLOY / "dashboard.json").read_text())
QUERIES: Final = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]

# Series that make an alert ring at the minute given, and none of the others.
WELL: Final = {
    "clusterconform_reaping_held_nodes": "0x2000",
    'clusterconform_leader{instance="a"}': "1x2000",
    'clusterconform_leader{instance="b"}': "0x2000",
    "clusterconform_ledger_bytes": "1000x2000",
    "clusterconform_nodes_terminating": "0x2000",
    'clusterconform_sync_age_seconds{instance="a"}': "60x2000",
    # A standby has never listed anything, and should not.
    'clusterconform_sync_age_seconds{instance="b"}': "-1x2000",
    'clusterconform_node_stream_age_seconds{instance="a"}': "1x2000",
    'clusterconform_agent_runtimes{verdict="ready"}': "3x2000",
    'clusterconform_agent_endpoints{reason="EndpointPublished"}': "3x2000",
    'clusterconform_agent_endpoints{reason="Ghost"}': "1x2000",
    'clusterconform_agent_streaming{cause="StreamingVerified"}': "3x2000",
    'clusterconform_agent_streaming{cause="NotTried"}': "1x2000",
}
RINGING: Final = {
    "ClusterconformReapingHeld": ('clusterconform_reaping_held_nodes{reason="MassStale"}', "3x2000", 1441),
    "ClusterconformNoLeader": ('clusterconform_leader{instance="a"}', "0x2000", 6),
    "ClusterconformLedgerFull": ("clusterconform_ledger_bytes", "250000x2000", 11),
    "ClusterconformNodeStuckTerminating": ("clusterconform_nodes_terminating", "1x2000", 61),
    "ClusterconformOutOfTouch": ('clusterconform_sync_age_seconds{instance="a"}', "3000x2000", 11),
    "ClusterconformRuntimeUnavailable": ('clusterconform_agent_runtimes{verdict="unavailable"}', "1x2000", 16),
    "ClusterconformEndpointWithheld": ('clusterconform_agent_endpoints{reason="PortCollision"}', "1x2000", 16),
    "ClusterconformKubeletUnreachable": ('clusterconform_agent_streaming{cause="TimedOut"}', "1x2000", 16),
}


@pytest.fixture(scope="module")
def promtool(builder: Builder) -> Promtool:
    """Runs promtool: ``promtool(*args)``."""
    program = builder.provide(PROMTOOL)

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([program, *args], capture_output=True, text=True, check=False, timeout=60)

    return run


def test_promtool_takes_the_rules(promtool: Promtool) -> None:
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", str(ALERTS))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"SUCCESS: {len(RULES)} rules found" in done.stdout


@pytest.mark.parametrize("query", QUERIES)
def test_promtool_takes_every_query_of_the_dashboard(query: str, promtool: Promtool) -> None:
    done = promtool("--experimental", "promql", "format", query)
    assert done.returncode == 0, done.stderr


def test_every_alert_is_tried() -> None:
    assert RINGING.keys() == {rule["alert"] for rule in RULES}


@pytest.mark.parametrize("alert", RINGING)
def test_an_alert_rings_for_its_trouble_and_for_nothing_else(
    alert: str, promtool: Promtool, tmp_path: Path
) -> None:
    series, values, minute = RINGING[alert]
    input_series = [{"series": name, "values": seen} for name, seen in {**WELL, series: values}.items()]
    rule = next(rule for rule in RULES if rule["alert"] == alert)
    rung = [{"exp_labels": rule["labels"], "exp_annotations": rule["annotations"]}]
    tests = {
        "rule_files": [str(ALERTS)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": input_series,
                "alert_rule_test": [
                    {
                        "eval_time": f"{minute}m",
                        "alertname": other["alert"],
                        "exp_alerts": rung if other["alert"] == alert else [],
                    }
                    for other in RULES
                ],
            }
        ],
    }
    file = tmp_path / "alerts.test.yaml"
    file.write_text(yaml.safe_dump(tests))
    done = promtool("test", "rules", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
