"""The ledger in its ConfigMap: read, and written by compare-and-swap only.

1. A swap is a PUT of what was read, with its resourceVersion. A new leader writes its term first, which moves
   that version: whoever led before loses its next swap, and without the swap of ``intended`` there is no DELETE.
   A term of this Lease with a smaller number, or none at all, is no successor's: somebody edited the ledger or
   put an old copy back, and it is claimed again.
2. A ledger that somebody deleted is made anew and says since when it exists: it knows nothing of what was
   deleted before, so its budget counts as spent for one window.
3. Only the very first ledger of an installation is complete from its beginning. That it has yet to be made
   stands in the state (``effects.seeding``), and is taken out of there before it is made: a crash in between
   costs a window of waiting and never a deletion too many.
4. What is no ledger is never taken for an empty one: an answer that is no ConfigMap, or tells no age, is a read
   that failed, and an answer that does not show what was written is a write that may not have been done.
"""

from typing import Any, Final

from clusterconform.contract.asks import Failed, LedgerText, Trouble
from clusterconform.contract.lease import Term
from clusterconform.contract.names import (
    FIRST_LEDGER_KEY,
    LEDGER_COMPLETE_KEY,
    LEDGER_CONFIGMAP,
    LEDGER_KEY,
    NAMESPACE,
    STATE_CONFIGMAP,
    TERM_KEY,
    TRUST_KEY,
)
from clusterconform.contract.request import JSON, Request
from clusterconform.contract.times import parse_time
from clusterconform.effects.cluster import Cluster, decoded
from clusterconform.effects.errors import ApiError, ConflictError, NotFoundError, UnreachableError

_COLLECTION: Final = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
_PATH: Final = f"{_COLLECTION}/{LEDGER_CONFIGMAP}"
_STATE: Final = f"{_COLLECTION}/{STATE_CONFIGMAP}"
_YES: Final = "true"


class Ledger:
    """The ledger of one leadership: ``claim`` once, then ``read`` and ``swap``."""

    def __init__(self, cluster: Cluster, term: Term) -> None:
        """Use ``cluster`` for the leadership ``term``."""
        self._cluster = cluster
        self._lease, self._number = term.uid, term.number
        self._term = f"{term.number}/{term.holder}/{term.uid}"
        self._seen: dict[str, Any] = {}
        self._claimed = False

    async def claim(self) -> None:
        """Make the ledger ours: create it where there is none, and write our term into it.

        Raises:
            ApiError: It could not be read or written; nothing may be deleted before it was.
        """
        self._seen = await self._read_or_create()
        if self._data().get(TERM_KEY) != self._term:
            await self._put({TERM_KEY: self._term})
        self._claimed = True

    async def read(self) -> LedgerText | Failed:
        """The ledger as it is now; another term in it means that somebody else leads.

        Where an earlier claim failed, it is made now.
        """
        try:
            if not self._claimed:
                await self.claim()
            self._seen = await self._read_or_create()
            if self._is_no_successors(self._data().get(TERM_KEY, "")):
                await self._put({TERM_KEY: self._term})
        except ApiError as error:
            return Failed(Trouble.UNKNOWN, str(error))
        data = self._data()
        if data.get(TERM_KEY) != self._term:
            return Failed(Trouble.CHANGED, "another leader has written its term")
        created_at = parse_time(self._seen["metadata"].get("creationTimestamp"))
        if data.get(LEDGER_COMPLETE_KEY) == _YES:
            created_at = None
        elif created_at is None:
            return Failed(Trouble.UNKNOWN, "the ledger does not tell since when it exists")
        return LedgerText(text=data.get(LEDGER_KEY) or "", trust=data.get(TRUST_KEY), created_at=created_at)

    async def swap(self, text: str, trust: str) -> Failed | None:
        """Write ``text`` and ``trust`` over what was read or swapped last; None when that was done."""
        before, wanted = self._data(), {LEDGER_KEY: text, TRUST_KEY: trust}
        if wanted.items() <= before.items():
            return None
        try:
            await self._put(wanted)
        except ConflictError:
            # Somebody labelled it, or edited it, or leads: only the first may be written over.
            return await self._swap_again(before, wanted)
        except ApiError as error:
            # It may have been written: the next read tells.
            return Failed(Trouble.UNKNOWN, str(error))
        return None

    async def _swap_again(self, before: dict[str, str], wanted: dict[str, str]) -> Failed | None:
        try:
            self._seen = _configmap(await self._cluster.get(_PATH))
            if self._data() != before:
                return Failed(Trouble.CHANGED, "the ledger was changed by somebody else")
            await self._put(wanted)
        except ApiError as error:
            return Failed(Trouble.UNKNOWN, str(error))
        return None

    def _is_no_successors(self, term: str) -> bool:
        number, _, rest = term.partition("/")
        if not number.isdecimal() or "/" not in rest:
            return True
        return rest.rpartition("/")[2] == self._lease and int(number) < self._number

    def _data(self) -> dict[str, str]:
        return self._seen.get("data") or {}

    async def _read_or_create(self) -> dict[str, Any]:
        try:
            return _configmap(await self._cluster.get(_PATH))
        except NotFoundError:
            body = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": LEDGER_CONFIGMAP, "namespace": NAMESPACE},
                "data": {TERM_KEY: self._term, LEDGER_KEY: "", **await self._completeness()},
            }
            request = Request(method="POST", path=_COLLECTION, content_type=JSON, body=body)
            return _configmap(decoded(await self._cluster.send(request)))

    async def _completeness(self) -> dict[str, str]:
        """What a new ledger says of itself: complete iff it is this installation's first (rule 3)."""
        try:
            state = _configmap(await self._cluster.get(_STATE))
        except NotFoundError:
            return {}
        data = dict(state.get("data") or {})
        if data.pop(FIRST_LEDGER_KEY, None) != _YES:
            return {}
        body = {**state, "data": data}
        await self._cluster.send(Request(method="PUT", path=_STATE, content_type=JSON, body=body))
        return {LEDGER_COMPLETE_KEY: _YES}

    async def _put(self, change: dict[str, str]) -> None:
        if not self._seen:
            raise ConflictError("the ledger was not read")
        wanted = {**self._data(), **change}
        body = {**self._seen, "data": wanted}
        answer = await self._cluster.send(Request(method="PUT", path=_PATH, content_type=JSON, body=body))
        stored = _configmap(decoded(answer))
        if stored.get("data") != wanted:
            raise UnreachableError("the answer does not show what was written")
        self._seen = stored


def _configmap(answer: Any) -> dict[str, Any]:
    """``answer`` as a stored ConfigMap.

    Raises:
        UnreachableError: It is none, as a proxy in between may send.
    """
    metadata = answer.get("metadata") if isinstance(answer, dict) else None
    if not isinstance(metadata, dict) or not metadata.get("resourceVersion"):
        raise UnreachableError("the answer is no ConfigMap")
    data = answer.get("data")
    if data is not None and not isinstance(data, dict):
        raise UnreachableError("the answer is no ConfigMap")
    stored: dict[str, Any] = answer
    return stored
