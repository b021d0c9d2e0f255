"""The judgement on two replicas that other tests lean on: who did what, while whose name stood in the Lease."""

from typing import Any, cast

import pytest
from proxy import Exchange
from reaping_crashes import LEDGER, Scene
from replicas import acted, check_holders

from clusterconform.contract.lease import LEASE_PATH
from clusterconform.contract.names import LEDGER_CONFIGMAP, NAMESPACE, TERM_KEY

Deed = tuple[str, str, str]


class Passed:
    """What passed one proxy."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []


class Told:
    """A scene of which only the audit log and what passed the two proxies is there."""

    def __init__(self, *deeds: Deed) -> None:
        """Each deed is the proxy, the kind, and the name that was written or deleted."""
        self.first, self.second = Passed(), Passed()
        self.world, self._entries = self, [self._entry(number, *deed) for number, deed in enumerate(deeds)]

    def requests(self) -> list[Any]:
        # The log is in no order that anybody promises.
        return self._entries[::-1]

    def until(self, condition: Any, what: str) -> None:
        assert condition(), what

    def _entry(self, number: int, proxy: str, kind: str, name: str) -> Any:
        method, path, body, about = {
            "lease": (
                "PUT",
                LEASE_PATH,
                {"spec": {"holderIdentity": name}},
                {"resource": "leases", "namespace": NAMESPACE, "name": "clusterconform"},
            ),
            "ledger": (
                "PUT",
                LEDGER,
                {"data": {TERM_KEY: f"1/{name}/uid"}},
                {"resource": "configmaps", "namespace": NAMESPACE, "name": LEDGER_CONFIGMAP},
            ),
            "deletion": ("DELETE", f"/api/v1/nodes/{name}", {}, {"resource": "nodes", "name": name}),
            "refused": ("DELETE", f"/api/v1/nodes/{name}", {}, {"resource": "nodes", "name": name}),
        }[kind]
        exchange = Exchange(number, method, path, "", body, 200, audit=f"a-{number}")
        (self.first if proxy == "first" else self.second).exchanges.append(exchange)
        return {
            "auditID": exchange.audit,
            "verb": {"PUT": "update", "DELETE": "delete"}[method],
            "objectRef": about,
            "responseStatus": {"code": 403 if kind == "refused" else 200},
            "stageTimestamp": f"2026-08-01T12:00:{number:02}.000000Z",
        }


def told(*deeds: Deed) -> Scene:
    return cast(Scene, Told(*deeds))


LEADS: tuple[Deed, ...] = (("first", "lease", "a"), ("first", "ledger", "a"), ("first", "deletion", "x"))
TAKES_OVER: tuple[Deed, ...] = (("second", "lease", "b"), ("second", "ledger", "b"), ("second", "deletion", "y"))


def test_what_each_does_in_a_term_of_its_own_is_right() -> None:
    scene = told(*LEADS, ("first", "refused", "z"), ("first", "lease", ""), *TAKES_OVER)
    check_holders(scene)
    assert [(who, leader) for _, who, leader in acted(scene)] == [("a", "a")] * 2 + [("b", "b")] * 2


@pytest.mark.parametrize("late", [("first", "deletion", "z"), ("first", "ledger", "a")])
def test_a_deed_after_another_took_the_lease_is_wrong(late: Deed) -> None:
    with pytest.raises(AssertionError, match="by a, while b held the Lease"):
        check_holders(told(*LEADS, *TAKES_OVER, late))


def test_a_deed_after_the_lease_was_released_is_wrong() -> None:
    with pytest.raises(AssertionError, match="by a, while nobody held the Lease"):
        check_holders(told(*LEADS, ("first", "lease", ""), ("first", "deletion", "z")))


def test_a_deed_before_the_lease_was_taken_is_wrong() -> None:
    with pytest.raises(AssertionError, match="by b, while a held the Lease"):
        check_holders(told(*LEADS, ("second", "ledger", "b")))


def test_a_name_that_comes_back_is_wrong() -> None:
    with pytest.raises(AssertionError, match="after another's term"):
        check_holders(told(*LEADS, *TAKES_OVER, *LEADS))


def test_nothing_done_at_all_proves_nothing() -> None:
    with pytest.raises(AssertionError):
        check_holders(told(("first", "lease", "a")))
