"""Random nodes, profiles and memories: a hand-picked pool of what really occurs, and generators around it.

``nodes`` are as the API server shows them: no null, no empty taint value, no taint twice.
``vandalised`` ones hold any JSON in a few places.
"""

import copy
import json
from typing import Any

from builders import (
    AGENT_SPEC,
    BORN,
    TAINT,
    VIRTUAL_SPEC,
    agent,
    at,
    bare,
    catalogue,
    conformant,
    manifest,
    present,
    ready,
    virtual,
)
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from clusterconform.contract.memory import EMPTY, NodeMemory
from clusterconform.contract.names import (
    BACKEND_LABEL,
    HOST_LABEL,
    MARKS_ANNOTATION,
    NODE_ARGS_ANNOTATION,
    PROVIDER_TAINT_KEY,
    RUNTIME_LABEL,
)
from clusterconform.contract.plan import (
    BACKEND_MARK,
    CONDITION_MARK,
    HOST_MARK,
    PROVIDER_TAINT_MARK,
    RUNTIME_MARK,
)
from clusterconform.contract.profile import read_profile
from clusterconform.contract.verdicts import Catalogue
from clusterconform.decisions.gate import accept

Json = dict[str, Any]

MARKS = (RUNTIME_MARK, BACKEND_MARK, HOST_MARK, PROVIDER_TAINT_MARK)

PICKED: tuple[Json, ...] = (
    agent(),
    agent(conditions=[conformant()], labels={BACKEND_LABEL: None}),
    agent(taints=[TAINT], annotations={MARKS_ANNOTATION: PROVIDER_TAINT_MARK}),
    agent(labels={"type": "virtual-kubelet"}),
    virtual(),
    virtual("vk-native", conditions=[conformant("False", "Contested")]),
    virtual("vk-ollama", taints=[{**TAINT, "value": "old"}, {"key": "maintenance", "effect": "NoSchedule"}]),
    virtual(labels={BACKEND_LABEL: None}, conditions=[conformant()]),
    virtual("vk-docker"),
    virtual(port=10250),
    virtual(deleted=BORN),
    bare("n"),
    agent(
        labels={HOST_LABEL: None},
        annotations={NODE_ARGS_ANNOTATION: f'["agent","--node-label={HOST_LABEL}=\\ud800"]'},
    ),
    bare("h" * 70 + "-vk-podman", labels={BACKEND_LABEL: "vk-podman"}),
    {"metadata": {"name": "n", "uid": "uid-1"}, "spec": {}},
)

_labels = st.fixed_dictionaries(
    {},
    optional={
        RUNTIME_LABEL: st.sampled_from(["agent", "virtual", ""]),
        BACKEND_LABEL: st.sampled_from(["k3s", "vk-podman", "vk-native", "vk-wasm", "vk-docker", ""]),
        HOST_LABEL: st.sampled_from(["pi", "laptop", ""]),
        "type": st.sampled_from(["virtual-kubelet", "other"]),
        "node-role.kubernetes.io/control-plane": st.just(""),
        "example.com/zone~a": st.text(max_size=3),
    },
)
_args = st.lists(
    st.sampled_from(
        [
            "agent",
            "server",
            "--node-label",
            f"{HOST_LABEL}=pi",
            f"--node-label={HOST_LABEL}=a b",
            f"--node-label={HOST_LABEL}=\ud800",
            "--node-name",
            None,
        ]
    ),
    max_size=4,
).map(json.dumps)
_listings = st.lists(st.sampled_from([*MARKS, PROVIDER_TAINT_MARK, "label:of-another-release"]), unique=True).map(
    ",".join
)
_annotations = st.fixed_dictionaries(
    {},
    optional={
        NODE_ARGS_ANNOTATION: _args,
        MARKS_ANNOTATION: _listings,
        "example.com/state": st.text(max_size=5),
        "virtual-kubelet.io/last-applied-node-status": st.just("{}"),
    },
)
_taints = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from([PROVIDER_TAINT_KEY, "maintenance", "node.kubernetes.io/unreachable"]),
            "effect": st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"]),
        },
        optional={
            "value": st.sampled_from(["outpost", "azure", "disk"]),
            "timeAdded": st.just("2026-07-30T00:00:00Z"),
        },
    ),
    max_size=4,
    unique_by=lambda taint: (taint["key"], taint["effect"]),
)
_conditions = st.lists(
    st.sampled_from(
        [
            ready(),
            ready("Unknown", lastTransitionTime=None),
            conformant(),
            conformant("False", "Contested", "words"),
            conformant("Unknown", "NotEnforced", "words"),
            {"type": "MCEHardwareErrors", "status": "False"},
        ]
    ),
    max_size=3,
    unique_by=lambda condition: condition["type"],
)
_names = st.sampled_from(
    [
        "pi",
        "pi-4c7adeb6",
        "laptop-vk-podman",
        "laptop-vk-native",
        "x-vk-wasm",
        "-vk-podman",
        "h" * 70 + "-vk-podman",
    ]
)


def _seldom(value: Any) -> SearchStrategy[Any]:
    return st.sampled_from([None] * 9 + [value])


_drawn: SearchStrategy[Json] = st.fixed_dictionaries(
    {
        "apiVersion": st.just("v1"),
        "kind": st.just("Node"),
        "metadata": st.fixed_dictionaries(
            {
                "name": _names,
                "uid": st.just("uid-1"),
                "resourceVersion": st.just("7"),
                "creationTimestamp": st.just(BORN),
                "deletionTimestamp": _seldom(BORN),
                "labels": st.none() | _labels,
                "annotations": st.none() | _annotations,
            }
        ).map(present),
        "status": st.fixed_dictionaries(
            {
                "conditions": _conditions,
                "daemonEndpoints": _seldom({"kubeletEndpoint": {"Port": 10250}}),
                "nodeInfo": _seldom({"kubeletVersion": "v1.37.2+k3s1"}),
            }
        ).map(present),
        "spec": st.fixed_dictionaries(
            {"taints": st.none() | _taints, "providerID": _seldom("k3s://n")},
        ).map(present),
    }
)
nodes: SearchStrategy[Json] = st.sampled_from(PICKED) | _drawn | _drawn


_PROFILES: tuple[tuple[str, Json, Json], ...] = (
    ("k3s", AGENT_SPEC, {}),
    ("k3s", AGENT_SPEC, {"adopt": "ByEvidence"}),
    ("k3s", AGENT_SPEC, {"enforcement": "Observe"}),
    ("k0s", AGENT_SPEC, {}),
    ("vk-podman", VIRTUAL_SPEC, {}),
    ("vk-podman", VIRTUAL_SPEC, {"providerTaintValue": "podman"}),
    ("vk-podman", VIRTUAL_SPEC, {"providerTaintValue": ""}),
    ("vk-podman", VIRTUAL_SPEC, {"adopt": "ByEvidence"}),
    ("vk-podman", VIRTUAL_SPEC, {"enforcement": "Observe"}),
    ("vk-podman", VIRTUAL_SPEC, {"providerTaint": False}),
    ("vk-podman", VIRTUAL_SPEC, {"capabilities": ["flying"]}),
    ("vk-native", VIRTUAL_SPEC, {}),
    ("vk-wasm", VIRTUAL_SPEC, {"adopt": "ByEvidence"}),
    ("podman", VIRTUAL_SPEC, {}),
)


_created = st.sampled_from([BORN, "2026-07-05T00:00:00Z", None])
_manifest = st.tuples(st.sampled_from(_PROFILES), _created).map(
    lambda drawn: manifest(drawn[0][0], {**drawn[0][1], **drawn[0][2]}, creationTimestamp=drawn[1])
)
manifests: SearchStrategy[list[Json]] = st.lists(
    _manifest, max_size=6, unique_by=lambda raw: raw["metadata"]["name"]
)
catalogues: SearchStrategy[Catalogue] = st.just(catalogue()) | manifests.map(
    lambda drawn: accept([read_profile(raw) for raw in drawn])
)


_NOW = at(0).uptime
_since = st.none() | st.floats(_NOW - 100, _NOW)
_times = st.lists(st.floats(_NOW - 700, _NOW), max_size=4).map(lambda seen: tuple(sorted(seen)))
_kinds = st.sampled_from([*MARKS, CONDITION_MARK])

# What may be remembered of a node at ``builders.at(0)``.
memories: SearchStrategy[NodeMemory] = st.just(EMPTY) | st.builds(
    NodeMemory,
    clean_since=_since,
    drift_since=_since,
    repairs=st.dictionaries(_kinds, _times, max_size=3),
    contested=st.dictionaries(_kinds, st.floats(_NOW - 10, _NOW + 3600), max_size=2),
    condition=st.none() | st.just(("False", "Contested", "words")),
    rejected=st.none() | st.just(("a patch", "no")),
)


json_values: SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
_odd = json_values | st.none() | st.text() | st.sampled_from(['["\\ud800"]', "[", "k3s://", "x-vk-podman", BORN])


@st.composite
def vandalised(draw: st.DrawFn, sound: SearchStrategy[Json]) -> Json:
    """A ``sound`` object in which one or two places hold any JSON."""
    raw = copy.deepcopy(draw(sound))
    for _ in range(draw(st.integers(1, 2))):
        holder, key = draw(st.sampled_from(_places(raw)))
        holder[key] = draw(_odd)
    return raw


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every place below ``value``, as its holder and its key there."""
    if isinstance(value, dict):
        keys: list[Any] = list(value)
    else:
        keys = list(range(len(value))) if isinstance(value, list) else []
    return [place for key in keys for place in ((value, key), *_places(value[key]))]
