"""The sandbox's own door to its API server: blocking JSON requests as the administrator.

It is deliberately small: what creates the sandbox's furniture should not depend on the client that is tried
in it.
"""

import http.client
import json
import ssl
import threading
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

_TIMEOUT_SECONDS: Final = 30.0
_SUCCESS: Final = range(200, 300)


class RequestRefused(Exception):  # noqa: N818 - an answer of the API server, not a fault of ours
    """The API server answered with another status than success."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{message} ({status})")
        self.status = status


class Admin:
    """Sends requests with a client certificate; each thread gets a connection of its own that stays open."""

    def __init__(self, server: str, *, authority: Path, certificate: Path, key: Path) -> None:
        """Prepare; no connection is made yet.

        Args:
            server: URL of the API server.
            authority: file with the certificate that the server's one has to be signed by.
            certificate: file with the client certificate.
            key: file with its private key.
        """
        self._host = urlsplit(server).netloc
        self._tls = ssl.create_default_context(cafile=str(authority))
        self._tls.load_cert_chain(certificate, key)
        self._own = threading.local()
        self._all: list[http.client.HTTPSConnection] = []

    def answers(self, path: str) -> bool:
        """Tell whether a GET of ``path`` succeeds; a server that cannot be reached does not answer."""
        try:
            self.request("GET", path)
        except (RequestRefused, OSError, http.client.HTTPException):
            return False
        return True

    def get(self, path: str) -> Any:
        """Give what a GET of ``path`` answers, decoded (text where it is not JSON).

        Raises:
            RequestRefused: the answer is not a success.
            OSError: the server cannot be reached.
        """
        return self.request("GET", path)

    def create(self, path: str, manifest: dict[str, Any]) -> Any:
        """POST an object to the collection ``path``; give it as stored. Raises as ``get`` does."""
        return self.request("POST", path, manifest)

    def create_if_absent(self, path: str, manifest: dict[str, Any]) -> None:
        """POST an object to the collection ``path``; one of that name that exists already stays as it is."""
        try:
            self.create(path, manifest)
        except RequestRefused as refused:
            if refused.status != http.HTTPStatus.CONFLICT:
                raise

    def patch(self, path: str, change: dict[str, Any]) -> Any:
        """Send a merge patch, and give the object as stored. Raises as ``get`` does."""
        return self.request("PATCH", path, change, content_type="application/merge-patch+json")

    def delete(self, path: str) -> None:
        """Delete an object. Raises as ``get`` does."""
        self.request("DELETE", path)

    def request(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        content_type: str = "application/json",
    ) -> Any:
        """Send one request and give the decoded answer. Raises as ``get`` does."""
        payload = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "application/json", "Content-Type": content_type}
        try:
            status, content = self._exchange(method, quote(path, safe="/?=&%,!"), payload, headers)
        except (OSError, http.client.HTTPException):
            # Left open by the answer before, and closed since by a server that was restarted.
            self._drop()
            status, content = self._exchange(method, quote(path, safe="/?=&%,!"), payload, headers)
        if status not in _SUCCESS:
            raise RequestRefused(status, f"{method} {path}: {_message(content)}")
        return _decode(content)

    def close(self) -> None:
        """Close the connections of all threads."""
        for connection in self._all:
            connection.close()

    def _exchange(
        self, method: str, path: str, payload: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        connection: http.client.HTTPSConnection | None = getattr(self._own, "connection", None)
        if connection is None:
            connection = http.client.HTTPSConnection(self._host, timeout=_TIMEOUT_SECONDS, context=self._tls)
            self._own.connection = connection
            self._all.append(connection)
        try:
            connection.request(method, path, body=payload, headers=headers)
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException):
            self._drop()
            raise

    def _drop(self) -> None:
        connection: http.client.HTTPSConnection | None = getattr(self._own, "connection", None)
        if connection is not None:
            connection.close()
            self._all.remove(connection)
            self._own.connection = None


def _decode(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return content.decode(errors="replace")


def _message(content: bytes) -> str:
    decoded = _decode(content)
    return str(decoded.get("message", decoded)) if isinstance(decoded, dict) else str(decoded).strip()
