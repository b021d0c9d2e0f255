"""Who gets which endpoint: a book of all agents that needs no stored state.

1. The elder goes first, by creation and then uid: a newcomer never moves anybody, and no node can forge its
   place. Without a time, as in files, a node counts as young.
2. A node whose home is taken gets the next free address, the last being followed by the first. Without a
   collision every address is the one that both ends derive.
3. Of several nodes on one derived port the eldest is published and the others are withheld: a worker opens
   the port that it derived itself, so nobody can move it, and a dial to the second would reach the first.
4. A ghost (not Ready, while a younger node of the same base is) gives its endpoint up.
5. A withheld node keeps its address reserved, or the day on which it is published would move others.

The book is kept by insertion with displacement: who is elder keeps a slot, who is younger goes on looking.
The result is the one that visiting all agents by age would give, whatever the order of joining and leaving,
and a join or a leave costs what the collisions around it cost, not a look at the whole fleet.
"""

from bisect import insort
from dataclasses import dataclass, field
from typing import Final

from clusterconform.contract.facts import NodeFacts
from clusterconform.contract.names import NODE_ARGS_ANNOTATION
from clusterconform.contract.verdicts import Finding, Reason
from clusterconform.decisions.derivation import SLOTS, home_slot, kubelet_port, loopback, routing_name

Age = tuple[bool, float, str, str]
_NEVER: Final = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where the API server is to dial a node.

    Attributes:
        routing_name: What both ends derive it from.
        address: The loopback address; empty for a ghost, and where none is left.
        port: The kubelet port.
        withheld: Why it is not published; None where it is.
        holder: Whose port it derived, where that is why.
    """

    routing_name: str
    address: str
    port: int
    withheld: Finding | None = None
    holder: str = ""


@dataclass(frozen=True, slots=True)
class _Claim:
    """What an agent asks for; everything that its endpoint depends on."""

    name: str
    age: Age
    base: str
    home: int
    port: int
    ready: bool


@dataclass(slots=True)
class AddressBook:
    """The agents and their endpoints.

    Attributes:
        port_base: First port of the range.
        port_slots: Number of ports in it.
    """

    port_base: int
    port_slots: int
    _grounds: dict[str, tuple[object, ...]] = field(default_factory=dict)
    _claims: dict[str, _Claim] = field(default_factory=dict)
    _slots: dict[int, _Claim] = field(default_factory=dict)
    _places: dict[str, int] = field(default_factory=dict)
    _homeless: dict[str, _Claim] = field(default_factory=dict)
    _ports: dict[int, list[tuple[Age, str]]] = field(default_factory=dict)
    _bases: dict[str, set[str]] = field(default_factory=dict)

    def __len__(self) -> int:
        """Agents in the book."""
        return len(self._claims)

    def __contains__(self, name: str) -> bool:
        """Whether the node called ``name`` is in the book."""
        return name in self._claims

    def put(self, node: NodeFacts) -> set[str]:
        """Take an agent as it is now; returns the names of those whose endpoint may have changed."""
        # What a claim rests on, compared first: most news of a node is about something else.
        grounds = (node.uid, node.created_at, node.annotations.get(NODE_ARGS_ANNOTATION), _is_ready(node))
        if self._grounds.get(node.name) == grounds:
            return set()
        self._grounds[node.name] = grounds
        claim = self._claim_of(node)
        known = self._claims.get(node.name)
        return set() if known == claim else self._replace(known, claim)

    def drop(self, name: str) -> set[str]:
        """Forget an agent; returns the names of those whose endpoint may have changed."""
        known = self._claims.get(name)
        self._grounds.pop(name, None)
        return set() if known is None else self._replace(known, None)

    def endpoint(self, name: str) -> Endpoint | None:
        """The endpoint of the agent called ``name``; None where it is not in the book."""
        claim = self._claims.get(name)
        if claim is None:
            return None
        slot, withheld = self._places.get(name), self._withheld(claim)
        collides = withheld is not None and withheld.reason is Reason.PORT_COLLISION
        return Endpoint(
            routing_name=claim.base,
            address="" if slot is None else loopback(slot),
            port=claim.port,
            withheld=withheld,
            holder=self._ports[claim.port][0][1] if collides else "",
        )

    def _withheld(self, claim: _Claim) -> Finding | None:
        younger = [other.name for other in self._kin(claim.base) if other.ready and other.age > claim.age]
        if younger and not claim.ready:
            return Finding(Reason.GHOST, f"not Ready, and {min(younger)} is a younger Ready node of {claim.base}")
        _, first = self._ports[claim.port][0]
        if first != claim.name:
            return Finding(Reason.PORT_COLLISION, f"port {claim.port} belongs to {first}, which is older")
        if claim.name in self._homeless:
            return Finding(Reason.ADDRESSES_EXHAUSTED, "all loopback addresses are taken by older nodes")
        return None

    def _claim_of(self, node: NodeFacts) -> _Claim:
        base = routing_name(node)
        created = node.created_at
        return _Claim(
            name=node.name,
            age=(created is None, created.timestamp() if created else _NEVER, node.uid, node.name),
            base=base,
            home=home_slot(base),
            port=kubelet_port(base, base=self.port_base, slots=self.port_slots),
            ready=_is_ready(node),
        )

    def _replace(self, old: _Claim | None, new: _Claim | None) -> set[str]:
        bases = {claim.base for claim in (old, new) if claim is not None}
        ghosts = self._ghosts(bases)
        touched = {claim.name for claim in (old, new) if claim is not None}
        if old is not None:
            touched |= self._unplace(old)
            del self._claims[old.name]
            self._bases[old.base].discard(old.name)
            if not self._bases[old.base]:
                del self._bases[old.base]
        if new is not None:
            self._claims[new.name] = new
            self._bases.setdefault(new.base, set()).add(new.name)
        now_ghosts = self._ghosts(bases)
        for name in now_ghosts - ghosts - touched:
            touched |= {name, *self._unplace(self._claims[name])}
        for name in ghosts - now_ghosts - touched:
            touched |= {name, *self._place(self._claims[name])}
        if new is not None and new.name not in now_ghosts:
            touched |= self._place(new)
        return touched

    def _ghosts(self, bases: set[str]) -> set[str]:
        return {claim.name for base in bases for claim in self._kin(base) if self._is_ghost(claim)}

    def _kin(self, base: str) -> list[_Claim]:
        return [self._claims[name] for name in self._bases.get(base, ())]

    def _is_ghost(self, claim: _Claim) -> bool:
        return not claim.ready and any(other.ready and other.age > claim.age for other in self._kin(claim.base))

    def _place(self, claim: _Claim) -> set[str]:
        """Give ``claim`` its rank on its port and its slot; returns whose endpoint may have changed."""
        line = self._ports.setdefault(claim.port, [])
        first = line[:1]
        insort(line, (claim.age, claim.name))
        return {claim.name, *self._line_if_new(line, first), *self._settle(claim)}

    def _settle(self, claim: _Claim) -> list[str]:
        """Let ``claim`` look from home on, and whoever it displaces after it; returns who moved."""
        slot, moved = claim.home, []
        for _ in range(SLOTS):
            holder = self._slots.get(slot)
            if holder is None or claim.age < holder.age:
                self._slots[slot], self._places[claim.name] = claim, slot
                moved.append(claim.name)
                if holder is None:
                    return moved
                claim = holder
            slot = (slot + 1) % SLOTS
        self._places.pop(claim.name, None)
        self._homeless[claim.name] = claim
        return [*moved, claim.name]

    def _unplace(self, claim: _Claim) -> set[str]:
        """Take rank and slot from ``claim``; returns whose endpoint may have changed."""
        line = self._ports.get(claim.port, [])
        first = line[:1]
        if (claim.age, claim.name) in line:
            line.remove((claim.age, claim.name))
        if not line:
            self._ports.pop(claim.port, None)
        self._homeless.pop(claim.name, None)
        gap = self._places.pop(claim.name, None)
        moved = [] if gap is None else self._close(gap)
        return {*self._line_if_new(line, first), *moved}

    def _close(self, gap: int) -> list[str]:
        """Fill ``gap`` by the eldest that passed it by, then the gap that this leaves; returns who moved.

        The next one that passed it by is the eldest: between home and place everybody meets elders only.
        """
        moved, slot = [], gap
        del self._slots[gap]
        while (slot := (slot + 1) % SLOTS) in self._slots:
            holder = self._slots[slot]
            if (slot - holder.home) % SLOTS >= (slot - gap) % SLOTS:
                self._slots[gap], self._places[holder.name] = holder, gap
                del self._slots[slot]
                moved.append(holder.name)
                gap = slot
        if self._homeless:
            eldest = min(self._homeless.values(), key=lambda claim: claim.age)
            self._slots[gap], self._places[eldest.name] = eldest, gap
            del self._homeless[eldest.name]
            moved.append(eldest.name)
        return moved

    @staticmethod
    def _line_if_new(line: list[tuple[Age, str]], first: list[tuple[Age, str]]) -> list[str]:
        # Only a new first changes what the others are told.
        return [] if line[:1] == first else [name for _, name in line]


def _is_ready(node: NodeFacts) -> bool:
    return node.ready is not None and node.ready.status == "True"
