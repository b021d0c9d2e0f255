"""The operator killed at every request of a pass, before it is forwarded and after it was answered.

After each crash, and after the next operator has taken over: nobody was deleted who should live, each that went
was written down before it went, and what the ledger counts as spent is never less than what is gone.
"""

from collections.abc import Iterator

import pytest
from proxy import When
from reaping_crashes import Scene, crashing, is_line, kind_of, of_a_pass

from clusterconform.decisions.ledger import LedgerEvent
from clusterconform.sandbox.builder import Builder

CLAIM = ["GET ledger", "PUT ledger"]
ONE = ["GET node", "GET lease", "PUT ledger", "DELETE node", "PUT ledger"]
# Everything that an operator asks in its first pass, which finds two candidates.
ALL = [*CLAIM, "GET ledger", "try", *ONE, *ONE]
INTENDED, DELETED = LedgerEvent.INTENDED, LedgerEvent.DELETED
BEFORE, AFTER = When


@pytest.fixture(scope="module")
def scene(builder: Builder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with crashing(builder, tmp_path_factory.mktemp("crashes"), candidates=80) as scene:
        yield scene


@pytest.fixture(scope="module")
def ripe(scene: Scene) -> Scene:
    scene.ripen()
    return scene


def _crash(scene: Scene, k: int, when: When) -> list[str]:
    """Kill an operator at the k-th request of its first pass; the two candidates of that pass."""
    names = scene.take(2)
    begun = len(scene.first.exchanges)
    scene.killed(of_a_pass, nth=k, when=when)
    asked = [kind_of(exchange) for exchange in scene.first.exchanges[begun:] if of_a_pass(exchange)]
    assert asked == ALL[:k]
    scene.check()
    return names


@pytest.mark.parametrize("when", When, ids=lambda when: when.name.lower())
@pytest.mark.parametrize("k", [1, 2])
def test_killed_while_it_claims_the_ledger(scene: Scene, k: int, when: When) -> None:
    scene.killed(of_a_pass, nth=k, when=when)
    scene.check()


def test_what_a_pass_asks_when_nothing_stops_it(ripe: Scene) -> None:
    names = ripe.take(2)
    begun = len(ripe.first.exchanges)
    with ripe.running(ripe.first) as process:
        ripe.until_passed(process)
        assert [kind_of(exchange) for exchange in ripe.first.exchanges[begun:] if of_a_pass(exchange)] == ALL
    assert ripe.left(names) == []
    assert [event for event, _ in ripe.told(names)] == [INTENDED, DELETED] * 2
    ripe.check()


# 7 to 9 are killed below, where the next operator goes on with what they left.
_POINTS = [(k, when) for k in (*range(3, 7), *range(10, 15)) for when in When]


@pytest.mark.parametrize(
    ("k", "when"), _POINTS, ids=lambda value: value.name.lower() if isinstance(value, When) else value
)
def test_killed_at_request(ripe: Scene, k: int, when: When) -> None:
    names = _crash(ripe, k, when)
    done = ALL[: k - (when is BEFORE)]
    assert len(ripe.left(names)) == 2 - done.count("DELETE node")
    ripe.leave(names)


@pytest.mark.parametrize("when", When, ids=lambda when: when.name.lower())
@pytest.mark.parametrize("k", [7, 8, 9])
def test_killed_between_intention_and_result_and_taken_over_within_the_budget(
    ripe: Scene, k: int, when: When
) -> None:
    """Two may go, three are dead: whatever became of the first, never more than two go."""
    third = ripe.take(1)
    ripe.allow(2)
    names = [*third, *_crash(ripe, k, when)]
    done = ALL[: k - (when is BEFORE)]
    gone = done.count("DELETE node")
    assert len(ripe.left(names)) == 3 - gone
    assert [event for event, _ in ripe.told(names)] == [INTENDED, DELETED][: done[4:].count("PUT ledger")]
    with ripe.running(ripe.first) as process:
        ripe.until_passed(process)
        ripe.check()
        assert gone < 3 - len(ripe.left(names)) <= 2
    ripe.leave(names)
    ripe.allow(50)


def test_an_intention_whose_answer_was_lost_is_spent_and_made_up_for(ripe: Scene) -> None:
    names = ripe.take(1)
    with ripe.running(ripe.first) as process:
        ripe.first.cut(is_line(INTENDED), when=AFTER)
        ripe.until_passed(process)
        assert ripe.left(names) == names
        assert ripe.told(names) == [(INTENDED, 0)]
        ripe.until_gone(names)
    ripe.check()


def test_a_deletion_whose_answer_was_lost_is_spent_and_not_made_again(ripe: Scene) -> None:
    names = ripe.take(2)
    with ripe.running(ripe.first) as process:
        ripe.first.cut(lambda exchange: kind_of(exchange) == "DELETE node", when=AFTER)
        ripe.until_passed(process)
        assert len(ripe.left(names)) == 1
        assert [event for event, _ in ripe.told(names)] == [INTENDED]
        ripe.check()
        ripe.until_gone(names)
    assert [event for event, _ in ripe.told(names)] == [INTENDED, INTENDED, DELETED]
    ripe.check()
