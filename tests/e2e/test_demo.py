"""``clusterconform sandbox`` shows what it promises, tells the truth where it fails, and leaves nothing."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from clusterconform.cli.demo import death
from clusterconform.cli.demo.acts import Act, perform, three_acts
from clusterconform.cli.demo.watch import NodeWatch
from clusterconform.contract.names import RUNTIME_LABEL
from clusterconform.sandbox.builder import Builder
from clusterconform.sandbox.control_plane import ControlPlane
from clusterconform.sandbox.nodes import agent_node, virtual_node

PROGRAM = Path(sys.executable).with_name("clusterconform")
NOW = datetime.now(UTC)  # noqa: TID251 - the programs live in real time
NODES = "/api/v1/nodes"


def left_of(folder: Path) -> list[str]:
    """The processes whose temporary files were to go to ``folder``, by their command."""
    mark, found = f"TMPDIR={folder}".encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text())
        except OSError:  # it has ended, or is somebody else's
            continue
    return found


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    return folder


def demo(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [PROGRAM, "sandbox", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"TMPDIR": str(folder)},
    )


@pytest.mark.timeout(600)
def test_five_acts_come_to_their_end_and_nothing_is_left(builder: Builder, temporary: Path) -> None:
    with demo(temporary, "--once", "--nodes", "12", "--kubernetes", builder.kubernetes.minor) as process:
        said, _ = process.communicate(timeout=540)
    assert process.returncode == 0, said
    assert f"A Kubernetes {builder.kubernetes.minor} control plane, 12 nodes" in said
    assert re.findall(r"^(\d)\. .+: \S+", said, re.MULTILINE) == ["1", "2", "3", "4", "5"]
    repaired = re.findall(r"repaired (\d+) ms after the API server accepted the drift", said)
    assert len(repaired) == 3
    assert f"All 3 acts were healed, after {', '.join(repaired)} ms." in said
    told = re.findall(r"^operator  .*node repaired  node=\S+ .* why=(.+)$", said, re.MULTILINE)
    assert told == [
        "outpost.dhnt.io/backend is absent, not k3s",
        "taint virtual-kubelet.io/provider is absent, not =outpost",
        "outpost.dhnt.io/runtime is agent, not virtual",
    ]
    assert said.count("RuntimeConformant on the node: True (Conforms)") == 3
    assert re.search(r"^k3s +agent +7 +7 +0 +True$", said, re.MULTILINE)
    assert re.search(r"^vk-podman +virtual +3 +2 +1 +False$", said, re.MULTILINE)
    assert "False there (KubeletEndpointAdvertised)" in said
    assert re.search(rf"^operator  .*event=deleted  node={death.AGENT}  uid=", said, re.MULTILINE)
    assert f"{death.TWIN}, of the same host and as dead, is kept: undetermined (NotAnAgent)" in said
    assert re.search(r"the outage is refused: ReapingAllowed is False \(MassStale\): \d+/\d+ agents", said)
    assert "5 of 5 silent agents are still there" in said
    reached = re.findall(r"(refused: no preferred addresses found|it says: this agent is imitated)", said)
    assert reached[:2] == ["refused: no preferred addresses found", "it says: this agent is imitated"]
    assert len(re.findall(r"refused: ", said)) >= 2  # the agent's at first, the virtual node's at last
    assert (left_of(temporary), list(temporary.iterdir())) == ([], [])


@pytest.mark.long
@pytest.mark.timeout(600)
def test_it_is_yours_until_ctrl_c(builder: Builder, temporary: Path) -> None:
    kubeconfig = temporary.parent / "kubeconfig"
    version = builder.kubernetes.minor
    with demo(temporary, "--nodes", "10", "--kubernetes", version, "--kubeconfig-out", str(kubeconfig)) as process:
        assert process.stdout is not None
        said = "".join(_until(process.stdout, "from here on"))
        assert f"{kubeconfig} get rtp -w" in said
        assert json.loads(kubeconfig.read_text())["current-context"] == "sandbox"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert process.returncode == 0
    assert not kubeconfig.exists()
    assert (left_of(temporary), list(temporary.iterdir())) == ([], [])


def _until(lines: Iterable[str], text: str) -> Iterator[str]:
    for line in lines:
        yield line
        if text in line:
            return
    pytest.fail(f"it ended before {text!r}")


@pytest.fixture
def played(plane: ControlPlane) -> Iterator[list[Act]]:
    """The acts on nodes of a control plane where no operator runs."""
    agent = agent_node("quail", now=NOW)
    virtual = [virtual_node("quail", backend, now=NOW) for backend in ("vk-native", "vk-ollama")]
    names = [plane.admin.create(NODES, node)["metadata"]["name"] for node in (agent, *virtual)]
    yield three_acts(*names)
    for name in names:
        if plane.admin.answers(f"{NODES}/{name}"):
            plane.admin.delete(f"{NODES}/{name}")


@pytest.mark.parametrize("number", [0, 1, 2])
def test_an_act_that_nobody_heals_is_told_as_such(
    plane: ControlPlane, played: list[Act], number: int, tmp_path: Path
) -> None:
    act = played[number]
    outcome = perform(act, plane, tmp_path / "operator.log", seconds=0.5)
    assert (outcome.milliseconds, outcome.line) == (None, "")
    assert not act.healed(plane.admin.get(f"{NODES}/{act.node}"))


def test_what_is_measured_is_the_repair_by_whomever(
    plane: ControlPlane, played: list[Act], tmp_path: Path
) -> None:
    act, log = played[2], tmp_path / "operator.log"
    log.write_text(f"1 INFO node repaired  node={act.node}  profile=of-an-earlier-repair\n")
    seen = threading.Event()

    def heal() -> None:
        with NodeWatch(plane, act.node) as watch:
            seen.set()
            assert watch.first(lambda node: not act.healed(node), after="0", seconds=20)
            with log.open("a") as file:
                file.write(f"2 INFO node repaired  node={act.node}-2  profile=x\n")
                file.write(f"3 INFO node repaired  node={act.node}  profile=x\n")
            plane.admin.patch(f"{NODES}/{act.node}", {"metadata": {"labels": {RUNTIME_LABEL: "virtual"}}})

    healer = threading.Thread(target=heal)
    healer.start()
    assert seen.wait(20)
    outcome = perform(act, plane, log, seconds=20)
    healer.join()
    assert outcome.milliseconds is not None
    assert 0 < outcome.milliseconds < 20_000
    assert outcome.line == f"3 INFO node repaired  node={act.node}  profile=x"


def test_a_node_that_vanishes_is_not_healed(plane: ControlPlane, played: list[Act]) -> None:
    name = played[0].node
    with NodeWatch(plane, name) as watch:
        plane.admin.delete(f"{NODES}/{name}")
        assert watch.first(lambda _: True, after="0", seconds=20) is None
