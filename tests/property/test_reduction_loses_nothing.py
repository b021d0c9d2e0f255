import copy
import json
from typing import Any

import msgspec
from builders import at, facts
from hypothesis import given
from hypothesis import strategies as st
from strategies import catalogues, json_values, memories, nodes, vandalised

from clusterconform.contract.facts import UnreadableNodeError, decode_node, read_node, reduced, view_node
from clusterconform.contract.memory import NodeMemory
from clusterconform.contract.verdicts import Catalogue
from clusterconform.decisions.planning import decide

Json = dict[str, Any]


class TestReductionLosesNothing:
    """A Node cut down to what is read says the same as the whole one, so what is cut out wakes nobody."""

    @given(raw=vandalised(nodes) | nodes)
    def test_a_reduced_node_sent_on_as_json_is_read_like_the_whole_one(self, raw: Json) -> None:
        try:
            view = view_node(raw)
        except UnreadableNodeError:
            return
        again = decode_node(msgspec.json.encode(view))
        assert again == view
        assert read_node(again) == read_node(view)

    @given(raw=vandalised(nodes) | nodes)
    def test_reducing_twice_is_reducing_once(self, raw: Json) -> None:
        try:
            view = view_node(raw)
        except UnreadableNodeError:
            return
        assert reduced(copy.deepcopy(view)) == view

    @given(raw=nodes, profiles=catalogues, memory=memories)
    def test_the_same_is_decided_on_text_on_values_and_on_the_reduced_node(
        self, raw: Json, profiles: Catalogue, memory: NodeMemory
    ) -> None:
        whole = decide(facts(raw), profiles, memory, at(0))
        text = read_node(decode_node(json.dumps(raw).encode()))
        sent_on = read_node(decode_node(msgspec.json.encode(view_node(raw))))
        assert decide(text, profiles, memory, at(0)) == whole
        assert decide(sent_on, profiles, memory, at(0)) == whole

    @given(raw=nodes, images=json_values, fields=json_values, beat=st.datetimes())
    def test_heartbeats_images_and_managed_fields_wake_nobody(
        self, raw: Json, images: Any, fields: Any, beat: Any
    ) -> None:
        later = copy.deepcopy(raw)
        later["metadata"]["managedFields"] = fields
        later.setdefault("status", {})["images"] = images
        for condition in later["status"].get("conditions", []):
            condition["lastHeartbeatTime"] = beat.isoformat()
        before = {**raw, "status": raw.get("status", {})}
        assert view_node(later) == view_node(before)
