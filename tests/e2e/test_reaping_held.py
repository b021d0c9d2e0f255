"""What holds a stale agent on a real control plane: a spent budget, an edit in mid-window, a missing fence."""

import pytest
from operators import operator
from reaping_stage import HOSTS, Stage


@pytest.mark.timeout(600)
def test_a_stale_agent_is_held_by_the_budget_and_by_a_missing_fence_and_says_so(stage: Stage) -> None:
    world = stage.world
    living = stage.alive(*HOSTS[:3])
    doomed = [stage.dead("willow", index=index) for index in range(5)]
    slow = stage.dead("linden")
    with stage.slow_kubelet(slow), operator(stage.account, "--bound", "enforce"):
        stage.settings(maxStalePercent=100, maxDeletes=2)
        world.until(lambda: len(stage.deletions()) == 2, "the budget of a window is spent", seconds=150)
        world.until(lambda: "BudgetSpent" in stage.held().values(), "the others are held")
        assert stage.reaping()["budgetLeft"] == 0
        # A shorter interval is no shorter window, and what went is not forgotten by an edit.
        stage.settings(maxStalePercent=100, maxDeletes=2, interval="11s")
        passed = stage.reaping()["lastPass"]
        world.until(lambda: stage.reaping()["lastPass"] > passed, "another pass", seconds=30)
        assert len(stage.deletions()) == 2
        stage.settings(maxStalePercent=100, maxDeletes=3)
        world.until(lambda: len(stage.deletions()) == 3, "one more is allowed", seconds=60)
        # Without the admission policy nothing goes, whatever the budget.
        fence = (
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/clusterconform-fence-delete"
        )
        stage.plane.admin.delete(fence)
        stage.settings(maxStalePercent=100, maxDeletes=4)
        world.until(lambda: stage.allowed() == ("False", "NotFenced"), "the missing fence is noticed", seconds=60)
        assert len(stage.deletions()) == 3
        stage.settings(maxStalePercent=100, maxDeletes=4, requireFence=False)
        world.until(lambda: len(stage.deletions()) == 4, "as the profile wants it", seconds=60)
        stage.settings(maxStalePercent=100, maxDeletes=100, requireFence=False)
        world.until(lambda: len(stage.deletions()) == 5, "the last of the dead goes", seconds=60)
        world.until(
            lambda: stage.held().get(slow) == "WitnessLives", "the slow one is held for living", seconds=60
        )
    assert not stage.names() & set(doomed)
    assert stage.names() >= {*living, slow}
