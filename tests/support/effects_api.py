"""An API server in memory: objects, resource versions, lists in pages, patches, and scripted faults.

Two doors lead to it: ``effects_cluster`` without HTTP and in virtual time, ``effects_server`` over a socket.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs, unquote

from server import FakeServer, LostTestError

from clusterconform.contract.lease import LEASES_PATH, unheld
from clusterconform.contract.names import API_VERSION, CRD_NAME, FENCE_POLICY, LEASES_NAMESPACE, NAMESPACE, PLURAL
from clusterconform.contract.request import JSON_PATCH, Request

Json = dict[str, Any]

NODES: Final = "/api/v1/nodes"
PROFILES: Final = f"/apis/{API_VERSION}/{PLURAL}"
CONFIGMAPS: Final = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
NAMESPACES: Final = "/api/v1/namespaces"
EVENTS: Final = "/api/v1/namespaces/default/events"
CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CRD: Final = f"{CRDS}/{CRD_NAME}"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
DAEMONSETS: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
NODE_LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{LEASES_NAMESPACE}/leases"

_HEADS: Final = {
    NODES: ("v1", "Node"),
    PROFILES: (API_VERSION, "RuntimeProfile"),
    CONFIGMAPS: ("v1", "ConfigMap"),
    NAMESPACES: ("v1", "Namespace"),
    EVENTS: ("v1", "Event"),
    CRDS: ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    LEASES_PATH: ("coordination.k8s.io/v1", "Lease"),
    NODE_LEASES: ("coordination.k8s.io/v1", "Lease"),
    PODS: ("v1", "Pod"),
    DAEMONSETS: ("apps/v1", "DaemonSet"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer.

    Attributes:
        status: HTTP status.
        body: Its bytes.
        headers: Further headers.
        hang: Never answer at all.
        cut: Promise twice the bytes and close the connection after these.
    """

    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=dict)
    hang: bool = False
    cut: bool = False


def reply(value: Any, status: int = 200) -> Reply:
    """``value`` as JSON."""
    return Reply(status=status, body=json.dumps(value).encode())


def refusal(status: int, message: str = "no", *, causes: int = 0, **headers: str) -> Reply:
    """A Status object as the API server sends it."""
    details = {"causes": [{"reason": "FieldValueInvalid", "message": message}] * causes} if causes else {}
    body = {"kind": "Status", "status": "Failure", "message": message, "code": status, "details": details}
    return Reply(
        status=status,
        body=json.dumps(body).encode(),
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )


@dataclass(frozen=True, slots=True)
class Sent:
    """One request as it arrived; ``path`` is without its query."""

    method: str
    path: str
    query: Mapping[str, str]
    content_type: str
    body: Any


@dataclass(slots=True)
class _Script:
    method: str
    path: str
    replies: list[Reply]
    forever: bool
    only: Callable[[Sent], bool]


class FakeApi:
    """The objects, and everything that was asked.

    Attributes:
        sent: The requests in order.
        before: Called with each request before it is answered.
        after: Called with each request after it was carried out and before its answer goes out.
        listeners: Called with collection, type and object at each change.
        history: By collection, all changes so far as (resource version, type, object).
        page: Objects of one page at the most, whatever limit is asked for; None for the limit.
        fenced: Whether the admission policy on deletions is in force.
    """

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.before: Callable[[Sent], None] = lambda _: None
        self.after: Callable[[Sent], None] = lambda _: None
        self.listeners: list[Callable[[str, str, Json], None]] = []
        self.history: dict[str, list[tuple[int, str, Json]]] = {path: [] for path in _HEADS}
        self.page: int | None = None
        self.fenced = True
        self._objects: dict[str, dict[str, Json]] = {path: {} for path in _HEADS}
        self._version = 100
        self._scripts: list[_Script] = []

    def put(self, collection: str, raw: Json) -> Json:
        """Store ``raw`` as somebody else would; returns it as stored."""
        version, kind = _HEADS[collection]
        name = raw["metadata"]["name"]
        before = self._objects[collection].get(name)
        fresh: Json = json.loads(json.dumps({"apiVersion": version, "kind": kind, **raw}))
        if before is not None and _without_version(before) == _without_version(fresh):
            return before
        self._version += 1
        fresh["metadata"].setdefault("uid", f"uid-of-{name}-{self._version}")
        if "generation" not in fresh["metadata"]:
            fresh["metadata"]["generation"] = 1
        elif before is not None and before.get("spec") != fresh.get("spec"):
            fresh["metadata"]["generation"] = before["metadata"]["generation"] + 1
        fresh["metadata"]["resourceVersion"] = str(self._version)
        self._objects[collection][name] = fresh
        self._tell(collection, "ADDED" if before is None else "MODIFIED", fresh)
        return fresh

    def change(self, collection: str, name: str, change: Callable[[Json], object]) -> Json:
        """Let somebody else change an object."""
        raw = json.loads(json.dumps(self._objects[collection][name]))
        change(raw)
        return self.put(collection, raw)

    def remove(self, collection: str, name: str) -> None:
        """Let somebody else delete an object."""
        self._version += 1
        gone = self._objects[collection].pop(name)
        gone["metadata"]["resourceVersion"] = str(self._version)
        self._tell(collection, "DELETED", gone)

    def get(self, collection: str, name: str) -> Json:
        """An object as it now stands."""
        return self._objects[collection][name]

    def names(self, collection: str) -> list[str]:
        """The names in ``collection``, sorted."""
        return sorted(self._objects[collection])

    def script(
        self,
        method: str,
        path: str,
        *replies: Reply,
        forever: bool = False,
        only: Callable[[Sent], bool] = lambda _: True,
    ) -> None:
        """Answer the next such requests with ``replies``, one each; the last for ever if so wished."""
        self._scripts.append(_Script(method, path, list(replies), forever, only))

    def heal(self) -> None:
        """Forget all scripted answers."""
        self._scripts.clear()

    def writes(self, path: str = "") -> list[Sent]:
        """Everything that was no read, under ``path``."""
        return [sent for sent in self.sent if sent.method != "GET" and sent.path.startswith(path)]

    def asked(self, method: str, path: str) -> list[Sent]:
        """The requests of that method to exactly that path."""
        return [sent for sent in self.sent if (sent.method, sent.path) == (method, path)]

    def answer(self, method: str, target: str, content_type: str, body: Any) -> Reply:
        """Carry out one request; ``target`` is path and query."""
        path, _, query = target.partition("?")
        asked = {key: values[-1] for key, values in parse_qs(query).items()}
        sent = Sent(method, unquote(path), asked, content_type, body)
        self.sent.append(sent)
        self.before(sent)
        result = self._scripted(sent) or self._carried_out(sent)
        self.after(sent)
        return result

    def _tell(self, collection: str, kind: str, raw: Json) -> None:
        seen = json.loads(json.dumps(raw))
        self.history[collection].append((self._version, kind, seen))
        for listener in self.listeners:
            listener(collection, kind, seen)

    def _scripted(self, sent: Sent) -> Reply | None:
        for script in self._scripts:
            if (script.method, script.path) == (sent.method, sent.path) and script.replies and script.only(sent):
                if script.forever and len(script.replies) == 1:
                    return script.replies[0]
                return script.replies.pop(0)
        return None

    def _carried_out(self, sent: Sent) -> Reply:
        if sent.path in self._objects:
            return self._list(sent) if sent.method == "GET" else self._create(sent)
        collection, _, rest = sent.path.removesuffix("/status").rpartition("/")
        if rest not in self._objects.get(collection, {}):
            return refusal(404, f'"{rest}" not found')
        if sent.method == "GET":
            return reply(self._objects[collection][rest])
        if sent.method == "PUT":
            return self._replace(sent, collection, rest)
        if sent.method == "DELETE":
            return self._delete(sent, collection, rest)
        return self._patch(sent, collection, rest)

    def vacate(self) -> None:
        """Leave a Lease as after the orderly end of the last leader."""
        self.put(LEASES_PATH, {**unheld().body, "spec": {"holderIdentity": ""}})

    def _delete(self, sent: Sent, collection: str, name: str) -> Reply:
        metadata = self._objects[collection][name]["metadata"]
        asked = sent.body.get("preconditions") or {}
        if any(metadata[key] != value for key, value in asked.items()):
            return refusal(409, "the precondition does not hold")
        if self.fenced and collection == NODES and set(asked) != {"uid", "resourceVersion"}:
            policy = f"ValidatingAdmissionPolicy '{FENCE_POLICY}' with binding '{FENCE_POLICY}' denied request"
            return refusal(403, f'nodes "{name}" is forbidden: {policy}')
        if "dryRun" not in sent.body:
            self.remove(collection, name)
        return reply({"kind": "Status", "status": "Success"})

    def _list(self, sent: Sent) -> Reply:
        version, kind = _HEADS[sent.path]
        limit = self.page or int(sent.query.get("limit", "0")) or len(self._objects[sent.path]) + 1
        start = int(sent.query.get("continue", "0"))
        items = list(self._objects[sent.path].values())
        field, _, wanted = sent.query.get("fieldSelector", "").partition("=")
        if field == "metadata.name":
            items = [item for item in items if item["metadata"]["name"] == wanted]
        more = str(start + limit) if start + limit < len(items) else ""
        return reply(
            {
                "kind": f"{kind}List",
                "apiVersion": version,
                "metadata": {"resourceVersion": str(self._version), **({"continue": more} if more else {})},
                "items": items[start : start + limit],
            }
        )

    def _create(self, sent: Sent) -> Reply:
        if sent.body["metadata"]["name"] in self._objects[sent.path]:
            return refusal(409, "already exists")
        return reply(self.put(sent.path, sent.body), 201)

    def _replace(self, sent: Sent, collection: str, name: str) -> Reply:
        now = self._objects[collection][name]["metadata"]["resourceVersion"]
        if sent.body["metadata"].get("resourceVersion", now) != now:
            return refusal(409, "the object has been modified")
        return reply(self.put(collection, sent.body))

    def _patch(self, sent: Sent, collection: str, name: str) -> Reply:
        raw = self._objects[collection][name]
        if collection != NODES:
            # What one manager no longer applies goes; there is only one here.
            return reply(self.put(collection, {**raw, "status": sent.body["status"]}))
        server = FakeServer(raw)
        request = Request(method="PATCH", path=sent.path, content_type=sent.content_type, body=sent.body)
        try:
            server.send(request)
        except LostTestError as lost:
            # A lost test of a JSON patch has no causes; a wrong uid in an apply is a conflict.
            return refusal(
                422 if sent.content_type == JSON_PATCH else 409, f"the server rejected our request: {lost}"
            )
        return reply(self.put(collection, server.raw))


def _without_version(raw: Json) -> Json:
    counted = {"resourceVersion", "generation"}
    metadata = {key: value for key, value in raw["metadata"].items() if key not in counted}
    return {**raw, "metadata": metadata}
