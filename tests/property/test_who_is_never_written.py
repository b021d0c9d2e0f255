from typing import Any

from builders import at, facts
from hypothesis import given
from story import Story
from strategies import catalogues, memories, nodes

from clusterconform.contract.memory import NodeMemory
from clusterconform.contract.profile import Enforcement
from clusterconform.contract.verdicts import Catalogue, IdentityKind
from clusterconform.decisions.planning import decide

Json = dict[str, Any]


class TestWhoIsNeverWritten:
    """A node that is conflicting, unidentified or of an unknown backend gets nothing but its condition."""

    @given(raw=nodes, profiles=catalogues, memory=memories)
    def test_only_a_managed_node_ever_gets_a_marks_patch(
        self, raw: Json, profiles: Catalogue, memory: NodeMemory
    ) -> None:
        made = decide(facts(raw), profiles, memory, at(0))
        assert made.plan.marks is None or made.verdict.identity.kind is IdentityKind.MANAGED

    @given(raw=nodes, profiles=catalogues, memory=memories)
    def test_only_an_accepted_enforcing_profile_ever_writes_marks(
        self, raw: Json, profiles: Catalogue, memory: NodeMemory
    ) -> None:
        made = decide(facts(raw), profiles, memory, at(0))
        if made.plan.marks is not None:
            profile = made.verdict.identity.profile
            assert profile is not None
            assert profile.backend in profiles.accepted
            assert profile.enforcement is Enforcement.ENFORCE

    @given(raw=nodes, profiles=catalogues, memory=memories)
    def test_without_such_a_profile_the_condition_reads_unknown_or_is_left_alone(
        self, raw: Json, profiles: Catalogue, memory: NodeMemory
    ) -> None:
        made = decide(facts(raw), profiles, memory, at(0))
        profile = made.verdict.identity.profile
        kept = (
            made.verdict.identity.kind in {IdentityKind.MANAGED, IdentityKind.CONFLICTING}
            and profile is not None
            and profile.backend in profiles.accepted
            and profile.enforcement is Enforcement.ENFORCE
        )
        if made.plan.condition is not None and not kept:
            assert made.plan.condition.text[:2] == ("Unknown", "NotEnforced")
            assert facts(raw).conformant is not None

    @given(raw=nodes, profiles=catalogues, memory=memories)
    def test_a_terminating_node_is_not_written_at_all(
        self, raw: Json, profiles: Catalogue, memory: NodeMemory
    ) -> None:
        dying = {**raw, "metadata": {**raw["metadata"], "deletionTimestamp": "2026-08-01T11:59:00Z"}}
        assert not decide(facts(dying), profiles, memory, at(0)).plan

    @given(raw=nodes, profiles=catalogues)
    def test_no_node_conforms_to_a_profile_whose_marks_it_does_not_carry(
        self, raw: Json, profiles: Catalogue
    ) -> None:
        story = Story(raw, profiles)
        story.act(0)
        made = story.act(10)
        if made.plan.condition is not None and made.plan.condition.status == "True":
            seen, profile = facts(story.server.raw), made.verdict.identity.profile
            assert profile is not None
            assert seen.labels["outpost.dhnt.io/runtime"] == profile.runtime_label_value
            assert seen.labels["outpost.dhnt.io/backend"] == profile.backend
            assert seen.labels["outpost.dhnt.io/host"]
