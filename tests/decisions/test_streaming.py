"""What reading a log tells of the path to a kubelet, and when it is read again."""

import pytest

from clusterconform.contract.verdicts import Finding, Reason
from clusterconform.decisions.streaming import (
    PERIOD_SECONDS,
    Target,
    Trial,
    cause_of,
    counts,
    due_at,
    verified,
)

TARGET = Target(node="pi-1", pod="probe-x", endpoint="127.0.1.1:21000")
DIAL = 'Get "https://127.0.1.1:21000/containerLogs/ns/pod/probe?tailLines=1": '


def trial(cause: Finding | None = None, target: Target = TARGET) -> Trial:
    return Trial(target=target, at=100.0, cause=cause or verified())


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("no preferred addresses found; known addresses: [{Hostname pi-1}]", Reason.NO_PREFERRED_ADDRESS),
        (DIAL + "dial tcp 127.0.1.1:21000: connect: connection refused", Reason.CONNECTION_REFUSED),
        (
            DIAL + "proxy error from 127.0.0.1:6443 while dialing 10.0.0.1:10250, code 502: 502 Bad Gateway",
            Reason.BAD_GATEWAY,
        ),
        ("HTTP status 502", Reason.BAD_GATEWAY),
        (
            DIAL + "tls: failed to verify certificate: x509: cannot validate certificate for 127.0.1.1",
            Reason.CERTIFICATE_REFUSED,
        ),
        (DIAL + "dial tcp 127.0.1.1:21000: i/o timeout", Reason.TIMED_OUT),
        ("TimeoutError", Reason.TIMED_OUT),
        ('pods "x" is forbidden: User "y" cannot get resource "pods/log"', Reason.LOGS_REFUSED),
        ("", Reason.LOGS_REFUSED),
    ],
)
def test_rule_2_the_words_of_the_api_server_tell_the_step(words: str, reason: Reason) -> None:
    assert cause_of(words) == Finding(reason, words)


def test_rule_2_the_words_are_kept_but_not_without_end() -> None:
    assert len(cause_of("x" * 10_000).message) == 300


def test_rule_1_a_log_that_was_read_verifies() -> None:
    assert trial().verified
    assert not trial(cause_of("no")).verified


def test_rule_3_who_was_never_tried_is_due_at_once() -> None:
    assert due_at(TARGET, None) == 0


def test_rule_3_who_was_tried_rests_ten_minutes_and_a_part_of_a_minute_by_its_name() -> None:
    rests = [
        due_at(target, trial(target=target)) - 100.0
        for target in (Target(node=f"n{index}", pod="p", endpoint="") for index in range(300))
    ]
    assert min(rests) >= PERIOD_SECONDS
    assert max(rests) < PERIOD_SECONDS + 60
    assert len(set(rests)) > 30


@pytest.mark.parametrize(
    "changed",
    [
        Target(node="pi-1", pod="probe-x", endpoint="127.0.1.2:21000"),
        Target(node="pi-1", pod="probe-x", endpoint=""),
        Target(node="pi-1", pod="probe-y", endpoint="127.0.1.1:21000"),
    ],
    ids=["another endpoint", "withdrawn", "another pod"],
)
def test_rule_3_a_change_of_endpoint_or_pod_makes_due_at_once(changed: Target) -> None:
    assert due_at(changed, trial()) == 0


def test_the_counts_name_those_that_were_not_tried() -> None:
    trials = {"a": trial(), "b": trial(cause_of("connection refused"))}
    assert counts(trials, 5) == {
        Reason.STREAMING_VERIFIED: 1,
        Reason.CONNECTION_REFUSED: 1,
        Reason.NOT_TRIED: 3,
    }
    assert Reason.NOT_TRIED not in counts(trials, 2)
