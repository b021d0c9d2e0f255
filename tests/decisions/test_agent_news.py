"""What of the verdicts on an agent is news, and who hears of it."""

from dataclasses import replace
from typing import Any

import pytest

from clusterconform.contract.verdicts import Finding, Reason
from clusterconform.decisions.addresses import AddressVerdict
from clusterconform.decisions.agent_news import FLICKER_SECONDS, AgentView, is_news, view_of, warnings
from clusterconform.decisions.allocation import Endpoint
from clusterconform.decisions.sandbox import ProbeVerdict, Runtime

PUBLISHED, MISSING = Reason.ENDPOINT_PUBLISHED, Reason.ENDPOINT_MISSING


def place(
    reason: Reason = PUBLISHED, *, publish: bool = True, real: tuple[str, ...] = (), holder: str = ""
) -> Any:
    endpoint = Endpoint(routing_name="pi", address="127.0.1.1", port=10251, holder=holder)
    return AddressVerdict(
        endpoint=endpoint,
        publish=publish,
        finding=Finding(reason, "because"),
        observed_address="",
        observed_port=0,
        real=real,
    )


def probe(reason: Reason, runtime: Runtime = Runtime.UNAVAILABLE, pod: str = "probe-1") -> ProbeVerdict:
    return ProbeVerdict(runtime=runtime, cause=Finding(reason, "because"), pod=pod)


def seen(*views: AddressVerdict | float) -> AgentView:
    """An agent looked at again and again; a number is how many seconds pass."""
    view, uptime = None, 1000.0
    for step in views:
        if isinstance(step, float):
            uptime += step
        else:
            view = view_of(view, step, None, uptime)
    assert view is not None
    return view


def told(before: AgentView | None, now: AgentView) -> list[tuple[str, str]]:
    return [(warned.node, warned.finding.reason.value) for warned in warnings("pi", before, now)]


def test_an_address_that_flickers_counts_as_published() -> None:
    flickering = seen(place(), place(MISSING), FLICKER_SECONDS - 0.1, place(MISSING))
    assert flickering.settled is PUBLISHED
    assert flickering.missing_since == 1000.0
    assert not is_news(seen(place()), flickering)


def test_an_address_that_stays_away_is_missing() -> None:
    gone = seen(place(), place(MISSING), FLICKER_SECONDS, place(MISSING))
    assert gone.settled is MISSING
    assert is_news(seen(place()), gone)


def test_each_flicker_is_timed_by_itself() -> None:
    again = seen(place(), place(MISSING), 4.0, place(), 4.0, place(MISSING), 4.0, place(MISSING))
    assert again.settled is PUBLISHED


def test_an_address_that_was_never_published_does_not_flicker() -> None:
    assert seen(place(MISSING)).settled is MISSING
    assert seen(place(Reason.PORT_COLLISION), place(MISSING)).settled is MISSING


def test_what_was_first_seen_is_news() -> None:
    assert is_news(None, seen(place()))
    assert not is_news(seen(place()), seen(place()))


@pytest.mark.parametrize(
    "now",
    [
        seen(place(real=("192.0.2.1",))),
        seen(place(Reason.PORT_COLLISION)),
        replace(seen(place()), probe=probe(Reason.RUNTIME_UNAVAILABLE)),
    ],
)
def test_another_number_in_the_status_is_news(now: AgentView) -> None:
    assert is_news(seen(place()), now)


def test_a_collision_is_told_of_both_nodes_and_once() -> None:
    now = seen(place(Reason.PORT_COLLISION, publish=False, holder="elder"))
    assert told(None, now) == [("pi", "PortCollision"), ("elder", "PortCollision")]
    assert told(seen(place()), now) == [("pi", "PortCollision"), ("elder", "PortCollision")]
    assert told(now, now) == []


def test_a_collision_with_a_ghost_is_told_of_the_node_alone() -> None:
    assert told(None, seen(place(Reason.PORT_COLLISION, publish=False))) == [("pi", "PortCollision")]


def test_a_real_address_is_told_when_it_comes_or_changes_and_only_beside_ours() -> None:
    real = seen(place(real=("192.0.2.1",)))
    assert told(seen(place()), real) == [("pi", "RealExternalIP")]
    assert told(real, seen(place(real=("192.0.2.2",)))) == [("pi", "RealExternalIP")]
    assert told(real, real) == []
    assert told(real, seen(place())) == []
    assert told(None, seen(place(publish=False, real=("192.0.2.1",)))) == []


def test_a_broken_runtime_is_told_once_for_each_pod_that_says_so() -> None:
    fine = seen(place())
    broken = replace(fine, probe=probe(Reason.RUNTIME_UNAVAILABLE))
    assert told(fine, broken) == [("pi", "RuntimeUnavailable")]
    assert told(broken, broken) == []
    assert told(broken, replace(fine, probe=probe(Reason.RUNTIME_UNAVAILABLE, pod="probe-2"))) == [
        ("pi", "RuntimeUnavailable")
    ]


def test_what_goes_well_is_told_to_nobody() -> None:
    ready = replace(seen(place()), probe=probe(Reason.RUNTIME_READY, Runtime.READY))
    assert told(None, ready) == []
