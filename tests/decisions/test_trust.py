import json

import pytest

from clusterconform.contract.verdicts import Reason
from clusterconform.decisions.trust import Trust, doubted, earned, read_trust, write_trust

GRACE = 86_400.0


def test_a_first_install_starts_trusted() -> None:
    assert Trust().is_earned(GRACE)
    assert read_trust(None).is_earned(GRACE)


@pytest.mark.parametrize("cause", [Reason.CLOCK_SKEW, Reason.MASS_STALE])
def test_a_doubt_takes_all_of_it(cause: Reason) -> None:
    assert doubted(cause) == Trust(seconds=0.0, cause=cause)
    assert not doubted(cause).is_earned(GRACE)


@pytest.mark.parametrize(("seconds", "is_earned"), [(0.0, False), (GRACE - 1, False), (GRACE, True), (1e9, True)])
def test_it_is_earned_second_by_second(seconds: float, is_earned: bool) -> None:
    assert earned(doubted(Reason.CLOCK_SKEW), seconds).is_earned(GRACE) is is_earned


def test_it_adds_up() -> None:
    trust = doubted(Reason.MASS_STALE)
    for _ in range(24):
        assert not trust.is_earned(GRACE)
        trust = earned(trust, 3600.0)
    assert trust == Trust(seconds=GRACE, cause=Reason.MASS_STALE)
    assert trust.is_earned(GRACE)


@pytest.mark.parametrize("seconds", [-1.0, -1e9])
def test_a_clock_that_runs_back_takes_nothing_and_gives_nothing(seconds: float) -> None:
    assert earned(Trust(seconds=5.0, cause=Reason.CLOCK_SKEW), seconds).seconds == 5.0


@pytest.mark.parametrize(
    "trust",
    [Trust(), Trust(seconds=12.5), doubted(Reason.MASS_STALE), Trust(seconds=7.0, cause=Reason.CLOCK_SKEW)],
)
def test_what_is_written_is_read_again(trust: Trust) -> None:
    assert read_trust(write_trust(trust)) == trust
    assert isinstance(json.loads(write_trust(trust)), dict)


@pytest.mark.parametrize(
    "text",
    [
        " ",
        "null",
        "0",
        "[]",
        "{}",
        "garbage",
        '"trusted"',
        '{"seconds": null}',
        '{"seconds": "much"}',
        '{"cause": "MassStale"}',
        '{"seconds": 99999999, "cause": "Nonsense"}',
        '{"seconds": 99999999, "cause": ["ClockSkew"]}',
        '{"seconds": 99999999, "cause": {}}',
        '{"seconds": 99999999, "cause": 0}',
        '{"seconds": 99999999, "cause": ""}',
        '{"seconds": "inf", "cause": "ClockSkew"}',
        '{"seconds": "Infinity", "cause": "ClockSkew"}',
        '{"seconds": 1e999, "cause": "ClockSkew"}',
        '{"seconds": true, "cause": "ClockSkew"}',
        '{"seconds": ' + "9" * 400 + ', "cause": "ClockSkew"}',
        "[" * 100_000,
        '{"seconds": 99999999, "cause": null',
        "\ud800",
    ],
    ids=lambda text: ascii(text[:40]),
)
def test_what_cannot_be_read_is_no_trust(text: str) -> None:
    assert not read_trust(text).is_earned(GRACE)


@pytest.mark.parametrize("cause", ["null", '"ClockSkew"', '"ACauseOfTomorrow"'])
def test_what_a_newer_version_keeps_beside_it_goes_back_as_it_came(cause: str) -> None:
    more = '"history":[1,2,{"x":1e999}],"großes":' + "9" * 400
    trust = earned(read_trust(f'{{{more},"seconds":7,"cause":{cause}}}'), 5.0)
    assert more in write_trust(trust)
    assert more in write_trust(doubted(Reason.MASS_STALE, trust))
    assert read_trust(write_trust(trust)) == trust


@pytest.mark.parametrize("seconds", ["-5", "-1e9", "0"])
def test_no_number_is_below_nothing(seconds: str) -> None:
    assert read_trust(f'{{"seconds": {seconds}, "cause": "ClockSkew"}}').seconds == 0.0
