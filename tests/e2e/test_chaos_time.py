"""The operator where time is the fault: connections that fall silent without an end, and clocks that are wrong."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import moved_clock
import pytest
from chaos_stage import Scene, chaotic
from operators import NODES, PROFILES

from clusterconform.sandbox.builder import Builder

HOURS = 3600
# Kopf gives a silent watch 70 s; what has to be seen after them is seen in a moment.
NOTICED_SECONDS = 75


@pytest.mark.timeout(400)
def test_connections_that_fall_silent_without_an_end_are_given_up_and_opened_again(
    builder: Builder, tmp_path: Path
) -> None:
    """B39: the watch lives as far as TCP knows, and nothing comes any more."""
    with chaotic(builder, tmp_path) as scene:
        scene.process.await_ready()
        watched = len(scene.proxy.watched)
        assert scene.proxy.freeze() >= 2
        name = next(scene.drifters)
        begun = len(scene.writes())
        scene.drift(name)

        def age() -> float:
            return scene.process.metric("clusterconform_node_stream_age_seconds")

        scene.world.until(lambda: age() > 30, "the metric tells how long nothing came", seconds=60)
        assert scene.world.labels(name)["runtime"] == "agent", "nothing tells of it yet"
        assert scene.process.get("/livez")[0] == 200
        scene.until_repaired(name, seconds=NOTICED_SECONDS)
        written = [entry["objectRef"]["name"] for entry in scene.writes()[begun:] if entry["verb"] == "patch"]
        assert written == [name]
        scene.world.until(
            lambda: {NODES, PROFILES} <= {watch.path for watch in scene.proxy.watched[watched:]},
            "all is watched again",
        )
        scene.world.until(lambda: age() < 5, "the stream brings bytes again")
        assert not scene.process.said("lost leadership")
        scene.ripen()
        with scene.unharmed():
            pass


@contextmanager
def moved(builder: Builder, directory: Path) -> Iterator[tuple[Scene, Callable[[float], None]]]:
    """A scene whose operator has a wall clock that can be moved; by seconds, from then on."""
    file = directory / "offset"
    file.write_text("0")
    os.environ[moved_clock.VARIABLE] = str(file)
    try:
        program = (sys.executable, moved_clock.__file__)
        with chaotic(builder, directory, program=program, grace="1h", maxDeletes=100) as scene:

            def move(seconds: float) -> None:
                file.write_text(str(seconds))

            yield scene, move
    finally:
        del os.environ[moved_clock.VARIABLE]


# Where the clock is moved to, and why nothing is deleted then.
MOVES = ((3 * HOURS, "ClockSkew"), (0, "Untrusted"), (-3 * HOURS, "ClockSkew"), (0, "Untrusted"))


@pytest.mark.timeout(400)
def test_a_clock_that_jumps_and_comes_back_deletes_nobody_and_costs_the_trust_in_the_past(
    builder: Builder, tmp_path: Path
) -> None:
    """Forwards every dead agent looks dead for hours; the budget would allow them all."""
    with moved(builder, tmp_path) as (scene, move):
        scene.until_passed()
        assert scene.allowed()[0] == "True"
        for offset, refused in MOVES:
            with scene.unharmed():
                move(offset)
                scene.world.until(
                    lambda refused=refused: scene.allowed() == ("False", refused),  # type: ignore[misc]
                    f"reaping is refused: {refused}",
                    seconds=60,
                )
            assert set(scene.dead) <= set(scene.present())
        assert scene.process.metric("clusterconform_reaped_nodes_total") == 0
