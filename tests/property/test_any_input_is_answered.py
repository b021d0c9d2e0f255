"""``check`` and ``simulate`` on anything at all: 0, 1 or 2, one sentence where it is 2, and never a traceback."""

import json
import tempfile
from typing import Any

import pytest
import yaml
from builders import AGENT_SPEC, VIRTUAL_SPEC, Json, agent, bare, manifest, ready, virtual
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from clusterconform.cli.main import main

COMMANDS = ["check", "simulate"]
NOW = "2026-08-01T12:00:00Z"

anything: SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
words = st.sampled_from(
    ["Node", "NodeList", "List", "RuntimeProfile", "Pod", "DaemonSet", "CronJob", "Lease", "ConfigMap", "v1"]
)
POD_SPEC: Json = {
    "nodeSelector": {"outpost.dhnt.io/runtime": "virtual"},
    "tolerations": [{"operator": "Exists"}],
    "containers": [{"name": "c", "livenessProbe": {"exec": {"command": ["x"]}}, "securityContext": {}}],
    "volumes": [{"name": "v", "hostPath": {"path": "/"}}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "type", "operator": "In", "values": ["virtual-kubelet"]}]}
                ]
            }
        }
    },
}
GOOD: tuple[Json, ...] = (
    agent(),
    virtual(),
    bare("n"),
    manifest("k3s", AGENT_SPEC),
    manifest("vk-podman", VIRTUAL_SPEC),
    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": POD_SPEC},
    {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "d"},
        "spec": {"template": {"spec": POD_SPEC}},
    },
)


@st.composite
def damaged(draw: st.DrawFn) -> Any:
    """A good object with anything put into some of its places."""
    value = json.loads(json.dumps(draw(st.sampled_from(GOOD))))
    for _ in range(draw(st.integers(0, 3))):
        place = value
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(place[key], dict | list) and place[key] and draw(st.booleans()):
                place = place[key]
                continue
            place[key] = draw(anything)
            break
    return value


documents = (
    anything
    | damaged()
    | st.dictionaries(st.sampled_from(["kind", "apiVersion", "items", "metadata", "spec"]), words | anything)
    | st.builds(lambda items: {"kind": "List", "items": items}, st.lists(damaged() | anything, max_size=4))
)


def hold(command: str, text: bytes, output: str = "json") -> None:
    """Run ``command`` on ``text``, and see that it ends as promised."""
    flags = ["--output", output, *(["--now", NOW] if command == "simulate" else [])]
    done = CliRunner().invoke(main, [command, "-", *flags], input=text)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code in {0, 1, 2}
    assert "Traceback" not in done.stderr
    if done.exit_code == 2 and command == "simulate":
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", COMMANDS)
@given(documents)
def test_any_json_value_is_answered(command: str, value: Any) -> None:
    hold(command, json.dumps(value).encode())


FORMS = {"check": ["text", "table", "yaml", "junit"], "simulate": ["table", "yaml"]}


@pytest.mark.parametrize(("command", "output"), [(command, form) for command in FORMS for form in FORMS[command]])
@given(documents)
def test_any_answer_can_be_printed_in_any_form(command: str, output: str, value: Any) -> None:
    hold(command, json.dumps(value).encode(), output)


@pytest.mark.parametrize("command", COMMANDS)
@given(st.lists(documents, max_size=3))
def test_any_yaml_stream_is_answered(command: str, values: list[Any]) -> None:
    hold(command, yaml.safe_dump_all(values, allow_unicode=True).encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize("command", COMMANDS)
@given(st.binary(max_size=40) | st.text("{}[]:,-&*a!<>'\"#\n \t", max_size=40).map(str.encode))
def test_any_bytes_are_answered(command: str, text: bytes) -> None:
    hold(command, text)


@pytest.mark.parametrize("command", COMMANDS)
@given(st.integers(0, 6), st.integers(0, 9), st.integers(0, 40))
def test_aliases_upon_aliases_are_answered(command: str, width: int, merges: int, depth: int) -> None:
    lines = ["a0: &a0 {x: 1}"]
    for level in range(1, depth):
        below = f"*a{level - 1}"
        lines.append(
            f"a{level}: &a{level} {{<<: [{', '.join([below] * merges)}], y: [{', '.join([below] * width)}]}}"
        )
    hold(command, "\n".join(lines).encode())


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("depth", [50, 200, 400, 700, 900, 950, 990, 1100, 50_000])
@pytest.mark.parametrize("place", ["labels", "spec", "list"])
def test_any_depth_is_answered(command: str, depth: int, place: str) -> None:
    deep = '{"a":' * depth + "1" + "}" * depth
    texts = {
        "labels": f'{{"apiVersion": "v1", "kind": "Node", "metadata": {{"name": "n", "labels": {deep}}}}}',
        "spec": f'{{"apiVersion": "outpost.dhnt.io/v1alpha1", "kind": "RuntimeProfile", "metadata": '
        f'{{"name": "n"}}, "spec": {{"nodeGC": {deep}, "x": {deep}}}}}',
        "list": '{"items":[' * depth + "]}" * depth,
    }
    hold(command, texts[place].encode())
    hold(command, f"- {texts[place]}".encode())


steps = st.fixed_dictionaries(
    {},
    optional={
        "now": st.sampled_from([NOW, "soon"]) | anything,
        "uptime": st.sampled_from([0, "1h"]) | anything,
        "nodes": st.lists(damaged() | anything, max_size=2) | anything,
        "fresh": st.dictionaries(st.sampled_from(["n", "pi-4c7adeb6"]), damaged() | anything, max_size=2)
        | anything,
        "faults": st.dictionaries(st.sampled_from(["list", "get", "delete", "ledger"]), anything, max_size=2)
        | anything,
        "restart": anything,
    },
)


stale = agent()
stale["status"]["conditions"][0] = ready("Unknown", lastTransitionTime="2026-07-20T00:00:00Z")
worlds = st.sampled_from([{}, {"items": [stale, agent("oak-1", "oak"), agent("elm-1", "elm")]}]) | documents


@given(worlds, st.lists(steps | anything, max_size=2) | anything)
def test_any_passes_are_answered(world: Any, passes: Any) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(json.dumps(passes))
        file.flush()
        arguments = ["simulate", "-", "--now", NOW, "--passes", file.name]
        done = CliRunner().invoke(main, arguments, input=json.dumps(world))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code in {0, 2}


@given(st.lists(st.binary(max_size=20) | documents.map(json.dumps).map(str.encode), max_size=3))
def test_any_lines_are_answered_one_by_one(lines: list[bytes]) -> None:
    text = b"\n".join(line.replace(b"\n", b" ") for line in lines)
    done = CliRunner().invoke(main, ["simulate", "-", "--lines", "--now", NOW], input=text)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == sum(bool(line.strip()) for line in text.split(b"\n"))
