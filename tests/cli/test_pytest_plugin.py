"""The fixture ``conformance``, as the author of a backend gets it; and the hook of others' pre-commit."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import TAINT, VIRTUAL_SPEC, Json, agent, manifest, virtual
from docs_blocks import block

from clusterconform.cli.main import main
from clusterconform.cli.pytest_plugin import Conformance
from clusterconform.contract.matrix import MATRIX, virtual_backends
from clusterconform.contract.names import BACKEND_LABEL, HOST_LABEL, RUNTIME_LABEL

ROOT = Path(__file__).parents[2]
Fixture = Callable[[str | Mapping[str, Any]], Conformance]


def podman(base: str, **changes: Any) -> Json:
    """A conforming node of vk-podman on ``base``, but for ``changes``."""
    return virtual("vk-podman", base, **changes)


def agent_of(base: str, **changes: Any) -> Json:
    """A conforming agent on ``base``, but for ``changes``."""
    return agent(f"{base}-4c7adeb6", base, **changes)


def complaints(conformance: Fixture, profile: str | Json, build: Callable[[str], Any]) -> list[str]:
    """The lines with which the builder is refused."""
    with pytest.raises(pytest.fail.Exception) as failed:
        conformance(profile).holds(build)
    head, *lines = str(failed.value).splitlines()
    assert head.startswith("the builder breaks the contract of ")
    return [line.strip() for line in lines]


@pytest.mark.parametrize("backend", virtual_backends())
def test_a_builder_that_keeps_the_contract_is_held_in_one_line(conformance: Fixture, backend: str) -> None:
    conformance(backend).holds(lambda base: virtual(backend, base))


def test_an_agents_builder_is_held_too(conformance: Fixture) -> None:
    conformance("k3s").holds(agent_of)


def test_a_profile_of_ones_own_is_given_as_a_manifest(conformance: Fixture) -> None:
    conformance(manifest("vk-wasm", VIRTUAL_SPEC)).holds(lambda base: virtual("vk-wasm", base))


BROKEN: dict[str, tuple[str, Callable[[str], Any], str]] = {
    "R10 name": ("vk-podman", lambda base: podman(base, name=base), "metadata.name: must be laptop-vk-podman"),
    "R10 runtime": (
        "vk-podman",
        lambda base: podman(base, labels={RUNTIME_LABEL: "agent"}),
        "must be virtual (R10)",
    ),
    "R10 backend": (
        "vk-podman",
        lambda base: podman(base, labels={BACKEND_LABEL: None}),
        "must be vk-podman (R10)",
    ),
    "R10 taint": ("vk-podman", lambda base: podman(base, taints=[]), "spec.taints: must hold"),
    "R10 one name": ("vk-podman", lambda _: podman("laptop"), "is the same on every host: laptop-vk-podman (R10)"),
    "R11 agent": (
        "k3s",
        lambda base: agent_of(base, labels={HOST_LABEL: "x"}),
        "is never reaped: the name does not",
    ),
    "R11 role": (
        "k3s",
        lambda base: agent_of(base, labels={"node-role.kubernetes.io/master": ""}),
        "is never reaped: carries node-role.kubernetes.io/master (R11)",
    ),
    "R11 virtual": (
        "vk-podman",
        lambda base: podman(base, name=f"{base}-x", labels={RUNTIME_LABEL: "agent", BACKEND_LABEL: "k3s"}),
        "R10",
    ),
    "R12": (
        "k3s",
        lambda base: agent_of(base, taints=[TAINT]),
        "a node of class agent shows: provider taint (R12)",
    ),
    "R13": ("vk-podman", lambda base: podman(base, provider_id="k3s://x"), "shows: provider ID k3s:// (R13)"),
    "kubelet port": ("vk-podman", lambda base: podman(base, port=10250), "(KubeletEndpointAdvertised)"),
    "wrong value": (
        "vk-podman",
        lambda base: podman(base, taints=[{**TAINT, "value": "x"}]),
        "ProviderTaintDrifted",
    ),
    "no Node": ("vk-podman", lambda _: {"metadata": {"labels": 7}}, "metadata: no Node at all"),
    "nothing": ("vk-podman", lambda _: {}, "metadata.name: must be laptop-vk-podman"),
}


@pytest.mark.parametrize(("backend", "build", "words"), BROKEN.values(), ids=BROKEN.keys())
def test_a_builder_that_breaks_a_rule_is_told_which(
    conformance: Fixture, backend: str, build: Callable[[str], Any], words: str
) -> None:
    assert any(words in line for line in complaints(conformance, backend, build))


def test_a_dead_virtual_node_that_could_be_reaped_is_refused(conformance: Fixture) -> None:
    """R11: marked as an agent in everything, whatever its profile says."""
    lines = complaints(conformance, "vk-podman", agent_of)
    assert any("a dead node of class virtual could be reaped" in line for line in lines)


def test_what_docs_show_of_a_failure_is_what_is_said(conformance: Fixture) -> None:
    _, *shown = block("docs/ci.md", "the builder breaks the contract of vk-podman").splitlines()
    broken = complaints(
        conformance, "vk-podman", lambda base: podman(base, labels={RUNTIME_LABEL: None}, taints=[])
    )
    assert shown == [f"  {line}" for line in broken]


@pytest.mark.parametrize(
    ("profile", "words"),
    [
        ("vk-docker", "no built-in backend 'vk-docker'"),
        (manifest("vk-x", {**VIRTUAL_SPEC, "providerTaint": False}), r"needs the provider taint \(R4\)"),
        (manifest("vk-x", {"class": "virtual"}), "the profile itself is refused: spec: .*capabilities"),
    ],
)
def test_a_profile_that_is_none_is_an_error_of_the_test(conformance: Fixture, profile: Any, words: str) -> None:
    with pytest.raises((LookupError, ValueError), match=words):
        conformance(profile)


def test_the_hook_for_pre_commit_calls_a_command_that_exists() -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    program, command = hook["entry"].split()
    assert program == "clusterconform"
    assert command in main.list_commands(main.make_context(program, ["-h"], resilient_parsing=True))
    page = (ROOT / "docs" / "ci.md").read_text()
    assert f"- id: {hook['id']}\n" in page


def test_every_built_in_backend_can_be_asked_for(conformance: Fixture) -> None:
    for backend in MATRIX:
        assert isinstance(conformance(backend), Conformance)
