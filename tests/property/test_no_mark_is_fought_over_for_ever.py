from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from builders import TAINT, agent, catalogue, virtual
from hypothesis import given
from hypothesis import strategies as st
from story import Story

from clusterconform.decisions.planning import Decision

Json = dict[str, Any]
Change = Callable[[Json], object]


def label(key: str, value: str | None) -> Change:
    def change(raw: Json) -> None:
        labels = raw["metadata"]["labels"]
        labels.pop(f"outpost.dhnt.io/{key}", None)
        if value is not None:
            labels[f"outpost.dhnt.io/{key}"] = value

    return change


def taint(*taints: Json) -> Change:
    return lambda raw: raw["spec"].update(taints=list(taints))


def nothing(_: Json) -> None:
    pass


_changes = st.sampled_from(
    [
        nothing,
        label("runtime", "agent"),
        label("runtime", "virtual"),
        label("runtime", "other"),
        label("runtime", None),
        label("host", None),
        taint(),
        taint({**TAINT, "value": "old"}),
        taint({"key": "maintenance", "effect": "NoSchedule"}),
    ]
)
_steps = st.lists(st.tuples(st.floats(0.1, 400), _changes), min_size=10, max_size=60)


class TestNoMarkIsFoughtOverForEver:
    """A mark that others put back three times within ten minutes is left alone for an hour."""

    @given(raw=st.sampled_from([virtual(), agent()]), steps=_steps)
    def test_no_mark_is_written_more_than_three_times_within_ten_minutes(
        self, raw: Json, steps: list[tuple[float, Change]]
    ) -> None:
        writes: dict[str, list[float]] = defaultdict(list)
        for now, made in decisions(raw, steps):
            for mark in made.plan.marks.marks if made.plan.marks else ():
                writes[mark].append(now)
        for times in writes.values():
            for begin in times:
                assert sum(begin <= at < begin + 600 for at in times) <= 3

    @given(raw=st.sampled_from([virtual(), agent()]), steps=_steps)
    def test_a_contested_mark_is_reported_and_rests_for_an_hour(
        self, raw: Json, steps: list[tuple[float, Change]]
    ) -> None:
        rests: dict[str, float] = {}
        for now, made in decisions(raw, steps):
            for mark in made.verdict.contested:
                assert now - rests.setdefault(mark, now) < 3600
            for mark in [mark for mark in rests if mark not in made.verdict.contested]:
                assert now - rests.pop(mark) >= 3600
            written = made.plan.marks.marks if made.plan.marks else ()
            assert not {*written} & {*made.verdict.contested}


def decisions(raw: Json, steps: list[tuple[float, Change]]) -> Iterator[tuple[float, Decision]]:
    """What follows, and when, while others do ``steps``."""
    story, now = Story(raw, catalogue()), 0.0
    for wait, change in steps:
        now += wait
        story.others(change)
        yield now, story.act(now)
