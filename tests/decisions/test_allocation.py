"""Who gets which endpoint: rows A and V of contract §5.6 and §5.7, and the rules of the module."""

from dataclasses import replace

import pytest
from endpoints import answers, book_of, by_age, standing

from clusterconform.contract.verdicts import Reason
from clusterconform.decisions import allocation
from clusterconform.decisions.allocation import AddressBook


def in_file(*names: str) -> AddressBook:
    """As in files: without times, so that the uid, here the name, decides."""
    return book_of(standing(name, born=None) for name in names)


def addresses(book: AddressBook, *names: str) -> list[str]:
    return [endpoint.address for name in names if (endpoint := book.endpoint(name)) is not None]


def withheld(book: AddressBook, name: str) -> Reason | None:
    endpoint = book.endpoint(name)
    assert endpoint is not None
    return endpoint.withheld.reason if endpoint.withheld else None


def test_A1_five_hundred_nodes_get_five_hundred_addresses() -> None:
    names = [f"node-{index}" for index in range(500)]
    assert len(set(addresses(in_file(*names), *names))) == 500


def test_A3_the_same_nodes_get_the_same_addresses_each_time() -> None:
    names = ("alpha", "beta", "gamma", "delta")
    assert addresses(in_file(*names), *names) == addresses(in_file(*reversed(names)), *names)


def test_A4_a_node_that_is_put_twice_keeps_its_address() -> None:
    book = in_file("worker", "worker")
    assert (len(book), addresses(book, "worker")) == (1, ["127.0.156.87"])


def test_A5_the_endpoint_follows_from_the_base_name() -> None:
    book = book_of([standing("novidesign-4c7adeb6", base="novidesign")])
    assert answers(book, [standing("novidesign-4c7adeb6")])["novidesign-4c7adeb6"] == ("127.0.44.229", 24933, None)


def test_A17_of_two_live_nodes_of_one_base_the_elder_is_published_and_the_younger_withheld() -> None:
    elder = standing("laptop-bbbbbbbb", born=1, base="laptop")
    younger = standing("laptop-aaaaaaaa", born=2, base="laptop")
    book = book_of([younger, elder])
    assert answers(book, [elder, younger]) == {
        "laptop-bbbbbbbb": ("127.0.198.45", 23933, None),
        "laptop-aaaaaaaa": ("127.0.198.46", 23933, Reason.PORT_COLLISION),
    }


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param(["node-1810", "node-273"], ["127.0.15.64", "127.0.15.65"], id="V1"),
        pytest.param(
            ["worker-2078", "worker-2268", "worker-627"],
            ["127.0.216.155", "127.0.216.156", "127.0.216.157"],
            id="V2",
        ),
        pytest.param(
            ["top-44143", "wrap-32581", "wrap-70749"], ["127.0.255.255", "127.0.1.0", "127.0.1.1"], id="V3"
        ),
        pytest.param(["n404", "n8"], ["127.0.46.43", "127.0.46.44"], id="V4"),
    ],
)
def test_collisions_of_addresses_without_times_are_resolved_as_the_reference_does(
    names: list[str], expected: list[str]
) -> None:
    assert addresses(in_file(*names), *names) == expected
    assert addresses(in_file(*reversed(names)), *names) == expected


def test_V1_a_newcomer_that_sorts_earlier_moves_nobody() -> None:
    book = book_of([standing("node-273", born=1)])
    assert book.put(standing("node-1810", born=2)) == {"node-1810"}
    assert addresses(book, "node-273", "node-1810") == ["127.0.15.64", "127.0.15.65"]


@pytest.mark.parametrize(
    ("elder", "younger", "port"),
    [
        pytest.param("worker-408", "worker-17", 23886, id="V5"),
        pytest.param("node-210", "node-140", 22727, id="V6"),
    ],
)
def test_two_live_nodes_on_one_port_the_elder_is_published(elder: str, younger: str, port: int) -> None:
    book = book_of([standing(younger, born=2), standing(elder, born=1)])
    told = [book.endpoint(name) for name in (elder, younger)]
    assert [endpoint.port for endpoint in told if endpoint] == [port, port]
    assert (withheld(book, elder), withheld(book, younger)) == (None, Reason.PORT_COLLISION)


def test_V5_the_loopbacks_are_their_own() -> None:
    assert addresses(in_file("worker-17", "worker-408"), "worker-17", "worker-408") == [
        "127.0.212.238",
        "127.0.73.70",
    ]


def test_rule_1_without_a_time_a_node_counts_as_young() -> None:
    book = book_of([standing("n404", born=None), standing("n8", born=5)])
    assert addresses(book, "n8", "n404") == ["127.0.46.43", "127.0.46.44"]


def test_rule_1_of_the_same_age_the_uid_decides() -> None:
    book = book_of([standing("n404", uid="z"), standing("n8", uid="a")])
    assert addresses(book, "n8", "n404") == ["127.0.46.43", "127.0.46.44"]


def test_rule_2_a_displaced_node_moves_home_once_when_its_elder_goes() -> None:
    book = book_of([standing("n404", born=1), standing("n8", born=2)])
    assert book.drop("n404") == {"n404", "n8"}
    assert addresses(book, "n8") == ["127.0.46.43"]
    assert book.drop("n404") == set()


def test_rule_3_when_the_holder_of_a_port_goes_the_next_is_published() -> None:
    book = book_of([standing("worker-17", born=1), standing("worker-408", born=2)])
    assert "worker-408" in book.drop("worker-17")
    assert withheld(book, "worker-408") is None


def test_rule_3_an_elder_that_is_not_ready_keeps_the_port_from_another_base() -> None:
    book = book_of([standing("worker-17", born=1, is_ready=False), standing("worker-408", born=2)])
    assert withheld(book, "worker-408") is Reason.PORT_COLLISION


def test_rule_4_a_ghost_gives_its_endpoint_to_the_younger_node_of_its_base() -> None:
    ghost = standing("laptop-1", born=1, base="laptop", is_ready=False)
    book = book_of([ghost, standing("laptop-2", born=2, base="laptop")])
    assert answers(book, [ghost, standing("laptop-2")]) == {
        "laptop-1": ("", 23933, Reason.GHOST),
        "laptop-2": ("127.0.198.45", 23933, None),
    }


def test_rule_4_a_ghost_that_recovers_gets_its_endpoint_back() -> None:
    elder, younger = standing("laptop-1", born=1, base="laptop"), standing("laptop-2", born=2, base="laptop")
    book = book_of([elder, younger])
    dead = standing("laptop-1", born=1, base="laptop", is_ready=False)
    assert book.put(dead) == {"laptop-1", "laptop-2"}
    assert (withheld(book, "laptop-1"), withheld(book, "laptop-2")) == (Reason.GHOST, None)
    assert book.put(elder) == {"laptop-1", "laptop-2"}
    assert (withheld(book, "laptop-1"), withheld(book, "laptop-2")) == (None, Reason.PORT_COLLISION)


@pytest.mark.parametrize("younger_ready", [True, False])
def test_rule_4_an_elder_is_no_ghost_while_the_younger_is_not_ready_or_it_is(younger_ready: bool) -> None:
    elder = standing("laptop-1", born=1, base="laptop", is_ready=younger_ready)
    book = book_of([elder, standing("laptop-2", born=2, base="laptop", is_ready=younger_ready)])
    assert (withheld(book, "laptop-1"), withheld(book, "laptop-2")) == (None, Reason.PORT_COLLISION)


def test_rule_4_a_younger_node_that_is_not_ready_is_no_ghost() -> None:
    younger = standing("laptop-2", born=2, base="laptop", is_ready=False)
    book = book_of([standing("laptop-1", born=1, base="laptop"), younger])
    assert answers(book, [younger]) == {"laptop-2": ("127.0.198.46", 23933, Reason.PORT_COLLISION)}


def test_rule_5_a_withheld_node_keeps_its_address_reserved() -> None:
    # "a" collides with nobody's address; its port's elder is a twin, and its slot stays its own.
    twin, other = standing("a-1", born=1, base="a"), standing("a-2", born=2, base="a")
    book = book_of([twin, other])
    reserved = addresses(book, "a-2")
    book.drop("a-1")
    assert reserved == ["127.0.27.45"]
    assert addresses(book, "a-2") == ["127.0.27.44"]


def test_nothing_new_touches_nobody() -> None:
    node = standing("n8", born=1)
    book = book_of([node])
    assert book.put(replace(node, resource_version="8", kubelet_port=1)) == set()


def test_when_all_addresses_are_taken_the_youngest_waits_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocation, "SLOTS", 3)
    monkeypatch.setattr(allocation, "home_slot", lambda name: len(name) % 3)
    names = ["a", "bb", "cc", "dd", "ee"]
    book = book_of(standing(name, born=age) for age, name in reversed(list(enumerate(names))))
    assert [withheld(book, name) for name in names] == [None, None, None, *[Reason.ADDRESSES_EXHAUSTED] * 2]
    book.drop("bb")
    assert addresses(book, "a", "cc", "dd") == ["127.0.1.1", "127.0.1.2", "127.0.1.0"]
    assert withheld(book, "ee") is Reason.ADDRESSES_EXHAUSTED
    assert book.endpoint("bb") is None


def test_the_plain_rules_and_the_book_agree_on_a_large_fleet() -> None:
    nodes = [standing(f"node-{index}", born=(index * 7919) % 5000) for index in range(5000)]
    assert answers(book_of(nodes), nodes) == by_age(nodes)
