"""The README says what is so: its table is the program's, its links lead somewhere, its commands exist."""

import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from docs_blocks import block

from clusterconform.cli.main import main
from clusterconform.cli.matrix import matrix

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def test_the_matrix_in_the_readme_is_what_the_program_prints() -> None:
    printed = CliRunner().invoke(matrix, []).output.rstrip("\n")
    assert block("README.md", "                                 k3s     vk-podman") == f"{printed}\n"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_to_one(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    linked = set(re.findall(r"\]\(docs/([^)#]+)\)", README))
    assert linked == {page.name for page in (ROOT / "docs").glob("*.md")}


def test_every_make_target_that_is_spoken_of_exists() -> None:
    spoken = {
        target
        for page in PAGES
        for target in re.findall(r"(?m)(?:^|`)make ([a-z][a-z0-9.-]*[a-z0-9])", page.read_text())
    }
    targets = set(re.findall(r"^([a-z0-9.-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert spoken - targets - {"sure"} == set()


def test_every_command_is_spoken_of_and_what_a_block_calls_is_one() -> None:
    commands = set(main.list_commands(main.make_context("clusterconform", ["-h"], resilient_parsing=True)))
    texts = [page.read_text() for page in PAGES]
    spoken = {word for text in texts for word in re.findall(r"(?:^|[\s`/(])clusterconform ([a-z]+)\b", text)}
    blocks = [block for text in texts for block in re.findall(r"(?ms)^```[a-z]*\n(.*?)^```$", text)]
    called = {
        word
        for block in blocks
        for word in re.findall(r"(?m)(?:^|[|;&] |\$ |/)(?:clusterconform|kubectl conform) ([a-z]+)", block)
    }
    assert commands - spoken == set()
    assert called - commands == set()


def test_every_manifest_that_is_applied_exists() -> None:
    named = {name for page in PAGES for name in re.findall(r"-f ((?:crds|deploy)/[\w./-]+)", page.read_text())}
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_no_text_speaks_of_where_it_was_written() -> None:
    """The project speaks of itself alone."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    words = re.compile(r"/work/|shared/reference|proxy\.golang|pypi\.org|/root/")
    spoken = [
        name
        for name in tracked.stdout.splitlines()
        if (ROOT / name).is_file()
        and name != "tests/agreement/test_readme.py"
        and words.search((ROOT / name).read_text(errors="replace"))
    ]
    assert spoken == []
