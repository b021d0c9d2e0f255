"""The bills of materials name what the locks name, neither more nor less, and keep to CycloneDX's schema."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from supply import sbom
from supply.sbom import LOCK, Unwritable

from clusterconform.sandbox.builder import Builder
from clusterconform.sandbox.parts import ETCD

Json = dict[str, Any]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Json:
    """The bill of the image; writing it checks it against the schema."""
    target = tmp_path_factory.mktemp("sbom") / "image.json"
    sbom.of_image(target)
    bill: Json = json.loads(target.read_text())
    return bill


def hashes_of(component: Json) -> set[str]:
    """All SHA-256 hashes of a component, its own and those of its files."""
    places = [component, *component.get("externalReferences", [])]
    return {one["content"] for place in places for one in place.get("hashes", []) if one["alg"] == "SHA-256"}


def test_the_image_holds_each_locked_package_with_its_hashes(image: Json) -> None:
    locked = {}
    for block in re.split(r"(?m)^(?=[a-z0-9])", LOCK.read_text()):
        if found := re.match(r"([\w.-]+)==([\w.+!-]+)", block):
            locked[found[1], found[2]] = set(re.findall(r"--hash=sha256:([0-9a-f]{64})", block))
    told = {(seen["name"], seen["version"]): hashes_of(seen) for seen in image["components"]}
    assert told == locked
    purls = {seen["purl"].split("?")[0] for seen in image["components"]}
    assert purls == {f"pkg:pypi/{name}@{version}" for name, version in locked}


def test_the_bill_of_the_image_is_that_of_this_program_and_the_same_each_time(image: Json, tmp_path: Path) -> None:
    assert image["metadata"]["component"]["name"] == "clusterconform"
    sbom.of_image(tmp_path / "again.json")
    assert json.loads((tmp_path / "again.json").read_text()) == image


def test_what_breaks_the_schema_is_no_bill(image: Json, tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text(json.dumps({**image, "components": [{"type": "library"}]}))
    with pytest.raises(Unwritable, match=r"broken\.json is no CycloneDX 1\.\d"):
        sbom.check(broken)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_program_holds_modules_that_its_go_sum_knows_and_its_own_among_them(tmp_path: Path) -> None:
    target = tmp_path / "etcd.json"
    with Builder() as builder:
        sbom.of_program(builder.provide(ETCD), target, builder)
    bill: Json = json.loads(target.read_text())
    sums = {tuple(line.split()[:2]) for line in (ETCD.module_directory / "go.sum").read_text().splitlines()}
    modules = {(seen["name"], seen["version"]) for seen in bill["components"] if seen["name"] != "std"}
    assert bill["metadata"]["component"]["name"] == ETCD.source
    assert all(hashes_of(seen) for seen in bill["components"] if seen["name"] != "std")
    assert len(modules) > 20
    assert modules <= sums
