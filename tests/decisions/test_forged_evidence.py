"""What a node can forge about itself, and that it reaches nobody else: the list of SECURITY.md, on values.

A node's own credential writes its labels, annotations, conditions, addresses and kubelet port. Each forgery is
played in a fleet beside others, by an elder and by a younger forger, alive and dead; what the operator decides
about the others must be what it decides beside an honest node, and a pass may delete nobody but the forger.
"""

import copy
from collections.abc import Mapping
from typing import Any, Final

import pytest
from builders import AGENT_SPEC, BORN, START, address, agent, bare, manifest, ready, virtual
from hypothesis import given
from hypothesis import strategies as st
from reaping_worlds import ago, dead, lease
from strategies import nodes as any_nodes

from clusterconform.contract.matrix import MATRIX
from clusterconform.contract.names import (
    BACKEND_LABEL,
    ENDPOINT_ANNOTATION,
    HOST_LABEL,
    K3S_EXTERNAL_IP_ANNOTATION,
    KEEP_ANNOTATION,
    MARKS_ANNOTATION,
    NODE_ARGS_ANNOTATION,
    RUNTIME_LABEL,
    UNAVAILABLE_TAINT_KEY,
)
from clusterconform.contract.plan import BACKEND_MARK, HOST_MARK, PROBE_MARKS, PROVIDER_TAINT_MARK, RUNTIME_MARK
from clusterconform.contract.profile import manifest_of
from clusterconform.contract.times import Moment
from clusterconform.decisions.simulation import read_world, simulate

Json = dict[str, Any]

NOW: Final = Moment(wall=START, uptime=1_000_000.0)
PROFILES: Final = [
    {**made, "metadata": {**made["metadata"], "creationTimestamp": BORN}}
    for made in map(manifest_of, MATRIX.values())
]
# Settings under which nothing but the judgement of each single node holds a deletion back.
SHARP: Final[Json] = {
    "grace": "1m",
    "interval": "1m",
    "settle": "0s",
    "minUptime": "0s",
    "maxDeletes": 100,
    "maxStalePercent": 100,
    "maxReapedPercentPerDay": 100,
    "reearnTrust": False,
    "leaseWitness": False,
    "requireFence": False,
}
EVERY_MARK: Final = (RUNTIME_MARK, BACKEND_MARK, HOST_MARK, PROVIDER_TAINT_MARK, *PROBE_MARKS)
ELDER, YOUNGER = "2026-06-01T00:00:00Z", "2026-07-20T00:00:00Z"
VICTIM_ADDRESS, VICTIM_PORT = "127.0.226.242", 23058  # what both ends derive from "pi"

OTHERS: Final = [
    agent("pi-4c7adeb6", "pi", uid="alive"),
    virtual("vk-podman", host="pi", uid="twin", conditions=()),
    {
        **virtual("vk-native", host="laptop", uid="silent"),
        "status": {"conditions": [ready("Unknown", lastTransitionTime=ago(99))]},
    },
    dead("oak-11112222", host="oak", annotations={KEEP_ANNOTATION: "under repair"}),
    dead("elm-33334444", host="elm", labels={"node-role.kubernetes.io/control-plane": "true"}),
    bare("stranger", uid="stranger"),
]


def honest(kind: str, *, created: str, alive: bool) -> Json:
    """The forger before it forges."""
    forger = agent("ash-0f0f0f0f", "ash") if kind == "agent" else virtual("vk-ollama", host="ash")
    forger["metadata"].update(uid="forger", creationTimestamp=created)
    if not alive:
        forger["status"]["conditions"] = [ready("Unknown", lastTransitionTime=ago(90))]
    return forger


def labels(**ours: str) -> Json:
    return {"labels": {f"outpost.dhnt.io/{key.replace('_', '-')}": value for key, value in ours.items()}}


FORGERIES: Final[Mapping[str, tuple[str, Json, Json]]] = {
    "a virtual node relabelled as agent": ("virtual", labels(runtime="agent", backend="k3s"), {}),
    "a virtual node relabelled as agent of another host": (
        "virtual",
        labels(runtime="agent", backend="k3s", host="pi"),
        {},
    ),
    "a virtual node that hides its type and disowns its taint": (
        "virtual",
        {
            "labels": {**labels(runtime="agent", backend="k3s")["labels"], "type": "metal"},
            "annotations": {MARKS_ANNOTATION: PROVIDER_TAINT_MARK},
        },
        {},
    ),
    "an agent relabelled as another host": ("agent", labels(host="pi"), {}),
    "an agent relabelled as virtual": ("agent", labels(runtime="virtual", backend="vk-podman"), {}),
    "an agent that claims an unknown backend": ("agent", labels(backend="vk-docker"), {}),
    "a status aged on purpose": (
        "agent",
        {},
        {"conditions": [ready("False", lastTransitionTime="2020-01-01T00:00:00Z")]},
    ),
    "a status from the future": (
        "agent",
        {},
        {"conditions": [ready("False", lastTransitionTime="2030-01-01T00:00:00Z")]},
    ),
    "the address and port of another node": (
        "agent",
        {},
        {
            "addresses": [address("ExternalIP", VICTIM_ADDRESS)],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": VICTIM_PORT}},
        },
    ),
    "the recorded endpoint of another node": (
        "agent",
        {
            "annotations": {
                ENDPOINT_ANNOTATION: f"{VICTIM_ADDRESS}:{VICTIM_PORT}",
                K3S_EXTERNAL_IP_ANNOTATION: VICTIM_ADDRESS,
            }
        },
        {},
    ),
    "node-args that name another base": (
        "agent",
        {"annotations": {NODE_ARGS_ANNOTATION: '["agent","--node-name","pi"]'}},
        {},
    ),
    "node-args that name another host": (
        "agent",
        {"annotations": {NODE_ARGS_ANNOTATION: f'["agent","--node-label","{HOST_LABEL}=pi"]'}},
        {},
    ),
    "all our marks listed as ours": ("agent", {"annotations": {MARKS_ANNOTATION: ",".join(EVERY_MARK)}}, {}),
    "a probe's good word": ("agent", labels(runtime_ready="true"), {}),
    "our own condition": (
        "agent",
        {},
        {"conditions": [ready(), {"type": "RuntimeConformant", "status": "True", "reason": "Conforms"}]},
    ),
}


def forged(node: Json, metadata: Json, status: Json) -> Json:
    """``node`` after a write of its own credential."""
    made = copy.deepcopy(node)
    for part, values in metadata.items():
        made["metadata"][part] = {**made["metadata"].get(part, {}), **values}
    made["status"].update(status)
    return made


def world(*fleet: Json, settings: Json | None = None) -> Json:
    """What the operator would do with ``fleet``: by default under the sharpest settings there are."""
    profiles = copy.deepcopy(PROFILES)
    for profile in profiles:
        if profile["spec"]["class"] == "agent":
            profile["spec"]["nodeGC"] = SHARP if settings is None else settings
    return dict(simulate(read_world([*profiles, *fleet]), NOW))


def of_others(answer: Json) -> Json:
    """What is decided about everybody but the forger."""
    return {
        node["name"]: node for node in answer["nodes"] if node["name"] not in {"ash-0f0f0f0f", "ash-vk-ollama"}
    }


def assert_nobody_else_is_reached(before: Json, after: Json, *fleet: Json) -> None:
    without, with_it = world(*fleet, before), world(*fleet, after)
    assert of_others(with_it) == of_others(without)
    assert set(with_it["reaping"]["deleted"]) <= {before["metadata"]["name"]}
    touched = {
        request["path"].split("?")[0].split("/")[4] for node in with_it["nodes"] for request in node["requests"]
    }
    assert touched <= {node["metadata"]["name"] for node in (*fleet, before)}


@pytest.mark.parametrize("alive", [True, False], ids=["alive", "dead"])
@pytest.mark.parametrize("created", [ELDER, YOUNGER], ids=["elder", "younger"])
@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forgery_reaches_no_other_node(forgery: str, created: str, *, alive: bool) -> None:
    kind, metadata, status = FORGERIES[forgery]
    before = honest(kind, created=created, alive=alive)
    assert_nobody_else_is_reached(before, forged(before, metadata, status), *OTHERS)


_OURS = st.sampled_from(["agent", "virtual", "k3s", "vk-podman", "pi", "ash", "oak", "laptop", "true", ""])
_TEXTS = st.sampled_from(
    [
        '["agent","--node-name","pi"]',
        '["server"]',
        "x",
        ",".join(EVERY_MARK),
        "127.0.226.242:23058",
        "127.0.226.242",
    ]
)
_METADATA = st.fixed_dictionaries(
    {
        "labels": st.dictionaries(
            st.sampled_from([RUNTIME_LABEL, BACKEND_LABEL, HOST_LABEL, "outpost.dhnt.io/runtime-ready", "type"]),
            _OURS,
        ),
        "annotations": st.dictionaries(
            st.sampled_from(
                [
                    NODE_ARGS_ANNOTATION,
                    MARKS_ANNOTATION,
                    ENDPOINT_ANNOTATION,
                    K3S_EXTERNAL_IP_ANNOTATION,
                    KEEP_ANNOTATION,
                    "virtual-kubelet.io/x",
                ]
            ),
            _TEXTS,
        ),
    }
)
_STATUS = st.fixed_dictionaries(
    {},
    optional={
        "conditions": st.lists(
            st.builds(
                ready,
                st.sampled_from(["True", "False", "Unknown"]),
                lastTransitionTime=st.sampled_from(
                    ["1970-01-01T00:00:00Z", ago(99), ago(0), ELDER, "2030-01-01T00:00:00Z"]
                ),
            ),
            max_size=2,
        ),
        "addresses": st.lists(
            st.sampled_from(["127.0.226.242", "127.0.9.9", "203.0.113.5"]).map(
                lambda at: address("ExternalIP", at)
            ),
            max_size=2,
        ),
        "daemonEndpoints": st.sampled_from([0, 10250, 23058]).map(
            lambda port: {"kubeletEndpoint": {"Port": port}}
        ),
    },
)


class TestForgedEvidence:
    """Whatever a node writes about itself, no other node is deleted, addressed or tainted for it."""

    @given(
        kind=st.sampled_from(["agent", "virtual"]),
        created=st.sampled_from([ELDER, YOUNGER]),
        alive=st.booleans(),
        metadata=_METADATA,
        status=_STATUS,
    )
    def test_any_combination_of_forgeries_reaches_no_other_node(
        self, kind: str, created: str, metadata: Json, status: Json, *, alive: bool
    ) -> None:
        before = honest(kind, created=created, alive=alive)
        assert_nobody_else_is_reached(before, forged(before, metadata, status), *OTHERS)

    @given(looks=any_nodes)
    def test_nor_does_a_node_that_looks_like_any_other(self, looks: Json) -> None:
        before = honest("agent", created=ELDER, alive=True)
        after = copy.deepcopy(looks)
        own = {key: before["metadata"][key] for key in ("name", "uid", "creationTimestamp")}
        after["metadata"] = {**after["metadata"], **own}
        assert_nobody_else_is_reached(before, after, *OTHERS)


# --- what is left, and where it ends --------------------------------------------------------------------------


def endpoint(answer: Json, name: str) -> Json:
    (found,) = [node["endpoint"] for node in answer["nodes"] if node["name"] == name]
    return dict(found)


def near(created: str) -> Json:
    """A node whose registered name begins with the victim's base and a hyphen, and that names that base."""
    forger = agent(
        "pi-zero-0f0f0f0f", "pi-zero", annotations={NODE_ARGS_ANNOTATION: '["agent","--node-name","pi"]'}
    )
    forger["metadata"].update(uid="forger", creationTimestamp=created)
    return forger


def test_a_younger_node_takes_no_endpoint_by_a_name_that_begins_like_anothers() -> None:
    answer = world(*OTHERS, near(YOUNGER))
    assert endpoint(answer, "pi-4c7adeb6") == endpoint(world(*OTHERS), "pi-4c7adeb6")
    assert endpoint(answer, "pi-zero-0f0f0f0f")["publish"] is False


def test_an_elder_one_can_withhold_it_but_never_point_it_elsewhere() -> None:
    """The residual risk that SECURITY.md names: reported, refused, and nothing is deleted or tainted."""
    answer = world(*OTHERS, near(ELDER))
    place = endpoint(answer, "pi-4c7adeb6")
    assert (place["publish"], place["reason"]) == (False, "PortCollision")
    assert answer["reaping"]["deleted"] == []
    written = [op for node in answer["nodes"] for request in node["requests"] for op in request["body"]]
    assert UNAVAILABLE_TAINT_KEY not in str(written)


def test_a_dead_node_that_passes_for_alive_is_only_kept() -> None:
    """To forge life is to stay: nothing else follows from it."""
    corpse = honest("agent", created=ELDER, alive=False)
    assert world(*OTHERS, corpse)["reaping"]["deleted"] == ["ash-0f0f0f0f"]
    risen = forged(corpse, {}, {"conditions": [ready()]})
    assert world(*OTHERS, risen)["reaping"]["deleted"] == []


def test_a_renewed_lease_outweighs_a_status_aged_on_purpose() -> None:
    """Of a Lease that was aged as well, the API server's own stamp tells (test_staleness.py)."""
    status = {"conditions": [ready("False", lastTransitionTime=ago(90))]}
    aged = forged(honest("agent", created=ELDER, alive=True), {}, status)
    settings = SHARP | {"leaseWitness": True}
    fresh = {**lease(0.01), "kind": "Lease", "apiVersion": "coordination.k8s.io/v1"}
    fresh["metadata"] = {**fresh.get("metadata", {}), "name": "ash-0f0f0f0f", "namespace": "kube-node-lease"}
    assert world(aged, agent(), settings=settings)["reaping"]["deleted"] == ["ash-0f0f0f0f"]
    assert world(aged, agent(), fresh, settings=settings)["reaping"]["deleted"] == []


# --- a hostile editor of profiles -----------------------------------------------------------------------------


def test_the_sharpest_settings_delete_none_but_dead_agents() -> None:
    corpse = honest("agent", created=ELDER, alive=False)
    assert world(*OTHERS, corpse)["reaping"]["deleted"] == ["ash-0f0f0f0f"]


def test_a_second_profile_of_class_agent_acts_on_nothing() -> None:
    second = manifest("own", {**AGENT_SPEC, "nodeGC": SHARP}, creationTimestamp=YOUNGER)
    claiming = honest("agent", created=ELDER, alive=False)
    claiming["metadata"]["labels"][BACKEND_LABEL] = "own"
    answer = world(*OTHERS, claiming, second)
    assert [profile["reason"] for profile in answer["profiles"] if not profile["accepted"]] == [
        "AnotherAgentProfile"
    ]
    assert answer["reaping"]["deleted"] == []


def test_a_virtual_profile_can_neither_reap_nor_address() -> None:
    """The API server refuses such a spec; where it came in all the same, it is not accepted."""
    spec = {"class": "virtual", "capabilities": ["pod-lifecycle"], "subjectToNodeGC": True}
    silent = virtual("vk-evil", host="ash")
    silent["status"]["conditions"] = [ready("Unknown", lastTransitionTime=ago(99))]
    answer = world(*OTHERS, silent, manifest("vk-evil", spec))
    assert [profile["name"] for profile in answer["profiles"] if not profile["accepted"]] == ["vk-evil"]
    assert answer["reaping"]["deleted"] == []
    assert endpoint(answer, "ash-vk-evil")["publish"] is False
