from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from strategies import manifests

from clusterconform.contract.profile import NodeClass, read_profile
from clusterconform.contract.verdicts import Reason
from clusterconform.decisions.gate import accept, judge_profile

Json = dict[str, Any]


class TestAtMostOneAgentProfileActs:
    """The oldest sound agent profile acts alone, in whatever order the profiles are seen."""

    @given(raws=manifests, data=st.data())
    def test_the_order_in_which_profiles_are_seen_changes_nothing(
        self, raws: list[Json], data: st.DataObject
    ) -> None:
        objects = [read_profile(raw) for raw in raws]
        shuffled = data.draw(st.permutations(objects))
        assert accept(shuffled) == accept(objects)

    @given(raws=manifests)
    def test_one_agent_profile_acts_wherever_a_sound_one_exists(self, raws: list[Json]) -> None:
        judged = accept([read_profile(raw) for raw in raws])
        sound = [
            row.backend
            for row in judged.profiles.values()
            if row.node_class is NodeClass.AGENT and not judge_profile(row)
        ]
        acting = [row.backend for row in judged.accepted.values() if row.node_class is NodeClass.AGENT]
        assert len(acting) == min(1, len(sound))

    @given(raws=manifests)
    def test_a_profile_acts_iff_nothing_is_said_against_it(self, raws: list[Json]) -> None:
        judged = accept([read_profile(raw) for raw in raws])
        assert {*judged.accepted} | {*judged.refusals} == {raw["metadata"]["name"] for raw in raws}
        assert not {*judged.accepted} & {*judged.refusals}
        assert all(not judge_profile(row) for row in judged.accepted.values())

    @given(raws=manifests)
    def test_a_newcomer_never_takes_over(self, raws: list[Json]) -> None:
        aged = [raw for raw in raws if raw["metadata"]["creationTimestamp"]]
        newcomer = {**_AGENT, "metadata": {"name": "a-newcomer", "creationTimestamp": "2026-07-31T00:00:00Z"}}
        before = accept([read_profile(raw) for raw in aged])
        after = accept([read_profile(raw) for raw in [newcomer, *aged]])
        assert {**after.accepted} | {"a-newcomer": None} == {**before.accepted} | {"a-newcomer": None}
        if any(row.node_class is NodeClass.AGENT for row in before.accepted.values()):
            assert after.refusals["a-newcomer"].reason is Reason.ANOTHER_AGENT_PROFILE


_AGENT: Json = {
    "spec": {
        "backend": "a-newcomer",
        "class": "agent",
        "capabilities": [
            "pod-lifecycle",
            "kubelet-log-stream",
            "kubelet-exec",
            "kubelet-attach",
            "kubelet-port-forward",
            "kubelet-stats",
        ],
    }
}
