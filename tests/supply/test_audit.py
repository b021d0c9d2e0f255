"""An audit that nobody answered is not one that found nothing."""

import json
from typing import Any

import pytest
from supply.audit import findings, judged

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


def test_only_packages_that_were_linked_are_told_of() -> None:
    place = {"module": "stdlib", "version": "v1.26.8"}
    stream = "\n".join(
        json.dumps(message, indent=2)
        for message in (
            {"config": {"scanner_name": "govulncheck"}},
            {"osv": {"id": "GO-1"}},
            {"finding": {"osv": "GO-1", "fixed_version": "v1.26.9", "trace": [{**place, "package": "net/http"}]}},
            {"finding": {"osv": "GO-2", "trace": [{**place, "package": "os"}]}},
            {"finding": {"osv": "GO-3", "fixed_version": "v1.26.9", "trace": [place]}},
        )
    )
    assert list(findings(stream)) == [
        "net/http of stdlib v1.26.8: GO-1, mended in v1.26.9",
        "os of stdlib v1.26.8: GO-2, mended in no version yet",
    ]
    assert list(findings("")) == []
