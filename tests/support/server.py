"""What the API server makes of our two requests on a Node, in memory.

JSON patch is applied by the jsonpatch library. One thing differs from it and is done here: the API server's
``test`` of null passes on a path that is absent.
"""

import copy
from typing import Any

import jsonpatch
import jsonpointer

from clusterconform.contract.facts import NodeFacts
from clusterconform.contract.plan import Plan
from clusterconform.contract.request import JSON_PATCH, Request
from clusterconform.decisions.requests import requests_of

Json = dict[str, Any]


class LostTestError(Exception):
    """A ``test`` did not hold: the object is not as it was seen."""


class FakeServer:
    """One Node and what is written to it.

    Attributes:
        raw: The Node as it now stands.
        requests: What was sent, in order.
    """

    def __init__(self, raw: Json) -> None:
        self.raw = copy.deepcopy(raw)
        self.requests: list[Request] = []

    def carry_out(self, node: NodeFacts, plan: Plan) -> None:
        """Send the requests of ``plan``, made for ``node`` as it was seen."""
        for request in requests_of(node, plan):
            self.send(request)

    def send(self, request: Request) -> None:
        """Carry ``request`` out, wholly or not at all.

        Raises:
            LostTestError: The object is another, or not as it was seen.
        """
        change = _patched if request.content_type == JSON_PATCH else _with_conditions
        self.raw = change(self.raw, request.body)
        self.requests.append(request)


def _patched(raw: Json, ops: list[Json]) -> Json:
    checks = [op for op in ops if op["op"] == "test" and op["value"] is None]
    for check in checks:
        if jsonpointer.resolve_pointer(raw, check["path"], None) is not None:
            raise LostTestError(check["path"])
    try:
        patched: Json = jsonpatch.apply_patch(raw, [op for op in ops if op not in checks])
    except jsonpatch.JsonPatchTestFailed as failed:
        raise LostTestError(str(failed)) from failed
    return patched


def _with_conditions(raw: Json, body: Json) -> Json:
    """The apply of a list that is a map by type: our entry takes its own place or the last one."""
    uid = body["metadata"].get("uid")
    if uid is not None and uid != raw["metadata"].get("uid"):
        raise LostTestError("/metadata/uid")
    patched = copy.deepcopy(raw)
    conditions = patched.setdefault("status", {}).setdefault("conditions", [])
    for entry in body["status"]["conditions"]:
        places = [place for place, seen in enumerate(conditions) if seen["type"] == entry["type"]]
        if places:
            conditions[places[0]] = entry
        else:
            conditions.append(entry)
    return patched
