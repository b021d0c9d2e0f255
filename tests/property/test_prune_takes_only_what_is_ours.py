"""``prune`` after any number of our own writes: everything of ours is gone, everything of others is as it was."""

from builders import Json, at, catalogue, facts, virtual
from hypothesis import given
from hypothesis import strategies as st
from server import FakeServer
from strategies import nodes

from clusterconform.contract.facts import marks_listed
from clusterconform.contract.memory import EMPTY
from clusterconform.contract.names import CONFORMANT_CONDITION, GROUP, MARKS_ANNOTATION, PROVIDER_TAINT_KEY
from clusterconform.contract.request import JSON_PATCH
from clusterconform.decisions.planning import decide
from clusterconform.decisions.pruning import prune


def served(raw: Json, rounds: int) -> FakeServer:
    """A server with ``raw`` after so many rounds of the operator on it."""
    server, memory = FakeServer(raw), EMPTY
    for index in range(rounds):
        node = facts(server.raw)
        decision = decide(node, catalogue(), memory, at(20.0 * index))
        server.carry_out(node, decision.plan)
        memory = decision.memory
    return server


def pruned(server: FakeServer) -> None:
    """Carry out what ``prune`` would send."""
    found = prune(facts(server.raw), server.raw)
    for request in found.requests if found else ():
        if request.content_type == JSON_PATCH:
            server.send(request)
        else:
            conditions = (server.raw.get("status") or {}).get("conditions") or []
            server.raw["status"]["conditions"] = [
                seen for seen in conditions if seen["type"] != CONFORMANT_CONDITION
            ]


def foreign(raw: Json) -> Json:
    """What of ``raw`` no release of ours writes."""
    metadata, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    return {
        "labels": {key: value for key, value in (metadata.get("labels") or {}).items() if GROUP not in key},
        "annotations": {
            key: value for key, value in (metadata.get("annotations") or {}).items() if GROUP not in key
        },
        "taints": [taint for taint in spec.get("taints") or () if taint["key"] != PROVIDER_TAINT_KEY],
        "conditions": [seen for seen in status.get("conditions") or () if seen["type"] != CONFORMANT_CONDITION],
    }


@given(nodes, st.integers(0, 4))
def test_nothing_of_ours_is_left_and_nothing_foreign_is_lost(raw: Json, rounds: int) -> None:
    server = served(raw, rounds)
    before = foreign(server.raw)
    unknown = {mark for mark in marks_listed(facts(server.raw)) if not mark.startswith(("label:", "taint:"))}
    pruned(server)
    node = facts(server.raw)
    assert foreign(server.raw) == before
    assert node.conformant is None
    assert set(marks_listed(node)) == unknown


@given(nodes, st.integers(0, 4))
def test_a_second_prune_finds_nothing(raw: Json, rounds: int) -> None:
    server = served(raw, rounds)
    pruned(server)
    left = prune(facts(server.raw), server.raw)
    assert left is None or (left.marks == () and left.unknown)


def test_what_others_set_before_us_stays() -> None:
    """A label or a taint that was right from the beginning is not listed, and so not ours."""
    raw = virtual()
    server = served(raw, 3)
    pruned(server)
    after = {key: value for key, value in server.raw["metadata"]["annotations"].items() if key != MARKS_ANNOTATION}
    assert server.raw["metadata"]["labels"] == raw["metadata"]["labels"]
    assert after == raw["metadata"]["annotations"]
    assert server.raw["spec"]["taints"] == raw["spec"]["taints"]
