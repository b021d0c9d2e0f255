"""Which lines of the node stream get through, and in what shape."""

import json

import pytest
from builders import TAINT, Json, agent, conformant, ready, virtual
from effects_lines import Content, at_version, line, new_stream, node_list, through, watch
from effects_time import in_virtual_time

from clusterconform.contract.facts import view_node
from clusterconform.contract.names import HOST_LABEL, RUNTIME_LABEL
from clusterconform.effects.metrics import Metrics
from clusterconform.effects.stream import NodeStream, _SlimContent

AGENT, VIRTUAL = agent(), virtual()


def changed(raw: Json, **parts: Json) -> Json:
    """``raw`` at version 8 with parts of metadata, spec or status laid over."""
    fresh: Json = json.loads(json.dumps(raw))
    for part, values in parts.items():
        fresh[part].update(values)
    return at_version(fresh, 8)


def after(raw: Json, then: Json, kind: str = "MODIFIED") -> list[Json]:
    """What comes out of a watch when ``then`` follows on ``raw``."""
    return watch(new_stream(), line("ADDED", raw), line(kind, then))[1:]


BEAT = {"conditions": [ready(lastHeartbeatTime="2026-08-01T12:00:10Z")]}

QUIET = {
    "heartbeat": changed(AGENT, status=BEAT),
    "image list": changed(AGENT, status={"images": [{"names": ["a"], "sizeBytes": 1}]}),
    "capacity": changed(AGENT, status={"capacity": {"cpu": "4"}, "allocatable": {"cpu": "3"}}),
    "volumes": changed(AGENT, status={"volumesInUse": ["a"], "volumesAttached": [{"name": "a"}]}),
    "foreign condition": changed(
        AGENT, status={"conditions": [ready(), {"type": "DrainScheduled", "status": "True"}]}
    ),
    "foreign label": changed(AGENT, metadata={"labels": {**AGENT["metadata"]["labels"], "zone": "a"}}),
    "foreign annotation": changed(AGENT, metadata={"annotations": {**AGENT["metadata"]["annotations"], "a": "b"}}),
    "managed fields": changed(AGENT, metadata={"managedFields": [{"manager": "kubelet"}]}),
    "echo": at_version(AGENT, 8),
    "D18 ready time of a virtual node": changed(
        VIRTUAL, status={"conditions": [ready(lastTransitionTime="2026-08-01T12:00:10Z")]}
    ),
}

NEWS = {
    "our label": changed(AGENT, metadata={"labels": {**AGENT["metadata"]["labels"], RUNTIME_LABEL: "virtual"}}),
    "our label gone": changed(AGENT, metadata={"labels": {HOST_LABEL: "pi"}}),
    "role": changed(
        AGENT, metadata={"labels": {**AGENT["metadata"]["labels"], "node-role.kubernetes.io/control-plane": ""}}
    ),
    "node args": changed(AGENT, metadata={"annotations": {"k3s.io/node-args": '["server"]'}}),
    "our annotation": changed(
        AGENT, metadata={"annotations": {**AGENT["metadata"]["annotations"], "outpost.dhnt.io/keep": ""}}
    ),
    "virtual-kubelet's annotation": changed(AGENT, metadata={"annotations": {"virtual-kubelet.io/x": "y"}}),
    "taint": changed(AGENT, spec={"taints": [TAINT]}),
    "foreign taint": changed(AGENT, spec={"taints": [{"key": "x", "effect": "NoExecute"}]}),
    "taint's time": changed(VIRTUAL, spec={"taints": [{**TAINT, "timeAdded": "2026-08-01T12:00:10Z"}]}),
    "empty taints": changed(AGENT, spec={"taints": []}),
    "provider id": changed(AGENT, spec={"providerID": "k3s://other"}),
    "port": changed(AGENT, status={"daemonEndpoints": {"kubeletEndpoint": {"Port": 21007}}}),
    "addresses": changed(AGENT, status={"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}),
    "ready": changed(AGENT, status={"conditions": [ready("Unknown")]}),
    "ready time of an agent": changed(
        AGENT, status={"conditions": [ready(lastTransitionTime="2026-08-01T12:00:10Z")]}
    ),
    "our condition": changed(AGENT, status={"conditions": [ready(), conformant()]}),
    "deletion": changed(AGENT, metadata={"deletionTimestamp": "2026-08-01T12:00:10Z"}),
    "another life": changed(AGENT, metadata={"uid": "uid-2"}),
}


@pytest.mark.parametrize("then", QUIET.values(), ids=QUIET.keys())
def test_what_no_decision_reads_is_dropped_and_its_version_kept_in_a_bookmark(then: Json) -> None:
    base = VIRTUAL if then["metadata"]["name"] == VIRTUAL["metadata"]["name"] else AGENT
    assert after(base, then) == [
        {"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "Node", "metadata": {"resourceVersion": "8"}}}
    ]


@pytest.mark.parametrize("then", NEWS.values(), ids=NEWS.keys())
def test_what_a_decision_reads_gets_through_and_reads_the_same(then: Json) -> None:
    base = VIRTUAL if then["metadata"]["name"] == VIRTUAL["metadata"]["name"] else AGENT
    (event,) = after(base, then)
    assert event["type"] == "MODIFIED"
    assert event["object"]["metadata"]["resourceVersion"] == "8"
    assert view_node(event["object"]) == view_node(then)


def test_a_line_that_gets_through_is_cut_down() -> None:
    fat = changed(AGENT, status={"images": [{"names": ["x" * 5000]}]}, metadata={"managedFields": ["y" * 5000]})
    stream = new_stream()
    slim, dropped = stream.slim_line(line("ADDED", fat).rstrip())
    assert len(slim) < 1000
    assert dropped == ""


def test_a_deletion_gets_through_although_nothing_else_changed() -> None:
    (event,) = after(AGENT, at_version(AGENT, 8), "DELETED")
    assert event["type"] == "DELETED"
    assert event["object"]["metadata"]["uid"] == "uid-1"


def test_after_a_deletion_the_same_node_gets_through_again() -> None:
    events = watch(new_stream(), line("ADDED", AGENT), line("DELETED", AGENT), line("ADDED", AGENT))
    assert [event["type"] for event in events] == ["ADDED", "DELETED", "ADDED"]


def test_an_echo_of_our_own_write_is_dropped() -> None:
    stream = new_stream()
    watch(stream, line("ADDED", AGENT))
    stream.note(view_node(changed(AGENT, spec={"taints": [TAINT]})))
    (event,) = watch(stream, line("MODIFIED", changed(AGENT, spec={"taints": [TAINT]})))
    assert event["type"] == "BOOKMARK"


def test_an_answer_that_is_older_than_what_the_stream_has_brought_is_not_noted() -> None:
    """Or the next change back to what we wrote would be dropped, and the cache stay at what lay between."""
    stream = new_stream()
    ours = at_version({**AGENT, "spec": {"taints": [TAINT]}}, 8)
    watch(stream, line("ADDED", AGENT), line("MODIFIED", ours), line("MODIFIED", at_version(AGENT, 9)))
    stream.note(view_node(ours))
    (event,) = watch(stream, line("MODIFIED", at_version(ours, 10)))
    assert event["type"] == "MODIFIED"


def test_an_answer_says_nothing_about_another_life_of_the_node() -> None:
    stream = new_stream()
    stream.note(view_node(AGENT))
    (event,) = watch(stream, line("ADDED", agent(uid="uid-2")))
    assert event["type"] == "ADDED"


@pytest.mark.parametrize(
    "text",
    [
        line("ERROR", {"kind": "Status", "code": 410, "message": "too old resource version"}),
        line("BOOKMARK", {"kind": "Node", "apiVersion": "v1", "metadata": {"resourceVersion": "99"}}),
        line("FUTURE", AGENT),
        line("MODIFIED", {"metadata": {"name": 7}}),
        line("MODIFIED", {"metadata": None}),
        line("MODIFIED", 7),
        b'{"type": "MODIFIED"}\n',
        b"[]\n",
        b"not JSON\n",
        b'{"type": "MODIFIED", "object": {"metadata"\n',
        b"\xff\xfe\n",
    ],
)
@in_virtual_time
async def test_a_line_that_is_no_change_of_a_node_passes_unchanged(text: bytes) -> None:
    assert b"".join(await through(new_stream(), [text])) == text


@in_virtual_time
async def test_empty_lines_are_dropped() -> None:
    assert await through(new_stream(), [b"\n", b"\n\n"]) == []


def test_borders_of_chunks_may_lie_at_any_byte() -> None:
    text = line("ADDED", AGENT) + line("MODIFIED", QUIET["heartbeat"]) + line("MODIFIED", NEWS["taint"])
    whole = [event["type"] for event in watch(new_stream(), text)]
    assert whole == ["ADDED", "MODIFIED"]
    for border in range(len(text) + 1):
        events = watch(new_stream(), text[:border], text[border:])
        assert [event["type"] for event in events if event["type"] != "BOOKMARK"] == whole, border
    assert [event["type"] for event in watch(new_stream(), *(bytes([byte]) for byte in text))] == [
        "ADDED",
        "BOOKMARK",
        "MODIFIED",
    ]


def test_a_character_of_several_bytes_may_be_cut() -> None:
    raw = agent(labels={HOST_LABEL: "pi"}, annotations={"outpost.dhnt.io/note": "日本"})
    text = json.dumps({"type": "ADDED", "object": raw}, ensure_ascii=False).encode() + b"\n"
    for border in range(len(text)):
        (event,) = watch(new_stream(), text[:border], text[border:])
        assert event["object"]["metadata"]["annotations"]["outpost.dhnt.io/note"] == "日本"


@pytest.mark.parametrize(
    ("texts", "version"),
    [
        (["quiet 8", "quiet 9"], "9"),
        (["quiet 8", "news 9"], None),
        (["news 8", "quiet 9"], "9"),
        (["quiet 8", "bookmark 9"], None),
        (["bookmark 8", "quiet 9"], "9"),
        (["quiet 8", "bookmark 9", "quiet 10"], "10"),
    ],
)
def test_a_chunk_whose_last_line_was_dropped_ends_with_a_bookmark_of_its_version(
    texts: list[str], version: str | None
) -> None:
    stream, chunk, raw = new_stream(), b"", AGENT
    watch(stream, line("ADDED", raw))
    for text in texts:
        what, number = text.split()
        if what == "news":
            raw = {**AGENT, "spec": {"taints": [{**TAINT, "value": number}]}}
        if what == "bookmark":
            chunk += line("BOOKMARK", {"metadata": {"resourceVersion": number}})
        else:
            chunk += line("MODIFIED", at_version(raw, int(number)))
    last = watch(stream, chunk)[-1]
    told = last["object"]["metadata"]["resourceVersion"]
    assert told == texts[-1].split()[1]
    assert (last["type"] == "BOOKMARK" and not texts[-1].startswith("bookmark")) == (version is not None)
    assert version in {None, told}


def test_a_last_line_without_its_newline_is_a_line_like_any_other() -> None:
    """Otherwise the stream would not know what has been told, and drop the way back."""
    stream = new_stream()
    watch(stream, line("ADDED", AGENT))
    tainted = at_version({**AGENT, "spec": {"taints": [TAINT]}}, 8)
    (event,) = watch(stream, line("MODIFIED", tainted).rstrip())
    assert event["type"] == "MODIFIED"
    (event,) = watch(stream, line("MODIFIED", at_version(AGENT, 9)))
    assert event["type"] == "MODIFIED"


@in_virtual_time
async def test_a_last_line_that_was_cut_off_passes_as_it_came() -> None:
    whole = line("ADDED", AGENT)
    assert b"".join(await through(new_stream(), [whole[:100]])).rstrip() == whole[:100]


def test_lists_are_cut_down_and_keep_everything_else() -> None:
    fat = changed(AGENT, status={"images": [{"names": ["x" * 5000]}]})
    body = new_stream().slim_list(node_list([fat, VIRTUAL], 77, "token"), first_page=True)
    assert len(body) < 3000
    page = json.loads(body)
    assert (page["kind"], page["apiVersion"]) == ("NodeList", "v1")
    assert page["metadata"] == {"resourceVersion": "77", "continue": "token"}
    assert [view_node(item) for item in page["items"]] == [view_node(fat), view_node(VIRTUAL)]


@pytest.mark.parametrize("items", ['"items":null', '"items":[]'])
def test_an_empty_list_stays_an_empty_list(items: str) -> None:
    body = f'{{"kind":"NodeList","apiVersion":"v1","metadata":{{"resourceVersion":"5"}},{items}}}'.encode()
    page = json.loads(new_stream().slim_list(body, first_page=True))
    assert not page.get("items")
    assert page["metadata"]["resourceVersion"] == "5"


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"not JSON", b'{"items": 7}', node_list([{"metadata": {"name": 7}}])]
)
def test_a_list_that_is_none_passes_unchanged(body: bytes) -> None:
    assert new_stream().slim_list(body, first_page=True) == body


def test_a_list_is_never_dropped_even_if_nothing_in_it_is_new() -> None:
    stream = new_stream()
    for _ in range(2):
        assert len(json.loads(stream.slim_list(node_list([AGENT]), first_page=True))["items"]) == 1


def test_after_a_list_what_it_held_is_known() -> None:
    stream = new_stream()
    stream.slim_list(node_list([AGENT]), first_page=True)
    (event,) = watch(stream, line("MODIFIED", QUIET["heartbeat"]))
    assert event["type"] == "BOOKMARK"


def test_nodes_that_vanished_between_two_lists_are_deleted_at_the_next_watch_and_once() -> None:
    stream = new_stream()
    stream.slim_list(node_list([AGENT, VIRTUAL]), first_page=True)
    stream.slim_list(node_list([VIRTUAL]), first_page=True)
    (event,) = watch(stream)
    assert event["type"] == "DELETED"
    assert event["object"]["metadata"]["name"] == AGENT["metadata"]["name"]
    assert event["object"]["metadata"]["uid"] == "uid-1"
    assert watch(stream) == []


def test_the_line_of_a_vanished_node_moves_no_reader_back_in_time() -> None:
    """Its version would be older than the list's, and a reconnect would resume there."""
    stream = new_stream()
    stream.slim_list(node_list([AGENT]), first_page=True)
    stream.slim_list(node_list([], 99), first_page=True)
    (event,) = watch(stream)
    assert "resourceVersion" not in event["object"]["metadata"]


def test_the_lines_of_vanished_nodes_come_before_all_others() -> None:
    stream = new_stream()
    stream.slim_list(node_list([AGENT]), first_page=True)
    stream.slim_list(node_list([]), first_page=True)
    events = watch(stream, line("ADDED", agent(uid="uid-2")))
    assert [(event["type"], event["object"]["metadata"]["uid"]) for event in events] == [
        ("DELETED", "uid-1"),
        ("ADDED", "uid-2"),
    ]


def test_a_list_of_several_pages_is_looked_at_as_a_whole() -> None:
    stream = new_stream()
    for _ in range(2):
        stream.slim_list(node_list([AGENT], more="2"), first_page=True)
        stream.slim_list(node_list([VIRTUAL]), first_page=False)
    assert watch(stream) == []


def test_a_list_that_broke_off_says_nothing_about_what_vanished() -> None:
    stream = new_stream()
    stream.slim_list(node_list([AGENT, VIRTUAL]), first_page=True)
    stream.slim_list(node_list([AGENT], more="2"), first_page=True)
    assert watch(stream) == []


@pytest.mark.parametrize("unreadable", ["first", "last"])
def test_a_list_with_an_unreadable_page_says_nothing_about_what_vanished(unreadable: str) -> None:
    stream = new_stream()
    stream.slim_list(node_list([VIRTUAL]), first_page=True)
    watch(stream, line("ADDED", AGENT))
    broken = {"metadata": {"name": "n", "labels": 7}}
    first, last = ([AGENT, broken], [VIRTUAL]) if unreadable == "first" else ([VIRTUAL], [AGENT, broken])
    stream.slim_list(node_list(first, more="2"), first_page=True)
    stream.slim_list(node_list(last), first_page=False)
    assert watch(stream) == []


@in_virtual_time
async def test_lines_that_a_reader_did_not_take_are_not_held_for_told() -> None:
    """The reader stops in the middle of a chunk and resumes after the last line that it took."""
    stream = new_stream()
    first = line("MODIFIED", at_version({**AGENT, "spec": {"taints": [TAINT]}}, 8))
    second = line("MODIFIED", at_version({**VIRTUAL, "spec": {"taints": []}}, 9))
    await through(stream, [line("ADDED", AGENT) + line("ADDED", VIRTUAL)])
    content = _SlimContent(Content([first + second]), stream, first_page=True).iter_chunked(1024)
    taken = await anext(content)
    if taken.count(b"\n") == 1:
        return  # line by line: what was not asked for was not told
    await content.aclose()  # type: ignore[attr-defined]
    again = b"".join(await through(stream, [second]))
    assert json.loads(again.split(b"\n")[0])["type"] == "MODIFIED"


@in_virtual_time
async def test_everything_else_of_a_content_is_the_original_one() -> None:
    slim = _SlimContent(Content([b"x"]), new_stream(), first_page=True)
    assert slim.total_bytes == 7


def last_byte(stream: NodeStream) -> float | None:
    """When bytes last came."""
    return stream.last_byte


@pytest.mark.parametrize("slim", [True, False])
@in_virtual_time
async def test_the_stream_knows_when_bytes_last_came(slim: bool) -> None:
    now = 5.0
    stream = NodeStream(Metrics(), lambda: now, slim=slim)
    assert last_byte(stream) is None
    await _SlimContent(Content([node_list([])]), stream, first_page=True).read()
    assert last_byte(stream) == 5.0
    now = 7.0
    await through(stream, [b"\n"])
    assert last_byte(stream) == 7.0


@in_virtual_time
async def test_a_stream_that_only_listens_passes_everything_as_it_came() -> None:
    stream = NodeStream(Metrics(), lambda: 0.0, slim=False)
    texts = [line("ADDED", AGENT), line("MODIFIED", QUIET["heartbeat"]), b"no ", b"node\n"]
    assert await through(stream, texts) == texts
    body = node_list([QUIET["image list"]])
    assert await _SlimContent(Content([body]), stream, first_page=True).read() == body
    stream.note(view_node(AGENT))
    assert await through(stream, texts) == texts


@in_virtual_time
async def test_lines_are_counted_by_what_became_of_them() -> None:
    metrics = Metrics()
    texts = [line("ADDED", AGENT), line("MODIFIED", QUIET["heartbeat"]), b"no node\n"]
    await through(NodeStream(metrics, lambda: 0.0), texts)
    counts = {
        fate: metrics.registry.get_sample_value("clusterconform_node_stream_lines_total", {"fate": fate})
        for fate in ("passed", "dropped")
    }
    assert counts == {"passed": 1.0, "dropped": 1.0}
