import json
from typing import Any

from builders import AGENT_SPEC, VIRTUAL_SPEC, at, manifest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import catalogues, json_values, memories, nodes, vandalised

from clusterconform.contract.facts import NodeView, UnreadableNodeError, decode_node, read_node, view_node
from clusterconform.contract.memory import NodeMemory
from clusterconform.contract.profile import ProfileObject, Refusal, read_profile
from clusterconform.contract.times import parse_time
from clusterconform.contract.verdicts import Catalogue
from clusterconform.decisions.gate import accept, judge_built_node
from clusterconform.decisions.planning import decide
from clusterconform.decisions.requests import requests_of
from clusterconform.decisions.simulation import UnusableWorldError, read_world, simulate

Json = dict[str, Any]

_sound = st.sampled_from(
    [
        manifest("vk-podman", VIRTUAL_SPEC),
        manifest(
            "k3s",
            {
                **AGENT_SPEC,
                "nodeGC": {"grace": "1h", "maxDeletes": 3},
                "runtimeProbe": {"image": "pause:1"},
                "addressReconcile": {"portBase": 21000},
                "providerTaint": False,
                "nodeNameSuffix": "",
            },
            creationTimestamp="2026-07-01T09:00:00Z",
        ),
    ]
)


def read(text: bytes) -> NodeView | None:
    try:
        return decode_node(text)
    except UnreadableNodeError:
        return None


def read_object(raw: Any) -> ProfileObject | None:
    try:
        return read_profile(raw)
    except Refusal:
        return None


class TestDecisionsNeverRaise:
    """Whatever a Node or a profile holds, it is read or refused at the door, and decided behind it."""

    @given(raw=vandalised(nodes), profiles=catalogues, memory=memories)
    def test_any_node_that_can_be_read_can_be_decided_and_written_about(
        self, raw: Json, profiles: Catalogue, memory: NodeMemory
    ) -> None:
        view = read(json.dumps(raw).encode())
        assume(view is not None)
        assert view is not None
        seen = read_node(view)
        made = decide(seen, profiles, memory, at(0))
        for request in requests_of(seen, made.plan):
            assert json.dumps(request.body, ensure_ascii=False, allow_nan=False).encode()
        for profile in profiles.profiles.values():
            assert isinstance(judge_built_node(seen, profile, "pi"), list)

    @given(raws=st.lists(vandalised(nodes | _sound) | nodes | json_values, max_size=3))
    def test_any_world_is_simulated_until_it_is_at_rest_or_unusable(self, raws: list[Any]) -> None:
        try:
            answer = simulate(read_world(raws), at(0))
        except UnusableWorldError:
            return
        assert json.dumps(answer, ensure_ascii=False, allow_nan=False).encode()

    @given(value=json_values)
    def test_any_json_is_a_node_or_unreadable_and_text_and_values_agree(self, value: Any) -> None:
        view = read(json.dumps(value).encode())
        try:
            assert view_node(value) == view
        except UnreadableNodeError:
            assert view is None

    @given(raw=vandalised(nodes))
    def test_text_and_values_agree_about_a_vandalised_node(self, raw: Json) -> None:
        view = read(json.dumps(raw).encode())
        try:
            assert view_node(raw) == view
        except UnreadableNodeError:
            assert view is None

    @given(line=st.binary())
    def test_any_bytes_are_a_node_or_unreadable(self, line: bytes) -> None:
        read(line)

    @given(raws=st.lists(vandalised(_sound) | _sound, max_size=3))
    def test_any_profile_is_read_refused_or_cannot_be_named(self, raws: list[Json]) -> None:
        objects = [seen for seen in map(read_object, raws) if seen is not None]
        judged = accept(objects)
        assert {seen.name for seen in objects} == {*judged.accepted, *judged.refusals}

    @given(spec=json_values)
    def test_any_spec_is_a_contract_or_a_refusal(self, spec: Any) -> None:
        contract = read_profile({"metadata": {"name": "k3s"}, "spec": spec}).contract
        assert isinstance(contract, Refusal)
        assert contract.path.startswith("spec")
        assert contract.reason

    @given(value=json_values)
    def test_any_value_is_a_time_or_none(self, value: Any) -> None:
        assert parse_time(value) is None
