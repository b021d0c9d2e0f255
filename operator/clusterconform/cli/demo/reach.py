"""The fifth act: the log of a pod on an agent, before and after its endpoint is published, and on a virtual node.

A new agent joins while the profile publishes no addresses, as in a cluster without the operator. A forwarder of
the sandbox plays the tunnel that leads from the published endpoint to the kubelet.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from clusterconform.cli.demo.kubectl import Kubectl
from clusterconform.cli.demo.profiles import PROFILES
from clusterconform.cli.demo.screen import Screen
from clusterconform.cli.demo.world import Operator
from clusterconform.contract.names import PLURAL
from clusterconform.effects.clock import Clock
from clusterconform.sandbox.admin import RequestRefused
from clusterconform.sandbox.control_plane import ControlPlane
from clusterconform.sandbox.fleet import Fleet
from clusterconform.sandbox.kwok import kept_alive
from clusterconform.sandbox.nodes import AGENT_BACKEND, agent_name, agent_node
from clusterconform.sandbox.tunnel import Tunnel
from clusterconform.sandbox.waiting import SandboxFailed, wait_until

HOST: Final = "yew"
AGENT: Final = agent_name(HOST, 0)
TALKER, MUTE = "talker", "mute"
_SECONDS: Final = 60.0
# kwok has just brought the agents of the outage back, and takes its time before it looks after another.
_RUN_SECONDS: Final = 180.0
_PODS: Final = "/api/v1/namespaces/default/pods"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """What came of the act; each text is empty where it did not come to pass.

    Attributes:
        ran: whether the agent's pod came to run.
        before: why the log could not be read at first.
        log: the log's line afterwards.
        refusal: why the virtual node's log cannot be read.
    """

    ran: bool = True
    before: str = ""
    log: str = ""
    refusal: str = ""

    @property
    def failure(self) -> str:
        """What was missing, as one sentence; empty if nothing was."""
        if not self.ran:
            return f"The pod on {AGENT} did not run within {_RUN_SECONDS:g} s."
        if not self.before:
            return f"The log on {AGENT} could be read before its endpoint was published."
        if not self.log:
            return f"The log on {AGENT} could not be read within {_SECONDS:g} s."
        return "" if self.refusal else "The log on a virtual node could be read."


class Reach:
    """The act on one stage."""

    def __init__(
        self, screen: Screen, plane: ControlPlane, fleet: Fleet, operator: Operator, kubectl: Kubectl
    ) -> None:
        """Prepare; nothing happens yet."""
        self._screen, self._plane, self._fleet = screen, plane, fleet
        self._operator, self._kubectl = operator, kubectl

    def play(self, number: int, virtual: str) -> Reached:
        """Play it, with ``virtual`` as the virtual node.

        Raises:
            ProgramEnded: the operator has ended.
        """
        screen = self._screen
        screen.heading(f"{number}. An agent's kubelet comes within reach: {AGENT}")
        self._publish("Off")
        self._fleet.create_nodes([kept_alive(agent_node(HOST, now=Clock().moment().wall))])
        self._run(TALKER, AGENT)
        self._run(MUTE, virtual)
        running = "waiting for the new agent to run a pod"
        if not self._wait(running, lambda: self._phase(TALKER) == "Running", _RUN_SECONDS):
            return Reached(ran=False)
        before = self._logs(TALKER, good=False)
        self._publish("Status")
        if not self._wait("waiting for its endpoint", lambda: self._endpoint() is not None):
            return Reached(before=before)
        address, port = self._endpoint() or ("", 0)
        screen.say(
            f"the operator has published {address}:{port}, which both ends derive from {HOST}", style="green"
        )
        if self._fleet.kwok_port is not None:
            tunnel = Tunnel(self._fleet.kwok_port)
            self._plane.at_end(tunnel.close)
            tunnel.open(address, port)
        log = self._logs(TALKER, good=True)
        refusal = self._logs(MUTE, good=False)
        return Reached(before=before, log=log, refusal=refusal)

    def _publish(self, mode: str) -> None:
        text = f'{{"spec":{{"addressReconcile":{{"mode":"{mode}"}}}}}}'
        command = ("patch", PLURAL, AGENT_BACKEND, "--type=merge", "-p", text)
        self._screen.add(self._kubectl.short(*command), title="write")
        self._plane.admin.patch(f"{PROFILES}/{AGENT_BACKEND}", {"spec": {"addressReconcile": {"mode": mode}}})

    def _run(self, name: str, node: str) -> None:
        spec = {"nodeName": node, "containers": [{"name": "main", "image": "none"}]}
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        self._plane.admin.create(_PODS, manifest)

    def _phase(self, name: str) -> str:
        return str(self._plane.admin.get(f"{_PODS}/{name}")["status"].get("phase"))

    def _endpoint(self) -> tuple[str, int] | None:
        status: dict[str, Any] = self._plane.admin.get(f"/api/v1/nodes/{AGENT}")["status"]
        external = [seen["address"] for seen in status.get("addresses") or () if seen["type"] == "ExternalIP"]
        return (external[0], status["daemonEndpoints"]["kubeletEndpoint"]["Port"]) if external else None

    def _logs(self, name: str, *, good: bool) -> str:
        """What ``kubectl logs`` says; empty where it succeeds and should not, or the other way round."""
        self._screen.add(self._kubectl.short("logs", name), title="read")
        try:
            text = str(self._plane.admin.get(f"{_PODS}/{name}/log")).strip()
        except RequestRefused as refused:
            _, _, words = str(refused).partition(": ")
            self._screen.say(f"refused: {words}", style="red" if good else "yellow")
            return "" if good else words
        self._screen.say(f"it says: {text}", style="green" if good else "red")
        return text if good else ""

    def _wait(self, what: str, condition: Callable[[], bool], seconds: float = _SECONDS) -> bool:
        with self._screen.doing(what):
            try:
                wait_until(condition, what=what, seconds=seconds, programs=[self._operator.program])
            except SandboxFailed:
                self._operator.program.check()
                return False
        return True
