"""Every ``console`` block of the README and the docs is run, and says what stands there.

A line that begins with ``$`` is run from the root of the repository; the lines up to the next one are all that
it prints. ``python -m tests.agreement.test_docs_blocks`` writes down what is printed now.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
_BLOCK = re.compile(r"(?ms)^```console\n(.*?)^```$")


def said(block: str) -> str:
    """``block`` with what its commands print now."""
    commands = [line for line in block.splitlines() if line.startswith("$ ")]
    return "".join(f"{command}\n{_run(command[2:])}" for command in commands)


def _run(command: str) -> str:
    place = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT,
        env={**os.environ, "PATH": place, "COLUMNS": "100"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout


BLOCKS = [(page, block) for page in PAGES for block in _BLOCK.findall(page.read_text())]


@pytest.mark.parametrize(("page", "block"), BLOCKS, ids=[f"{page.stem}-{block[:40]}" for page, block in BLOCKS])
def test_a_block_says_what_its_commands_print(page: Path, block: str) -> None:
    assert block == said(block)


if __name__ == "__main__":
    for file in PAGES:
        file.write_text(_BLOCK.sub(lambda found: f"```console\n{said(found.group(1))}```", file.read_text()))
