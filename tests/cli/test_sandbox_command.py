"""``clusterconform sandbox`` without a control plane: what it refuses, how it ends, and what it shows."""

import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console, Group

from clusterconform.cli.demo import acts, ending, profiles, shipped, stay, story, world
from clusterconform.cli.demo.acts import Outcome, three_acts
from clusterconform.cli.demo.board import Board, about
from clusterconform.cli.demo.kubectl import Kubectl
from clusterconform.cli.demo.population import LARGEST, SMALLEST, STOCK_NODE, populate
from clusterconform.cli.demo.profiles import Condition, Row
from clusterconform.cli.demo.screen import Screen
from clusterconform.cli.main import main
from clusterconform.sandbox.builder import Progress, State
from clusterconform.sandbox.parts import ETCD, KWOK, NEWEST, OLDEST
from clusterconform.sandbox.programs import Programs

PROGRAM = Path(sys.executable).with_name("clusterconform")
NOW = datetime(2026, 12, 1, 8, tzinfo=UTC)
BACKEND, RUNTIME, TAINT = "outpost.dhnt.io/backend", "outpost.dhnt.io/runtime", "virtual-kubelet.io/provider"

# A compiler that never gets anywhere: it fails, or holds still once it has told that it runs.
GO = """#!/bin/sh
case "$1" in version) echo "go version go1.27.0 linux/amd64"; exit 0;; esac
{then}
"""


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["sandbox", *arguments])


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any part and with a compiler that fails; gives the compiler's directory."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs) + ":/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    compiler(programs, "echo 'main.go:7:1: syntax error' >&2; exit 2")
    return programs


def compiler(directory: Path, then: str) -> None:
    (directory / "go").write_text(GO.format(then=then))
    (directory / "go").chmod(0o755)


@contextmanager
def signals_kept() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


# What it refuses


def test_help_names_every_option_and_the_exit_codes() -> None:
    text = invoke("--help").stdout
    for word in (
        "--once",
        "--nodes",
        "--kubernetes",
        "--assets",
        "--kubeconfig-out",
        "Exit codes",
        "docs/sandbox.md",
    ):
        assert word in text


@pytest.mark.parametrize("nodes", [SMALLEST - 1, LARGEST + 1])
def test_a_fleet_has_bounds(nodes: int) -> None:
    refused = invoke("--nodes", str(nodes))
    assert refused.exit_code == 2
    assert f"{SMALLEST}<=x<={LARGEST}" in refused.stderr


def test_a_version_that_is_not_pinned_is_refused() -> None:
    refused = invoke("--kubernetes", "1.35")
    assert refused.exit_code == 2
    assert all(repr(version.minor) in refused.stderr for version in (NEWEST, OLDEST))


def test_a_file_that_exists_is_never_overwritten(tmp_path: Path) -> None:
    precious = tmp_path / "config"
    precious.write_text("somebody's")
    refused = invoke("--kubeconfig-out", str(precious))
    assert refused.exit_code == 2
    assert "exists already" in refused.stderr
    assert precious.read_text() == "somebody's"


def test_a_kubeconfig_needs_a_directory_that_exists(tmp_path: Path) -> None:
    refused = invoke("--kubeconfig-out", str(tmp_path / "absent" / "config"))
    assert (refused.exit_code, "is no directory" in refused.stderr) == (2, True)


# How it ends


def test_a_part_that_cannot_be_built_is_one_sentence(bare: Path) -> None:
    with signals_kept():
        failed = invoke("--once")
    *log, sentence = failed.stderr.splitlines()
    assert failed.exit_code == 1
    assert sentence == (
        "clusterconform: etcd v3.7.3 could not be built (go build ended with 2): "
        "see the end of its output, or name a directory with ready programs by --assets."
    )
    assert log == ["main.go:7:1: syntax error"]
    assert "To be built from pinned sources, once: etcd, kube-apiserver, " in failed.stdout


def test_an_act_that_was_not_healed_is_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(story, "play", lambda _wishes, _screen: "Only 2 of 3 acts were healed.")
    with signals_kept():
        failed = invoke("--once")
    assert (failed.exit_code, failed.stderr) == (1, "clusterconform: Only 2 of 3 acts were healed.\n")


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=["SIGINT", "SIGTERM", "SIGHUP"],
)
def test_a_build_that_is_interrupted_leaves_nothing(
    bare: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    compiler(bare, f"echo $$ > {tmp_path}/building; exec sleep 600")
    os.mkfifo(tmp_path / "building")
    with subprocess.Popen([PROGRAM, "sandbox"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        pid = int((tmp_path / "building").read_text())
        process.send_signal(number)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == code
    assert b"Traceback" not in errors
    assert not Path(f"/proc/{pid}").exists()
    assert not list((tmp_path / "cache" / "clusterconform").glob("*etcd-*"))


def test_the_first_signal_raises_and_the_next_ones_do_not_disturb() -> None:
    def hang_up_and_press_ctrl_c() -> None:
        with ending.orderly(), ExitStack() as cleaning:
            cleaning.callback(os.kill, os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGHUP)

    with signals_kept():
        with pytest.raises(SystemExit) as left:
            hang_up_and_press_ctrl_c()
        assert left.value.code == 129
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_an_ignored_signal_stays_ignored() -> None:
    with signals_kept():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with ending.orderly():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_missing_file_is_told_before_anything_is_built(tmp_path: Path) -> None:
    with pytest.raises(shipped.ShippedFileMissingError, match=r"^crds/runtimeprofiles\.yaml is not below "):
        shipped.shipped(shipped.CRD, tmp_path)
    assert [path.is_file() for path in world.locate()] == [True] * 4


# What it shows: parts


@pytest.mark.parametrize(
    ("seconds", "said"), [(0, "about 10 s"), (44, "about 40 s"), (119, "about 120 s"), (125, "about 2 min")]
)
def test_nobody_knows_seconds_exactly(seconds: float, said: str) -> None:
    assert about(seconds) == said


def drawn(board: Board, width: int = 100) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    with console.capture() as text:
        console.print(Group(*board.rows()))
    return [line.rstrip() for line in text.get().splitlines() if line.strip()]


def test_the_board_shows_what_is_built_and_what_is_to_come() -> None:
    told: list[str] = []
    board = Board([ETCD, NEWEST.api_server, KWOK], told.append)
    board.expect([NEWEST.api_server, KWOK])
    assert board.outline().startswith("To be built from pinned sources, once: kube-apiserver, kwok;")
    board.hear(Progress(part=ETCD, state=State.FOUND, elapsed=0, detail="/bin/etcd"))
    board.hear(Progress(part=NEWEST.api_server, state=State.BUILDING, elapsed=30, detail="310 packages"))
    building, to_come, detail = drawn(board)
    assert building.split(maxsplit=2) == ["kube-apiserver", "building", "30 s, about 3 min left    API"]
    assert to_come.startswith("kwok                     to come   about 80 s")
    assert detail == "  310 packages"
    assert board.sentence() == "kube-apiserver (building, 30 s, about 3 min left): 310 packages"
    assert told == ["etcd v3.7.3 (storage): found"]


def test_the_board_is_empty_when_all_parts_are_there() -> None:
    told: list[str] = []
    board = Board([KWOK], told.append)
    board.expect([KWOK])
    board.hear(Progress(part=KWOK, state=State.BUILDING, elapsed=100, detail="linking"))
    assert "100 s, longer than usual" in drawn(board, 80)[0]
    board.hear(Progress(part=KWOK, state=State.BUILT, elapsed=101, detail="/cache/kwok"))
    assert (board.rows(), board.sentence(), board.seconds_left()) == ([], "", 0)
    assert told[0].endswith("built in 101 s")


# What it shows: lines


def test_where_no_terminal_is_lines_are_plain_and_whole() -> None:
    output = io.StringIO()
    with Screen(Console(file=output, width=40, highlight=False)) as screen:
        screen.say("a line that is longer than forty columns and stays one line", style="green")
        screen.add("more [of] it", title="operator")
    assert [line[10:] for line in output.getvalue().splitlines()] == [
        "a line that is longer than forty columns and stays one line",
        "more [of] it",
    ]
    assert output.getvalue().splitlines()[1].startswith("operator  ")


def test_a_long_silence_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clusterconform.cli.demo.screen._SILENCE_SECONDS", 0)
    said = threading.Event()

    class Output(io.StringIO):
        def write(self, text: str) -> int:
            if "waiting for etcd" in text:
                said.set()
            return super().write(text)

    output = Output()
    screen = Screen(Console(file=output))
    screen.picture(list, lambda: "etcd is building")
    with screen, screen.doing("waiting for etcd"):
        assert said.wait(10)
    assert "waiting for etcd (1 s); etcd is building" in output.getvalue()


# What it shows: profiles


def test_profiles_look_as_kubectl_shows_them() -> None:
    rows = [
        Row(name="k3s", node_class="agent", nodes=30, conformant=29, drifted=1, ready="False"),
        Row(name="vk-native", node_class="virtual", nodes=None, conformant=None, drifted=None, ready=""),
    ]
    assert profiles.table(rows).plain.splitlines() == [
        "NAME        CLASS     NODES   CONFORMANT   DRIFTED   READY",
        "k3s         agent     30      29           1         False",
        "vk-native   virtual",
    ]
    assert profiles.clause(rows) == "k3s 29/30"


def test_a_node_without_our_condition_has_an_empty_one() -> None:
    node: dict[str, Any] = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    assert profiles.condition_of(node) == Condition()


# Whom it consists of


@pytest.mark.parametrize("size", [SMALLEST, 12, 40, LARGEST])
def test_a_fleet_has_all_kinds_and_so_many_nodes(size: int) -> None:
    people = populate(size, now=NOW)
    assert len(people.conforming) == len(people.agents) + len(people.virtual) + 3 == size - 1
    assert STOCK_NODE not in people.conforming
    backends = {node["metadata"]["labels"][BACKEND] for node in people.virtual}
    assert backends == {"vk-podman", "vk-native", "vk-ollama"}
    assert people.hollow_labels[RUNTIME] == "agent"


def test_some_nodes_arrive_drifted() -> None:
    people = populate(40, now=NOW)
    assert people.unlabelled == 6
    assert [bool(node["spec"]["taints"]) for node in people.virtual].count(False) == 1


# The acts


def agent_and_virtual() -> tuple[dict[str, Any], dict[str, Any]]:
    people = populate(SMALLEST, now=NOW)
    virtual = people.virtual[0]
    virtual["spec"]["taints"].append({"key": "foreign", "value": "", "effect": "NoExecute"})
    return people.agents[1], virtual


def merged(target: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """The answer to a merge patch."""
    result = dict(target)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = merged(result.get(key, {}), value)
        else:
            result[key] = value
    return result


def test_each_act_is_a_drift_of_a_healthy_node() -> None:
    agent, virtual = agent_and_virtual()
    for act, node in zip(three_acts("a", "b", "c"), (agent, virtual, virtual), strict=True):
        assert act.healed(node)
        assert not act.healed(merged(node, act.drift(node)))


def test_the_lost_taint_is_the_only_one_that_is_lost() -> None:
    _, virtual = agent_and_virtual()
    drifted = merged(virtual, three_acts("a", "b", "c")[1].drift(virtual))
    assert [taint["key"] for taint in acts.taints_of(drifted)] == ["foreign"]


def test_each_act_can_be_typed() -> None:
    kubectl = Kubectl(program="kubectl", present=True, kubeconfig=Path("/tmp/a b"))  # noqa: S108 - never opened
    assert [kubectl.short(*act.command) for act in three_acts("one", "two", "three")] == [
        f"kubectl label node one {BACKEND}-",
        f"kubectl taint node two {TAINT}-",
        f"kubectl label node three {RUNTIME}=agent --overwrite",
    ]
    assert kubectl.line("get", "rtp") == "kubectl --kubeconfig '/tmp/a b' get rtp"


def test_what_was_not_healed_is_named() -> None:
    healed = Outcome(milliseconds=12.0, line="", condition=Condition())
    lost = Outcome(milliseconds=None, line="", condition=Condition())
    played = three_acts("one", "two", "three")
    assert story.shortfall([(act, healed) for act in played]) == ""
    assert story.shortfall(list(zip(played, (healed, lost, lost), strict=True))) == (
        "Only 1 of 3 acts were healed within 30 s each; still drifted: two, three."
    )


# Afterwards


def test_the_operators_log_is_followed_and_an_end_is_told(tmp_path: Path) -> None:
    programs = Programs(tmp_path)
    output = io.StringIO()

    class Watched(Screen):
        def say(self, text: str, *, style: str = "") -> None:
            super().say(text, style=style)
            raise KeyboardInterrupt

    try:
        os.mkfifo(tmp_path / "go")
        speaker = programs.start("operator", ["/bin/sh", "-c", f"echo early; read x < {tmp_path}/go; echo late"])
        operator = world.Operator(program=speaker, port=1)
        waiter = threading.Thread(target=lambda: (tmp_path / "go").write_text("now\n"))

        class Begun(Watched):
            def heading(self, text: str) -> None:
                super().heading(text)
                waiter.start()

        with pytest.raises(KeyboardInterrupt):
            stay.follow(Begun(Console(file=output, width=200)), operator, [speaker])
        waiter.join()
    finally:
        programs.close()
    assert "late" in output.getvalue()
    assert "operator ended with code 0" in output.getvalue()
