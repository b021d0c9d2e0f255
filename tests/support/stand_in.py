"""An API server that shows what it was given and remembers what it was sent, for commands of the command line.

Objects lie under their paths; a collection is what lies below it. Its clock stands still.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml
from builders import START

Json = dict[str, Any]

KINDS = {
    "nodes": ("v1", "Node"),
    "pods": ("v1", "Pod"),
    "runtimeprofiles": ("outpost.dhnt.io/v1alpha1", "RuntimeProfile"),
    "daemonsets": ("apps/v1", "DaemonSet"),
    "services": ("v1", "Service"),
}


class StandIn:
    """One such server.

    Attributes:
        objects: By path, what is there.
        refused: By path, with which status and message a request is refused.
        answers: By method and path, what a POST answers.
        sent: Method, path and body of every request that was no GET.
    """

    def __init__(self, folder: Path) -> None:
        self.objects: dict[str, Json] = {}
        self.refused: dict[str, tuple[int, str]] = {}
        self.answers: dict[str, Any] = {}
        self.sent: list[tuple[str, str, Any]] = []
        self.now = START
        self.asked: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(yaml.safe_dump(kubeconfig(f"http://127.0.0.1:{self._server.server_port}")))

    def put(self, path: str, manifest: Json) -> None:
        """Show ``manifest`` at ``path``."""
        self.objects[path] = manifest

    def put_all(self, collection: str, manifests: list[Json]) -> None:
        """Show ``manifests`` in ``collection``."""
        for manifest in manifests:
            namespace = manifest["metadata"].get("namespace")
            place = collection if namespace is None else collection.replace("/*/", f"/{namespace}/")
            self.objects[f"{place}/{manifest['metadata']['name']}"] = manifest

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def kubeconfig(server: str) -> Json:
    """A kubeconfig for ``server``."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "here", "cluster": {"server": server}}],
        "users": [{"name": "me", "user": {"token": "x"}}],
        "contexts": [{"name": "main", "context": {"cluster": "here", "user": "me"}}],
        "current-context": "main",
    }


@contextmanager
def stand_in(folder: Path) -> Iterator[StandIn]:
    """A stand-in for the length of the block."""
    server = StandIn(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def _handler_of(server: StandIn) -> type[BaseHTTPRequestHandler]:  # noqa: C901 - a class, and what it answers
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def date_time_string(self, timestamp: float | None = None) -> str:  # noqa: ARG002 - its name there
            return format_datetime(server.now, usegmt=True)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
            pass

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            server.asked.append(self.path)
            if parts.path in server.refused:
                self._refuse(*server.refused[parts.path])
            elif parts.path in server.objects:
                self._answer(200, server.objects[parts.path])
            elif parts.path.rsplit("/", 1)[-1] in KINDS:
                self._list(parts.path, parse_qs(parts.query))
            else:
                self._refuse(404, f"{parts.path} not found")

        def do_POST(self) -> None:
            self._write("POST")

        def do_PATCH(self) -> None:
            self._write("PATCH")

        def _write(self, method: str) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"null")
            path = urlsplit(self.path).path
            server.sent.append((method, path, body))
            if path in server.refused:
                self._refuse(*server.refused[path])
                return
            answer = server.answers.get(path, {})
            self._answer(200, answer(body) if callable(answer) else answer)

        def _list(self, path: str, query: dict[str, list[str]]) -> None:
            version, kind = KINDS[path.rsplit("/", 1)[-1]]
            resource = path.rsplit("/", 1)[-1]
            found = [
                item
                for place, item in server.objects.items()
                if place.startswith(path + "/") or ("/namespaces/" in place and f"/{resource}/" in place)
                if place.rsplit("/", 2)[-2] == resource
            ]
            start, limit = int(query.get("continue", ["0"])[0]), int(query.get("limit", ["500"])[0])
            rest = start + limit < len(found)
            metadata = {"continue": str(start + limit)} if rest else {}
            items = [
                {key: value for key, value in item.items() if key not in {"kind", "apiVersion"}}
                for item in found[start : start + limit]
            ]
            self._answer(200, {"kind": f"{kind}List", "apiVersion": version, "metadata": metadata, "items": items})

        def _refuse(self, status: int, message: str) -> None:
            self._answer(status, {"kind": "Status", "apiVersion": "v1", "message": message, "code": status})

        def _answer(self, status: int, value: Any) -> None:
            text = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    return Handler
