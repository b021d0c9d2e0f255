"""The built-in profiles, once: in every order of what may be there already."""

import itertools

import pytest
from builders import Json
from effects_api import CONFIGMAPS, PROFILES, FakeApi, Sent, refusal
from effects_cluster import FakeCluster
from effects_time import in_virtual_time, run_virtually

from clusterconform.contract.matrix import MATRIX
from clusterconform.contract.names import STATE_CONFIGMAP
from clusterconform.contract.profile import manifest_of
from clusterconform.effects.errors import ApiError, ForbiddenError
from clusterconform.effects.metrics import Metrics
from clusterconform.effects.seeding import seed

ALL = sorted(MATRIX)
MANIFESTS = [manifest_of(row) for row in MATRIX.values()]


class CrashError(Exception):
    """The process is killed."""


async def seeding(api: FakeApi) -> list[str]:
    """One start of the operator."""
    return await seed(FakeCluster(api, Metrics()), MANIFESTS, api.names(PROFILES))


def remembered(api: FakeApi) -> list[str] | None:
    """What the state says was seeded."""
    if not api.names(CONFIGMAPS):
        return None
    text: str = api.get(CONFIGMAPS, STATE_CONFIGMAP)["data"]["seeded"]
    return text.split(",") if text else []


def with_profiles(*names: str, state: str | None = None) -> FakeApi:
    """An API server with those profiles, edited, and that state."""
    api = FakeApi()
    for name in names:
        api.put(PROFILES, edited(name))
    if state is not None:
        api.put(CONFIGMAPS, {"metadata": {"name": STATE_CONFIGMAP}, "data": {"seeded": state}})
    return api


def edited(name: str) -> Json:
    """A profile that somebody has edited."""
    raw = manifest_of(MATRIX[name])
    raw["spec"]["enforcement"] = "Observe"
    return raw


@in_virtual_time
async def test_an_empty_cluster_gets_all_four_and_a_memory() -> None:
    api = FakeApi()
    assert await seeding(api) == ALL
    assert api.names(PROFILES) == ALL
    assert remembered(api) == ALL
    assert api.get(PROFILES, "k3s")["spec"] == manifest_of(MATRIX["k3s"])["spec"]


@in_virtual_time
async def test_the_memory_is_written_before_the_first_profile() -> None:
    api = FakeApi()
    await seeding(api)
    assert [sent.path for sent in api.writes()][:2] == [CONFIGMAPS, PROFILES]


@in_virtual_time
async def test_a_second_start_seeds_nothing() -> None:
    api = FakeApi()
    await seeding(api)
    api.sent.clear()
    assert await seeding(api) == []
    assert api.writes() == []


@pytest.mark.parametrize("name", ALL)
@in_virtual_time
async def test_a_profile_deleted_on_purpose_stays_deleted(name: str) -> None:
    api = FakeApi()
    await seeding(api)
    api.remove(PROFILES, name)
    assert await seeding(api) == []
    assert name not in api.names(PROFILES)


@in_virtual_time
async def test_all_profiles_deleted_on_purpose_stay_deleted() -> None:
    api = with_profiles(state=",".join(ALL))
    assert await seeding(api) == []


@pytest.mark.parametrize("present", [[name] for name in ALL] + [ALL, ["k3s", "vk-native"]])
@in_virtual_time
async def test_where_somebody_else_brought_profiles_nothing_is_seeded_then_or_later(present: list[str]) -> None:
    api = with_profiles(*present)
    assert await seeding(api) == []
    assert remembered(api) == ALL
    assert api.names(PROFILES) == sorted(present)
    for name in present:
        api.remove(PROFILES, name)
    assert await seeding(api) == []


@pytest.mark.parametrize(
    ("present", "state"),
    [
        (present, state)
        for count in (0, 1, 4)
        for present in itertools.combinations(ALL, count)
        for state in (None, "", "k3s", ",".join(ALL))
    ],
)
@in_virtual_time
async def test_an_edit_is_never_overwritten(present: tuple[str, ...], state: str | None) -> None:
    api = with_profiles(*present, state=state)
    await seeding(api)
    await seeding(api)
    for name in present:
        assert api.get(PROFILES, name)["spec"] == edited(name)["spec"]


@in_virtual_time
async def test_a_profile_new_in_this_version_is_seeded_beside_the_others() -> None:
    api = with_profiles("k3s", state="k3s,vk-native,vk-podman")
    assert await seeding(api) == ["vk-ollama"]
    assert remembered(api) == ALL


@pytest.mark.parametrize("data", [None, {}, {"seeded": ""}, {"other": "kept"}])
@in_virtual_time
async def test_a_memory_without_a_word_counts_as_empty_and_loses_nothing_else(data: Json | None) -> None:
    api = FakeApi()
    api.put(CONFIGMAPS, {"metadata": {"name": STATE_CONFIGMAP, "labels": {"a": "b"}}, "data": data})
    assert await seeding(api) == ALL
    state = api.get(CONFIGMAPS, STATE_CONFIGMAP)
    assert state["metadata"]["labels"] == {"a": "b"}
    assert state["data"] == {**(data or {}), "seeded": ",".join(ALL)}


def requests_of_a_first_start() -> int:
    """How many requests seeding an empty cluster takes."""
    api = FakeApi()
    run_virtually(seeding(api))
    return len(api.sent)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("number", range(requests_of_a_first_start()))
@in_virtual_time
async def test_a_crash_at_any_request_loses_nothing_and_seeds_nothing_twice(number: int, moment: str) -> None:
    """Killed before the request is carried out, or after it and before its answer."""
    api, left = FakeApi(), number

    def crash(_: Sent) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            setattr(api, moment, lambda _: None)
            raise CrashError

    setattr(api, moment, crash)
    with pytest.raises(CrashError):
        await seeding(api)
    await seeding(api)
    assert api.names(PROFILES) == ALL
    assert remembered(api) == ALL
    created = [sent.body["metadata"]["name"] for sent in api.writes(PROFILES)]
    assert all(api.get(PROFILES, name)["metadata"]["generation"] == 1 for name in created)
    assert await seeding(api) == []


@pytest.mark.parametrize("number", range(requests_of_a_first_start()))
@in_virtual_time
async def test_after_a_crash_what_was_edited_meanwhile_stays_edited(number: int) -> None:
    api, left = FakeApi(), number

    def crash(_: Sent) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            api.after = lambda _: None
            raise CrashError

    api.after = crash
    with pytest.raises(CrashError):
        await seeding(api)
    for name in api.names(PROFILES):
        api.put(PROFILES, edited(name))
    before = api.names(PROFILES)
    await seeding(api)
    for name in before:
        assert api.get(PROFILES, name)["spec"] == edited(name)["spec"]
    assert api.names(PROFILES) == ALL


@in_virtual_time
async def test_of_two_operators_that_start_together_none_seeds_twice() -> None:
    """The one that loses a swap of the memory ends in an API error, and its next try finds all done."""
    import asyncio  # noqa: PLC0415

    api = FakeApi()
    results = await asyncio.gather(seeding(api), seeding(api), return_exceptions=True)
    assert all(isinstance(result, list | ApiError) for result in results)
    await seeding(api)
    assert api.names(PROFILES) == ALL
    assert remembered(api) == ALL


@in_virtual_time
async def test_without_the_right_to_create_a_profile_it_is_seeded_once_the_right_is_there() -> None:
    api = FakeApi()
    api.script("POST", PROFILES, refusal(403, "cannot create runtimeprofiles"))
    with pytest.raises(ForbiddenError):
        await seeding(api)
    assert remembered(api) == []
    assert await seeding(api) == ALL


@in_virtual_time
async def test_without_the_right_to_read_the_memory_nothing_is_seeded() -> None:
    api = FakeApi()
    api.script("GET", f"{CONFIGMAPS}/{STATE_CONFIGMAP}", refusal(403))
    with pytest.raises(ForbiddenError):
        await seeding(api)
    assert api.writes() == []
