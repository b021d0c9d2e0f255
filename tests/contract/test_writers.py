"""Who wrote a field last."""

from typing import Any

import pytest

from clusterconform.contract.writers import last_writer, managed_fields


def entry(manager: str, at: Any, *path: str) -> dict[str, Any]:
    fields: Any = {}
    for part in reversed(path):
        fields = {f"f:{part}": fields}
    return {"manager": manager, "time": at, "fieldsV1": fields}


OBJECT = {
    "metadata": {
        "managedFields": [
            entry("kubelet", "2026-08-01T10:00:00Z", "metadata", "labels", "a"),
            entry("bot", "2026-08-01T11:00:00Z", "metadata", "labels", "a"),
            entry("late", "2026-08-01T12:00:00Z", "metadata", "labels", "b"),
            entry("timeless", None, "metadata", "labels", "a"),
            7,
            {"manager": "hollow", "time": "2026-08-01T13:00:00Z"},
        ]
    }
}


def test_of_several_the_latest_is_named() -> None:
    writer = last_writer(OBJECT, ("metadata", "labels", "a"))
    assert writer is not None
    assert (writer.manager, writer.at.hour) == ("bot", 11)


def test_a_map_was_written_by_whoever_wrote_in_it() -> None:
    writer = last_writer(OBJECT, ("metadata", "labels"))
    assert writer is not None
    assert writer.manager == "late"


@pytest.mark.parametrize("raw", [None, 7, {}, {"metadata": None}, {"metadata": {"managedFields": "x"}}, OBJECT])
def test_what_nobody_wrote_has_no_writer(raw: Any) -> None:
    assert last_writer(raw, ("metadata", "labels", "absent")) is None
    assert isinstance(managed_fields(raw), list)
