"""One reaping pass over large fleets: no API server, every ask answered from memory.

Three agents in a hundred are dead, so that the guards let some go: what is measured is the judgement of every
node, the guards, and the pass with its ledger; beside it the requests that the operator would send.
"""

from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from bench import fleet
from bench.options import Options
from bench.pure import cpu_of
from bench.report import Figure, Series
from clusterconform.contract.asks import Answer, Ask, LedgerText, ReadClock, ReadLedger, ReadNode, ReadNodeLease
from clusterconform.contract.facts import NodeFacts
from clusterconform.contract.memory import NodeMemory
from clusterconform.contract.reaping import Agents, Fleet, Mode, ReapingMemory
from clusterconform.contract.settings import NodeGC
from clusterconform.contract.times import Moment
from clusterconform.contract.verdicts import Catalogue, NodeVerdict
from clusterconform.contract.witness import FreshNode, LeaseFacts
from clusterconform.decisions.planning import decide
from clusterconform.decisions.reaping import reap

NAME: Final = "reaping"

_SIZES: Final = {5_000: 0.2, 50_000: 2.0}
_DEAD_EACH: Final = 33
_LONG_AGO: Final = timedelta(hours=30)


def measure(options: Options) -> list[Figure]:
    """One full decision for each size: CPU seconds, and requests by kind."""
    series = Series(NAME)
    now = datetime.now(UTC)
    catalogue = fleet.catalogue()
    moment = Moment(wall=now, uptime=1e6)
    for size, goal in _SIZES.items():
        options.tell(f"{size:,} agents")
        nodes = fleet.agents(size, now=now, dead_each=_DEAD_EACH, dead_since=now - _LONG_AGO)
        subject = f"{size:,} agents"
        for _ in range(options.runs):
            verdicts: list[NodeVerdict] = []
            asked: Counter[str] = Counter()
            judging = cpu_of(partial(_judge, nodes, catalogue, moment, verdicts))
            seen = Fleet(
                nodes=list(zip(nodes, verdicts, strict=True)),
                agents=Agents(backend="k3s", policy=NodeGC()),
                mode=Mode.LIVE,
                trusted_seconds=1e6,
            )
            passing = cpu_of(partial(_play, seen, moment, asked))
            series.add(subject, "verdicts, kept from event to event", judging, unit="s CPU")
            series.add(subject, "one full decision", passing, unit="s CPU", at_most=goal)
            for kind in ("AskFence", "ReadNode", "ReadNodeLease", "SwapLedger", "DeleteNode"):
                series.add(subject, f"{kind} in the pass", asked[kind])
    return series.figures()


def _judge(nodes: list[NodeFacts], catalogue: Catalogue, moment: Moment, verdicts: list[NodeVerdict]) -> None:
    clean = NodeMemory(clean_since=-3600.0)
    verdicts += [decide(node, catalogue, clean, moment).verdict for node in nodes]


def _play(seen: Fleet, moment: Moment, asked: Counter[str]) -> None:
    facts = {node.name: node for node, _ in seen.nodes}
    steps, answer = reap(seen, ReapingMemory()), None
    while True:
        try:
            ask: Ask = steps.send(answer)
        except StopIteration:
            return
        asked[type(ask).__name__] += 1
        answer = _answer(ask, facts, moment)


def _answer(ask: Ask, facts: dict[Any, NodeFacts], moment: Moment) -> Answer:
    match ask:
        case ReadClock():
            return moment
        case ReadLedger():
            return LedgerText(text="", trust=None, created_at=None)
        case ReadNode():
            return FreshNode(facts=facts[ask.name], ready_stamp=None)
        case ReadNodeLease():
            return LeaseFacts(renewed=None, stamp=None)
        case _:
            return None
