"""Three acts of drift: each is a plain write to one node, as anybody could make it, and its repair.

What is measured is what a user would see: from the API server's acknowledgment of the drift to the arrival of
the repaired node on a watch that was opened before.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from clusterconform.cli.demo.profiles import Condition, condition_of
from clusterconform.cli.demo.watch import NodeWatch
from clusterconform.contract.names import (
    BACKEND_LABEL,
    PROVIDER_TAINT_KEY,
    PROVIDER_TAINT_VALUE,
    RUNTIME_LABEL,
)
from clusterconform.sandbox.control_plane import ControlPlane
from clusterconform.sandbox.nodes import AGENT_BACKEND
from clusterconform.sandbox.waiting import SandboxFailed, wait_until

HEAL_SECONDS: Final = 30.0
# The operator writes its line when it has the API server's answer, which may be after the watch has it.
_LOG_SECONDS: Final = 5.0
_REPAIRED: Final = "node repaired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One drift.

    Attributes:
        title: what is done, in words.
        node: the name of the node.
        command: what one would type after ``kubectl`` to do it by hand.
        drift: gives the merge patch for the node as it is.
        healed: whether a node is as it should be again.
    """

    title: str
    node: str
    command: Sequence[str]
    drift: Callable[[Mapping[str, Any]], dict[str, Any]]
    healed: Callable[[Mapping[str, Any]], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of an act.

    Attributes:
        milliseconds: from the acknowledged drift to the repaired node; None if it was not repaired in time.
        line: what the operator's log says about it; empty if nothing.
        condition: the node's condition afterwards.
    """

    milliseconds: float | None
    line: str
    condition: Condition


def three_acts(agent: str, tainted: str, mislabelled: str) -> list[Act]:
    """Give the acts.

    Args:
        agent: an agent, which loses its backend label.
        tainted: a virtual node, which loses its provider taint.
        mislabelled: another virtual node, whose runtime label becomes a lie.
    """
    backend, runtime, taint = BACKEND_LABEL, RUNTIME_LABEL, PROVIDER_TAINT_KEY
    return [
        Act(
            title=f"An agent loses the label that names its backend: {agent}",
            node=agent,
            command=["label", "node", agent, f"{backend}-"],
            drift=lambda _: _labels({backend: None}),
            healed=lambda node: node["metadata"]["labels"].get(backend) == AGENT_BACKEND,
        ),
        Act(
            title=f"A virtual node loses the taint that keeps ordinary pods away: {tainted}",
            node=tainted,
            command=["taint", "node", tainted, f"{taint}-"],
            drift=lambda node: {
                "spec": {"taints": [seen for seen in taints_of(node) if seen["key"] != PROVIDER_TAINT_KEY]}
            },
            healed=lambda node: any(
                (seen["key"], seen.get("value")) == (PROVIDER_TAINT_KEY, PROVIDER_TAINT_VALUE)
                for seen in taints_of(node)
            ),
        ),
        Act(
            title=f"A virtual node claims to be an agent: {mislabelled}",
            node=mislabelled,
            command=["label", "node", mislabelled, f"{runtime}=agent", "--overwrite"],
            drift=lambda _: _labels({runtime: "agent"}),
            healed=lambda node: node["metadata"]["labels"].get(runtime) == "virtual",
        ),
    ]


def perform(act: Act, plane: ControlPlane, log: Path, *, seconds: float = HEAL_SECONDS) -> Outcome:
    """Let a node drift, and wait until it is repaired.

    Args:
        act: what to do.
        plane: where.
        log: the operator's log.
        seconds: how long the operator may take.

    Raises:
        RequestRefused: there is no such node, or the API server refused the drift.
    """
    before = log.stat().st_size if log.exists() else 0
    with NodeWatch(plane, act.node) as watch:
        drifted = plane.admin.patch(f"/api/v1/nodes/{act.node}", act.drift(watch.node))
        acknowledged = time.monotonic()
        seen = watch.first(act.healed, after=drifted["metadata"]["resourceVersion"], seconds=seconds)
    if seen is None:
        return Outcome(milliseconds=None, line="", condition=condition_of(drifted))
    node, moment = seen
    return Outcome(
        milliseconds=(moment - acknowledged) * 1000,
        line=_line_about(act.node, log, before),
        condition=condition_of(node),
    )


def _line_about(node: str, log: Path, offset: int) -> str:
    """Give the operator's line about the repair of a node, or nothing if it does not come."""

    def found() -> list[str]:
        with log.open("rb") as file:
            file.seek(offset)
            lines = file.read().decode(errors="replace").splitlines()
        return [line for line in lines if _REPAIRED in line and f"node={node} " in line]

    try:
        wait_until(lambda: bool(found()), what="the operator tells of it", seconds=_LOG_SECONDS)
    except (SandboxFailed, OSError):
        return ""
    return found()[-1]


def _labels(labels: Mapping[str, str | None]) -> dict[str, Any]:
    return {"metadata": {"labels": dict(labels)}}


def taints_of(node: Mapping[str, Any]) -> list[dict[str, str]]:
    """Give the taints of a Node object."""
    taints: list[dict[str, str]] = node["spec"].get("taints") or []
    return taints
