"""What makes the contract fail in this cluster: every check of ``doctor``, in the order in which to mend.

A check whose question could not be answered is ``unknown`` and never ``ok``.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from clusterconform.contract.diagnosis import Check, ClusterFacts, State, Trouble
from clusterconform.decisions import fitness, installation
from clusterconform.decisions.fitness import Fleet, fleet_of

_WORST_FIRST: Final = (State.FAILING, State.UNKNOWN, State.WARNING, State.OK)

_INSTALLATION: Final[Sequence[tuple[str, Callable[[ClusterFacts], Iterable[Trouble]]]]] = (
    ("crd", installation.crd),
    ("permissions", installation.permissions),
    ("admission", installation.admission),
    ("leader", installation.leader),
    ("stream", installation.stream),
    ("clock", installation.clock),
)
_FLEET: Final[Sequence[tuple[str, Callable[[Fleet], Iterable[Trouble]]]]] = (
    ("profiles", fitness.profiles),
    ("nodes", fitness.nodes),
    ("contested", fitness.contested),
    ("ports", fitness.ports),
    ("addresses", fitness.addresses),
    ("paths", fitness.paths),
    ("node-clocks", fitness.node_clocks),
    ("runtimes", fitness.runtimes),
    ("daemonsets", fitness.daemon_sets),
    ("reaping", fitness.reaping),
)
CHECKS: Final = tuple(name for name, _ in (*_INSTALLATION, *_FLEET))


def diagnose(facts: ClusterFacts) -> list[Check]:
    """Every check on ``facts``, in order.

    Raises:
        UnusableWorldError: A node or a pod with a field of a type that no API server would accept.
    """
    fleet = fleet_of(facts)
    around = [_checked(name, facts, partial(check, facts)) for name, check in _INSTALLATION]
    return around + [_checked(name, facts, partial(check, fleet)) for name, check in _FLEET]


def _checked(name: str, facts: ClusterFacts, check: Callable[[], Iterable[Trouble]]) -> Check:
    if name in facts.unread:
        advice = "run it with an account that may read this"
        return Check(
            name=name, state=State.UNKNOWN, troubles=(Trouble(facts.unread[name], advice, State.UNKNOWN),)
        )
    troubles = tuple(check())
    return Check(name=name, state=worst(trouble.state for trouble in troubles), troubles=troubles)


def worst(states: Iterable[State]) -> State:
    """The worst of ``states``; ok where there is none."""
    return min(states, key=_WORST_FIRST.index, default=State.OK)
