"""The administrator's requests arrive, and refusals are told from unreachable servers."""

import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from clusterconform.sandbox.admin import Admin, RequestRefused
from clusterconform.sandbox.certificates import Authority
from clusterconform.sandbox.lodging import Ports


class Api(http.server.BaseHTTPRequestHandler):
    """Answers with what it was asked; ``/gone`` does not exist, ``/there`` exists, ``/ok`` is text."""

    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        asked = {
            "method": self.command,
            "path": self.path,
            "type": self.headers["Content-Type"],
            "body": body,
        }
        if self.path == "/ok":
            self.reply(200, b"ok")
        elif self.path == "/gone":
            self.reply(404, json.dumps({"message": "it is gone"}).encode())
        elif self.path == "/there":
            self.reply(409, json.dumps({"message": "it is there"}).encode())
        else:
            self.reply(200, json.dumps(asked).encode())

    do_GET = do_POST = do_PATCH = do_DELETE = answer  # noqa: N815 - the base class wants these names

    def reply(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class Site:
    """The server with its port and credentials; it can be stopped and started again."""

    def __init__(self, folder: Path) -> None:
        authority = Authority.create("test", now=datetime.now(UTC))  # noqa: TID251 - TLS judges by real time
        (folder / "ca.crt").write_bytes(authority.certificate)
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._tls.load_cert_chain(*authority.server("api").write(folder, "server"))
        certificate, key = authority.client("admin").write(folder, "admin")
        self.port = Ports().take()
        self.admin = Admin(
            f"https://127.0.0.1:{self.port}", authority=folder / "ca.crt", certificate=certificate, key=key
        )

    def start(self) -> None:
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), Api)
        self._server.daemon_threads = True
        self._server.socket = self._tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    site.start()
    yield site
    site.admin.close()
    site.stop()


def test_requests_arrive_as_json(site: Site) -> None:
    assert site.admin.create("/things", {"a": 1}) == {
        "method": "POST",
        "path": "/things",
        "type": "application/json",
        "body": {"a": 1},
    }


def test_a_patch_is_a_merge_patch(site: Site) -> None:
    assert site.admin.patch("/things/x", {"a": None})["type"] == "application/merge-patch+json"


def test_an_answer_that_is_no_json_is_text(site: Site) -> None:
    assert site.admin.get("/ok") == "ok"


def test_a_refusal_carries_status_and_message(site: Site) -> None:
    with pytest.raises(RequestRefused, match=r"^GET /gone: it is gone \(404\)$") as refused:
        site.admin.get("/gone")
    assert refused.value.status == 404


def test_what_exists_already_is_left_as_it_is(site: Site) -> None:
    site.admin.create_if_absent("/there", {})
    with pytest.raises(RequestRefused):
        site.admin.create_if_absent("/gone", {})


def test_a_server_answers_or_it_does_not(site: Site) -> None:
    assert site.admin.answers("/ok")
    assert not site.admin.answers("/gone")


def test_a_server_that_is_away_does_not_answer(tmp_path: Path) -> None:
    assert not Site(tmp_path).admin.answers("/ok")


def test_a_server_that_was_restarted_answers_again(site: Site) -> None:
    assert site.admin.answers("/ok")
    site.stop()
    site.start()
    assert site.admin.get("/ok") == "ok"
