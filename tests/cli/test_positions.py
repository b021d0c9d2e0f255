"""Lines of fields, in JSON and YAML: the same answer as somebody who looks for them."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from clusterconform.cli.positions import line_in_yaml, lines_in_json
from clusterconform.contract.objects import Path

DOCUMENT = {
    "kind": "List",
    "items": [{"name": "a", "n": 1.5}, {"name": 'b"}{[', "labels": {"x/y": "z"}}],
    "last": None,
}
LINES = json.dumps(DOCUMENT, indent=2).splitlines()


def line_of(words: str) -> int:
    return next(number for number, line in enumerate(LINES, 1) if words in line)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ((), "{"),
        (("kind",), '"kind"'),
        (("items", 0, "n"), '"n"'),
        (("items", 1, "labels", "x/y"), '"x/y"'),
        (("items", 1, "labels", "absent", "deeper"), '"labels"'),
        (("items", 7, "name"), '"items"'),
        (("items", "name"), '"items"'),
        (("absent",), "{"),
        (("last", "below"), '"last"'),
    ],
)
def test_a_field_is_found_or_the_nearest_above_it(path: Path, words: str) -> None:
    text = json.dumps(DOCUMENT, indent=2)
    assert lines_in_json(text, [path]) == [line_of(words)]
    node = yaml.compose(text, Loader=yaml.CSafeLoader)
    assert node is not None
    assert line_in_yaml(node, path) == line_of(words)


def test_many_are_found_in_one_walk_in_the_order_in_which_they_were_asked_for() -> None:
    paths: list[Path] = [("last",), ("items", 1, "name"), ("kind",), ("last",)]
    found = lines_in_json(json.dumps(DOCUMENT, indent=2), paths)
    assert found == [line_of('"last"'), line_of("b"), 2, line_of('"last"')]


def test_of_a_key_that_stands_twice_the_last_counts() -> None:
    text = '{"a": 1,\n"a":\n2}'
    assert lines_in_json(text, [("a",)]) == [2]
    node = yaml.compose(text, Loader=yaml.CSafeLoader)
    assert node is not None
    assert line_in_yaml(node, ("a",)) == 2


def test_what_a_merge_brings_stands_where_it_was_written() -> None:
    text = "base: &base\n  x: 1\nuse:\n  <<: *base\n  y: 2\n"
    loader = yaml.CSafeLoader(text)
    assert loader.check_node()
    node = loader.get_node()
    assert node is not None
    loader.construct_document(node)
    loader.dispose()
    assert line_in_yaml(node, ("use", "x")) == 2


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


@given(values, st.lists(st.lists(st.text(max_size=2) | st.integers(0, 3), max_size=4).map(tuple), max_size=4))
def test_any_path_in_any_json_has_a_line_of_it(value: Any, paths: list[Path]) -> None:
    text = json.dumps(value, indent=1)
    lines = lines_in_json(text, paths)
    assert len(lines) == len(paths)
    assert all(1 <= line <= len(text.splitlines() or [""]) for line in lines)
