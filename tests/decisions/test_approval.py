"""What a person's approval of one deletion would lead to."""

from typing import Any

import pytest
from builders import START, Json, virtual
from reaping_worlds import agents, dead, lease, living

from clusterconform.contract.matrix import MATRIX
from clusterconform.contract.names import KEEP_ANNOTATION
from clusterconform.contract.profile import ProfileObject, manifest_of, read_profile
from clusterconform.contract.times import Moment
from clusterconform.decisions.approval import Prospect, prospect

NOW = Moment(wall=START, uptime=1e6)


def profiles(
    *, mode: str | None = "Live", held: tuple[str, str] | None = None, doubt: str | None = None
) -> list[ProfileObject]:
    """The built-in ones; the agent's tells what reaping does."""
    found = []
    for profile in MATRIX.values():
        manifest = manifest_of(profile)
        if profile.backend == "k3s":
            conditions = [{"type": "ReapingAllowed", "status": "True", "reason": "GuardsPass", "message": "none"}]
            if held is not None:
                conditions = [{"type": "ReapingAllowed", "status": "False", "reason": held[0], "message": held[1]}]
            block = {"mode": mode, "limitedBy": "--bound", **({"lastDoubt": doubt} if doubt else {})}
            reaping = {} if mode is None else {"nodeGC": block}
            manifest = {**manifest, "status": {"conditions": conditions, **reaping}}
        found.append(read_profile(manifest))
    return found


def asked(node: Json, *, heard: Json | None = None, **changes: Any) -> Prospect:
    return prospect(node, heard, profiles(**changes), NOW)


def test_a_dead_agent_that_nothing_holds_would_go() -> None:
    found = asked(dead())
    assert (found.objection, found.backend, found.uid, found.held) == ("", "k3s", "uid-pi-abc123", None)
    assert found.since is not None


@pytest.mark.parametrize(
    ("reason", "doubt"),
    [("MassStale", "MassStale"), ("DailyLimit", None), ("DailyLimit", "ClockSkew"), ("Untrusted", "MassStale")],
)
def test_an_approval_overrides_three_guards(reason: str, doubt: str | None) -> None:
    found = asked(dead(), held=(reason, "too many"), doubt=doubt)
    assert (found.objection, found.held, found.held_message) == ("", reason, "too many")


@pytest.mark.parametrize(
    "reason", ["ClockSkew", "EvidenceIncomplete", "MinUptime", "LedgerUnreadable", "BudgetSpent", "NotFenced"]
)
def test_an_approval_overrides_no_other_guard(reason: str) -> None:
    assert asked(dead(), held=(reason, "because")).objection == f"{reason}: because; no approval overrides this"


@pytest.mark.parametrize("doubt", ["ClockSkew", "LedgerUnreadable", None, "rubbish"])
def test_a_doubt_that_was_no_mass_outage_is_not_overridden(doubt: str | None) -> None:
    found = asked(dead(), held=("Untrusted", "too early"), doubt=doubt)
    assert found.objection == "Untrusted: too early; no approval overrides this"


@pytest.mark.parametrize(
    ("node", "heard", "word"),
    [
        (living("pi-a"), None, "NodeReady"),
        (dead(hours=1), None, "WithinGrace"),
        (dead(annotations={KEEP_ANNOTATION: ""}), None, "Kept"),
        (dead(), lease(0.5), "WitnessLives"),
        (virtual(), None, "NotAnAgent"),
    ],
)
def test_an_approval_never_overrides_what_speaks_for_the_node(node: Json, heard: Json | None, word: str) -> None:
    found = asked(node, heard=heard)
    assert found.objection.startswith(f"{word}: ")
    assert found.objection.endswith("no approval overrides this")


@pytest.mark.parametrize(
    ("mode", "words"),
    [("DryRun", "reaping is DryRun by --bound"), ("Off", "reaping is Off by --bound"), (None, "is one running?")],
)
def test_where_nothing_is_reaped_an_approval_changes_nothing(mode: str | None, words: str) -> None:
    assert words in asked(dead(), mode=mode).objection


def test_without_an_agent_profile_there_is_nobody_to_ask() -> None:
    assert prospect(dead(), None, profiles()[1:], NOW).objection == "there is no accepted profile of class agent"
    assert agents().backend == "k3s"
