"""``clusterconform reap``: what it says when it cannot, and what it leaves behind. How it ends well: tests/e2e."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import Json
from click.testing import CliRunner, Result
from reaping_worlds import dead

from clusterconform.cli import reap as module
from clusterconform.cli.main import main
from clusterconform.contract.matrix import MATRIX
from clusterconform.contract.names import API_VERSION, APPROVE_ANNOTATION, PLURAL
from clusterconform.contract.profile import manifest_of
from clusterconform.contract.times import format_time, parse_time
from clusterconform.effects.clock import Clock

PROFILES = f"/apis/{API_VERSION}/{PLURAL}"
NODES = "/api/v1/nodes"
NODE = "pi-abc123"


class Api:
    """An API server of four paths; ``deletes`` is how it answers an approval."""

    def __init__(self) -> None:
        now = Clock().moment().wall
        node = dead(NODE)
        born, since = format_time(now - timedelta(days=9)), format_time(now - timedelta(days=2))
        node["metadata"]["creationTimestamp"] = born
        node["status"]["conditions"][0] |= {"lastTransitionTime": since, "lastHeartbeatTime": since}
        profile = manifest_of(MATRIX["k3s"])
        profile["metadata"] |= {"uid": "u", "annotations": {}}
        profile["status"] = {
            "conditions": [
                {"type": "ReapingAllowed", "status": "False", "reason": "MassStale", "message": "3/4 agents"}
            ],
            "nodeGC": {"mode": "Live", "lastPass": "2026-08-01T12:00:00Z"},
        }
        self.nodes: dict[str, Json] = {NODE: node}
        self.profile = profile
        self.approvals: list[Any] = []
        self.approved: Callable[[], object] = lambda: None
        self.raw: bytes | None = None

    def get(self, path: str) -> tuple[int, Any]:
        if path == PROFILES:
            return 200, {"kind": "RuntimeProfileList", "apiVersion": API_VERSION, "items": [self.profile]}
        if path == f"{PROFILES}/k3s":
            return 200, self.profile
        found = self.nodes.get(path.rpartition("/")[2]) if path.startswith(NODES) else None
        return (200, found) if found else (404, {"message": f'"{path.rpartition("/")[2]}" not found'})

    def merge(self, change: Any) -> tuple[int, Any]:
        for key, value in change["metadata"]["annotations"].items():
            self.approvals.append(value)
            self.profile["metadata"]["annotations"].pop(key, None)
            if value is not None:
                self.profile["metadata"]["annotations"][key] = value
                self.approved()
        return 200, self.profile


@contextmanager
def serving(api: Api, folder: Path) -> Iterator[Path]:
    """Serve ``api``; gives a kubeconfig."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(*api.get(self.path.partition("?")[0]))

        def do_PATCH(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(*api.merge(json.loads(body)))

        def _answer(self, status: int, value: Any) -> None:
            text = api.raw if api.raw is not None else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield kubeconfig(folder, f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def kubeconfig(folder: Path, server: str) -> Path:
    path = folder / "config"
    content = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def here(api: Api, tmp_path: Path) -> Iterator[Path]:
    with serving(api, tmp_path) as path:
        yield path


def run(config: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["reap", "--kubeconfig", str(config), *arguments])


def test_it_shows_what_will_happen_waits_and_takes_the_approval_off_again(api: Api, here: Path) -> None:
    api.approved = api.nodes.clear
    done = run(here, NODE, "--yes")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "held by   MassStale: 3/4 agents" in done.stdout
    assert done.stdout.endswith(f"{NODE} was reaped.\n")
    assert api.approvals == [f"{NODE}/uid-{NODE}", None]


def test_another_life_of_the_name_means_that_it_was_reaped(api: Api, here: Path) -> None:
    def reborn() -> None:
        api.nodes[NODE] = {**api.nodes[NODE], "metadata": {"name": NODE, "uid": "another"}}

    api.approved = reborn
    assert run(here, NODE, "--yes").exit_code == 0


def test_a_guard_that_holds_it_all_the_same_is_named(api: Api, here: Path) -> None:
    def held() -> None:
        api.profile["status"]["nodeGC"] = {
            "mode": "Live",
            "lastPass": "2026-08-01T12:00:05Z",
            "approved": f"{NODE}/uid-{NODE}",
            "held": [{"name": NODE, "reason": "WitnessLives", "until": "2026-08-02T12:00:00Z"}],
        }

    api.approved = held
    done = run(here, NODE, "--yes")
    assert done.exit_code == 1
    assert done.stderr.endswith(
        f"clusterconform: {NODE} was not reaped: WitnessLives, at least until 2026-08-02T12:00:00Z\n"
    )
    assert api.approvals[-1] is None


def test_a_pass_that_did_not_know_of_the_approval_says_nothing_of_it(
    api: Api, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_POLL_SECONDS", 0.01)

    def earlier() -> None:
        held = [{"name": NODE, "reason": "MassStale"}]
        api.profile["status"]["nodeGC"] = {"mode": "Live", "lastPass": "2026-08-01T12:00:05Z", "held": held}

    api.approved = earlier
    done = run(here, NODE, "--yes", "--timeout", "1")
    assert (done.exit_code, "did not answer within 1 s" in done.stderr) == (1, True)


def test_an_operator_that_does_not_answer_is_said_and_the_approval_is_taken_off(
    api: Api, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_POLL_SECONDS", 0.01)
    done = run(here, NODE, "--yes", "--timeout", "1")
    assert (done.exit_code, "did not answer within 1 s; does one lead?" in done.stderr) == (1, True)
    assert api.approvals[-1] is None


def test_an_approval_that_somebody_else_gave_meanwhile_stays(api: Api, here: Path) -> None:
    def overtaken() -> None:
        api.profile["metadata"]["annotations"][APPROVE_ANNOTATION] = "other/uid"
        api.nodes.clear()

    api.approved = overtaken
    assert run(here, NODE, "--yes").exit_code == 0
    assert api.profile["metadata"]["annotations"] == {APPROVE_ANNOTATION: "other/uid"}


def test_nobody_is_asked_where_nobody_is_and_nothing_is_approved(api: Api, here: Path) -> None:
    done = run(here, NODE)
    assert (done.exit_code, "say --yes" in done.stderr, api.approvals) == (2, True, [])


def test_a_node_that_speaks_for_itself_is_not_approved(api: Api, here: Path) -> None:
    api.nodes[NODE]["status"]["conditions"][0]["status"] = "True"
    done = run(here, NODE, "--yes")
    assert (done.exit_code, api.approvals) == (1, [])
    assert "NodeReady: Ready; no approval overrides this" in done.stderr


@pytest.mark.parametrize("raw", [b"<html>", b""])
def test_what_is_no_api_server_is_said_in_one_sentence(api: Api, here: Path, raw: bytes) -> None:
    api.raw = raw
    done = run(here, NODE)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "is it an API server?" in done.stderr


def test_a_node_that_is_not_there_is_said(here: Path) -> None:
    done = run(here, "nobody")
    assert (done.exit_code, done.stderr) == (2, f'clusterconform: GET {NODES}/nobody: "nobody" not found\n')


def test_a_server_out_of_reach_is_said_in_one_sentence(tmp_path: Path) -> None:
    done = run(kubeconfig(tmp_path, "http://127.0.0.1:1"), NODE)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "cannot reach the API server" in done.stderr


@pytest.mark.parametrize("text", ["", "[]", "{", "a: b", "current-context: x"])
def test_a_kubeconfig_that_is_none_is_said_in_one_sentence(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config"
    file.write_text(text)
    done = run(file, NODE)
    assert (done.exit_code, done.stderr.count("\n"), "Traceback" in done.output) == (2, 1, False)


def test_a_context_that_is_none_is_said(here: Path) -> None:
    done = run(here, NODE, "--context", "there")
    assert (done.exit_code, "no context 'there'" in done.stderr) == (2, True)


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_program_is_told_once_how_it_ended(api: Api, here: Path, form: str) -> None:
    api.approved = api.nodes.clear
    done = run(here, NODE, "--yes", "--output", form)
    assert (done.exit_code, done.stderr) == (0, "")
    value = yaml.safe_load(done.stdout)
    assert parse_time(value.pop("deadSince")) is not None
    assert value == {
        "node": NODE,
        "uid": f"uid-{NODE}",
        "profile": "k3s",
        "heldBy": {"reason": "MassStale", "message": "3/4 agents"},
        "reaped": True,
        "why": None,
    }


def test_a_program_is_told_why_it_was_not_reaped_and_a_person_on_the_other_way_out(api: Api, here: Path) -> None:
    api.nodes[NODE]["status"]["conditions"][0]["status"] = "True"
    done = run(here, NODE, "--yes", "-o", "json")
    value = json.loads(done.stdout)
    assert (done.exit_code, value["reaped"]) == (1, False)
    assert value["why"].startswith("NodeReady: Ready")
    assert done.stderr == f"clusterconform: {NODE} would not be reaped: {value['why']}\n"


def test_what_is_shown_before_the_question_is_no_part_of_an_answer(api: Api, here: Path) -> None:
    done = run(here, NODE, "-o", "json")
    assert (done.exit_code, done.stdout, api.approvals) == (2, "", [])
    assert "held by   MassStale: 3/4 agents" in done.stderr
