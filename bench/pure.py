"""Decisions alone: no API server, no network, one process."""

import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from bench import fleet
from bench.options import Options
from bench.report import Figure, Series
from bench.subjects import PROGRAM
from clusterconform.contract.facts import NodeFacts, decode_node, read_node
from clusterconform.contract.memory import NodeMemory
from clusterconform.contract.names import RUNTIME_LABEL
from clusterconform.contract.times import Moment
from clusterconform.decisions.planning import decide
from clusterconform.decisions.requests import requests_of

NAME: Final = "decisions"

_WORLDS: Final = 2000
_WORLD_NODES: Final = 3
_CLEAN: Final = NodeMemory(clean_since=-3600.0)


def measure(options: Options) -> list[Figure]:
    """One decision for each node of the fleet, and ``simulate --lines`` over small worlds."""
    series = Series(NAME)
    now = datetime.now(UTC)
    nodes = fleet.manifests(options.nodes, now=now)
    texts = [msgspec.json.encode(node) for node in nodes]
    facts = [read_node(decode_node(text)) for text in texts]
    drifted = [replace(node, labels={**node.labels, RUNTIME_LABEL: "wrong"}) for node in facts]
    subject, moment = f"{options.nodes:,} nodes", Moment(wall=now, uptime=0.0)
    works: dict[str, Callable[[], object]] = {
        "read from JSON": lambda: [read_node(decode_node(text)) for text in texts],
        "decide, all conform": lambda: _decide(facts, moment),
        "decide and build requests, all drifted": lambda: _decide(drifted, moment),
    }
    for _ in range(options.runs):
        for name, work in works.items():
            series.add(subject, name, cpu_of(work), unit="s CPU")
    worlds = _worlds(nodes)
    for run in range(options.runs):
        options.tell(f"run {run + 1} of {options.runs}: simulate")
        series.add("simulate --lines", f"worlds of {_WORLD_NODES} nodes per second", _simulate(worlds))
    return series.figures()


def _decide(nodes: list[NodeFacts], moment: Moment) -> int:
    profiles = fleet.catalogue()
    return sum(len(requests_of(node, decide(node, profiles, _CLEAN, moment).plan)) for node in nodes)


def cpu_of(work: Callable[[], object]) -> float:
    """CPU seconds of this process for ``work``."""
    started = time.process_time()
    work()
    return time.process_time() - started


def _worlds(nodes: list[dict[str, Any]]) -> bytes:
    """Worlds of three nodes, one of them drifted, as input of ``simulate --lines``."""
    starts = [number * _WORLD_NODES % max(1, len(nodes) - _WORLD_NODES) for number in range(_WORLDS)]
    lines = []
    for number, start in enumerate(starts):
        first, *others = nodes[start : start + _WORLD_NODES]
        metadata = first["metadata"]
        labels = {**metadata["labels"], RUNTIME_LABEL: "wrong"}
        items = [{**first, "metadata": {**metadata, "labels": labels}}, *others]
        named = [{"apiVersion": "v1", "kind": "Node", **item} for item in items]
        lines.append(msgspec.json.encode({"id": number, "items": named}))
    return b"\n".join(lines)


def _simulate(worlds: bytes) -> float:
    """Worlds per second, the start of the process left out: from the first answer to the last."""
    command = [*PROGRAM, "simulate", "--lines", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("a process without pipes")
        first, rest = worlds.split(b"\n", 1)
        process.stdin.write(first + b"\n")
        process.stdin.flush()
        process.stdout.readline()
        started = time.monotonic()
        answers, _ = process.communicate(rest)
        seconds = time.monotonic() - started
    count = answers.count(b"\n")
    if count != _WORLDS - 1:
        raise RuntimeError(f"simulate was to answer {_WORLDS - 1} worlds, but answered {count}")
    return count / seconds
