"""Is the admission policy there that mode Pinned leans on?

Asked when a profile changes, every ten minutes, and when an address vanished although it is recorded. Where it is
not, nothing stops: what remains of Pinned is mode Status, and the condition says so.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from clusterconform.contract.names import PINNING_POLICY
from clusterconform.contract.settings import AddressMode
from clusterconform.effects.cluster import Cluster
from clusterconform.effects.errors import ApiError, ForbiddenError, NotFoundError
from clusterconform.handlers.agents import AgentRoll

log = logging.getLogger(__name__)

_GROUP: Final = "/apis/admissionregistration.k8s.io/v1"
PATHS: Final = (
    f"{_GROUP}/mutatingadmissionpolicies/{PINNING_POLICY}",
    f"{_GROUP}/mutatingadmissionpolicybindings/{PINNING_POLICY}",
)
PERIOD_SECONDS: Final = 600.0
_LEAST_SECONDS: Final = 5.0


class PinningCheck:
    """Knows whether the policy is there.

    Attributes:
        missing: What is missing in mode Pinned; empty where nothing is, and in every other mode.
    """

    def __init__(self, *, roll: AgentRoll, cluster: Cluster, changed: Callable[[str], None]) -> None:
        """Ask through ``cluster``; ``changed`` is told the profile whose status has news."""
        self._roll, self._cluster, self._changed = roll, cluster, changed
        self._wake = asyncio.Event()
        roll.unpinned = self._wake.set
        self.missing = ""

    def wake(self) -> None:
        """A profile has changed."""
        self._wake.set()

    async def run(self) -> None:
        """Ask, for ever."""
        while True:
            await self.once()
            await asyncio.sleep(_LEAST_SECONDS)
            try:
                await asyncio.wait_for(self._wake.wait(), PERIOD_SECONDS)
            except TimeoutError:
                continue
            self._wake.clear()

    async def once(self) -> None:
        """Ask once; without an answer what was known stays."""
        agents = self._roll.agents
        missing = ""
        if agents.profile is not None and agents.addressing.mode is AddressMode.PINNED:
            try:
                for path in PATHS:
                    await self._cluster.get(path)
            except (NotFoundError, ForbiddenError) as error:
                missing = str(error)
            except ApiError:
                return
        if missing != self.missing:
            self.missing = missing
            if missing:
                log.warning("mode Pinned goes on as Status", extra={"fields": {"error": missing}})
            if agents.profile is not None:
                self._changed(agents.profile.backend)
