"""What the API server said, sorted by what can be done about it."""

from collections.abc import Mapping
from typing import Any

import pytest

from clusterconform.effects import errors

CAUSES: Mapping[str, Any] = {"details": {"causes": [{"reason": "FieldValueInvalid"}]}}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, errors.RejectedError),
        (401, errors.UnauthorizedError),
        (403, errors.ForbiddenError),
        (404, errors.NotFoundError),
        (405, errors.RejectedError),
        (406, errors.RejectedError),
        (408, errors.UnreachableError),
        (409, errors.ConflictError),
        (410, errors.GoneError),
        (413, errors.RejectedError),
        (415, errors.RejectedError),
        (418, errors.RejectedError),
        (429, errors.BusyError),
        (500, errors.UnreachableError),
        (502, errors.UnreachableError),
        (503, errors.UnreachableError),
        (504, errors.UnreachableError),
        (599, errors.UnreachableError),
    ],
)
@pytest.mark.parametrize("answer", [{}, CAUSES])
def test_every_status_has_a_name(status: int, kind: type[errors.ApiError], answer: Mapping[str, Any]) -> None:
    assert type(errors.error_of(status, answer)) is kind


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"details": None},
        {"details": {}},
        {"details": {"causes": None}},
        {"details": {"causes": []}},
        {"details": "x"},
    ],
)
def test_422_without_causes_is_a_lost_test(answer: Mapping[str, Any]) -> None:
    assert type(errors.error_of(422, answer)) is errors.ConflictError


def test_422_with_causes_is_refused_for_good() -> None:
    assert type(errors.error_of(422, CAUSES)) is errors.RejectedError


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"message": "its own words"}, "its own words"),
        ({}, "HTTP status 403"),
        ({"message": None}, "HTTP status 403"),
    ],
)
def test_the_text_is_the_servers_own_or_names_the_status(answer: Mapping[str, Any], text: str) -> None:
    assert str(errors.error_of(403, answer)) == text


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("17", 17.0), ("0", 0.0), (None, None), ("Fri, 31 Dec 1999 23:59:59 GMT", None), ("-1", None), ("", None)],
)
def test_retry_after_is_taken_in_seconds_only(header: str | None, seconds: float | None) -> None:
    assert errors.error_of(429, {}, header).retry_after == seconds


def test_every_error_is_an_api_error() -> None:
    kinds = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
    assert len(kinds) == 10
    assert all(issubclass(kind, errors.ApiError) for kind in kinds)
