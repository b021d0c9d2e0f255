"""Objects in documents, and the paths to their fields."""

from typing import Any

import pytest

from clusterconform.contract.objects import NotAnObjectError, Path, objects_in, path_text, read_path

NODE = {"kind": "Node", "apiVersion": "v1"}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (None, []),
        (NODE, [((), NODE)]),
        ({}, [((), {})]),
        ({"kind": "List", "items": None}, []),
        ({"kind": "List", "items": [NODE]}, [(("items", 0), {"kind": "Node", "apiVersion": "v1"})]),
        (
            {"kind": "NodeList", "apiVersion": "v1", "items": [{"metadata": {}}]},
            [(("items", 0), {"kind": "Node", "apiVersion": "v1", "metadata": {}})],
        ),
        ({"items": [{"kind": "Node"}]}, [(("items", 0), {"kind": "Node"})]),
    ],
)
def test_an_object_or_each_of_a_list(document: Any, expected: list[Any]) -> None:
    assert list(objects_in(document)) == expected


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (7, "must be a Kubernetes object, not int"),
        ([], "must be a Kubernetes object, not list"),
        ({"kind": "List", "items": {}}, ""),
        ({"kind": "List", "items": {"a": 1}}, "items must be a list"),
        ({"kind": "List", "items": [{}, 7]}, r"items\[1\]: must be a Kubernetes object"),
    ],
)
def test_what_is_none_says_where(document: Any, words: str) -> None:
    if not words:
        assert list(objects_in(document)) == []
        return
    with pytest.raises(NotAnObjectError, match=words):
        list(objects_in(document))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), ""),
        (("metadata", "name"), "metadata.name"),
        (("spec", "capabilities", 3), "spec.capabilities[3]"),
        (("metadata", "labels", "outpost.dhnt.io/host"), "metadata.labels[outpost.dhnt.io/host]"),
        (("items", 0, "spec"), "items[0].spec"),
    ],
)
def test_a_path_reads_as_a_person_writes_it(path: Path, text: str) -> None:
    assert path_text(path) == text


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("", ()),
        ("spec.nodeGC.mode", ("spec", "nodeGC", "mode")),
        ("spec.capabilities[12]", ("spec", "capabilities", 12)),
        (".metadata.labels[...]", ("metadata", "labels")),
        ("[0].a", (0, "a")),
    ],
)
def test_a_path_is_followed_as_far_as_it_goes(text: str, path: Path) -> None:
    assert read_path(text) == path
