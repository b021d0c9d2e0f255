"""``clusterconform simulate`` on everything that people and programs feed it."""

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import AGENT_SPEC, TAINT, VIRTUAL_SPEC, Json, agent, bare, conformant, manifest, virtual
from click.testing import CliRunner, Result

from clusterconform.cli import simulate as module
from clusterconform.cli.main import main
from clusterconform.contract.matrix import MATRIX
from clusterconform.contract.names import RUNTIME_LABEL
from clusterconform.contract.request import Request
from clusterconform.decisions.simulation import apply
from clusterconform.effects.clock import Clock

NOW = "2026-08-01T12:00:00Z"
PROGRAM = Path(sys.executable).with_name("clusterconform")


def run(*arguments: str, text: str | bytes = "") -> Result:
    """One call, with ``text`` on standard input."""
    return CliRunner().invoke(main, ["simulate", *arguments], input=text)


def answer(*objects: Any, arguments: tuple[str, ...] = ("--now", NOW)) -> Json:
    """The answer about a List of ``objects``."""
    done = run("-", *arguments, text=listed(*objects))
    assert (done.exit_code, done.stderr) == (0, "")
    value: Json = json.loads(done.stdout)
    return value


def listed(*objects: Any) -> str:
    """A List as kubectl prints it."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})


def refused(done: Result) -> str:
    """The one sentence with which the input was refused."""
    assert done.exit_code == 2, (done.exit_code, done.stdout, done.exception)
    assert done.stdout == ""
    assert done.exception is None or isinstance(done.exception, SystemExit)
    (line,) = done.stderr.splitlines()
    assert line.startswith("clusterconform: ")
    return line


def test_the_answer_has_the_documented_shape() -> None:
    value = answer(virtual(taints=[]))
    assert value["now"] == NOW
    (node,) = value["nodes"]
    assert {key: node[key] for key in ("name", "profile", "identity", "conformant", "reasons")} == {
        "name": "laptop-vk-podman",
        "profile": "vk-podman",
        "identity": "managed",
        "conformant": False,
        "reasons": ["ProviderTaintDrifted"],
    }
    assert [set(request) for request in node["requests"]] == [{"method", "path", "contentType", "body"}] * 2
    assert [request["path"] for request in node["requests"]] == [
        "/api/v1/nodes/laptop-vk-podman",
        "/api/v1/nodes/laptop-vk-podman/status?fieldManager=clusterconform&force=true",
    ]
    assert value["profiles"][0].items() >= {"name": "k3s", "accepted": True, "reason": "Accepted"}.items()


@pytest.mark.parametrize(
    ("raw", "identity", "profile", "conformant_", "reasons"),
    [
        (agent(), "managed", "k3s", True, []),
        (agent(labels={RUNTIME_LABEL: "virtual"}), "managed", "k3s", False, ["RuntimeLabelDrifted"]),
        (agent(taints=[TAINT]), "conflicting", "k3s", False, ["IdentityConflict"]),
        (bare("n"), "unidentified", None, False, ["Unidentified"]),
        (virtual("vk-docker"), "unknown-backend", None, False, ["UnknownBackend"]),
    ],
)
def test_every_identity_is_named(
    raw: Json, identity: str, profile: str | None, conformant_: bool, reasons: list[str]
) -> None:
    (node,) = answer(raw)["nodes"]
    assert (node["identity"], node["profile"], node["conformant"], node["reasons"]) == (
        identity,
        profile,
        conformant_,
        reasons,
    )


def test_nodes_and_profiles_stand_in_the_order_of_the_input() -> None:
    profiles = [manifest(name, VIRTUAL_SPEC) for name in ("vk-z", "vk-a")]
    value = answer(virtual("vk-z", name="z"), profiles[0], bare("a"), profiles[1], virtual("vk-a", name="m"))
    assert [node["name"] for node in value["nodes"]] == ["z", "a", "m"]
    assert [profile["name"] for profile in value["profiles"]] == ["vk-z", "vk-a"]


def test_without_profiles_in_the_input_the_built_in_ones_hold() -> None:
    assert [profile["name"] for profile in answer(bare("n"))["profiles"]] == list(MATRIX)


def test_other_kinds_are_passed_over() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    foreign = {"apiVersion": "example.com/v1", "kind": "Node", "metadata": {"name": "n"}}
    assert answer(pod, foreign, {"kind": "Lease"}, {})["nodes"] == []


def test_a_profile_that_breaks_a_rule_is_not_accepted_and_says_why() -> None:
    value = answer(
        manifest("vk-x", {**VIRTUAL_SPEC, "capabilities": ["kubelet-exec"]}), manifest("k0s", AGENT_SPEC)
    )
    assert [(seen["name"], seen["accepted"], seen["reason"]) for seen in value["profiles"]] == [
        ("vk-x", False, "Invalid"),
        ("k0s", True, "Accepted"),
    ]


RESTLESS = {
    "drifted": [
        agent(labels={RUNTIME_LABEL: None}),
        virtual(taints=[]),
        virtual("vk-native", labels={"outpost.dhnt.io/host": None}),
    ],
    "flawed": [virtual(port=10250, taints=None), agent("x")],
    "conflicting": [agent(taints=[TAINT]), virtual(provider_id="k3s://x")],
    "others": [bare("n"), virtual("vk-docker", conditions=[conformant()])],
    "null lists": [
        agent(labels={RUNTIME_LABEL: None})
        | {"spec": {"taints": None, "providerID": "k3s://x"}, "status": {"conditions": None}},
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "n", "labels": None, "annotations": None},
            "spec": None,
            "status": None,
        },
    ],
    "null entries": [
        agent(labels={RUNTIME_LABEL: None}, taints=[None, TAINT], conditions=[None, conformant("False")])
    ],
    "empty maps": [
        virtual("vk-podman", taints=[]) | {"metadata": {"name": "l-vk-podman", "labels": {}, "annotations": {}}}
    ],
    "110 labels": [
        agent(labels={RUNTIME_LABEL: None, **{f"example.com/label-{number}": "x" for number in range(110)}})
    ],
    "a 250 kB annotation": [virtual(taints=[], annotations={"example.com/blob": "x" * 250_000})],
}


@pytest.mark.parametrize("objects", RESTLESS.values(), ids=RESTLESS.keys())
def test_a_second_simulation_on_the_result_is_empty(objects: list[Json]) -> None:
    """B42 too: nothing of what we write grows with what others wrote."""
    value = answer(*objects)
    after = json.loads(json.dumps(objects))
    for raw, node in zip(after, value["nodes"], strict=True):
        for asked in node["requests"]:
            request = Request(
                method=asked["method"], path=asked["path"], content_type=asked["contentType"], body=asked["body"]
            )
            _settle(raw)
            apply(raw, request)
        assert len(json.dumps(node["requests"])) < 10_000
    assert [node["requests"] for node in answer(*after)["nodes"]] == [[]] * len(objects)


def _settle(raw: Json) -> None:
    """``raw`` as an API server would have stored it: null and empty maps and lists are not there."""
    for part in ("spec", "status"):
        raw[part] = {key: value for key, value in (raw.get(part) or {}).items() if value not in (None, [])}
    if "taints" in raw["spec"]:
        raw["spec"]["taints"] = [taint for taint in raw["spec"]["taints"] if taint is not None]
    metadata = {key: value for key, value in raw["metadata"].items() if value not in (None, {})}
    raw["metadata"] = metadata


def test_annotations_of_others_do_not_appear_in_any_request() -> None:
    value = answer(virtual(taints=[], annotations={"example.com/blob": "x" * 250_000}))
    assert "example.com" not in json.dumps(value["nodes"][0]["requests"])


def test_yaml_reads_as_json_does() -> None:
    objects = [virtual(taints=[]), manifest("vk-podman", VIRTUAL_SPEC)]
    text = yaml.safe_dump_all(objects)
    assert json.loads(run("--now", NOW, text=text).stdout) == answer(*objects)


def test_unquoted_timestamps_in_yaml_stay_text() -> None:
    """As Kubernetes reads them; a YAML library would make dates of them."""
    text = f"""
apiVersion: v1
kind: Node
metadata:
  name: laptop-vk-podman
  creationTimestamp: 2026-07-01T09:00:00Z
  labels: {{outpost.dhnt.io/backend: vk-podman, outpost.dhnt.io/host: laptop, outpost.dhnt.io/runtime: virtual}}
spec:
  taints: [{{key: virtual-kubelet.io/provider, value: outpost, effect: NoSchedule, timeAdded: {NOW}}}]
status:
  conditions: [{{type: Ready, status: "True", lastTransitionTime: 2026-07-01T09:00:00Z}}]
"""
    done = run("--now", NOW, text=text)
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["nodes"][0]["conformant"] is True


def test_several_documents_and_empty_ones_and_a_list_of_a_kind() -> None:
    text = "---\n" + yaml.safe_dump({"apiVersion": "v1", "kind": "NodeList", "items": [bare("a"), bare("b")]})
    text += "---\n---\n" + yaml.safe_dump(bare("c")) + "---\n# nothing\n"
    assert [node["name"] for node in json.loads(run("--now", NOW, text=text).stdout)["nodes"]] == ["a", "b", "c"]


def test_files_are_read_in_their_order_and_standard_input_among_them(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(json.dumps(bare(name)))
    done = run(str(tmp_path / "b"), "-", str(tmp_path / "a"), "--now", NOW, text=json.dumps(bare("between")))
    assert [node["name"] for node in json.loads(done.stdout)["nodes"]] == ["b", "between", "a"]


def test_without_a_file_standard_input_is_read() -> None:
    assert json.loads(run("--now", NOW, text=listed(bare("n"))).stdout)["nodes"][0]["name"] == "n"


@pytest.mark.parametrize("text", ["", "\n", "---\n", "null", "{}", "items: []", '{"kind": "List", "items": null}'])
def test_nothing_is_an_answer_too(text: str) -> None:
    done = run("--now", NOW, text=text)
    assert done.exit_code == 0
    assert json.loads(done.stdout)["nodes"] == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"{", "neither JSON nor YAML"),
        (b"a: [b", "neither JSON nor YAML"),
        (b"\x00\x01", "neither JSON nor YAML"),
        (b"\xff\xfe\xfa", "neither JSON nor YAML"),
        (b"a: b: c", "line 1"),
        (b"hello", "document 1: must be a Kubernetes object"),
        (b"[1]", "document 1: must be a Kubernetes object"),
        (b"7", "document 1: must be a Kubernetes object"),
        (b'{"kind": "List", "items": [7]}', "document 1, items[0]"),
        (b'{"kind": "List", "items": "x"}', "document 1"),
        (b'{"kind": "List", "items": 5}', "document 1"),
        (b'{"kind": "NodeList", "items": {"a": 1}}', "document 1"),
        (b'{"kind": "Node", "apiVersion": "v1"}', "metadata.name must be a name"),
        (b'{"kind": "Node", "apiVersion": "v1", "metadata": {"name": ""}}', "metadata.name must be a name"),
        (b'{"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n", "labels": 7}}', "node n"),
        (b'{"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n", "labels": {"a": 7}}}', "node n"),
        (b'{"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n"}, "spec": {"taints": "x"}}', "node n"),
        (b'{"kind": "RuntimeProfile", "apiVersion": "outpost.dhnt.io/v1alpha1"}', "metadata.name"),
        (b"[" * 100_000, "-: "),
        (b'{"a":' * 100_000, "-: "),
        (b"- " * 20_000 + b"a", "-: "),
        (b"&a [*a]", "an alias within itself"),
    ],
)
def test_unusable_input_is_refused_in_one_sentence_that_says_where(text: bytes, words: str) -> None:
    assert words in refused(run("--now", NOW, text=text))


@pytest.mark.parametrize("what", ["missing", "a directory"])
def test_an_unreadable_file_is_named(tmp_path: Path, what: str) -> None:
    path = tmp_path / "nowhere" if what == "missing" else tmp_path
    assert str(path) in refused(run(str(path), text=""))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--now", "yesterday"),
        ("--now", "2026-08-01"),
        ("--now", "2026-08-01 12:00:00Z"),
        ("--now", "2026-08-01T12:00:00"),
        ("--now", ""),
        ("--uptime", "long"),
        ("--uptime", "-5"),
        ("--uptime", "5 minutes"),
        ("--uptime", "1d"),
        ("--uptime", "inf"),
        ("--uptime", "nan"),
        ("--uptime", "1.2.3"),
        ("--uptime", ""),
    ],
)
def test_wrong_words_for_times_are_told_with_an_example(option: str, value: str) -> None:
    done = run(f"{option}={value}", text="{}")
    assert done.exit_code == 2
    assert option in done.stderr
    assert "such as" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("uptime", ["0", "90", "1.5", "90s", "1h30m", "168h"])
def test_an_uptime_may_be_seconds_or_a_duration(uptime: str) -> None:
    assert run("--uptime", uptime, text="{}").exit_code == 0


@pytest.mark.parametrize("now", [NOW, "2026-08-01T14:00:00+02:00", "2026-08-01T12:00:00.123456Z"])
def test_now_may_be_any_timestamp_of_the_api(now: str) -> None:
    assert answer(arguments=("--now", now))["now"] == NOW


def lines(*requests: Any) -> list[Json]:
    """The answers to ``requests``, one line each; text goes in as it is."""
    text = "\n".join(seen if isinstance(seen, str) else json.dumps(seen) for seen in requests)
    done = run("--lines", "--now", NOW, text=text + "\n")
    assert (done.exit_code, done.stderr) == (0, ""), done.exception
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_one_world_a_line_gives_one_answer_a_line_with_its_id() -> None:
    first, second = lines(
        {"id": 1, "items": [virtual(taints=[])]},
        {"id": "b", "now": "2026-01-01T00:00:00Z", "uptime": 5, "items": [bare("n")]},
    )
    assert first == {"id": 1, **answer(virtual(taints=[]))}
    assert (second["id"], second["now"], second["nodes"][0]["name"]) == ("b", "2026-01-01T00:00:00Z", "n")


BAD_LINES: list[tuple[Any, Any, str]] = [
    ("no JSON", None, ""),
    ("{", None, ""),
    ("\ufeff{}", None, ""),
    ("[" * 50_000, None, ""),
    ("[]", None, "must be a JSON object"),
    ("7", None, "must be a JSON object"),
    ({}, None, "items"),
    ({"id": 3}, 3, "items"),
    ({"id": 3, "items": {}}, 3, "items"),
    ({"id": 3, "items": "x"}, 3, "items"),
    ({"id": 3, "items": [7]}, 3, "document 1"),
    ({"id": 3, "items": [{"kind": "NodeList", "items": 5}]}, 3, "document 1"),
    ({"id": 3, "items": [{"kind": "Node", "apiVersion": "v1"}]}, 3, "metadata.name"),
    (
        {"id": 3, "items": [{"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n", "labels": [1]}}]},
        3,
        "node n",
    ),
    ({"id": 3, "items": [], "now": "soon"}, 3, "now must be a time"),
    ({"id": 3, "items": [], "now": 7}, 3, "now must be a time"),
    ({"id": 3, "items": [], "uptime": "long"}, 3, "duration"),
    ({"id": 3, "items": [], "uptime": True}, 3, "uptime"),
    ({"id": 3, "items": [], "uptime": -1}, 3, "uptime"),
    ({"id": 3, "items": [], "uptime": [1]}, 3, "uptime"),
]


@pytest.mark.parametrize(("bad", "identity", "words"), BAD_LINES)
def test_a_bad_line_gives_an_error_and_the_next_is_answered(bad: Any, identity: Any, words: str) -> None:
    failed, good = lines(bad, {"id": 9, "items": []})
    assert set(failed) == {"id", "error"}
    assert failed["id"] == identity
    assert words in failed["error"]
    assert "\n" not in failed["error"]
    assert good["id"] == 9
    assert good["nodes"] == []


def test_empty_lines_are_passed_over() -> None:
    assert [seen["id"] for seen in lines("", {"id": 1, "items": []}, "   ", {"id": 2, "items": []})] == [1, 2]


def test_lines_may_come_from_files_too(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(json.dumps({"id": name, "items": []}) + "\n")
    done = run("--lines", str(tmp_path / "a"), str(tmp_path / "b"))
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == ["a", "b"]


def test_each_answer_is_out_before_the_next_line_is_read() -> None:
    """A program that asks and waits for the answer must not wait for ever."""
    with subprocess.Popen(
        [str(PROGRAM), "simulate", "--lines", "--now", NOW], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(3):
            process.stdin.write(json.dumps({"id": number, "items": []}).encode() + b"\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["id"] == number
        process.stdin.close()
        assert process.wait(20) == 0


def test_a_reader_that_went_away_is_no_traceback() -> None:
    text = "\n".join(json.dumps({"id": number, "items": [bare("n")]}) for number in range(2000))
    command = f"{PROGRAM} simulate --lines --now {NOW} | head -n 1"
    done = subprocess.run(
        ["bash", "-c", command], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert json.loads(done.stdout)["id"] == 0
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "broken",
    [
        lambda raw: raw["metadata"].update(creationTimestamp="garbage"),
        lambda raw: raw["metadata"].update(creationTimestamp=None),
        lambda raw: raw["status"].update(conditions=[{"type": "Ready"}]),
        lambda raw: raw["status"].update(
            conditions=[{"type": "Ready", "status": "True", "lastTransitionTime": None}]
        ),
        lambda raw: raw["status"].update(daemonEndpoints=None, nodeInfo=None),
        lambda raw: raw.pop("status"),
        lambda raw: raw.pop("spec"),
    ],
)
def test_a_node_with_holes_is_answered(broken: Callable[[Json], object]) -> None:
    raw = agent()
    broken(raw)
    assert answer(raw)["nodes"][0]["name"] == "pi-4c7adeb6"


def test_without_a_time_it_is_this_machines_to_the_second() -> None:
    # In a process of its own: to freeze time looks into every loaded module, and what a module builds only when it
    # is looked into (the official client's models) fails under a frozen clock and leaves it frozen.
    frozen = f"""
from freezegun import freeze_time
with freeze_time({NOW!r}):
    from clusterconform.cli.main import main
    main(["simulate", "-"])
"""
    done = subprocess.run([sys.executable, "-c", frozen], input="", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["now"] == NOW


def test_without_a_time_it_is_this_machines() -> None:
    before = Clock().moment().wall
    now = datetime.fromisoformat(json.loads(run("-").stdout)["now"])
    assert before.replace(microsecond=0) <= now <= Clock().moment().wall


# --- what comes from others is bounded -------------------------------------------------------------------------


def test_a_line_without_an_end_is_refused_and_the_next_one_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "JSON_BYTES", 100)
    for length in (101, 250, 1_000, 10_001):
        failed, good = lines("x" * length, {"id": 9, "items": []})
        assert failed["error"].startswith("a line larger than ")
        assert good["id"] == 9


BOMB = "- &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"- &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 30)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BOMB, "aliases that stand for millions of values"),
        ("[" * 100_000, "neither JSON nor YAML"),
        ("{", "neither"),
    ],
    ids=["bomb", "depth", "neither"],
)
def test_passes_that_cannot_be_read_are_refused_in_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "passes"
    file.write_text(text)
    assert f"{file}: " in (said := refused(run("--passes", str(file), text="{}")))
    assert words in said


@pytest.mark.parametrize("arguments", [("--passes", "/dev/zero"), ("--lines", "/dev/zero")])
def test_a_file_without_an_end_is_refused(arguments: tuple[str, ...]) -> None:
    assert "/dev/zero: larger than 64 MiB" in refused(run(*arguments, text="{}"))


# --- forms ----------------------------------------------------------------------------------------------------


def test_yaml_says_the_same_as_json() -> None:
    texts = [
        run("--now", NOW, "-o", form, text=listed(virtual(taints=[]), bare("n"))).stdout
        for form in ("json", "yaml")
    ]
    assert json.loads(texts[0]) == yaml.safe_load(texts[1])


def test_the_table_has_a_row_for_each_node_and_what_a_pass_comes_to(tmp_path: Path) -> None:
    passes = tmp_path / "passes.yaml"
    passes.write_text(f"- {{now: '{NOW}'}}\n- {{now: '2026-08-01T13:00:00Z', faults: {{list: 500}}}}\n")
    refused_ = manifest("vk-x", {**VIRTUAL_SPEC, "capabilities": ["kubelet-exec"]})
    text = listed(virtual(taints=[]), manifest("vk-podman", VIRTUAL_SPEC), manifest("k3s", AGENT_SPEC), refused_)
    done = run("--now", NOW, "-o", "table", "--passes", str(passes), text=text)
    head, row, _, *rest = done.stdout.splitlines()
    assert head.split() == ["NODE", "PROFILE", "IDENTITY", "CONFORMS", "STALENESS", "REQUESTS", "REASONS"]
    assert row.split() == [
        *("laptop-vk-podman", "vk-podman", "managed", "False", "undetermined", "2", "ProviderTaintDrifted"),
    ]
    assert [line.split(None, 1) for line in rest] == [
        ["vk-x", "not accepted: Invalid"],
        [NOW, "no guard refuses it; 0 stale of 0"],
        ["2026-08-01T13:00:00Z", "listing nodes: HTTP status 500; 0 stale of 0"],
    ]


def test_lines_are_always_json() -> None:
    done = run("--lines", "-o", "table", text="{}")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--lines prints JSON" in done.stderr
