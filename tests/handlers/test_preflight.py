"""What must be there before anything starts, each thing missing in one sentence."""

import asyncio
import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import Json
from effects_api import CRD, CRDS, NAMESPACES, FakeApi, Reply, refusal
from effects_cluster import FakeCluster
from effects_time import in_virtual_time

from clusterconform.contract.names import NAMESPACE
from clusterconform.effects.metrics import Metrics
from clusterconform.handlers.preflight import WRITTEN_PATHS, NotReadyError, check, missing_paths

SHIPPED: Json = yaml.safe_load((Path(__file__).parents[2] / "crds" / "runtimeprofiles.yaml").read_text())
NAMESPACE_PATH = f"{NAMESPACES}/{NAMESPACE}"


def complete() -> FakeApi:
    """A cluster that lacks nothing."""
    api = FakeApi()
    api.put(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    api.put(CRDS, SHIPPED)
    return api


async def checked(api: FakeApi) -> str:
    """The sentence, empty where nothing is missing."""
    try:
        await check(FakeCluster(api, Metrics()))
    except NotReadyError as error:
        return str(error)
    return ""


@in_virtual_time
async def test_a_cluster_that_lacks_nothing_is_ready() -> None:
    assert await checked(complete()) == ""


@in_virtual_time
async def test_nothing_is_written() -> None:
    api = complete()
    await checked(api)
    assert api.writes() == []


@in_virtual_time
async def test_a_missing_namespace_is_named_with_the_command_that_creates_it() -> None:
    api = complete()
    api.remove(NAMESPACES, NAMESPACE)
    said = await checked(api)
    assert said == f"namespace {NAMESPACE} is missing; create it with: kubectl apply -f deploy/base/namespace.yaml"
    assert (Path(__file__).parents[2] / "deploy" / "base" / "namespace.yaml").exists()


@in_virtual_time
async def test_a_missing_crd_is_named_with_the_command_that_applies_it() -> None:
    api = complete()
    api.remove(CRDS, SHIPPED["metadata"]["name"])
    said = await checked(api)
    assert said.startswith("CRD runtimeprofiles.outpost.dhnt.io is missing")
    assert said.endswith("kubectl apply -f crds/runtimeprofiles.yaml")


@pytest.mark.parametrize(("path", "what"), [(NAMESPACE_PATH, "namespace"), (CRD, "CRD")])
@in_virtual_time
async def test_B91_403_names_what_cannot_be_read_and_the_servers_words(path: str, what: str) -> None:
    api = complete()
    api.script("GET", path, refusal(403, 'User "x" cannot get it'))
    said = await checked(api)
    assert said.startswith(what)
    assert "cannot be read" in said
    assert said.endswith('User "x" cannot get it')


@pytest.mark.parametrize("path", [NAMESPACE_PATH, CRD])
@pytest.mark.parametrize("answer", [refusal(503, "starting"), Reply(hang=True), refusal(500)])
@in_virtual_time
async def test_an_api_server_that_is_not_there_yet_is_waited_for_with_one_line(
    path: str, answer: Reply, caplog: pytest.LogCaptureFixture
) -> None:
    api = complete()
    api.script("GET", path, *[answer] * 20)
    assert await checked(api) == ""
    assert [record.message for record in caplog.records] == ["waiting for the API server"]


@pytest.mark.parametrize("path", [NAMESPACE_PATH, CRD])
@in_virtual_time
async def test_an_api_server_that_is_busy_is_no_reason_to_give_up(path: str) -> None:
    api = complete()
    api.script("GET", path, refusal(429, "too many requests", Retry_After="1"))
    assert await checked(api) == ""


@in_virtual_time
async def test_waiting_can_be_stopped_at_any_time() -> None:
    api = FakeApi()
    api.script("GET", NAMESPACE_PATH, refusal(503), forever=True)
    waiting = asyncio.create_task(checked(api))
    await asyncio.sleep(1000)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


def schema_of(crd: Any) -> Any:
    """The schema of the served version."""
    return crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def without(path: str) -> Json:
    """The shipped CRD without one property."""
    crd = copy.deepcopy(SHIPPED)
    node, names = schema_of(crd), path.split(".")
    for name in names[:-1]:
        node = (node.get("items") or node)["properties"][name]
    del (node.get("items") or node)["properties"][names[-1]]
    return crd


@pytest.mark.parametrize("path", WRITTEN_PATHS)
@in_virtual_time
async def test_B41_a_crd_without_a_field_that_we_write_is_older_than_us(path: str) -> None:
    assert missing_paths(without(path)) == [path]
    api = complete()
    api.put(CRDS, without(path))
    said = await checked(api)
    assert said.startswith("CRD runtimeprofiles.outpost.dhnt.io is older than this program")
    assert path in said


@pytest.mark.parametrize(
    "crd",
    [
        {},
        {"spec": None},
        {"spec": {"versions": None}},
        {"spec": {"versions": []}},
        {"spec": {"versions": [{"name": "v1alpha1", "served": False}]}},
        {"spec": {"versions": [{"name": "v2", "served": True}]}},
    ],
)
def test_a_crd_that_does_not_serve_our_version_lacks_it(crd: Json) -> None:
    assert missing_paths(crd) == ["version v1alpha1"]


@pytest.mark.parametrize(
    "schema", [None, {}, {"openAPIV3Schema": None}, {"openAPIV3Schema": {"properties": None}}]
)
def test_a_crd_without_a_schema_lacks_everything(schema: Json | None) -> None:
    crd = {"spec": {"versions": [{"name": "v1alpha1", "served": True, "schema": schema}]}}
    assert missing_paths(crd) == list(WRITTEN_PATHS)


def test_a_newer_crd_with_more_versions_is_fine() -> None:
    crd = copy.deepcopy(SHIPPED)
    crd["spec"]["versions"].insert(0, {"name": "v2", "served": True, "schema": {}})
    assert missing_paths(crd) == []
