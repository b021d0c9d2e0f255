"""An audit that nobody answered is not one that found nothing."""

from typing import Any

import pytest
from supply.audit import judged

CLEAN = {"name": "kopf", "version": "1.45.2", "vulns": []}
SKIPPED = {"name": "kopf", "skip_reason": "not found (1.45.2)"}
WEAK = {"name": "idna", "version": "3.6", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3.7"]}]}


@pytest.mark.parametrize(
    ("packages", "found", "said"),
    [
        ([CLEAN], False, "1 of 1 packages were answered for\n"),
        ([CLEAN, SKIPPED], None, "1 of 2 packages were answered for\nnot found (1.45.2)\n"),
        ([SKIPPED, SKIPPED], None, "0 of 2 packages were answered for\nnot found (1.45.2)\n"),
        ([SKIPPED, WEAK], True, "idna 3.6: PYSEC-1, mended in 3.7\n1 of 2 packages were answered for\n"),
        ([], None, "0 of 0 packages were answered for\n"),
    ],
)
def test_what_the_index_said_is_told_as_it_is(packages: list[Any], found: bool | None, said: str) -> None:
    answer = judged("a lock", packages)
    assert answer.found is found
    assert answer.said.startswith(said)
