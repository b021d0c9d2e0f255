"""The probe's DaemonSet, kept as the profile wants it, and its pods, known completely.

Looked at when a profile changes, when a watch tells of the DaemonSet, and every ten minutes. What fails is said in
one condition and tried again with a growing pause; nothing else waits for it.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from clusterconform.contract.names import NAMESPACE, PROBE_SELECTOR
from clusterconform.contract.probe import UnreadablePodError, is_probe, read_probe
from clusterconform.contract.settings import Bound
from clusterconform.contract.verdicts import Finding, Reason
from clusterconform.decisions import daemonset
from clusterconform.decisions.scope import acting_agent
from clusterconform.effects.cluster import Cluster, decoded
from clusterconform.effects.errors import ApiError, ConflictError, NotFoundError
from clusterconform.handlers.agents import AgentRoll
from clusterconform.handlers.cache import Cache

log = logging.getLogger(__name__)

PERIOD_SECONDS: Final = 600.0
PODS_PATH: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
_SELECTED: Final = f"{PODS_PATH}?labelSelector={PROBE_SELECTOR.replace('/', '%2F').replace('=', '%3D')}"
# Without a watch, for want of a right when it began, the list is all that tells.
_UNWATCHED_SECONDS: Final = 30.0
_FIRST_PAUSE, _LAST_PAUSE = 1.0, 60.0


class ProbeKeeper:
    """Keeps the DaemonSet, and tells the roll of its pods.

    Attributes:
        trouble: Why the DaemonSet cannot be kept or its pods not be read; None where all is well.
    """

    def __init__(
        self,
        *,
        cache: Cache,
        roll: AgentRoll,
        cluster: Cluster,
        bound: Bound,
        node_due: Callable[[str], None],
        changed: Callable[[str], None],
    ) -> None:
        """Keep what the profiles of ``cache`` want.

        Args:
            cache: The profiles.
            roll: Told of each probe pod.
            cluster: The API client.
            bound: Under observe the DaemonSet is left as it is.
            node_due: Told each node of whose probe there is news.
            changed: Told the profile whose status has news.
        """
        self._cache, self._roll, self._cluster, self._bound = cache, roll, cluster, bound
        self._node_due, self._changed = node_due, changed
        self._written: tuple[str, int, str] | None = None
        self._wake = asyncio.Event()
        self._watched = False
        self.trouble: Finding | None = None

    def pod(self, kind: str, manifest: Mapping[str, Any]) -> None:
        """A watch tells of a pod."""
        try:
            pod = read_probe(manifest)
        except UnreadablePodError:
            log.exception("a watch brought what is no pod")
            return
        # One that was relabelled or belongs to somebody else is as good as gone.
        gone = kind == "DELETED" or not is_probe(manifest)
        for node in self._roll.drop_pod(pod.name, pod.uid) if gone else self._roll.take_pod(pod):
            self._node_due(node)

    def daemonset(self) -> None:
        """A watch tells of the DaemonSet, or a profile has changed."""
        self._wake.set()

    async def may_watch(self) -> bool:
        """Whether we may read pods and DaemonSets of our namespace; a refusal is remembered as trouble."""
        try:
            for path in (f"{_SELECTED}&limit=1", f"{daemonset.DAEMONSETS_PATH}?limit=1"):
                await self._cluster.get(path)
        except ApiError as error:
            self._say(error)
            self._watched = False
        else:
            self._watched = True
        return self._watched

    async def run(self) -> None:
        """Keep it, for ever."""
        pause = _FIRST_PAUSE
        while True:
            try:
                await self.once()
            except ApiError as error:
                # A lost compare-and-swap is no trouble: somebody else was quicker, and is looked at anew.
                if not isinstance(error, ConflictError):
                    self._say(error)
                wait, pause = pause, min(pause * 2, _LAST_PAUSE)
            else:
                self._say(None)
                wait, pause = PERIOD_SECONDS if self._watched else _UNWATCHED_SECONDS, _FIRST_PAUSE
            await self._until_woken(wait)

    async def once(self) -> None:
        """Read pods and DaemonSet, and bring the latter one step nearer to what it shall be.

        Raises:
            ApiError: The API server refused or was not there.
        """
        profile = acting_agent(self._cache.catalogue)
        wanted = daemonset.is_wanted(profile)
        if wanted is None or profile is None or profile.runtime_probe is None:
            return
        if wanted:
            await self._list_pods()
        if self._bound is Bound.OBSERVE:
            return
        seen = await self._read()
        if not wanted:
            if seen is not None and not seen["metadata"].get("deletionTimestamp"):
                await self._cluster.send(daemonset.removal(seen))
                log.info("probe removed", extra={"fields": {"profile": profile.backend}})
            return
        request = daemonset.step(seen, profile.runtime_probe.image, self._written)
        if request is None:
            return
        answer = decoded(await self._cluster.send(request))
        if request.method == "DELETE":
            self._wake.set()
            return
        self._written = daemonset.mark_of(answer, profile.runtime_probe.image)
        if seen is None or seen["metadata"].get("generation") != answer["metadata"].get("generation"):
            log.info("probe put right", extra={"fields": {"profile": profile.backend, "by": request.method}})

    async def _read(self) -> Any:
        try:
            return await self._cluster.get(daemonset.DAEMONSET_PATH)
        except NotFoundError:
            return None

    async def _list_pods(self) -> None:
        listed: set[str] = set()
        version = 0
        async for page in self._cluster.pages(_SELECTED):
            values = msgspec.json.decode(page)
            version = version or _number(values["metadata"].get("resourceVersion"))
            for item in values.get("items") or ():
                listed.add(str(item["metadata"]["name"]))
                self.pod("MODIFIED", item)
        # Younger ones are not meant: a watch may have told of them while the list was on its way.
        absent = [pod for pod in self._roll.pods() if pod.name not in listed]
        for pod in [pod for pod in absent if _number(pod.resource_version) <= version]:
            for node in self._roll.drop_pod(pod.name, pod.uid):
                self._node_due(node)

    async def _until_woken(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._wake.wait(), seconds)
        except TimeoutError:
            return
        self._wake.clear()

    def _say(self, error: ApiError | None) -> None:
        trouble = None if error is None else Finding(Reason.PROBE_NOT_KEPT, str(error))
        if trouble == self.trouble:
            return
        self.trouble = trouble
        if trouble is not None:
            log.warning("the probe cannot be kept", extra={"fields": {"error": trouble.message}})
        profile = acting_agent(self._cache.catalogue)
        if profile is not None:
            self._changed(profile.backend)


def _number(version: str | None) -> int:
    return int(version) if version and version.isdigit() else 0
