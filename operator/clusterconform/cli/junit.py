"""Findings as JUnit XML: one suite a file, one test case an object; what CI systems read."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final
from xml.etree import ElementTree as ET

from clusterconform.decisions.checking import Severity

# What XML 1.0 has no way to write, not even escaped.
_UNWRITABLE: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_of(findings: Iterable[Mapping[str, Any]], judged: Iterable[tuple[str, str]]) -> str:
    """The XML of what ``check`` found.

    Args:
        findings: The rows that it prints as JSON.
        judged: File, and kind and name, of every object that was judged; one without findings has passed.
    """
    cases: dict[tuple[str, str], list[Mapping[str, Any]]] = {case: [] for case in judged}
    for row in findings:
        name = f"{row['kind']} {row['name']}".strip() or "input"
        cases.setdefault((row["file"], name), []).append(row)
    root = ET.Element("testsuites", name="clusterconform check")
    suites: dict[str, ET.Element] = {}
    for (file, name), rows in cases.items():
        suite = suites.get(file)
        if suite is None:
            suite = suites[file] = ET.SubElement(root, "testsuite", name=_clean(file))
        case = ET.SubElement(suite, "testcase", classname=_clean(file), name=_clean(name))
        for row in rows:
            _add(case, row)
    for suite in [root, *root]:
        suite.set("tests", str(len(list(suite.iter("testcase")))))
        suite.set("failures", str(len(list(suite.iter("failure")))))
        suite.set("errors", str(len(list(suite.iter("error")))))
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode")


def _add(case: ET.Element, row: Mapping[str, Any]) -> None:
    text = _clean(f"{row['file']}:{row['line']}: {row['path']}: {row['message']}")
    if row["severity"] == Severity.WARNING:
        out = case.find("system-out")
        if out is None:
            out = ET.SubElement(case, "system-out")
        out.text = f"{out.text or ''}{text} ({row['rule']})\n"
        return
    tag = "error" if row["severity"] == Severity.UNUSABLE else "failure"
    element = ET.SubElement(case, tag, type=row["rule"], message=_clean(row["message"]))
    element.text = text


def _clean(text: str) -> str:
    return _UNWRITABLE.sub("\ufffd", text)
