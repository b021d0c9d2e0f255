import re

import pytest

from clusterconform.contract.times import Duration

# The rule of the CRD, written out once more on purpose: code and schema shall refuse the same texts.
CRD_PATTERN = re.compile(r"([0-9]{1,6}([.][0-9]{1,3})?(ms|s|m|h))+")
CRD_MAX_LENGTH = 16

TEXTS = [
    "90s",
    "1h30m",
    "0s",
    "5ms",
    "1.5h",
    "0.001s",
    "999999h",
    "1h1h",
    "1m500ms",
    "1s1m1h1ms",
    "1111h1111m1111s",
    "11111h11111m111s",
    "11111h11111m1111s",
    "",
    "s",
    "1",
    "1d",
    "1us",
    "-1s",
    "+1s",
    "1 s",
    " 1s",
    "1s ",
    "1s\n",
    "1H",
    ".5s",
    "1.s",
    "1.2345s",
    "1234567s",
    "1h30",
    "1h-30m",
    "1e3s",
    "NaNs",
    "१s",
]


def is_duration(text: str) -> bool:
    try:
        Duration(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("text", TEXTS, ids=repr)
def test_a_text_is_a_duration_iff_the_crd_says_so(text: str) -> None:
    assert is_duration(text) == (bool(CRD_PATTERN.fullmatch(text)) and len(text) <= CRD_MAX_LENGTH)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90.0),
        ("1h30m", 5400.0),
        ("0s", 0.0),
        ("250ms", 0.25),
        ("1.5h", 5400.0),
        ("1m500ms", 60.5),
        ("24h", 86400.0),
        ("30m1h", 5400.0),
        ("1h1h", 7200.0),
        ("59.3s0.3s0.4s", 60.0),
    ],
)
def test_a_duration_is_as_long_as_go_says(text: str, seconds: float) -> None:
    assert Duration(text).seconds == seconds


def test_a_duration_keeps_the_text_that_was_written() -> None:
    assert Duration("60m").text == "60m"
    assert Duration("60m") != Duration("1h")
    assert Duration("1h") != "1h"
    assert len({Duration("1h"), Duration("1h"), Duration("60m")}) == 2
    assert repr(Duration("1h")) == "Duration('1h')"


def test_a_refusal_shows_what_was_given_and_not_more_than_a_line_of_it() -> None:
    with pytest.raises(ValueError, match=r"must be a duration such as 90s or 1h30m, not 'x{40}'$"):
        Duration("x" * 1000)
