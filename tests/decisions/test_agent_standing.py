"""The three conditions of the agents and their counts; numbered as the module's rules."""

from typing import Any

import pytest

from clusterconform.contract.settings import AddressMode, AddressReconcile, ProbeMode, RuntimeProbe
from clusterconform.contract.verdicts import Finding, Reason
from clusterconform.decisions.agent_standing import AgentStanding, blocks_of, count_probes, results_of
from clusterconform.decisions.sandbox import ProbeVerdict, Runtime

PUBLISHED, MISSING, GHOST = Reason.ENDPOINT_PUBLISHED, Reason.ENDPOINT_MISSING, Reason.GHOST
READY, SICK, NONE = Runtime.READY, Runtime.UNAVAILABLE, Runtime.NONE


def standing(**parts: Any) -> AgentStanding:
    mode = parts.pop("mode", AddressMode.STATUS)
    probe = parts.pop("probe", ProbeMode.ENFORCE)
    return AgentStanding(addressing=AddressReconcile(mode=mode), probing=RuntimeProbe(mode=probe), **parts)


def told(kind: str, *, complete: bool = True, **parts: Any) -> tuple[str, Reason]:
    status, finding = results_of(standing(**parts), complete=complete)[kind]
    return status, finding.reason


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"endpoints": {PUBLISHED: 3}}, ("True", PUBLISHED)),
        ({"endpoints": {PUBLISHED: 3, GHOST: 1}}, ("True", PUBLISHED)),
        ({"endpoints": {PUBLISHED: 3, MISSING: 1}}, ("False", Reason.ENDPOINTS_NOT_PUBLISHED)),
        ({"endpoints": {PUBLISHED: 3, Reason.PORT_COLLISION: 1}}, ("False", Reason.ENDPOINTS_NOT_PUBLISHED)),
        ({"endpoints": {PUBLISHED: 3}, "unpinned": "gone"}, ("False", Reason.PINNING_POLICY_MISSING)),
        ({}, ("True", Reason.NO_NODES)),
        ({"mode": AddressMode.OFF}, ("Unknown", Reason.SWITCHED_OFF)),
    ],
)
def test_rule_1_addresses_published(parts: dict[str, Any], expected: tuple[str, Reason]) -> None:
    assert told("AddressesPublished", **parts) == expected


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"runtimes": {READY: 3}}, ("True", Reason.RUNTIME_READY)),
        ({"runtimes": {READY: 3, NONE: 5}}, ("True", Reason.RUNTIME_READY)),
        ({"runtimes": {NONE: 5}}, ("Unknown", Reason.NO_PROBE)),
        ({"runtimes": {READY: 3, SICK: 1}}, ("False", Reason.RUNTIMES_UNAVAILABLE)),
        ({"runtimes": {READY: 1, SICK: 3}, "held": 2}, ("False", Reason.MASS_UNAVAILABLE)),
        (
            {"runtimes": {READY: 3}, "trouble": Finding(Reason.PROBE_NOT_KEPT, "no")},
            ("False", Reason.PROBE_NOT_KEPT),
        ),
        ({}, ("True", Reason.NO_NODES)),
        ({"probe": ProbeMode.OFF}, ("Unknown", Reason.SWITCHED_OFF)),
    ],
)
def test_rule_2_probe_healthy(parts: dict[str, Any], expected: tuple[str, Reason]) -> None:
    assert told("ProbeHealthy", **parts) == expected


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({Reason.STREAMING_VERIFIED: 3}, ("True", Reason.STREAMING_VERIFIED)),
        ({Reason.STREAMING_VERIFIED: 3, Reason.NOT_TRIED: 2}, ("True", Reason.STREAMING_VERIFIED)),
        ({Reason.NOT_TRIED: 2}, ("Unknown", Reason.NOT_TRIED)),
        (
            {Reason.STREAMING_VERIFIED: 3, Reason.CONNECTION_REFUSED: 1},
            ("False", Reason.STREAMING_NOT_VERIFIED),
        ),
        ({}, ("Unknown", Reason.NOT_TRIED)),
        (None, ("Unknown", Reason.SWITCHED_OFF)),
    ],
)
def test_rule_3_streaming_verified(counts: Any, expected: tuple[str, Reason]) -> None:
    assert told("StreamingVerified", streaming=counts) == expected


@pytest.mark.parametrize("kind", ["ProbeHealthy", "AddressesPublished", "StreamingVerified"])
def test_rule_4_what_is_not_known_yet_is_unknown(kind: str) -> None:
    assert told(kind, complete=False, endpoints={MISSING: 1}) == ("Unknown", Reason.EVIDENCE_INCOMPLETE)


def test_a_message_counts_what_is_not_well_by_its_reason() -> None:
    seen = standing(endpoints={PUBLISHED: 3, MISSING: 2, Reason.PORT_COLLISION: 1})
    _, finding = results_of(seen, complete=True)["AddressesPublished"]
    assert finding.message == "3 of 6 agents show their endpoint (2 EndpointMissing, 1 PortCollision)"


def test_the_message_of_streaming_holds_the_api_server_s_own_words() -> None:
    seen = standing(streaming={Reason.CONNECTION_REFUSED: 1}, words="dial tcp: connection refused")
    assert "dial tcp: connection refused" in results_of(seen, complete=True)["StreamingVerified"][1].message


def test_the_counts() -> None:
    seen = standing(
        endpoints={PUBLISHED: 3, MISSING: 2, Reason.PORT_COLLISION: 1, GHOST: 1, Reason.ADDRESS_CONTESTED: 1},
        real=1,
        runtimes={READY: 4, SICK: 2, NONE: 1},
        held=1,
        streaming={Reason.STREAMING_VERIFIED: 3, Reason.TIMED_OUT: 1, Reason.NOT_TRIED: 2},
    )
    assert blocks_of(seen) == {
        "addressReconcile": {"agents": 8, "published": 3, "withheld": 2, "missing": 3, "realExternalIPs": 1},
        "runtimeProbe": {"agents": 7, "ready": 4, "unavailable": 2, "undecided": 1, "held": 1},
        "streaming": {"verified": 3, "notVerified": 1, "notTried": 2},
    }
    assert "streaming" not in blocks_of(standing())


def test_probes_are_counted_by_runtime_and_cause() -> None:
    verdicts = [
        ProbeVerdict(runtime=READY, cause=Finding(Reason.RUNTIME_READY, "")),
        ProbeVerdict(runtime=SICK, cause=Finding(Reason.MASS_UNAVAILABLE, ""), held=True),
    ]
    assert count_probes(verdicts) == (
        {READY: 1, SICK: 1},
        {Reason.RUNTIME_READY: 1, Reason.MASS_UNAVAILABLE: 1},
        1,
    )
