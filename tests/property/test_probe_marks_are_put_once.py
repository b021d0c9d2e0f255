"""The probe's marks: put once, taken away once, and nobody else's taint lost on the way."""

from dataclasses import replace
from typing import Any

from builders import START, at, catalogue, facts, probe_pod
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from server import FakeServer
from strategies import nodes

from clusterconform.contract.memory import EMPTY
from clusterconform.contract.names import UNAVAILABLE_TAINT_KEY
from clusterconform.contract.probe import read_probe
from clusterconform.contract.times import format_time
from clusterconform.decisions.agents import Agents
from clusterconform.decisions.planning import Decision, decide

Json = dict[str, Any]

_ours = st.fixed_dictionaries(
    {"key": st.just(UNAVAILABLE_TAINT_KEY), "effect": st.sampled_from(["NoSchedule", "NoExecute"])},
    optional={"value": st.sampled_from(["sandbox", "other"]), "timeAdded": st.just("2026-07-30T00:00:00Z")},
)
_states = st.sampled_from(
    [
        {},
        {"ready_status": "False"},
        {"ready_status": "False", "waiting": "ImagePullBackOff"},
        {"ready_status": "False", "created": format_time(START)},
        {"ready_status": None, "created": None},
        {"deleted": format_time(START)},
    ]
)
_pods = st.lists(_states, max_size=3)
_modes = st.sampled_from(["Enforce", "Enforce", "Observe", "Off"])


def _with_taints(drawn: tuple[Json, list[Json]]) -> Json:
    raw, taints = drawn
    raw = {**raw, "spec": dict(raw.get("spec", {}))}
    if taints:
        raw["spec"]["taints"] = [*(raw["spec"].get("taints") or []), *taints]
    return raw


marked: SearchStrategy[Json] = st.tuples(
    nodes, st.lists(_ours, max_size=2, unique_by=lambda taint: taint["effect"])
).map(_with_taints)


def look(raw: Json, pods: list[Json], mode: str) -> Decision:
    rules = catalogue(
        k3s={"runtimeProbe": {"stabilization": "0s", "mode": mode}, "addressReconcile": {"mode": "Off"}}
    )
    agents, node = Agents(rules), facts(raw)
    agents.observe(node)
    for number, parts in enumerate(pods):
        agents.observe_pod(read_probe(probe_pod(node.name, name=f"probe-{number}", **parts)))
    return decide(node, rules, EMPTY, at(0), agents.around(node, START))


def foreign(raw: Json) -> list[Json]:
    taints = raw.get("spec", {}).get("taints") or []
    return [
        taint
        for taint in taints
        if taint["key"] != UNAVAILABLE_TAINT_KEY
        and (taint["key"], taint["effect"]) != ("virtual-kubelet.io/provider", "NoSchedule")
    ]


class TestProbeMarksArePutOnce:
    """A verdict applied twice is empty; no sequence of probe pods loses a foreign taint."""

    @given(raw=marked, pods=_pods, mode=_modes)
    def test_a_verdict_applied_twice_is_empty(self, raw: Json, pods: list[Json], mode: str) -> None:
        server = FakeServer(raw)
        server.carry_out(facts(raw), replace(look(raw, pods, mode).plan, condition=None, endpoint=None))
        assert look(server.raw, pods, mode).plan.marks is None

    @given(raw=marked, steps=st.lists(st.tuples(_pods, _modes), max_size=6))
    def test_no_sequence_of_probe_pods_loses_a_foreign_taint(
        self, raw: Json, steps: list[tuple[list[Json], str]]
    ) -> None:
        server = FakeServer(raw)
        for pods, mode in steps:
            made = look(server.raw, pods, mode)
            server.carry_out(facts(server.raw), replace(made.plan, condition=None, endpoint=None))
            assert foreign(server.raw) == foreign(raw)

    @given(raw=marked, pods=_pods)
    def test_never_are_there_two_taints_of_our_key_and_one_effect(self, raw: Json, pods: list[Json]) -> None:
        server = FakeServer(raw)
        server.carry_out(facts(raw), replace(look(raw, pods, "Enforce").plan, condition=None, endpoint=None))
        pairs = [(taint["key"], taint["effect"]) for taint in server.raw.get("spec", {}).get("taints") or []]
        assert len(pairs) == len(set(pairs))
