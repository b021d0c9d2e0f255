"""The command line as somebody waits for it: a start, and ``check`` of a whole fleet; no API server.

Wall-clock seconds of a process of its own, from its start to its end, with its answer read: what the interpreter
and the imports cost is what a person waits for first.
"""

import subprocess
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from bench import fleet
from bench.options import Options
from bench.report import Figure, Series
from bench.subjects import PROGRAM
from clusterconform.contract.names import RUNTIME_LABEL

NAME: Final = "command line"

_STARTS: Final = {"--help": ("--help",), "matrix -o json": ("matrix", "--output", "json")}
_START_SECONDS: Final = 0.3
_CHECK_SECONDS: Final = 1.5


def measure(options: Options) -> list[Figure]:
    """The start, and ``check`` of one node, of a conforming fleet and of one in which every node has drifted."""
    series = Series(NAME)
    nodes = fleet.manifests(options.nodes, now=datetime.now(UTC))
    with tempfile.TemporaryDirectory() as folder:
        files: dict[str, tuple[Path, int, float | None]] = {
            "one node": (_written(Path(folder), "one", nodes[:1]), 0, _START_SECONDS),
            f"{options.nodes:,} nodes": (_written(Path(folder), "all", nodes), 0, _CHECK_SECONDS),
            f"{options.nodes:,} drifted nodes": (
                _written(Path(folder), "drifted", list(map(_drifted, nodes))),
                1,
                None,
            ),
        }
        _wall(["--help"], 0)  # so that no run pays for reading the interpreter from the disk
        for run in range(options.runs):
            options.tell(f"run {run + 1} of {options.runs}")
            for name, arguments in _STARTS.items():
                series.add("wall clock", name, _wall(arguments, 0), unit="s", at_most=_START_SECONDS)
            for what, (file, code, goal) in files.items():
                seconds = _wall(["check", str(file)], code)
                series.add("wall clock", f"check, {what}", seconds, unit="s", at_most=goal)
    return series.figures()


def _written(folder: Path, name: str, nodes: Sequence[dict[str, Any]]) -> Path:
    """A file of ``nodes`` as kubectl prints them: indented by four."""
    items = [{"apiVersion": "v1", "kind": "Node", **node} for node in nodes]
    file = folder / f"{name}.json"
    text = msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items})
    file.write_bytes(msgspec.json.format(text, indent=4))
    return file


def _drifted(node: dict[str, Any]) -> dict[str, Any]:
    metadata = node["metadata"]
    return {**node, "metadata": {**metadata, "labels": {**metadata["labels"], RUNTIME_LABEL: "wrong"}}}


def _wall(arguments: Sequence[str], code: int) -> float:
    """Seconds for one call, which has to end with ``code``."""
    started = time.monotonic()
    done = subprocess.run([*PROGRAM, *arguments], stdout=subprocess.PIPE, check=False)
    seconds = time.monotonic() - started
    if done.returncode != code:
        raise RuntimeError(f"{' '.join(arguments)} was to end with {code}, but ended with {done.returncode}")
    return seconds
