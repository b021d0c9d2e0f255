"""The shipped manifests, offered to a real API server: a dry run of every one, with strict checking of fields."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from deployment import DEPLOY, OVERLAYS, ROOT, kustomized, overlay_objects
from operators import World

from clusterconform.sandbox.builder import Builder

Kubectl = Callable[..., subprocess.CompletedProcess[str]]
DRY_RUN = ("apply", "--dry-run=server", "--validate=strict", "-f")

FILES = [
    ROOT / "crds" / "profiles.yaml",
    *(file for file in sorted((DEPLOY / "base").glob("*.yaml")) if file.name != "kustomization.yaml"),
]
PINNING = DEPLOY / "overlays" / "pinned-addresses" / "pinning.yaml"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_api_server_takes_every_file(file: Path, installed: None, kubectl: Kubectl) -> None:
    # Profiles may be there, seeded by an operator: kubectl's own apply warns of objects that it did not make.
    beside = ("--server-side",) if file.name == "profiles.yaml" else ()
    done = kubectl(*DRY_RUN, str(file), *beside)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.count("(server dry run)") == len(done.stdout.splitlines()) > 0


def test_the_policy_of_mode_pinned_is_taken_from_1_36_on(
    installed: None, kubectl: Kubectl, builder: Builder
) -> None:
    done = kubectl(*DRY_RUN, str(PINNING))
    if builder.kubernetes.pins_addresses:
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.count("(server dry run)") == 2
    else:
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.count("no matches for kind") == 2


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_api_server_takes_every_overlay(
    overlay: str, installed: None, kubectl: Kubectl, builder: Builder
) -> None:
    """But for what it does not know, before 1.36, of the one that pins addresses: that is named, and no more."""
    done = kubectl(*DRY_RUN, "-", input=kustomized(overlay))
    absent = 0 if builder.kubernetes.pins_addresses or overlay != "pinned-addresses" else 2
    assert done.returncode == (1 if absent else 0), done.stderr
    assert done.stderr.count("no matches for kind") == absent
    assert done.stderr == "" or absent
    assert done.stdout.count("(server dry run)") == len(overlay_objects(overlay)) - absent


def test_the_operators_pod_needs_no_more_than_the_policy_restricted_allows(world: World, kubectl: Kubectl) -> None:
    """The API server warns of a Deployment whose pods break the policy."""
    name = "restricted"
    labels = {"pod-security.kubernetes.io/warn": "restricted"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    deployment = overlay_objects("enforce")["Deployment", "clusterconform-system", "clusterconform"]
    deployment = {**deployment, "metadata": {"name": "x", "namespace": name}}
    world.admin.create("/api/v1/namespaces", namespace)
    try:
        good = kubectl(*DRY_RUN, "-", input=yaml.safe_dump(deployment))
        text = yaml.safe_dump(deployment).replace("runAsNonRoot: true", "runAsNonRoot: false")
        bad = kubectl(*DRY_RUN, "-", input=text)
    finally:
        world.delete(f"/api/v1/namespaces/{name}")
    assert (good.returncode, good.stderr) == (0, "")
    assert "would violate PodSecurity" in bad.stderr
