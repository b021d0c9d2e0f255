"""The pins that people read and the pins that Go obeys say the same."""

import re

import pytest

from clusterconform.sandbox.parts import (
    CHECKING_TOOLS,
    ETCD,
    MODULES,
    NEWEST,
    OLDEST,
    SUPPLY_TOOLS,
    VERSIONS,
    Kubernetes,
    Part,
)

EVERYTHING = tuple(dict.fromkeys([*NEWEST.parts, *OLDEST.parts, *CHECKING_TOOLS, *SUPPLY_TOOLS]))
EACH_PART = pytest.mark.parametrize("part", EVERYTHING, ids=lambda part: f"{part.name} {part.version}")
EACH_VERSION = pytest.mark.parametrize("kubernetes", VERSIONS.values(), ids=lambda kubernetes: kubernetes.minor)


def go_mod(part: Part) -> str:
    return (part.module_directory / "go.mod").read_text()


@EACH_PART
def test_a_part_is_pinned_in_go_mod_at_its_version(part: Part) -> None:
    assert re.search(
        rf"^(require )?\s*{re.escape(part.source)} {re.escape(part.version)}( // indirect)?$",
        go_mod(part),
        re.MULTILINE,
    )


@EACH_PART
def test_a_parts_package_is_a_tool_of_its_module(part: Part) -> None:
    assert re.search(rf"^(tool )?\s*{re.escape(part.package)}$", go_mod(part), re.MULTILINE)


@EACH_PART
def test_a_parts_source_has_a_checksum(part: Part) -> None:
    sums = (part.module_directory / "go.sum").read_text()
    assert f"{part.source} {part.version} h1:" in sums


def test_every_module_belongs_to_a_part() -> None:
    assert {folder.name for folder in MODULES.iterdir()} == {part.module for part in EVERYTHING}


@EACH_VERSION
def test_every_staging_module_is_replaced_by_its_release(kubernetes: Kubernetes) -> None:
    text, release = go_mod(kubernetes.api_server), re.escape(kubernetes.version.replace("v1.", "v0."))
    replaced = dict(re.findall(rf"^\s*(k8s\.io/\S+) => (k8s\.io/\S+) {release}$", text, re.MULTILINE))
    unreleased = {name for name, _ in re.findall(r"^\s*(k8s\.io/\S+) v0\.0\.0( |$)", text, re.MULTILINE)}
    assert len(replaced) > 30
    assert all(old == new for old, new in replaced.items())
    assert unreleased <= set(replaced)


@EACH_VERSION
def test_names_are_unique_and_storage_comes_first(kubernetes: Kubernetes) -> None:
    parts = (*kubernetes.parts, *CHECKING_TOOLS, *SUPPLY_TOOLS)
    assert len({part.name for part in parts}) == len(parts)
    assert parts[:2] == (ETCD, kubernetes.api_server)


@EACH_VERSION
def test_the_api_server_is_linked_with_its_version(kubernetes: Kubernetes) -> None:
    flags, version = kubernetes.api_server.build_flags[-1], kubernetes.version
    assert f"-X k8s.io/component-base/version.gitVersion={version}" in flags
    assert f"v{kubernetes.minor}." in version
