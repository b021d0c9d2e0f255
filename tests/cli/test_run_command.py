"""``clusterconform run``: what it says when it cannot start, and how it ends."""

import asyncio
import base64
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import agent
from click.testing import CliRunner
from effects_api import CRDS, NAMESPACES, NODES, FakeApi, refusal
from effects_server import kubeconfig, served

from clusterconform.cli.main import main
from clusterconform.contract.names import NAMESPACE

pytestmark = pytest.mark.usefixtures("nothing_left_over")

ROOT = Path(__file__).parents[2]
PROGRAM = Path(sys.executable).with_name("clusterconform")
CRD = yaml.safe_load((ROOT / "crds" / "runtimeprofiles.yaml").read_text())


def environment(**more: str) -> dict[str, str]:
    """Without any cluster around."""
    hidden = {"KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"}
    return {key: value for key, value in os.environ.items() if key not in hidden} | more


def refused(*arguments: str, **more: str) -> str:
    """The one sentence with which the program ends at once."""
    done = subprocess.run(
        [PROGRAM, "run", "--listen", "127.0.0.1:0", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(**more),
        check=False,
    )
    assert done.returncode == 2, (done.returncode, done.stderr)
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    said = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert len(said) == 1, done.stderr
    return said[0]


def test_help_names_every_option_and_the_exit_codes() -> None:
    text = CliRunner().invoke(main, ["run", "--help"]).stdout
    for option in (
        "--kubeconfig",
        "--context",
        "--bound",
        "--listen",
        "--log-format",
        "--verbose",
        "--whole-stream",
    ):
        assert option in text
    assert "default: observe" in text
    assert "Exit codes: 0" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--bound", "all"], "'observe', 'enforce'"),
        (["--log-format", "xml"], "'auto', 'text', 'json'"),
        (["--listen", "8080"], "HOST:PORT"),
        (["--listen", "localhost"], "HOST:PORT"),
        (["--listen", "localhost:http"], "HOST:PORT"),
        (["--listen", "localhost:65536"], "HOST:PORT"),
        (["--listen", "localhost:-1"], "HOST:PORT"),
        (["--kubeconfig", "/nowhere/config"], "/nowhere/config"),
        (["--kubeconfig", "/"], "is a directory"),
        (["--nothing"], "No such option"),
        (["more"], "unexpected extra argument"),
    ],
)
def test_wrong_words_are_told_and_end_with_code_2(arguments: list[str], words: str) -> None:
    done = CliRunner().invoke(main, ["run", *arguments])
    assert done.exit_code == 2
    assert words in done.stderr


def test_a_kubeconfig_of_the_environment_that_is_missing_is_named() -> None:
    assert "/nowhere/config" in refused(KUBECONFIG="/nowhere/config")


def test_without_any_configuration_the_usual_place_is_named(tmp_path: Path) -> None:
    assert "~/.kube/config" in refused(HOME=str(tmp_path))


@pytest.mark.parametrize("content", ["", "a: [b"])
def test_an_unusable_kubeconfig_is_told_in_one_sentence(tmp_path: Path, content: str) -> None:
    file = tmp_path / "config"
    file.write_text(content)
    assert f"cannot use the kubeconfig {file}: " in refused("--kubeconfig", str(file))


def test_a_context_that_is_missing_is_named(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "config", "http://127.0.0.1:1")
    said = refused("--kubeconfig", str(file), "--context", "nowhere")
    assert str(file) in said
    assert "nowhere" in said


def test_a_client_certificate_that_is_none_is_no_trouble_with_the_port(tmp_path: Path) -> None:
    data = base64.b64encode(b"no certificate").decode()
    user = {"client-certificate-data": data, "client-key-data": data}
    file = kubeconfig(tmp_path / "config", "https://127.0.0.1:1", user=user)
    said = refused("--kubeconfig", str(file))
    assert "cannot listen" not in said
    assert str(file) in said


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "config", "http://127.0.0.1:1")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused("--kubeconfig", str(file), "--listen", f"127.0.0.1:{port}")
    assert said.startswith(f"clusterconform: cannot listen on 127.0.0.1:{port}: ")


@pytest.mark.parametrize("host", ["256.256.256.256", "nowhere.invalid"])
def test_a_host_that_is_not_ours_is_named(tmp_path: Path, host: str) -> None:
    file = kubeconfig(tmp_path / "config", "http://127.0.0.1:1")
    assert f"cannot listen on {host}:8080" in refused("--kubeconfig", str(file), "--listen", f"{host}:8080")


class Program:
    """The program at work on a server of ours."""

    def __init__(self, process: asyncio.subprocess.Process, api: FakeApi) -> None:
        self.process, self.api = process, api
        self.lines: list[dict[str, Any]] = []

    async def until(self, message: str) -> dict[str, Any]:
        """Read its log until it says ``message``."""
        assert self.process.stderr is not None
        async with asyncio.timeout(30):
            while text := await self.process.stderr.readline():
                self.lines.append(json.loads(text))
                if self.lines[-1]["message"] == message:
                    return self.lines[-1]
        raise AssertionError(f"never said: {message}; but: {self.lines}")

    async def end(self) -> tuple[int, bytes]:
        """Wait for its end; gives the code and the rest of what it says."""
        async with asyncio.timeout(30):
            _, rest = await self.process.communicate()
        return self.process.returncode or 0, rest


@pytest.fixture
async def program(tmp_path: Path) -> AsyncIterator[Program]:
    """The program on a cluster that lacks nothing, with one agent."""
    api = FakeApi()
    api.put(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    api.put(CRDS, CRD)
    api.put(NODES, agent())
    async with served(api) as server:
        config = kubeconfig(tmp_path / "config", server.url)
        process = await asyncio.create_subprocess_exec(
            *(PROGRAM, "run", "--kubeconfig", str(config), "--listen", "127.0.0.1:0"),
            stderr=asyncio.subprocess.PIPE,
            env=environment(),
        )
        try:
            yield Program(process, api)
        finally:
            if process.returncode is None:
                process.kill()
                await process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_it_quietly_with_code_0(program: Program, number: signal.Signals) -> None:
    synced = await program.until("synced")
    assert synced.items() >= {"nodes": 1, "profiles": 4, "bound": "observe"}.items()
    program.process.send_signal(number)
    await program.until("stopped")
    assert await program.end() == (0, b"")
    assert program.api.writes(NODES) == []


async def test_a_signal_ends_it_while_it_waits_for_an_api_server(program: Program) -> None:
    program.api.script("GET", f"{NAMESPACES}/{NAMESPACE}", refusal(503, "starting"), forever=True)
    await program.until("waiting for the API server")
    program.process.send_signal(signal.SIGTERM)
    code, rest = await program.end()
    assert code == 0
    assert b"Traceback" not in rest


async def test_two_signals_end_it_no_worse_than_one(program: Program) -> None:
    await program.until("synced")
    program.process.send_signal(signal.SIGTERM)
    program.process.send_signal(signal.SIGTERM)
    code, rest = await program.end()
    assert code == 0
    assert b"Traceback" not in rest


async def test_the_port_that_it_took_is_told(program: Program) -> None:
    started = await program.until("started")
    assert started["port"] > 0
    assert started["server"].startswith("http://127.0.0.1:")
    await program.until("synced")
    reader, writer = await asyncio.open_connection("127.0.0.1", started["port"])
    writer.write(b"GET /readyz HTTP/1.0\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.0 200")
    writer.close()
    await writer.wait_closed()
