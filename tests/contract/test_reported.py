"""What stands in a profile's status is read back, whatever somebody put there."""

from typing import Any

import pytest

from clusterconform.contract.reported import condition_of, held_in, held_row, reaping_of

HELD = {"name": "pi-1", "reason": "WithinGrace"}
READY = {"type": "Ready", "status": "True"}
STATUS = {"conditions": [{"type": "Accepted"}, READY], "nodeGC": {"mode": "Live", "held": [HELD]}}
RUBBISH = [None, 0, "text", [], ["text"], [None], {}, {"held": 1}, {"held": [1, "x", None]}]


def test_conditions_and_held_nodes_are_found_by_name() -> None:
    assert condition_of(STATUS, "Ready") == READY
    assert condition_of(STATUS, "ReapingAllowed") == {}
    assert reaping_of(STATUS)["mode"] == "Live"
    assert held_in(STATUS) == [HELD]
    assert (held_row(STATUS, "pi-1"), held_row(STATUS, "pi-2")) == (HELD, None)


@pytest.mark.parametrize("rubbish", RUBBISH, ids=repr)
def test_what_has_not_the_expected_shape_counts_as_absent(rubbish: Any) -> None:
    status = {"conditions": rubbish, "nodeGC": rubbish}
    assert condition_of(status, "Ready") == {}
    assert held_in(status) == []
    assert held_row(status, "pi-1") is None
    assert reaping_of(status) == (rubbish if isinstance(rubbish, dict) else {})
