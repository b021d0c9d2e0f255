from datetime import UTC, datetime, timedelta, timezone

import pytest

from clusterconform.contract.times import Moment, format_time, parse_time

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("2026-01-01T00:00:00Z", NEW_YEAR, id="whole seconds"),
        pytest.param("2026-01-01T00:00:00.5Z", NEW_YEAR + timedelta(milliseconds=500), id="one digit"),
        pytest.param("2026-01-01T00:00:00.123456Z", NEW_YEAR + timedelta(microseconds=123456), id="micros"),
        pytest.param("2026-01-01T00:00:00.123456789Z", NEW_YEAR + timedelta(microseconds=123456), id="nanos"),
        pytest.param("2026-01-01T00:00:00+02:00", NEW_YEAR - timedelta(hours=2), id="east of UTC"),
        pytest.param("2026-01-01T00:00:00.25-07:30", NEW_YEAR + timedelta(hours=7.5, seconds=0.25), id="west"),
    ],
)
def test_B36_every_form_that_real_writers_send_is_read_as_utc(text: str, expected: datetime) -> None:
    seen = parse_time(text)
    assert seen == expected
    assert seen is not None
    assert seen.tzinfo is UTC


@pytest.mark.parametrize(
    "text",
    [
        "",
        None,
        "garbage",
        "2026-01-01 00:00:00Z",
        "2026-01-01T00:00:00",
        "2026-01-01",
        "2026-01-01T00:00Z",
        "2026-01-01T00:00:00.Z",
        "2026-01-01T00:00:00.1234567890Z",
        "2026-01-01T00:00:00z",
        "2026-01-01T00:00:00+0200",
        "2026-13-01T00:00:00Z",
        "2026-02-30T00:00:00Z",
        "2026-01-01T25:00:00Z",
        "2026-01-01T00:00:60Z",
        "2026-01-01T00:00:00+25:00",
        "0000-01-01T00:00:00Z",
        " 2026-01-01T00:00:00Z",
        "2026-01-01T00:00:00Z\n",
        "２０２６-01-01T00:00:00Z",  # noqa: RUF001 - full-width digits are digits to a careless pattern
        0,
        1767225600.5,
        True,
        [],
        {"seconds": 1},
        b"2026-01-01T00:00:00Z",
        NEW_YEAR,
    ],
    ids=repr,
)
def test_B36_what_is_no_timestamp_is_none_and_never_raises(text: object) -> None:
    assert parse_time(text) is None


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+02:00", "9999-12-31T23:59:59-02:00"])
def test_a_timestamp_that_leaves_the_calendar_in_utc_is_none(text: str) -> None:
    assert parse_time(text) is None


def test_a_time_is_written_as_the_api_server_writes_it() -> None:
    east = datetime(2026, 1, 1, 2, 0, 0, 999_999, tzinfo=timezone(timedelta(hours=2)))
    assert format_time(east) == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_a_whole_second_is_written_as_it_was_read(text: str) -> None:
    at = parse_time(text)
    assert at is not None
    assert format_time(at) == text


def test_later_moves_both_clocks_alike() -> None:
    later = Moment(wall=NEW_YEAR, uptime=5.0).later(90)
    assert later == Moment(wall=NEW_YEAR + timedelta(seconds=90), uptime=95.0)
