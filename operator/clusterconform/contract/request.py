"""A request to the API server as a value: built in ``decisions``, sent by ``effects.cluster``."""

from dataclasses import dataclass
from typing import Any, Final

JSON_PATCH: Final = "application/json-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
JSON: Final = "application/json"
Json = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request to the API server.

    Attributes:
        method: HTTP method.
        path: Path and query, from the server's root.
        content_type: Of the body; empty without one.
        body: JSON values; None without a body.
    """

    method: str
    path: str
    content_type: str = ""
    body: Json = None

    @property
    def kind(self) -> str:
        """What the API server limits as one: method, resource and subresource, whatever the object's name.

        A list and a read of one object are two kinds.
        """
        words = self.path.partition("?")[0].strip("/").split("/")
        place = words[1:2] if words[0] == "api" else words[1:3]
        rest = words[1 + len(place) :]
        if rest[:1] == ["namespaces"] and len(rest) > 2:  # noqa: PLR2004 - a namespace's name, and what is in it
            rest = rest[2:]
        named = [rest[0], "NAME", *rest[2:]] if len(rest) > 1 else rest
        return " ".join((self.method, "/".join((*place, *named))))
