"""Kubernetes objects within documents: those that stand alone, and those in lists; and the path to a field."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

Path = tuple[str | int, ...]
"""The keys and indices that lead to a field, such as ``("items", 3, "metadata", "name")``."""

_PART: Final = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")


class NotAnObjectError(ValueError):
    """Where a document should hold a Kubernetes object, it holds something else.

    Attributes:
        path: Where in the document.
        reason: What is wrong there, for a person.
    """

    def __init__(self, path: Path, reason: str) -> None:
        """Say what is wrong at ``path``."""
        super().__init__(f"{path_text(path)}: {reason}" if path else reason)
        self.path, self.reason = path, reason


def objects_in(document: Any) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """The objects in ``document`` with the path to each; an empty document holds none.

    Raises:
        NotAnObjectError: The document, or a member of its list, is no object.
    """
    if document is None:
        return
    if not isinstance(document, Mapping):
        raise NotAnObjectError((), f"must be a Kubernetes object, not {type(document).__name__}")
    if not (str(document.get("kind") or "").endswith("List") or ("items" in document and "kind" not in document)):
        yield (), document
        return
    kind = str(document.get("kind") or "").removesuffix("List")
    items = document.get("items") or []
    if not isinstance(items, list):
        raise NotAnObjectError((), "items must be a list")
    # A typed list leaves kind and apiVersion to its head.
    head = {"kind": kind, "apiVersion": document.get("apiVersion")} if kind else {}
    for position, item in enumerate(items):
        if not isinstance(item, Mapping):
            raise NotAnObjectError(("items", position), "must be a Kubernetes object")
        yield ("items", position), {**head, **item}


def path_text(path: Path) -> str:
    """``path`` as a person writes it, such as ``metadata.labels[outpost.dhnt.io/host]``."""
    text = ""
    for part in path:
        if isinstance(part, str) and _PLAIN.fullmatch(part):
            text += f".{part}" if text else part
        else:
            text += f"[{part}]"
    return text


def read_path(text: str) -> Path:
    """The path that ``text``, such as ``spec.capabilities[3]``, names as far as it can be followed."""
    return tuple(
        int(index) if index else name for name, index in _PART.findall(text.split("[...]", maxsplit=1)[0])
    )
