"""What a run of the benchmarks is asked for."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How much is measured.

    Attributes:
        nodes: size of the fleet.
        runs: how often everything is repeated.
        sizes: the fleets of the benchmark against size.
        rest_seconds: how long the operator is watched at rest.
        heartbeat_seconds: how long heartbeats go on.
        tell: told what is going on.
    """

    nodes: int
    runs: int
    sizes: tuple[int, ...]
    rest_seconds: float
    heartbeat_seconds: float
    tell: Callable[[str], None]
