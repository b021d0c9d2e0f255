"""One node, version by version, as a watch brings it."""

import http.client
import json
import ssl
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlencode, urlsplit

from clusterconform.sandbox.control_plane import ControlPlane
from clusterconform.sandbox.waiting import SandboxFailed

_OPEN_SECONDS: Final = 30.0


class NodeWatch:
    """A watch on one node, open from ``with`` to its end.

    Attributes:
        node: the node as it was when the watch began.
    """

    node: dict[str, Any]

    def __init__(self, plane: ControlPlane, name: str) -> None:
        """Prepare; nothing is sent yet."""
        self._plane, self._name = plane, name
        pki = plane.folder("pki")
        tls = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        tls.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        self._connection = http.client.HTTPSConnection(
            urlsplit(plane.server).netloc, timeout=_OPEN_SECONDS, context=tls
        )

    def __enter__(self) -> Self:
        """Read the node, and begin to watch from there.

        Raises:
            RequestRefused: there is no such node.
            SandboxFailed: the API server refused the watch.
        """
        self.node = self._plane.admin.get(f"/api/v1/nodes/{self._name}")
        query = {
            "watch": "true",
            "fieldSelector": f"metadata.name={self._name}",
            "resourceVersion": self.node["metadata"]["resourceVersion"],
        }
        self._connection.request("GET", f"/api/v1/nodes?{urlencode(query)}")
        self._lines = self._connection.getresponse()
        if self._lines.status != http.HTTPStatus.OK:
            raise SandboxFailed(f"The API server refused a watch on {self._name} ({self._lines.status}).")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Drop the connection."""
        self._connection.close()
        self._lines.close()

    def first(
        self, condition: Callable[[dict[str, Any]], bool], *, after: str, seconds: float
    ) -> tuple[dict[str, Any], float] | None:
        """Wait for the first version for which ``condition`` holds.

        Args:
            condition: the question.
            after: only versions with a later resourceVersion count.
            seconds: how long to wait at most.

        Returns:
            The node, and the moment (of ``time.monotonic``) at which its last byte was here; None if none
            came in time, or the node was deleted.
        """
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._connection.sock.settimeout(left)
            try:
                line = self._lines.readline()
            except TimeoutError:
                return None
            moment = time.monotonic()
            if not line:
                return None
            event = json.loads(line)
            if event["type"] not in {"ADDED", "MODIFIED"}:
                return None
            node: dict[str, Any] = event["object"]
            if int(node["metadata"]["resourceVersion"]) > int(after) and condition(node):
                return node, moment
        return None
