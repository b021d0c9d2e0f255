import copy
from typing import Any

from builders import at, facts
from hypothesis import given
from server import FakeServer
from story import Story
from strategies import catalogues, memories, nodes

from clusterconform.contract.memory import EMPTY, NodeMemory
from clusterconform.contract.verdicts import Catalogue
from clusterconform.decisions.planning import decide
from clusterconform.decisions.requests import requests_of
from clusterconform.decisions.simulation import apply

Json = dict[str, Any]


class TestAPlanAppliedTwiceIsEmpty:
    """Idempotent: a node that got what was planned asks for nothing more, and soon comes to rest."""

    @given(raw=nodes, profiles=catalogues, memory=memories)
    def test_a_node_that_got_its_patch_asks_for_no_second_one(
        self, raw: Json, profiles: Catalogue, memory: NodeMemory
    ) -> None:
        server, seen = FakeServer(raw), facts(raw)
        server.carry_out(seen, decide(seen, profiles, memory, at(0)).plan)
        assert decide(facts(server.raw), profiles, memory, at(0)).plan.marks is None

    @given(raw=nodes, profiles=catalogues, memory=memories)
    def test_a_simulated_patch_makes_the_same_node_as_a_sent_one(
        self, raw: Json, profiles: Catalogue, memory: NodeMemory
    ) -> None:
        server, seen, simulated = FakeServer(raw), facts(raw), copy.deepcopy(raw)
        plan = decide(seen, profiles, memory, at(0)).plan
        server.carry_out(seen, plan)
        for request in requests_of(seen, plan):
            apply(simulated, request)
        assert simulated == server.raw

    @given(raw=nodes, profiles=catalogues)
    def test_a_node_that_nobody_else_touches_comes_to_rest(self, raw: Json, profiles: Catalogue) -> None:
        story = Story(raw, profiles)
        for second in (0, 10, 30, 40):
            story.act(second)
        for second in (41, 100, 4000):
            made = story.act(second)
            assert not made.plan
            assert made.recheck_after is None

    @given(raw=nodes, profiles=catalogues)
    def test_a_node_that_comes_to_rest_took_three_writes_at_most(self, raw: Json, profiles: Catalogue) -> None:
        story = Story(raw, profiles)
        for second in range(0, 60, 5):
            story.act(second)
        assert len(story.server.requests) <= 3

    @given(raw=nodes, profiles=catalogues)
    def test_a_restart_that_forgets_everything_writes_nothing_anew(self, raw: Json, profiles: Catalogue) -> None:
        story = Story(raw, profiles)
        for second in (0, 10, 30, 40):
            story.act(second)
        story.memory = EMPTY
        for second in (50, 60, 100):
            assert not story.act(second).plan
