"""``clusterconform check``: what it says of good and bad files, in which form, and with which exit code."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest
import yaml
from builders import AGENT_SPEC, TAINT, VIRTUAL_SPEC, Json, agent, bare, manifest, virtual
from click.testing import CliRunner, Result
from terminal import on_a_terminal

from clusterconform.cli import reading
from clusterconform.cli.main import main
from clusterconform.contract.names import BACKEND_LABEL, RUNTIME_LABEL

ROOT = Path(__file__).parents[2]
PROGRAM = Path(sys.executable).with_name("clusterconform")


def run(*arguments: str, text: str | bytes = "") -> Result:
    """One call, with ``text`` on standard input."""
    done = CliRunner().invoke(main, ["check", *arguments], input=text)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def findings(*objects: Any, arguments: tuple[str, ...] = ()) -> list[Json]:
    """The findings on ``objects``."""
    done = run("-", "-o", "json", *arguments, text=json.dumps({"kind": "List", "items": list(objects)}))
    rows: list[Json] = json.loads(done.stdout)["findings"]
    assert done.exit_code == int(any(row["severity"] == "error" for row in rows)), done.stderr
    return rows


def rules(*objects: Any, arguments: tuple[str, ...] = ()) -> list[str]:
    """The rules that ``objects`` break, in order."""
    return [row["rule"] for row in findings(*objects, arguments=arguments)]


def test_what_is_shipped_conforms() -> None:
    done = run(str(ROOT / "crds"), "--complete")
    assert (done.exit_code, done.stdout) == (0, "checked 4 profiles, 0 nodes, 0 workloads: 0 errors, 0 warnings\n")


def test_the_operators_words_stand_beside_file_line_object_field_and_rule(tmp_path: Path) -> None:
    file = tmp_path / "nodes.yaml"
    file.write_text(yaml.safe_dump_all([bare("x"), virtual(labels={RUNTIME_LABEL: "agent"})]))
    done = run(str(file))
    line = next(number for number, row in enumerate(file.read_text().splitlines(), 1) if RUNTIME_LABEL in row)
    assert done.exit_code == 1
    assert (
        f"{file}:{line}: error: Node laptop-vk-podman: metadata.labels[{RUNTIME_LABEL}]: "
        f"{RUNTIME_LABEL} is agent, not virtual (RuntimeLabelDrifted)\n"
    ) in done.stdout
    assert done.stdout.endswith("checked 0 profiles, 2 nodes, 0 workloads: 2 errors, 0 warnings\n")


def test_lines_are_told_in_json_too(tmp_path: Path) -> None:
    file = tmp_path / "nodes.json"
    objects = [virtual(), virtual("vk-native", port=10250), virtual("vk-ollama", taints=[TAINT | {"value": "x"}])]
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}, indent=4))
    rows = json.loads(run(str(file), "-o", "json").stdout)["findings"]
    lines = file.read_text().splitlines()
    assert [(row["rule"], lines[row["line"] - 1].strip()) for row in rows] == [
        ("KubeletEndpointAdvertised", '"Port": 10250'),
        ("ProviderTaintDrifted", '"taints": ['),
    ]


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        pytest.param([agent(), virtual()], [], id="conforming"),
        pytest.param([bare("n")], ["Unidentified"], id="no label"),
        pytest.param([virtual("vk-docker")], ["UnknownBackend"], id="no such profile"),
        pytest.param([agent(taints=[TAINT])], ["IdentityConflict"], id="contradicts itself"),
        pytest.param([virtual(port=10250)], ["KubeletEndpointAdvertised"], id="claims a kubelet"),
        pytest.param([agent("pi", labels={BACKEND_LABEL: "k3s"})], ["HostNameMismatch"], id="advice"),
        pytest.param([{"apiVersion": "v1", "kind": "Node"}], ["Node"], id="a Node without a name"),
        pytest.param([bare("n") | {"spec": {"taints": 7}}], ["Node"], id="a Node of wrong types"),
        pytest.param([manifest("vk-x", VIRTUAL_SPEC)], [], id="a fourth backend of five lines"),
        pytest.param([manifest("vk-x", {**VIRTUAL_SPEC, "backend": "vk-y"})], ["R1"], id="R1"),
        pytest.param([manifest("vk-x", {**VIRTUAL_SPEC, "capabilities": ["kubelet-exec"]})], ["R2", "R4", "R4"]),
        pytest.param([manifest("k3s", {**AGENT_SPEC, "providerTaint": True})], ["R3"], id="R3"),
        pytest.param([manifest("k3s", AGENT_SPEC), manifest("k0s", AGENT_SPEC)], ["R5"], id="R5"),
        pytest.param([manifest("vk-x", {**VIRTUAL_SPEC, "class": "x"})], ["CRD"], id="a wrong word"),
        pytest.param([manifest("vk-x", {**VIRTUAL_SPEC, "colour": "red"})], ["CRD"], id="an unknown field"),
        pytest.param([manifest("", VIRTUAL_SPEC)], ["CRD"], id="a profile without a name"),
        pytest.param([manifest("vk-x", VIRTUAL_SPEC) | {"apiVersion": "outpost.dhnt.io/v2"}], ["CRD"]),
        pytest.param([manifest("vk-x", VIRTUAL_SPEC)] * 2, ["R1"], id="the same name twice"),
        pytest.param([{"apiVersion": "v1", "kind": "ConfigMap"}, {}], [], id="other kinds"),
    ],
)
def test_each_rule_is_named(objects: list[Json], expected: list[str]) -> None:
    assert rules(*objects) == expected


def test_profiles_of_the_input_judge_its_nodes() -> None:
    profile = manifest("vk-podman", {**VIRTUAL_SPEC, "providerTaintValue": "podman"})
    assert rules(virtual(), profile) == ["ProviderTaintDrifted"]
    refused = manifest("vk-podman", {**VIRTUAL_SPEC, "providerTaint": False})
    assert rules(virtual(), refused) == ["ProfileNotAccepted", "R4"]


@pytest.mark.parametrize(
    ("profiles", "expected"),
    [
        ([manifest("k3s", AGENT_SPEC), manifest("vk-x", VIRTUAL_SPEC)], []),
        ([manifest("k3s", AGENT_SPEC)], ["R5"]),
        ([manifest("vk-x", VIRTUAL_SPEC)], ["R5"]),
        ([], []),
    ],
)
def test_a_complete_set_has_one_agent_and_a_virtual_one(profiles: list[Json], expected: list[str]) -> None:
    assert rules(*profiles) == []
    assert rules(*profiles, arguments=("--complete",)) == expected


def test_advice_refuses_nothing() -> None:
    done = run("-", text=json.dumps(agent("pi")))
    assert done.exit_code == 0
    assert ": warning: Node pi: metadata.name: " in done.stdout


def test_a_directory_is_read_with_all_below_it_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.yaml").write_text(yaml.safe_dump(bare("a")))
    (tmp_path / "b.json").write_text(json.dumps(bare("b")))
    (tmp_path / "notes.txt").write_text("[")
    rows = json.loads(run(str(tmp_path), "-o", "json").stdout)["findings"]
    assert [(row["file"], row["name"]) for row in rows] == [
        (str(tmp_path / "b.json"), "b"),
        (str(tmp_path / "deep" / "a.yaml"), "a"),
    ]


UNUSABLE: list[tuple[bytes, str]] = [
    (b"{", "neither JSON nor YAML"),
    (b"a: b: c", "mapping values are not allowed"),
    (b"\xff\xfe\xfa", "neither JSON nor YAML"),
    (b"hello", "must be a Kubernetes object, not str"),
    (b"[1]", "must be a Kubernetes object, not list"),
    (b'{"kind": "List", "items": [7]}', "items[0]: must be a Kubernetes object"),
    (b'{"kind": "List", "items": 5}', "items must be a list"),
    (b"[" * 100_000, "neither JSON nor YAML"),
    (b'{"a":' * 100_000, "neither JSON nor YAML"),
    (b"- " * 20_000 + b"a", "neither JSON nor YAML"),
    (b"&a [*a]", "an alias within itself"),
    (b"&a {b: {c: *a}}", "an alias within itself"),
    (b"{<<: &a {<<: *a}}", "an alias within itself"),
]
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 30)
)
MERGE_BOMB = "a0: &a0 {x: 1}\n" + "".join(
    f"a{level}: &a{level} {{<<: [{', '.join([f'*a{level - 1}'] * 9)}]}}\n" for level in range(1, 30)
)


@pytest.mark.parametrize("command", ["check", "simulate"])
@pytest.mark.parametrize("text", [BOMB, MERGE_BOMB], ids=["lists", "merges"])
def test_a_yaml_bomb_does_not_go_off(command: str, text: str) -> None:
    done = CliRunner().invoke(main, [command, "-"], input=text)
    assert done.exit_code == 2
    assert "aliases that stand for millions of values" in done.stderr


@pytest.mark.parametrize(("text", "words"), UNUSABLE)
def test_unusable_input_is_one_sentence_with_its_file_and_code_2(text: bytes, words: str) -> None:
    done = run("-", text=text)
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("clusterconform: -")
    assert words in line


@pytest.mark.parametrize("command", ["check", "simulate"])
@pytest.mark.parametrize("head", [b'{"items": ["', b"a: "], ids=["json", "yaml"])
def test_a_file_of_100_mb_is_refused_before_it_is_understood(tmp_path: Path, command: str, head: bytes) -> None:
    file = tmp_path / "large"
    with file.open("wb") as out:
        out.write(head)
        out.truncate(100_000_000)
    done = CliRunner().invoke(main, [command, str(file)])
    assert done.exit_code == 2
    assert done.stderr.startswith(f"clusterconform: {file}: larger than 64 MiB")


@pytest.mark.parametrize("command", ["check", "simulate"])
def test_input_without_an_end_is_refused(command: str) -> None:
    done = CliRunner().invoke(main, [command, "/dev/zero"])
    assert done.exit_code == 2
    assert "larger than" in done.stderr


@pytest.mark.parametrize("head", ["", "{"])
def test_much_yaml_is_refused_where_as_much_json_is_read(head: str) -> None:
    text = head + "# " + "x" * reading.YAML_BYTES
    done = run("-", text=text)
    assert done.exit_code == 2
    assert "larger than the 8 MiB of YAML that are read" in done.stderr
    assert run("-", text=json.dumps({"kind": "ConfigMap", "data": "x" * reading.YAML_BYTES})).exit_code == 0


def test_one_unusable_file_does_not_hide_what_others_hold(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: b: c")
    (tmp_path / "b.yaml").write_text(yaml.safe_dump(bare("b")))
    done = run(str(tmp_path), str(tmp_path / "nowhere"))
    assert done.exit_code == 2
    assert "Node b" in done.stdout
    assert [line.split(": ")[1] for line in done.stderr.splitlines()] == [
        f"{tmp_path}/a.yaml:1",
        f"{tmp_path}/nowhere",
    ]


def test_on_a_terminal_it_does_not_wait_for_what_nobody_types() -> None:
    said = on_a_terminal([PROGRAM, "check"], os.environ)
    assert "Name files, pipe something in, or say --cluster." in said


def test_a_directory_without_a_manifest_is_a_mistake(tmp_path: Path) -> None:
    done = run(str(tmp_path))
    assert (done.exit_code, done.stderr) == (
        2,
        f"clusterconform: {tmp_path}: holds no .yaml, .yml or .json file\n",
    )


def test_a_byte_order_mark_is_no_content() -> None:
    assert run("-", text=b"\xef\xbb\xbf" + json.dumps(virtual()).encode()).exit_code == 0


def test_junit_has_a_case_for_each_object() -> None:
    text = yaml.safe_dump_all([virtual(), bare("\x07<&>"), agent("pi")]) + "---\n7\n"
    done = run("-", "-o", "junit", text=text)
    assert done.exit_code == 2
    root = ET.fromstring(done.stdout)  # noqa: S314 - our own words
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("4", "1", "1")
    cases = {case.get("name"): [child.tag for child in case] for case in root.iter("testcase")}
    assert cases == {
        "Node laptop-vk-podman": [],
        "Node \ufffd<&>": ["failure"],
        "Node pi": ["system-out"],
        "input": ["error"],
    }


def test_yaml_and_json_say_the_same() -> None:
    text = json.dumps(bare("b"))
    as_json, as_yaml = (run("-", "-o", form, text=text).stdout for form in ("json", "yaml"))
    assert json.loads(as_json) == yaml.safe_load(as_yaml)
    assert json.loads(as_json) == {
        "conforming": False,
        "checked": {"profiles": 0, "nodes": 1, "workloads": 0},
        "findings": [
            {
                "file": "-",
                "line": 1,
                "kind": "Node",
                "name": "b",
                "path": f"metadata.labels[{BACKEND_LABEL}]",
                "rule": "Unidentified",
                "severity": "error",
                "message": f"no label {BACKEND_LABEL}",
            }
        ],
    }


def test_the_table_has_a_row_for_each_finding() -> None:
    done = run("-", "-o", "table", text=json.dumps(bare("b")))
    head, row, total = done.stdout.splitlines()
    assert head.split() == ["FILE", "OBJECT", "PATH", "RULE", "SEVERITY", "MESSAGE"]
    assert row.split()[:2] == ["-:1", "Node"]
    assert total == "checked 0 profiles, 1 nodes, 0 workloads: 1 errors, 0 warnings"


def test_check_and_simulate_give_the_same_verdict_on_a_node() -> None:
    for raw in (
        agent(),
        virtual(),
        bare("n"),
        virtual(port=1),
        agent(taints=[TAINT]),
        virtual("vk-z"),
        agent("x"),
    ):
        (node,) = json.loads(CliRunner().invoke(main, ["simulate", "-"], input=json.dumps(raw)).stdout)["nodes"]
        rows = findings(raw)
        assert node["conformant"] == (not any(row["severity"] == "error" for row in rows))
        assert node["reasons"] == [row["rule"] for row in rows]


def test_neither_kopf_nor_a_client_nor_rich_is_waited_for() -> None:
    code = (
        "import sys; from clusterconform.cli.main import main\n"
        f"try:\n    main(['check', {str(ROOT / 'crds')!r}])\nexcept SystemExit:\n    pass\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted(loaded & {'kopf', 'kubernetes', 'aiohttp', 'pykube', 'rich', 'requests'}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr.strip() == "[]"


def test_files_are_read_once_and_whole_by_the_installed_program(tmp_path: Path) -> None:
    file = tmp_path / "nodes.json"
    file.write_bytes(msgspec.json.encode({"kind": "List", "items": [virtual(host=f"h{n}") for n in range(500)]}))
    done = subprocess.run([PROGRAM, "check", str(file)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (
        0,
        "checked 0 profiles, 500 nodes, 0 workloads: 0 errors, 0 warnings\n",
    )
