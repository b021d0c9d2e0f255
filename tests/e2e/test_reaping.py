"""Reaping on a real control plane: real kubelets, kwok agents, the node lifecycle controller, the shipped rights.

A minute is the shortest grace that the API server accepts, so a long story plays several deaths at once.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest
from operators import NODES, operator
from reaping_stage import HOSTS, Stage, now

from clusterconform.contract.names import APPROVE_ANNOTATION, KEEP_ANNOTATION
from clusterconform.contract.times import parse_time
from clusterconform.sandbox.nodes import agent_name, agent_node, virtual_node

GRACE = timedelta(minutes=1)


@pytest.mark.timeout(900)
def test_the_dead_go_the_living_stay_and_an_outage_is_refused_until_trust_is_earned_again(stage: Stage) -> None:
    world, fleet = stage.world, stage.fleet
    living = stage.alive(*HOSTS)
    oak, ash, elder = agent_name("oak", 0), agent_name("ash", 0), agent_name("elder", 0)
    hollow = {}
    for host, name in (("oak", oak), ("ash", ash), ("elder", elder)):
        model = agent_node(host, now=now())["metadata"]
        own = {key: value for key, value in model["labels"].items() if key.startswith("outpost.dhnt.io/")}
        hollow[name] = fleet.start_hollow_kubelet(name, labels=own, annotations=model["annotations"])
    fleet.await_ready([*living, *hollow])
    at = now()
    twin = virtual_node("oak", "vk-podman", now=at, silent_since=at + timedelta(seconds=2))
    twin_name = stage.plane.admin.create(NODES, twin)["metadata"]["name"]
    kept = stage.dead("maple", annotations={KEEP_ANNOTATION: "being repaired"})
    master = stage.dead("rowan", labels={"node-role.kubernetes.io/control-plane": "anything"})
    stranger = stage.dead("pi-zero", labels={"outpost.dhnt.io/host": "pi"})

    with operator(stage.account, "--bound", "enforce") as running:
        stage.settings()
        # A real kubelet's process ends; the node lifecycle controller misses it after its 20 seconds.
        hollow[oak].kill()
        world.until(lambda: world.gone(f"{NODES}/{oak}"), f"{oak} is reaped", seconds=150)
        assert stage.deletions() == [oak]
        assert [line["event"] for line in stage.lines()] == ["intended", "deleted"]
        assert "kube-system/" in stage.lines("deleted")[0]["detail"]
        world.until(lambda: stage.held().get(kept) == "Kept", "the kept one is named")
        assert stage.held()[stranger] == "IdentityConflict"
        assert {twin_name, kept, master, stranger} < stage.names()
        world.until(lambda: stage.events("Reaped") == [oak], "an Event of the profile tells of it")

        # All of kwok's agents and two real kubelets fall silent at once: more than half of the fleet.
        fleet.silence(living)
        hollow[ash].kill()
        hollow[elder].kill()
        world.until(lambda: stage.allowed() == ("False", "MassStale"), "the outage is refused", seconds=150)
        refusal = stage.lines("refused_mass_stale")[0]
        assert refusal["stale"] * 2 > refusal["scope"]
        world.until(lambda: {ash, elder} <= {*stage.held()}, "both are held", seconds=60)
        assert stage.deletions() == [oak]

        # One of them was thrown away, and a person says so.
        for arguments, code, words in (
            ((elder,), 2, "say --yes"),
            ((twin_name, "--yes"), 1, "NotAnAgent"),
            ((kept, "--yes"), 1, "Kept"),
            ((elder, "--yes"), 0, f"{elder} was reaped."),
        ):
            done = stage.reap(*arguments)
            assert done.returncode == code, done.stdout + done.stderr
            assert words in done.stdout + done.stderr
        assert stage.deletions() == [oak, elder]
        annotations = world.profile("k3s")["metadata"].get("annotations") or {}
        assert APPROVE_ANNOTATION not in annotations
        assert stage.allowed() == ("False", "MassStale")

        # The outage ends; what stays dead must have been dead for a grace in which nothing was doubtful.
        fleet.revive(living)
        fleet.await_ready(living)
        ended = now()
        world.until(lambda: stage.allowed() == ("False", "Untrusted"), "trust is being earned", seconds=60)
        assert stage.held()[ash] == "Untrusted"
        world.until(lambda: world.gone(f"{NODES}/{ash}"), f"{ash} is reaped", seconds=180)
        assert _at(stage.lines("deleted")[-1]) - ended > GRACE - timedelta(seconds=15)
        assert stage.deletions() == [oak, elder, ash]
        assert running.metric("clusterconform_reaped_nodes_total") == 3
    assert stage.names() >= {*living, twin_name, kept, master, stranger}


def _at(line: Mapping[str, Any]) -> datetime:
    at = parse_time(line["at"])
    assert at is not None
    return at
