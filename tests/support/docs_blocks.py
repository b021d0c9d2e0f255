"""The blocks of the pages that people read, for the tests that run them.

A test that runs one asks for it by ``block(page, start)``; tests/agreement/test_docs_blocks.py finds the blocks
that nobody asks for.
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
INSTALL = "docs/install.md"
_BLOCK = re.compile(r"(?ms)^ *```(\w*)\n(.*?)^ *```$")


@dataclass(frozen=True, slots=True)
class Block:
    """What stands between two fences.

    Attributes:
        page: Its page, from the root of the repository.
        language: The word behind the first fence; empty without one.
        text: The lines.
    """

    page: str
    language: str
    text: str

    @property
    def start(self) -> str:
        """Its first line."""
        return next((line for line in self.text.splitlines() if line.strip()), "").strip()


def pages() -> list[str]:
    """All pages: at the root, in docs/ and below it."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted(str(page.relative_to(ROOT)) for page in found)


def blocks_of(page: str) -> list[Block]:
    """The blocks of ``page``, in their order."""
    text = (ROOT / page).read_text()
    return [Block(page, language, lines) for language, lines in _BLOCK.findall(text)]


def block(page: str, start: str) -> str:
    """The lines of the one block of ``page`` that begins with ``start``."""
    found = [seen.text for seen in blocks_of(page) if seen.text.lstrip("\n").startswith(start)]
    assert len(found) == 1, f"{len(found)} blocks of {page} begin with {start!r}"
    return found[0]


def section(page: str, title: str) -> list[str]:
    """The blocks for a shell in one section of ``page``."""
    text = (ROOT / page).read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]
    return [lines for language, lines in _BLOCK.findall(text) if language == "sh"]
