"""Whoever reads the slim stream comes to know the same nodes as whoever reads the whole one."""

import json
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from builders import Json
from effects_lines import Fold, at_version, folded, line, new_stream, node_list, watch
from hypothesis import given
from hypothesis import strategies as st
from strategies import nodes, vandalised

from clusterconform.contract.facts import UnreadableNodeError, read_node, view_node
from clusterconform.effects.stream import NodeStream

NAMES = ("a-vk-podman", "b", "c")


def named(raw: Json, name: str, uid: str) -> Json:
    """``raw`` under another name and uid."""
    return {**raw, "metadata": {**raw["metadata"], "name": name, "uid": uid}}


@dataclass
class Server:
    """The true nodes, the lines of the watch since its start, and how far a reader has come."""

    nodes: dict[str, Json] = field(default_factory=dict)
    lines: list[tuple[int, str, Json]] = field(default_factory=list)
    version: int = 100
    lives: int = 0

    def set(self, name: str, raw: Json) -> None:
        self.version += 1
        known = self.nodes.get(name)
        if known is None:
            self.lives += 1
        uid = known["metadata"]["uid"] if known else f"uid-{self.lives}"
        fresh = at_version(named(raw, name, uid), self.version)
        self.nodes[name] = fresh
        self.lines.append((self.version, "MODIFIED" if known else "ADDED", fresh))

    def remove(self, name: str) -> None:
        if name in self.nodes:
            self.version += 1
            self.lines.append((self.version, "DELETED", at_version(self.nodes.pop(name), self.version)))

    def truth(self) -> Fold:
        return {name: (raw["metadata"]["uid"], read_node(view_node(raw))) for name, raw in self.nodes.items()}


class Reader:
    """Reads as Kopf does: a list, then watches that resume after the last version seen."""

    def __init__(self, server: Server, stream: NodeStream) -> None:
        self.server, self.stream = server, stream
        self.known: Fold = {}
        self.seen = 0

    def relist(self, page: int) -> None:
        items = list(self.server.nodes.values())
        pages = [items[start : start + page] for start in range(0, len(items), page)] or [[]]
        for number, part in enumerate(pages):
            more = str(number + 1) if number + 1 < len(pages) else ""
            body = node_list(part, self.server.version, more)
            slim = json.loads(self.stream.slim_list(body, first_page=number == 0))
            self.known = folded(
                ({"type": "ADDED", "object": item} for item in slim.get("items") or ()), self.known
            )
        self.seen = self.server.version

    def watch(self, borders: list[int]) -> None:
        text = b"".join(line(kind, raw) for version, kind, raw in self.server.lines if version > self.seen)
        cuts = sorted({0, len(text), *(border % (len(text) + 1) for border in borders)})
        events = watch(self.stream, *(text[start:end] for start, end in pairwise(cuts)))
        self.known = folded(events, self.known)
        for event in events:
            version = event["object"].get("metadata", {}).get("resourceVersion")
            self.seen = int(version) if version else self.seen


steps = st.one_of(
    st.tuples(st.just("set"), st.sampled_from(NAMES), nodes),
    st.tuples(st.just("remove"), st.sampled_from(NAMES)),
    st.tuples(st.just("beat"), st.sampled_from(NAMES)),
    st.tuples(st.just("watch"), st.lists(st.integers(min_value=0, max_value=10_000), max_size=4)),
    st.tuples(st.just("relist"), st.integers(min_value=1, max_value=3)),
    st.tuples(st.just("write"), st.sampled_from(NAMES), nodes),
)


def play(server: Server, reader: Reader, step: tuple[Any, ...]) -> None:
    """One step of a story."""
    match step:
        case ("set", name, raw):
            server.set(name, raw)
        case ("remove", name):
            server.remove(name)
        case ("beat", name) if name in server.nodes:
            server.set(
                name, {**server.nodes[name], "metadata": {**server.nodes[name]["metadata"], "selfLink": "x"}}
            )
        case ("write", name, raw) if name in server.nodes and name in reader.known:
            server.set(name, raw)
            # The operator takes the answer into its cache and notes it, before the watch brings the echo.
            answer = view_node(server.nodes[name])
            if reader.known[name][0] == answer.metadata.uid:
                reader.known[name] = (answer.metadata.uid or "", read_node(answer))
                reader.stream.note(answer)
        case ("watch", borders):
            reader.watch(borders)
        case ("relist", page):
            reader.relist(page)
        case _:
            pass


def reduced(known: Fold) -> dict[str, Any]:
    """What is compared: everything but versions, which dropped lines leave behind."""
    return {
        name: (uid, {key: getattr(facts, key) for key in facts.__slots__ if key != "resource_version"})
        for name, (uid, facts) in known.items()
    }


class TestTheSlimStreamLosesNothing:
    """Taking the node stream away changes speed only."""

    @given(story=st.lists(steps, max_size=25))
    def test_a_reader_of_the_slim_stream_knows_the_true_nodes_at_the_end_of_any_story(
        self, story: list[Any]
    ) -> None:
        server = Server()
        reader = Reader(server, new_stream())
        for step in [("relist", 2), *story, ("watch", [])]:
            play(server, reader, step)
        assert reduced(reader.known) == reduced(server.truth())

    @given(story=st.lists(steps, max_size=25))
    def test_a_reader_is_never_left_behind_a_line_that_was_dropped(self, story: list[Any]) -> None:
        """A reconnect resumes at the newest version there is."""
        server = Server()
        reader = Reader(server, new_stream())
        for step in [("relist", 2), *story, ("watch", [])]:
            play(server, reader, step)
        assert reader.seen == server.version

    @given(
        lines=st.lists(
            st.tuples(st.sampled_from(["ADDED", "MODIFIED", "DELETED", "ERROR"]), nodes | vandalised(nodes))
        )
    )
    def test_any_json_in_place_of_nodes_folds_as_the_whole_stream_does(self, lines: list[tuple[str, Any]]) -> None:
        whole = [{"type": kind, "object": raw} for kind, raw in lines]
        slim = watch(new_stream(), *(line(kind, raw) for kind, raw in lines))
        assert reduced(folded(slim)) == reduced(folded(whole))


def test_the_server_of_these_stories_tells_what_happened() -> None:
    server = Server()
    server.set("b", named({"metadata": {}}, "b", ""))
    server.set("b", named({"metadata": {}}, "b", ""))
    server.remove("b")
    assert [(version, kind) for version, kind, _ in server.lines] == [
        (101, "ADDED"),
        (102, "MODIFIED"),
        (103, "DELETED"),
    ]
    try:
        view_node({"metadata": {"name": 7}})
    except UnreadableNodeError:
        assert folded([{"type": "ADDED", "object": {"metadata": {"name": 7}}}]) == {}
