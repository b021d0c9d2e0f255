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
