import pytest

from clusterconform.contract.memory import EMPTY, NodeMemory
from clusterconform.contract.plan import HOST_MARK, RUNTIME_MARK
from clusterconform.decisions import contention
from clusterconform.decisions.contention import REST_SECONDS, ROUNDS, WINDOW_SECONDS

MINUTE = 60.0


def rounds(memory: NodeMemory, mark: str, times: list[float]) -> list[bool]:
    """Play "seen amiss, written unless contested" at ``times``; whether the mark was contested at each."""
    verdicts = []
    for at in times:
        memory = contention.amiss(memory, [mark], at)
        verdicts.append(mark in memory.contested)
        if mark not in memory.contested:
            memory = contention.written(memory, [mark], at)
    return verdicts


def test_the_numbers_are_three_rounds_within_ten_minutes_and_an_hour_of_rest() -> None:
    assert (ROUNDS, WINDOW_SECONDS, REST_SECONDS) == (3, 600.0, 3600.0)


def test_B59_B74_a_mark_that_is_put_back_three_times_within_ten_minutes_is_contested() -> None:
    assert rounds(EMPTY, RUNTIME_MARK, [0, MINUTE, 2 * MINUTE, 3 * MINUTE]) == [False, False, False, True]


def test_B59_the_rest_lasts_an_hour_and_not_a_second_longer() -> None:
    begun = 3 * MINUTE
    times = [0, MINUTE, 2 * MINUTE, begun, begun + 1, begun + REST_SECONDS - 1, begun + REST_SECONDS]
    assert rounds(EMPTY, RUNTIME_MARK, times) == [False, False, False, True, True, True, False]


def test_B59_after_the_hour_three_rounds_are_fought_again_and_then_rest_follows_again() -> None:
    times = [minute * MINUTE for minute in range(4 + 60 + 4)]
    contested = rounds(EMPTY, RUNTIME_MARK, times)
    assert contested == [False] * 3 + [True] * 60 + [False] * 3 + [True] * 2


def test_B74_three_rounds_spread_over_more_than_ten_minutes_are_no_quarrel() -> None:
    assert not any(rounds(EMPTY, RUNTIME_MARK, [0, 300, 600, 900, 1200, 1500]))


@pytest.mark.parametrize(("last", "contested"), [(599.9, [True]), (600.0, [False])])
def test_a_write_leaves_the_window_after_ten_minutes(last: float, contested: list[bool]) -> None:
    assert rounds(EMPTY, RUNTIME_MARK, [0, 1, 2, last])[-1:] == contested


def test_seen_amiss_again_and_again_without_a_write_is_no_quarrel() -> None:
    memory = EMPTY
    for at in range(100):
        memory = contention.amiss(memory, [RUNTIME_MARK], at)
    assert memory == EMPTY


def test_written_three_times_but_in_order_since_is_no_quarrel() -> None:
    memory = EMPTY
    for at in range(3):
        memory = contention.written(memory, [RUNTIME_MARK], at)
    assert contention.amiss(memory, [], 4.0).contested == {}


def test_a_quarrel_over_one_mark_leaves_the_others_alone() -> None:
    memory = EMPTY
    for at in range(3):
        memory = contention.written(memory, [RUNTIME_MARK], at)
    memory = contention.written(memory, [HOST_MARK], 3)
    assert contention.amiss(memory, [RUNTIME_MARK, HOST_MARK], 4.0).contested == {RUNTIME_MARK: 4.0 + REST_SECONDS}


def test_being_seen_amiss_does_not_prolong_the_rest() -> None:
    memory = NodeMemory(contested={RUNTIME_MARK: 100.0}, repairs={RUNTIME_MARK: (1.0, 2.0, 3.0)})
    assert contention.amiss(memory, [RUNTIME_MARK], 50.0) == memory


def test_writes_are_forgotten_once_they_leave_the_window() -> None:
    memory = contention.written(EMPTY, [RUNTIME_MARK, HOST_MARK], 0.0)
    memory = contention.written(memory, [RUNTIME_MARK], 700.0)
    assert memory.repairs == {RUNTIME_MARK: (700.0,)}


def test_memory_is_a_value_and_never_changed_in_place() -> None:
    memory = NodeMemory(repairs={RUNTIME_MARK: (1.0, 2.0, 3.0)}, contested={HOST_MARK: 2.0}, clean_since=5.0)
    later = contention.amiss(contention.written(memory, [HOST_MARK], 4.0), [RUNTIME_MARK], 4.0)
    assert memory == NodeMemory(
        repairs={RUNTIME_MARK: (1.0, 2.0, 3.0)}, contested={HOST_MARK: 2.0}, clean_since=5.0
    )
    assert later.clean_since == 5.0
