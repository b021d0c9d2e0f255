"""Where in a text a field stands: asked only for what is wrong, so that reading itself stays quick."""

import re
from collections.abc import Iterator, Sequence
from json import JSONDecoder
from typing import Any, Final

import yaml

from clusterconform.contract.objects import Path

_SPACE: Final = re.compile(r"[ \t\r\n]*")
# Numbers are not understood here, or one of 5,000 digits would be an error.
_SKIP: Final = JSONDecoder(parse_int=len, parse_float=len)

_Wanted = dict[str | int, Any]
"""The paths that are looked for, as a tree; a branch holds the numbers of those that end there under ``_END``."""
_END: Final = -1


def line_in_yaml(root: yaml.Node, path: Path) -> int:
    """The line of ``path`` below ``root``, or of the nearest thing above it that is there, counted from 1."""
    node, line = root, root.start_mark.line
    for part in path:
        found = next(_named(node, part), None)
        if found is None:
            break
        line, node = found
    return line + 1


def _named(node: yaml.Node, part: str | int) -> Iterator[tuple[int, yaml.Node]]:
    if isinstance(node, yaml.MappingNode):
        # The last one of a name is the one that is read.
        for key, value in reversed(node.value):
            if isinstance(key, yaml.ScalarNode) and key.value == str(part):
                yield key.start_mark.line, value
    elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        yield node.value[part].start_mark.line, node.value[part]


def lines_in_json(text: str, paths: Sequence[Path]) -> list[int]:
    """The line of each of ``paths`` in JSON ``text``, in one walk through it; see ``line_in_yaml``."""
    wanted: _Wanted = {}
    for number, path in enumerate(paths):
        branch = wanted
        for part in path:
            branch = branch.setdefault(part, {})
        branch.setdefault(_END, []).append(number)
    start = _skip_space(text, 0)
    found = dict.fromkeys(range(len(paths)), start)
    _walk(text, start, wanted, found)
    lines, offset, line = [0] * len(paths), 0, 1
    for number, at in sorted(found.items(), key=lambda seen: seen[1]):
        line += text.count("\n", offset, at)
        lines[number], offset = line, at
    return lines


def _walk(text: str, at: int, wanted: _Wanted, found: dict[int, int]) -> int:
    """Note where what is ``wanted`` of the value at ``at`` stands; gives the end of the value."""
    if not any(key != _END for key in wanted) or text[at : at + 1] not in {"{", "["}:
        return _SKIP.raw_decode(text, at)[1]
    named, close = text[at] == "{", "}" if text[at] == "{" else "]"
    at, index = _skip_space(text, at + 1), 0
    while text[at] != close:
        key: str | int = index
        place = at
        if named:
            key, at = _SKIP.raw_decode(text, at)
            at = _skip_space(text, _skip_space(text, at) + 1)
        branch = wanted.get(key)
        if branch is None:
            at = _SKIP.raw_decode(text, at)[1]
        else:
            for number in _ends(branch):
                found[number] = place
            at = _walk(text, at, branch, found)
        at = _skip_space(text, at)
        if text[at] == ",":
            at = _skip_space(text, at + 1)
        index += 1
    return at + 1


def _ends(branch: _Wanted) -> Iterator[int]:
    for key, value in branch.items():
        if key == _END:
            yield from value
        else:
            yield from _ends(value)


def _skip_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at
