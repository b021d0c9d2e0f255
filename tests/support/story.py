"""One node's story: it is looked at, what follows is written, and others write in between."""

from collections.abc import Callable
from typing import Any

from builders import at, facts
from server import FakeServer

from clusterconform.contract.memory import EMPTY
from clusterconform.contract.verdicts import Catalogue
from clusterconform.decisions.planning import Decision, condition_written, decide, marks_written

Json = dict[str, Any]


class Story:
    """A node on a server, the profiles that judge it, and what is remembered of it.

    Attributes:
        server: The server with the node.
        profiles: The profiles in force; may be replaced.
        memory: What the next decision will remember.
    """

    def __init__(self, raw: Json, profiles: Catalogue) -> None:
        self.server = FakeServer(raw)
        self.profiles = profiles
        self.memory = EMPTY

    def look(self, second: float) -> Decision:
        """Decide at ``second`` and write nothing."""
        made = decide(facts(self.server.raw), self.profiles, self.memory, at(second))
        self.memory = made.memory
        return made

    def act(self, second: float) -> Decision:
        """Decide at ``second``, write what follows, remember it, and look at the echo of the writes."""
        seen = facts(self.server.raw)
        made = self.look(second)
        self.server.carry_out(seen, made.plan)
        if made.plan.marks:
            self.memory = marks_written(self.memory, made.plan.marks, at(second))
        if made.plan.condition:
            self.memory = condition_written(self.memory, made.plan.condition, at(second))
        if made.plan:
            self.look(second)
        return made

    def others(self, change: Callable[[Json], object]) -> None:
        """Let another writer change the raw node."""
        change(self.server.raw)

    @property
    def labels(self) -> Json:
        """The labels as they now stand."""
        labels: Json = self.server.raw["metadata"]["labels"]
        return labels

    @property
    def taints(self) -> list[Json]:
        """The taints as they now stand."""
        return list(self.server.raw["spec"].get("taints") or [])

    @property
    def listed(self) -> str | None:
        """The marks that our annotation lists; None where there is no annotation of ours."""
        annotations = self.server.raw["metadata"].get("annotations") or {}
        text: str | None = annotations.get("outpost.dhnt.io/managed-marks")
        return text

    @property
    def condition(self) -> tuple[str, str] | None:
        """Status and reason of our condition; None where there is none."""
        for seen in self.server.raw["status"]["conditions"]:
            if seen["type"] == "RuntimeConformant":
                return seen["status"], seen["reason"]
        return None
