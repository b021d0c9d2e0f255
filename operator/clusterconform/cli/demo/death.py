"""The fourth act: a dead agent is reaped, its dead virtual twin is kept, and a mass outage is refused.

The outage begins together with the act and not after the reaping: each death needs a minute of grace, the
shortest that the API server accepts, and the two minutes run at the same time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from clusterconform.cli.demo.kubectl import Kubectl
from clusterconform.cli.demo.profiles import PROFILES
from clusterconform.cli.demo.screen import Screen
from clusterconform.cli.demo.world import Operator
from clusterconform.contract.names import LEDGER_CONFIGMAP, NAMESPACE, PLURAL
from clusterconform.contract.times import Moment
from clusterconform.decisions.simulation import read_world, simulate
from clusterconform.effects.clock import Clock
from clusterconform.sandbox.control_plane import ControlPlane
from clusterconform.sandbox.fleet import Fleet
from clusterconform.sandbox.nodes import AGENT_BACKEND, agent_name, agent_node, virtual_node, virtual_node_name
from clusterconform.sandbox.waiting import SandboxFailed, wait_until

# A host of its own: nothing else of it is alive.
HOST: Final = "ash"
AGENT: Final = agent_name(HOST, 0)
TWIN: Final = virtual_node_name(HOST, "vk-podman")

SETTINGS: Final[Mapping[str, str]] = {"grace": "1m", "interval": "10s", "settle": "0s", "minUptime": "0s"}
REAP_SECONDS: Final = 150.0
REFUSE_SECONDS: Final = 180.0
_PAUSE_SECONDS: Final = 0.5
_NODES: Final = "/api/v1/nodes"
_MASS_STALE: Final = "MassStale"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What came of the act; each text is empty where it did not come to pass.

    Attributes:
        line: the operator's line about the deletion.
        why_kept: why the twin was not touched.
        refusal: why nothing more was reaped during the outage.
    """

    line: str = ""
    why_kept: str = ""
    refusal: str = ""

    @property
    def failure(self) -> str:
        """What was missing, as one sentence; empty if nothing was."""
        if not self.line:
            return f"The dead agent {AGENT} was not reaped within {REAP_SECONDS:g} s."
        if not self.why_kept:
            return f"The dead virtual node {TWIN} was not kept."
        return "" if self.refusal else f"The mass outage was not refused within {REFUSE_SECONDS:g} s."


def dead(*, now: datetime) -> list[dict[str, Any]]:
    """Describe the two dead nodes, to be created at once.

    Their silence begins a little after ``now``: before their creation it would be no evidence of anything.
    """
    since = now + timedelta(seconds=2)
    return [
        agent_node(HOST, now=now, silent_since=since),
        virtual_node(HOST, "vk-podman", now=now, silent_since=since),
    ]


class Death:
    """The act on one stage."""

    def __init__(
        self, screen: Screen, plane: ControlPlane, fleet: Fleet, operator: Operator, kubectl: Kubectl
    ) -> None:
        """Prepare; nothing happens yet."""
        self._screen, self._plane, self._fleet = screen, plane, fleet
        self._operator, self._kubectl = operator, kubectl

    def play(self, number: int, agents: Sequence[str]) -> Ending:
        """Play it; afterwards the imitated ``agents``, which fall silent in it, are alive again.

        Raises:
            ProgramEnded: the operator has ended.
        """
        screen = self._screen
        screen.heading(f"{number}. A dead agent goes, its dead virtual twin stays: {AGENT}, {TWIN}")
        self._shorten()
        screen.say(f"meanwhile {len(agents)} agents fall silent at once, as in an outage", style="yellow")
        self._fleet.silence(agents)
        line = self._await_deletion()
        if not line:
            return Ending()
        screen.add(line, title="operator")
        screen.say(f"{AGENT} was reaped: silent for longer than grace, and all guards agreed", style="green")
        kept = self._why_kept()
        screen.say(f"{TWIN}, of the same host and as dead, is kept: {kept}", style="green")
        refusal = self._await_refusal()
        if refusal:
            screen.say(f"the outage is refused: {refusal}", style="green")
            left = self._left()
            screen.add(f"{len(left & set(agents))} of {len(agents)} silent agents are still there")
        ledger = ["get", "configmap", "-n", NAMESPACE, LEDGER_CONFIGMAP, "-o", "yaml"]
        screen.add(self._kubectl.short(*ledger), title="ledger")
        self._fleet.revive(agents)
        return Ending(line=line, why_kept=kept, refusal=refusal)

    def _shorten(self) -> None:
        patch = {"spec": {"nodeGC": dict(SETTINGS)}}
        text = '{"spec":{"nodeGC":{' + ",".join(f'"{key}":"{value}"' for key, value in SETTINGS.items()) + "}}}"
        self._screen.add(
            self._kubectl.short("patch", PLURAL, AGENT_BACKEND, "--type=merge", "-p", text), title="write"
        )
        self._plane.admin.patch(f"{PROFILES}/{AGENT_BACKEND}", patch)
        self._screen.add("(by default a node must be dead for 24 h, and the operator lead for 1 h)", style="dim")

    def _await_deletion(self) -> str:
        """The operator's line about the deletion; empty if it does not come."""

        def lines() -> list[str]:
            text = self._operator.log.read_text(errors="replace")
            return [line for line in text.splitlines() if "event=deleted" in line and f"node={AGENT} " in line]

        return self._wait("waiting for its minute of grace, and a pass each 10 s", lines, REAP_SECONDS)

    def _await_refusal(self) -> str:
        """What the profile's condition says of the outage; empty if it says nothing."""

        def refusals() -> list[str]:
            status = self._plane.admin.get(f"{PROFILES}/{AGENT_BACKEND}").get("status", {})
            return [
                f"ReapingAllowed is {seen['status']} ({seen['reason']}): {seen['message']}"
                for seen in status.get("conditions", ())
                if (seen["type"], seen["reason"]) == ("ReapingAllowed", _MASS_STALE)
            ]

        return self._wait(
            "waiting for the outage to be older than grace, about a minute", refusals, REFUSE_SECONDS
        )

    def _wait(self, what: str, found: Callable[[], list[str]], seconds: float) -> str:
        with self._screen.doing(what):
            try:
                wait_until(
                    lambda: bool(found()),
                    what=what,
                    seconds=seconds,
                    programs=[self._operator.program],
                    pause=_PAUSE_SECONDS,
                )
            except SandboxFailed:
                self._operator.program.check()
                return ""
        return found()[-1]

    def _why_kept(self) -> str:
        """What ``clusterconform simulate`` says of the twin; empty if it is gone."""
        admin = self._plane.admin
        documents = [admin.get(path) for path in (_NODES, PROFILES)]
        moment: Moment = Clock().moment()
        for node in simulate(read_world(documents), moment)["nodes"]:
            if node["name"] == TWIN:
                return f"{node['staleness']['outcome']} ({node['staleness']['reason']})"
        return ""

    def _left(self) -> set[str]:
        return {node["metadata"]["name"] for node in self._plane.admin.get(_NODES)["items"]}
