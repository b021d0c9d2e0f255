"""What kwok is told to do."""

import json
from pathlib import Path
from typing import Any

from clusterconform.sandbox.kwok import KEPT_ALIVE, write_configuration


def documents(folder: Path, **settings: Any) -> dict[str, Any]:
    text = write_configuration(folder, **settings).read_text()
    parsed = [json.loads(document) for document in text.split("---\n")]
    return {one["metadata"]["name"] if "metadata" in one else one["kind"]: one for one in parsed}


def test_kwok_touches_only_marked_nodes(tmp_path: Path) -> None:
    options = documents(tmp_path)["KwokConfiguration"]["options"]
    assert options["manageAllNodes"] is False
    assert options["manageNodesWithLabelSelector"] == "=".join(KEPT_ALIVE)


def test_pods_do_not_start_on_broken_nodes(tmp_path: Path) -> None:
    when = documents(tmp_path, broken={"b", "a"})["pod-start"]["spec"]["selector"]["matchExpressions"]
    assert {"key": ".spec.nodeName", "operator": "NotIn", "values": ["a", "b"]} in when


def test_containers_share_a_log_in_the_format_of_container_runtimes(tmp_path: Path) -> None:
    (logs,) = documents(tmp_path)["one-log-for-all"]["spec"]["logs"]
    _, stream, tag, _ = Path(logs["logsFile"]).read_text().split(" ", 3)
    assert (stream, tag) == ("stdout", "F")
