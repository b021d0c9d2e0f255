"""Our own LIST: what makes the picture complete, and what repairs what a watch has lost.

One at the start, then one every ten minutes. Nothing is written to any Node before the first is complete. A
list that breaks off, or is empty where profiles were, is no evidence: nothing is concluded from what it
lacks. What a later list lacks is forgotten only after a second look, at it alone, does not find it either.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec

from clusterconform.contract.facts import NodeFacts, UnreadableNodeError, decode_node_list, read_node
from clusterconform.contract.lease import RESYNC_SECONDS
from clusterconform.contract.matrix import MATRIX
from clusterconform.contract.names import API_VERSION, PLURAL
from clusterconform.contract.profile import ProfileObject, Refusal, manifest_of, read_profile
from clusterconform.contract.request import Request
from clusterconform.effects.clock import Clock
from clusterconform.effects.cluster import Cluster, decoded
from clusterconform.effects.errors import ApiError, GoneError, NotFoundError, UnreachableError
from clusterconform.effects.seeding import seed
from clusterconform.effects.stream import NODES_PATH
from clusterconform.handlers.cache import Cache

log = logging.getLogger(__name__)

PERIOD_SECONDS: Final = RESYNC_SECONDS
PROFILES_PATH: Final = f"/apis/{API_VERSION}/{PLURAL}"
_FIRST_RETRY, _LAST_RETRY = 1.0, 60.0
# A list that lacks more nodes is settled in several rounds, so that a lying list costs few requests.
_CONFIRMED_AT_ONCE: Final = 200
# An empty list of profiles is believed when it is the answer this many times in a row.
_EMPTY_LISTS: Final = 3


class EvidenceIncompleteError(Exception):
    """A list that cannot be believed; says which."""


class Resync:
    """Keeps the cache complete."""

    def __init__(
        self,
        *,
        cache: Cache,
        cluster: Cluster,
        clock: Clock,
        node_due: Callable[[str], None],
        catalogue_changed: Callable[[], None],
    ) -> None:
        """Fill ``cache`` from ``cluster``.

        Args:
            cache: What is known.
            cluster: The API client.
            clock: The time.
            node_due: Told each node that a list brought news of, or that is gone.
            catalogue_changed: Told when the set of profiles, or what they say, changed.
        """
        self._cache, self._cluster, self._clock = cache, cluster, clock
        self._node_due, self._catalogue_changed = node_due, catalogue_changed
        self._empty_lists = 0
        self.synced_at: float | None = None

    async def first(self) -> None:
        """Seed, then list profiles and nodes until both are complete once; waits for as long as it takes."""
        pause, told = _FIRST_RETRY, ""
        while True:
            try:
                await self._seed()
                await self.once()
            except (ApiError, EvidenceIncompleteError) as error:
                if str(error) != told:
                    told = str(error)
                    fields = {"reason": "EvidenceIncomplete", "error": told}
                    log.warning("nothing is written until nodes and profiles are known", extra={"fields": fields})
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LAST_RETRY)
            else:
                return

    async def run(self) -> None:
        """List again every ten minutes, for ever; a list that fails is tried again sooner."""
        pause = PERIOD_SECONDS
        while True:
            await asyncio.sleep(pause)
            try:
                await self.once()
            except (ApiError, EvidenceIncompleteError) as error:
                log.warning("resync failed", extra={"fields": {"error": str(error)}})
                pause = _LAST_RETRY
            else:
                pause = PERIOD_SECONDS

    async def once(self) -> None:
        """One complete list of profiles and nodes.

        Raises:
            ApiError: The API server refused or was not there; nothing was forgotten.
            EvidenceIncompleteError: A list that cannot be believed.
        """
        self._cache.begin_list()
        await self._list_profiles()
        await self._list_nodes()
        self.synced_at = self._clock.uptime()
        log.debug("synced", extra={"fields": {"nodes": len(self._cache)}})

    async def profiles_served(self) -> bool:
        """Whether the API server knows RuntimeProfiles at all, which it does not without their CRD."""
        try:
            await self._cluster.get(f"{PROFILES_PATH}?limit=1")
        except ApiError:
            return False
        return True

    async def _seed(self) -> None:
        present = [profile.name for profile in await self._read_profiles()]
        await seed(self._cluster, [manifest_of(profile) for profile in MATRIX.values()], present)

    async def _read_profiles(self) -> list[ProfileObject]:
        profiles = []
        for item in [item async for page in self._cluster.pages(PROFILES_PATH) for item in _items(page)]:
            try:
                profiles.append(read_profile(item if isinstance(item, dict) else {}))
            except Refusal as refusal:
                raise EvidenceIncompleteError(f"unreadable list of profiles: {refusal}") from refusal
        return profiles

    async def _list_profiles(self) -> None:
        try:
            profiles = await self._read_profiles()
        except NotFoundError:
            # There is no such kind any more, and so no object of it; believed no sooner than an empty list.
            profiles = []
        self._empty_lists = 0 if profiles else self._empty_lists + 1
        if not profiles and self._empty_lists < _EMPTY_LISTS:
            raise EvidenceIncompleteError("the list of RuntimeProfiles is empty")
        changed = self._cache.set_profiles(profiles)
        listed = {profile.name for profile in profiles}
        for profile in list(self._cache.profiles().values()):
            if profile.name not in listed and await self._is_gone_profile(profile.name):
                changed = self._cache.drop_profile(profile.name, profile.uid) or changed
        if changed:
            self._catalogue_changed()

    async def _list_nodes(self) -> None:
        names: set[str] = set()
        version = ""
        try:
            nodes, version = await self._read_nodes()
        except GoneError:
            # The continue token outlived the API server's history: once more from the beginning.
            nodes, version = await self._read_nodes()
        for node in nodes:
            names.add(node.name)
            if self._cache.observe(node):
                self._node_due(node.name)
        for node in self._cache.vanished(names, version)[:_CONFIRMED_AT_ONCE]:
            if await self._is_gone(f"{NODES_PATH}/{node.name}") and self._cache.forget(node.name, node.uid):
                self._node_due(node.name)

    async def _read_nodes(self) -> tuple[list[NodeFacts], str]:
        nodes: list[NodeFacts] = []
        version = ""
        async for page in self._cluster.pages(NODES_PATH):
            try:
                views, seen = decode_node_list(page)
            except UnreadableNodeError as error:
                raise EvidenceIncompleteError(f"unreadable list of nodes: {error}") from error
            version = version or seen
            nodes += [read_node(view) for view in views]
        return nodes, version

    async def _is_gone_profile(self, name: str) -> bool:
        """By a list of it alone: a right to get profiles is needed for nothing else, and is not asked for."""
        path = f"{PROFILES_PATH}?fieldSelector=metadata.name%3D{name}"
        try:
            found = decoded(await self._cluster.send(Request(method="GET", path=path)))
        except NotFoundError:
            return True
        return isinstance(found, dict) and found.get("items") == []

    async def _is_gone(self, path: str) -> bool:
        try:
            await self._cluster.get(path)
        except NotFoundError:
            return True
        return False


def _items(page: bytes) -> list[Any]:
    try:
        items = msgspec.json.decode(page).get("items")
    except (msgspec.DecodeError, AttributeError) as error:
        raise UnreachableError(f"a list that is none: {error}") from error
    return items if isinstance(items, list) else []
