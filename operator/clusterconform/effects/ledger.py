"""The ledger in its ConfigMap: read, and written by compare-and-swap only.

The swap is a PUT of what was read with its resourceVersion. A new leader writes its term first, which moves that
version: whoever led before and still holds an older one loses its next swap, and without the swap of
``intended`` there is no DELETE.
"""

from typing import Any, Final

import msgspec

from clusterconform.contract.asks import Failed, LedgerText, Trouble
from clusterconform.contract.names import LEDGER_CONFIGMAP, LEDGER_KEY, NAMESPACE, TERM_KEY, TRUST_KEY
from clusterconform.contract.request import JSON, Request
from clusterconform.contract.times import parse_time
from clusterconform.effects.cluster import Cluster
from clusterconform.effects.errors import ApiError, ConflictError, NotFoundError

_PATH: Final = f"/api/v1/namespaces/{NAMESPACE}/configmaps"


class Ledger:
    """The ledger of one leadership."""

    def __init__(self, cluster: Cluster, term: str) -> None:
        """Use ``cluster``; ``term`` names this leadership and no other."""
        self._cluster, self._term = cluster, term
        self._seen: dict[str, Any] | None = None

    async def claim(self) -> None:
        """Make the ledger ours: create it where there is none, and write our term.

        Raises:
            ApiError: It could not be read or written; nothing may be deleted then.
        """
        self._seen = await self._read()
        if (self._seen.get("data") or {}).get(TERM_KEY) != self._term:
            await self._put({TERM_KEY: self._term})

    async def read(self) -> LedgerText | Failed:
        """The ledger as it is now; another term in it means that somebody else leads."""
        try:
            self._seen = await self._read()
        except ApiError as error:
            return Failed(Trouble.UNKNOWN, str(error))
        data = self._seen.get("data") or {}
        if data.get(TERM_KEY) != self._term:
            return Failed(Trouble.CHANGED, "another leader has written its term")
        return LedgerText(
            text=data.get(LEDGER_KEY) or "",
            trust=data.get(TRUST_KEY),
            created_at=parse_time(self._seen["metadata"].get("creationTimestamp")),
        )

    async def swap(self, text: str, trust: str) -> Failed | None:
        """Write ``text`` and ``trust`` over what was read or swapped last; None when it was done."""
        data = (self._seen or {}).get("data") or {}
        if (data.get(LEDGER_KEY) or "", data.get(TRUST_KEY)) == (text, trust):
            return None
        try:
            await self._put({LEDGER_KEY: text, TRUST_KEY: trust})
        except ConflictError as error:
            return Failed(Trouble.CHANGED, str(error))
        except ApiError as error:
            # It may have been written: the next pass reads it.
            return Failed(Trouble.UNKNOWN, str(error))
        return None

    async def _read(self) -> dict[str, Any]:
        path = f"{_PATH}/{LEDGER_CONFIGMAP}"
        try:
            found: dict[str, Any] = await self._cluster.get(path)
        except NotFoundError:
            body = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": LEDGER_CONFIGMAP, "namespace": NAMESPACE},
                "data": {TERM_KEY: self._term, LEDGER_KEY: ""},
            }
            await self._cluster.send(Request(method="POST", path=_PATH, content_type=JSON, body=body))
            found = await self._cluster.get(path)
        return found

    async def _put(self, change: dict[str, str]) -> None:
        if self._seen is None:
            raise ConflictError("the ledger was not read")
        body = {**self._seen, "data": {**(self._seen.get("data") or {}), **change}}
        path = f"{_PATH}/{LEDGER_CONFIGMAP}"
        answer = await self._cluster.send(Request(method="PUT", path=path, content_type=JSON, body=body))
        self._seen = msgspec.json.decode(answer)
