"""Files and pipes as JSON values: JSON as it comes, YAML as Kubernetes reads it."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml


class UnreadableInputError(ValueError):
    """A file that cannot be read or is neither JSON nor YAML; one sentence with its name."""


class _KubernetesLoader(yaml.CSafeLoader):
    """YAML without timestamps: Kubernetes has no such type, and an unquoted one must stay the text it is."""


_KubernetesLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def read_text(path: str) -> bytes:
    """The bytes of the file at ``path``, of standard input for ``-``.

    Raises:
        UnreadableInputError: It cannot be read.
    """
    try:
        return sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise UnreadableInputError(f"{path}: {error.strerror or error}") from error


def documents_in(path: str) -> Iterator[Any]:
    """All documents in the file at ``path`` (``-`` for standard input) as JSON values.

    Raises:
        UnreadableInputError: It cannot be read, or is neither JSON nor YAML.
    """
    text = read_text(path)
    if text.lstrip()[:1] in {b"{", b"["}:
        # JSON first: it is what kubectl prints for 5,000 nodes, and YAML would take a minute for it.
        try:
            yield msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            as_json = str(error)
        else:
            return
    else:
        as_json = ""
    try:
        yield from yaml.load_all(text, Loader=_KubernetesLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f" at line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or str(error) or type(error).__name__
        reason = " ".join((as_json or f"{problem}{line}").split())
        raise UnreadableInputError(f"{path}: neither JSON nor YAML: {reason}") from error
