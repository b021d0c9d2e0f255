"""Files and pipes as JSON values: JSON as it comes, YAML as Kubernetes reads it.

What comes from others is bounded before anything is built of it: the bytes of a file, and what YAML's aliases
would make of them. Depth needs no bound of its own, since both parsers have one.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

import msgspec
import yaml

from clusterconform.contract import objects

# 5,000 nodes of the usual 5 kB, as kubectl indents them, are 40 MB; what is read takes ten times as much memory.
JSON_BYTES: Final = 64 * 1024 * 1024
# YAML is read at about 1 MB/s, so that this is the most for which anybody would wait.
YAML_BYTES: Final = 8 * 1024 * 1024
# What a document may hold after its aliases are written out; eight megabytes of YAML without any hold fewer.
YAML_VALUES: Final = 4_000_000
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class UnreadableInputError(ValueError):
    """A file that cannot be read or is neither JSON nor YAML; one sentence with its name.

    Attributes:
        file: The file as it was named; ``-`` for standard input.
        line: The line, counted from 1; 0 where none can be told.
        reason: What is wrong with it.
    """

    def __init__(self, file: str, reason: str, line: int = 0) -> None:
        """Say what is wrong with ``file``."""
        super().__init__(f"{file}: {reason}")
        self.file, self.line, self.reason = file, line, reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One document of a file.

    Attributes:
        file: The file as it was named.
        value: What it holds, as JSON values.
        text: The whole file for JSON; empty for YAML, and for what came from no file.
        node: YAML's own view of the document, which knows where everything stands; None for JSON.
    """

    file: str
    value: Any
    text: bytes = field(default=b"", repr=False)
    node: yaml.Node | None = field(default=None, repr=False)

    def lines_of(self, paths: Sequence[objects.Path]) -> list[int]:
        """The line of each of ``paths``, or of the nearest thing above it that is there, counted from 1."""
        from clusterconform.cli import positions  # noqa: PLC0415 - only needed where something is wrong

        if self.node is not None:
            return [positions.line_in_yaml(self.node, path) for path in paths]
        if not self.text:
            return [0] * len(paths)
        try:
            return positions.lines_in_json(self.text.decode("utf-8", "replace"), paths)
        except RecursionError:  # at a depth that the reader just took, and whose fields nobody reads
            return [1] * len(paths)


class _KubernetesLoader(yaml.CSafeLoader):
    """YAML without timestamps: Kubernetes has no such type, and an unquoted one must stay the text it is."""


_KubernetesLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def read_text(path: str) -> bytes:
    """The bytes of the file at ``path``, of standard input for ``-``.

    Raises:
        UnreadableInputError: It cannot be read, or is larger than ``JSON_BYTES``.
    """
    try:
        if path == "-":
            text = _bounded(sys.stdin.buffer)
        else:
            with Path(path).open("rb") as file:
                text = _bounded(file)
    except OSError as error:
        raise UnreadableInputError(path, error.strerror or str(error)) from error
    if len(text) > JSON_BYTES:
        raise UnreadableInputError(path, f"larger than {JSON_BYTES >> 20} MiB, which is the most that is read")
    return text.removeprefix(_BYTE_ORDER_MARK)


def _bounded(file: IO[bytes]) -> bytes:
    # One byte more tells that there is more, even of what has no end.
    return file.read(JSON_BYTES + 1)


def documents_in(path: str) -> Iterator[Any]:
    """All documents in the file at ``path`` (``-`` for standard input) as JSON values.

    Raises:
        UnreadableInputError: It cannot be read, is neither JSON nor YAML, or holds more than is read.
    """
    return (document.value for document in read_documents(path))


def read_documents(path: str) -> Iterator[Document]:
    """All documents in the file at ``path`` (``-`` for standard input), which know where things stand.

    Raises:
        UnreadableInputError: It cannot be read, is neither JSON nor YAML, or holds more than is read.
    """
    text = read_text(path)
    as_json = ""
    if text.lstrip()[:1] in {b"{", b"["}:
        # JSON first: it is what kubectl prints for 5,000 nodes, and YAML would take a minute for it.
        try:
            yield Document(file=path, value=msgspec.json.decode(text), text=text)
        except (msgspec.DecodeError, RecursionError) as error:
            as_json = str(error)
        else:
            return
    if len(text) > YAML_BYTES:
        what = f"no JSON ({as_json}) and " if as_json else ""
        raise UnreadableInputError(path, f"{what}larger than the {YAML_BYTES >> 20} MiB of YAML that are read")
    try:
        yield from _yaml_documents(path, text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        if isinstance(error, UnreadableInputError):
            raise
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or str(error) or type(error).__name__
        reason = " ".join((as_json or f"{problem}{where}").split())
        number = mark.line + 1 if mark is not None else 0
        raise UnreadableInputError(path, f"neither JSON nor YAML: {reason}", number) from error


def _yaml_documents(path: str, text: bytes) -> Iterator[Document]:
    loader = _KubernetesLoader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            if node is None:
                return
            size = _values_in(node)
            if size is None or size > YAML_VALUES:
                what = "an alias within itself" if size is None else "aliases that stand for millions of values"
                raise UnreadableInputError(path, f"holds {what}, which is not read", node.start_mark.line + 1)
            yield Document(file=path, value=loader.construct_document(node), node=node)
    finally:
        loader.dispose()


def _values_in(root: yaml.Node) -> int | None:
    """How many values ``root`` holds once its aliases are written out; None where one is within itself."""
    sizes: dict[int, int] = {}
    open_nodes: set[int] = set()
    # Without recursion: an entry comes back, behind its children, to be added up.
    stack: list[tuple[yaml.Node, bool]] = [(root, False)]
    while stack:
        node, ready = stack.pop()
        children = _children(node)
        if ready:
            open_nodes.discard(id(node))
            sizes[id(node)] = 1 + sum(sizes[id(child)] for child in children)
        elif id(node) in open_nodes:
            return None
        elif id(node) not in sizes:
            open_nodes.add(id(node))
            stack.append((node, True))
            stack.extend((child, False) for child in children if id(child) not in sizes)
    return sizes[id(root)]


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []
