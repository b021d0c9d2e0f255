from collections.abc import Mapping
from typing import Any

from builders import at, facts
from hypothesis import given
from server import FakeServer
from strategies import catalogues, memories, nodes

from clusterconform.contract.memory import NodeMemory
from clusterconform.contract.names import HOST_LABEL, IDENTITY_LABELS, MARKS_ANNOTATION, PROVIDER_TAINT_KEY
from clusterconform.contract.plan import PROVIDER_TAINT_MARK
from clusterconform.contract.verdicts import Catalogue
from clusterconform.decisions.planning import decide

Json = dict[str, Any]


def written(raw: Json, profiles: Catalogue, memory: NodeMemory) -> Json:
    server, seen = FakeServer(raw), facts(raw)
    server.carry_out(seen, decide(seen, profiles, memory, at(0)).plan)
    return server.raw


def entries(raw: Json, name: str, *ours: str) -> Mapping[str, Any]:
    return {key: value for key, value in raw["metadata"].get(name, {}).items() if key not in ours}


def taints(raw: Json) -> list[Json]:
    return raw.get("spec", {}).get("taints") or []


def is_ours(taint: Json) -> bool:
    return (taint["key"], taint["effect"]) == (PROVIDER_TAINT_KEY, "NoSchedule")


class TestNothingForeignIsLost:
    """No foreign taint, label or annotation is lost or changed; only what is listed as ours is taken back."""

    @given(raw=nodes, profiles=catalogues, memory=memories)
    def test_foreign_taints_stay_in_their_order(self, raw: Json, profiles: Catalogue, memory: NodeMemory) -> None:
        after = written(raw, profiles, memory)
        assert [taint for taint in taints(after) if not is_ours(taint)] == [
            taint for taint in taints(raw) if not is_ours(taint)
        ]

    @given(raw=nodes, profiles=catalogues, memory=memories)
    def test_the_provider_taint_goes_only_where_our_annotation_lists_it(
        self, raw: Json, profiles: Catalogue, memory: NodeMemory
    ) -> None:
        listed = (raw["metadata"].get("annotations") or {}).get(MARKS_ANNOTATION, "")
        if PROVIDER_TAINT_MARK not in listed.split(","):
            after = written(raw, profiles, memory)
            assert sum(map(is_ours, taints(after))) >= sum(map(is_ours, taints(raw)))

    @given(raw=nodes, profiles=catalogues, memory=memories)
    def test_foreign_labels_and_annotations_stay_as_they_are(
        self, raw: Json, profiles: Catalogue, memory: NodeMemory
    ) -> None:
        after = written(raw, profiles, memory)
        assert entries(after, "labels", *IDENTITY_LABELS) == entries(raw, "labels", *IDENTITY_LABELS)
        assert entries(after, "annotations", MARKS_ANNOTATION) == entries(raw, "annotations", MARKS_ANNOTATION)

    @given(raw=nodes, profiles=catalogues, memory=memories)
    def test_a_host_or_backend_label_that_is_there_is_never_changed(
        self, raw: Json, profiles: Catalogue, memory: NodeMemory
    ) -> None:
        before, after = facts(raw).labels, facts(written(raw, profiles, memory)).labels
        for key in (HOST_LABEL, "outpost.dhnt.io/backend"):
            assert not before.get(key) or after[key] == before[key]

    @given(raw=nodes, profiles=catalogues, memory=memories)
    def test_everything_outside_labels_annotations_taints_and_our_condition_stays(
        self, raw: Json, profiles: Catalogue, memory: NodeMemory
    ) -> None:
        def rest(node: Json) -> Json:
            metadata = {
                key: value for key, value in node["metadata"].items() if key not in {"labels", "annotations"}
            }
            spec = {key: value for key, value in node.get("spec", {}).items() if key != "taints"}
            status = {key: value for key, value in node.get("status", {}).items() if key != "conditions"}
            foreign = [
                seen
                for seen in node.get("status", {}).get("conditions", [])
                if seen["type"] != "RuntimeConformant"
            ]
            return {"metadata": metadata, "spec": spec, "status": status, "conditions": foreign}

        assert rest(written(raw, profiles, memory)) == rest(raw)

    @given(raw=nodes, profiles=catalogues, memory=memories)
    def test_what_a_patch_writes_it_lists_and_what_it_lists_is_there(
        self, raw: Json, profiles: Catalogue, memory: NodeMemory
    ) -> None:
        patch = decide(facts(raw), profiles, memory, at(0)).plan.marks
        if patch is not None:
            after = facts(written(raw, profiles, memory))
            for mark in patch.marks:
                kind, _, key = mark.partition(":")
                held = key in after.labels if kind == "label" else any(map(is_ours, taints(_raw(after.taints))))
                assert held is (mark in patch.listed)


def _raw(seen: Any) -> Json:
    return {"spec": {"taints": [{"key": taint.key, "effect": taint.effect} for taint in seen or ()]}}
