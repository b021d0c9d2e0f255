"""Endpoints: given to one live node each, moved by no join, and only by the leave of who displaced them."""

from typing import Any

from endpoints import answers, book_of, by_age, standing
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from clusterconform.contract.facts import NodeFacts
from clusterconform.decisions.derivation import SLOTS, home_slot, kubelet_port, loopback, routing_name

# Names that collide by address (V1-V4), by port (V5, V6), by base, and some that do not.
_NAMES = [
    *("node-273", "node-1810", "worker-627", "worker-2078", "worker-2268", "n8", "n404"),
    *("top-44143", "wrap-32581", "wrap-70749", "worker-17", "worker-408", "node-140", "node-210"),
    *("alpha", "pi-1", "pi-2", "pi-3", "pi-4", "pi-5", "laptop-1", "laptop-2", "laptop-3"),
]


def _node(drawn: tuple[str, int, bool, bool]) -> NodeFacts:
    name, born, is_ready, based = drawn
    base = name.split("-", maxsplit=1)[0] if based and name.startswith(("pi-", "laptop-")) else ""
    return standing(name, born=born, base=base, is_ready=is_ready)


_based = st.sampled_from([True, True, True, False])
_drawn = st.tuples(st.sampled_from(_NAMES), st.integers(0, 5), st.booleans(), _based).map(_node)
fleets: SearchStrategy[list[NodeFacts]] = st.lists(_drawn, max_size=14, unique_by=lambda node: node.name)
# A narrow range of ports makes collisions the rule.
ranges = st.sampled_from([{"base": 21000, "slots": 9000}, {"base": 21000, "slots": 3}])
Told = dict[str, tuple[str, int, Any]]


def distance(node: NodeFacts, told: Told) -> int:
    """How far from home a node is; -1 where it has no address."""
    address = told[node.name][0]
    if not address:
        return -1
    return next(
        step for step in range(SLOTS) if loopback((home_slot(routing_name(node)) + step) % SLOTS) == address
    )


class TestEndpointsAreStable:
    """No endpoint is given to two live nodes; a newcomer never moves an elder; a leave moves whom it displaced."""

    @given(fleet=fleets, ports=ranges)
    def test_no_endpoint_is_given_to_two_nodes(self, fleet: list[NodeFacts], ports: Any) -> None:
        told = answers(book_of(fleet, ports), fleet).values()
        published = [(address, port) for address, port, why in told if why is None]
        assert len({port for _, port in published}) == len(published)
        assert len({address for address, _ in published}) == len(published)

    @given(fleet=fleets, ports=ranges)
    def test_what_is_told_is_what_visiting_by_age_gives(self, fleet: list[NodeFacts], ports: Any) -> None:
        assert answers(book_of(fleet, ports), fleet) == by_age(fleet, ports)

    @given(steps=st.lists(_drawn | st.sampled_from(_NAMES), max_size=30), ports=ranges)
    def test_joining_and_leaving_in_any_order_ends_at_the_same(self, steps: list[Any], ports: Any) -> None:
        book, present = book_of([], ports), dict[str, NodeFacts]()
        for step in steps:
            before = answers(book, present.values())
            if isinstance(step, str):
                touched = book.drop(step)
                present.pop(step, None)
            else:
                touched = book.put(step)
                present[step.name] = step
            told = answers(book, present.values())
            assert told == by_age(present.values(), ports)
            assert {name for name in told if told[name] != before.get(name)} <= touched

    @given(fleet=fleets, newcomer=_drawn, ports=ranges)
    def test_no_join_moves_a_node(self, fleet: list[NodeFacts], newcomer: NodeFacts, ports: Any) -> None:
        # What a join may end is a ghost: the newcomer is the rejoin of a machine that is not Ready any more.
        kin = {node.name for node in fleet if routing_name(node) == routing_name(newcomer)}
        elders = [node for node in fleet if node.name != newcomer.name]
        young = standing(
            newcomer.name, born=9999, base=routing_name(newcomer), is_ready=bool(newcomer.ready and not kin)
        )
        book = book_of(elders, ports)
        before = answers(book, elders)
        book.put(young)
        assert answers(book, elders) == before

    @given(fleet=fleets, ports=ranges, data=st.data())
    def test_a_leave_moves_only_those_that_it_displaced_and_those_once(
        self, fleet: list[NodeFacts], ports: Any, data: st.DataObject
    ) -> None:
        alive = [node for node in fleet if node.ready is not None and node.ready.status == "True"]
        if not alive:
            return
        leaver = data.draw(st.sampled_from(alive))
        rest = [node for node in fleet if node is not leaver and routing_name(node) != routing_name(leaver)]
        book = book_of([*rest, leaver], ports)
        before = answers(book, rest)
        book.drop(leaver.name)
        after = answers(book, rest)
        for node in rest:
            if before[node.name][0] != after[node.name][0]:
                assert 0 <= distance(node, after) < distance(node, before)
                assert (node.created_at, node.uid) > (leaver.created_at, leaver.uid)

    @given(fleet=fleets)
    def test_where_no_collision_exists_all_is_as_both_ends_derive_it(self, fleet: list[NodeFacts]) -> None:
        told = answers(book_of(fleet), fleet)
        homes = [home_slot(routing_name(node)) for node in fleet]
        numbers = [kubelet_port(routing_name(node), base=21000, slots=9000) for node in fleet]
        for node, home, port in zip(fleet, homes, numbers, strict=True):
            near = {home - step for step in range(len(fleet))}
            if sum(other in near for other in homes) == 1 and numbers.count(port) == 1:
                assert told[node.name] == (loopback(home), port, None)
