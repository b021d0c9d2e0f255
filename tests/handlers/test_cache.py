"""What we have seen: the newest of each node, no ghosts, and whether the profiles say something new."""

from typing import Any

import pytest
from builders import AGENT_SPEC, VIRTUAL_SPEC, agent, facts, profile_object, virtual
from hypothesis import given
from hypothesis import strategies as st

from clusterconform.contract.facts import NodeFacts
from clusterconform.contract.profile import read_profile
from clusterconform.handlers.cache import Cache


def seen(version: str, *, uid: str = "uid-1", port: int = 10250) -> NodeFacts:
    """One agent at a version."""
    raw = agent(uid=uid, port=port)
    raw["metadata"]["resourceVersion"] = version
    return facts(raw)


NAME = seen("1").name


def test_an_empty_cache_knows_nothing() -> None:
    cache = Cache()
    assert len(cache) == 0
    assert cache.names() == []
    assert list(cache.nodes()) == []
    assert cache.node("pi") is None
    assert cache.profiles() == {}
    assert cache.catalogue.accepted == {}


@pytest.mark.parametrize(
    ("known", "then", "news"),
    [
        ("7", "8", True),
        ("7", "7", False),
        ("8", "7", False),
        ("9", "10", True),
        ("10", "9", False),
        ("7", "", False),
    ],
)
def test_only_a_newer_version_of_a_node_is_taken(known: str, then: str, news: bool) -> None:
    cache = Cache()
    assert cache.observe(seen(known))
    assert cache.observe(seen(then, port=1)) is news
    node = cache.node(NAME)
    assert node is not None
    assert (node.kubelet_port == 1) is news


def test_another_life_of_a_name_is_taken_when_it_is_newer() -> None:
    cache = Cache()
    cache.observe(seen("7"))
    assert cache.observe(seen("8", uid="uid-2"))
    assert not cache.observe(seen("7", uid="uid-1"))


@given(versions=st.permutations(["3", "20", "100", "1000"]))
def test_in_any_order_of_arrival_the_newest_stays(versions: list[str]) -> None:
    cache = Cache()
    for version in versions:
        cache.observe(seen(version))
    node = cache.node(NAME)
    assert node is not None
    assert node.resource_version == "1000"


def test_an_answer_to_a_write_is_taken_where_the_node_is_known() -> None:
    cache = Cache()
    cache.observe(seen("7"))
    assert cache.confirm(seen("8"))
    assert not cache.confirm(seen("8"))
    assert not cache.confirm(seen("7"))


def test_an_answer_that_comes_after_the_deletion_leaves_no_ghost() -> None:
    cache = Cache()
    cache.observe(seen("7"))
    assert cache.forget(NAME, "uid-1")
    assert not cache.confirm(seen("8"))
    assert cache.node(NAME) is None


def test_an_answer_about_a_former_life_is_not_taken_for_the_present_one() -> None:
    cache = Cache()
    cache.observe(seen("7", uid="uid-2"))
    assert not cache.confirm(seen("8", uid="uid-1"))
    assert cache.node(NAME) == seen("7", uid="uid-2")


def test_a_late_deletion_of_a_former_life_deletes_nobody() -> None:
    cache = Cache()
    cache.observe(seen("7", uid="uid-2"))
    assert not cache.forget(NAME, "uid-1")
    assert cache.node(NAME) is not None


def test_forgetting_tells_whether_there_was_anything_to_forget() -> None:
    cache = Cache()
    assert not cache.forget(NAME, "a-former-life")
    cache.observe(seen("7"))
    assert cache.forget(NAME, "uid-1")
    assert not cache.forget(NAME, "uid-1")


@pytest.mark.parametrize(
    ("version", "listed", "vanished"),
    [("7", [], True), ("8", [], True), ("6", [], False), ("8", [NAME], False), ("", [], False), ("10", [], True)],
)
def test_vanished_is_what_a_list_lacks_and_is_no_younger_than_it(
    version: str, listed: list[str], vanished: bool
) -> None:
    cache = Cache()
    cache.observe(seen("7"))
    assert bool(cache.vanished(listed, version)) is vanished
    assert cache.node(NAME) is not None


def test_versions_are_compared_as_numbers_not_as_words() -> None:
    cache = Cache()
    cache.observe(seen("9"))
    assert cache.vanished([], "10") == [seen("9")]


def of(name: str, spec: dict[str, Any] = VIRTUAL_SPEC, **metadata: Any) -> Any:
    """A profile as it was seen."""
    return profile_object(name, spec, **({"uid": f"uid-of-{name}"} | metadata))


def test_the_catalogue_changes_with_what_a_profile_says() -> None:
    cache = Cache()
    assert cache.set_profile(of("vk-podman"))
    assert cache.set_profile(of("vk-podman", {**VIRTUAL_SPEC, "enforcement": "Observe"}))
    assert set(cache.catalogue.accepted) == {"vk-podman"}


@pytest.mark.parametrize(
    "metadata",
    [{}, {"resourceVersion": "99"}, {"generation": 2}, {"labels": {"a": "b"}}, {"annotations": {"a": "b"}}],
)
def test_the_catalogue_does_not_change_with_anything_else_of_a_profile(metadata: dict[str, Any]) -> None:
    cache = Cache()
    cache.set_profile(of("vk-podman"))
    assert not cache.set_profile(of("vk-podman", **metadata))


def test_the_status_of_a_profile_is_taken_without_changing_the_catalogue() -> None:
    cache = Cache()
    cache.set_profile(of("vk-podman"))
    with_status = {
        "metadata": {"name": "vk-podman"},
        "spec": {"backend": "vk-podman", **VIRTUAL_SPEC},
        "status": {"a": 1},
    }
    assert not cache.set_profile(read_profile(with_status))
    assert cache.profiles()["vk-podman"].status == {"a": 1}


def test_a_deleted_profile_changes_the_catalogue_once() -> None:
    cache = Cache()
    cache.set_profile(of("vk-podman"))
    assert cache.drop_profile("vk-podman", "uid-of-vk-podman")
    assert not cache.drop_profile("vk-podman", "uid-of-vk-podman")
    assert cache.catalogue.profiles == {}


def test_a_late_deletion_of_a_former_profile_drops_nothing() -> None:
    cache = Cache()
    cache.set_profile(of("vk-podman"))
    assert not cache.drop_profile("vk-podman", "uid-of-a-former-one")
    assert "vk-podman" in cache.profiles()


def test_several_profiles_may_be_taken_at_once() -> None:
    cache = Cache()
    cache.set_profile(of("vk-podman"))
    assert cache.set_profiles([of("vk-native"), of("vk-ollama")])
    assert set(cache.profiles()) == {"vk-native", "vk-ollama", "vk-podman"}
    assert not cache.set_profiles([of("vk-native")])
    assert not cache.set_profiles([])


OBSERVES = {**VIRTUAL_SPEC, "enforcement": "Observe"}


@pytest.mark.parametrize(
    ("known", "then", "news"), [("7", "8", True), ("8", "7", False), ("7", "7", False), ("9", "10", True)]
)
def test_only_a_newer_version_of_a_profile_is_taken(known: str, then: str, news: bool) -> None:
    """Answers to our own writes, watch and lists may arrive in any order."""
    cache = Cache()
    cache.set_profile(of("vk-podman", resourceVersion=known))
    assert cache.set_profile(of("vk-podman", OBSERVES, resourceVersion=then)) is news
    assert (cache.catalogue.profiles["vk-podman"].enforcement == "Observe") is news


def test_a_list_read_before_a_deletion_brings_nothing_back() -> None:
    cache = Cache()
    cache.begin_list()
    cache.observe(seen("7"))
    cache.set_profile(of("vk-podman"))
    cache.forget(NAME, "uid-1")
    cache.drop_profile("vk-podman", "uid-of-vk-podman")
    assert not cache.observe(seen("7"))
    assert not cache.set_profiles([of("vk-podman")])
    assert (len(cache), dict(cache.profiles())) == (0, {})


def test_a_successor_of_what_was_deleted_is_taken_at_once() -> None:
    cache = Cache()
    cache.forget(NAME, "uid-1")
    cache.drop_profile("vk-podman", "uid-of-vk-podman")
    assert cache.observe(seen("8", uid="uid-2"))
    assert cache.set_profile(of("vk-podman", uid="another"))


def test_what_was_deleted_is_not_remembered_for_ever() -> None:
    """What was held for deleted by mistake comes back with the second list after."""
    cache = Cache()
    cache.begin_list()
    cache.forget(NAME, "uid-1")
    cache.begin_list()
    assert not cache.observe(seen("7"))
    cache.begin_list()
    assert cache.observe(seen("7"))


def test_deletions_without_a_uid_bar_nobody() -> None:
    cache = Cache()
    cache.forget(NAME, "")
    assert cache.observe(seen("7", uid=""))


def test_B22_when_the_older_agent_profile_goes_the_younger_is_accepted() -> None:
    cache = Cache()
    cache.set_profiles(
        [
            of("k3s", AGENT_SPEC, creationTimestamp="2026-01-01T00:00:00Z"),
            of("k0s", AGENT_SPEC, creationTimestamp="2026-02-01T00:00:00Z"),
        ]
    )
    assert set(cache.catalogue.accepted) == {"k3s"}
    assert cache.drop_profile("k3s", "uid-of-k3s")
    assert set(cache.catalogue.accepted) == {"k0s"}


def test_nodes_and_names_are_those_last_seen() -> None:
    cache = Cache()
    cache.observe(facts(agent()))
    cache.observe(facts(virtual()))
    assert sorted(cache.names()) == ["laptop-vk-podman", "pi-4c7adeb6"]
    assert {node.name for node in cache.nodes()} == set(cache.names())
    assert len(cache) == 2
