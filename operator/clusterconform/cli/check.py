"""``clusterconform check``: the gate for anybody's CI."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click

from clusterconform.cli.formats import Word, print_value, table_text
from clusterconform.cli.live import AbsentError, Live, UnavailableError, cluster_options
from clusterconform.cli.reading import Document, UnreadableInputError, read_documents
from clusterconform.contract.names import API_VERSION, PLURAL
from clusterconform.contract.objects import NotAnObjectError, objects_in, path_text
from clusterconform.decisions.checking import Complaint, Severity, Subject
from clusterconform.decisions.checking import check as judge
from clusterconform.effects.clock import Clock

_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})


_COLLECTIONS: Final = (
    f"/apis/{API_VERSION}/{PLURAL}",
    "/api/v1/nodes",
    *(f"/apis/apps/v1/{kind}" for kind in ("daemonsets", "deployments", "statefulsets", "replicasets")),
    *(f"/apis/batch/v1/{kind}" for kind in ("cronjobs", "jobs")),
    *(f"/api/v1/{kind}" for kind in ("replicationcontrollers", "pods")),
)


@dataclass(slots=True)
class _Input:
    """What was read, and what could not be."""

    documents: list[Document] = field(default_factory=list)
    subjects: list[Subject] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)


@click.command(
    epilog="""\b
Examples:
  clusterconform check profiles.yaml manifests/
  kubectl get nodes,rtp -o json | clusterconform check - --output junit
Docs: docs/check.md"""
)
@click.argument("files", nargs=-1, metavar="[FILES|DIR|-]")
@click.option(
    "--complete", is_flag=True, help="These are all profiles: exactly one of class agent, one virtual (R5)."
)
@click.option(
    "--output",
    "-o",
    type=Word(["text", "table", "json", "yaml", "junit"]),
    default="text",
    show_default=True,
    help="All but text and table are stable and documented.",
)
@click.option("--cluster", "live", is_flag=True, help="Judge what lives in the cluster instead of files.")
@cluster_options
def check(files: tuple[str, ...], *, complete: bool, output: str, live: bool, cluster: Live) -> None:
    """Hold profiles, nodes and workloads to the contract, without a cluster or in one.

    Input is YAML or JSON, files, directories or standard input; kinds that the contract does not speak of are
    passed over. Exit codes: 0 conforming, 1 findings, 2 unusable input.
    """
    if live and files:
        raise click.UsageError("--cluster reads no files: name one or the other.")
    if not live and not files and sys.stdin.isatty():
        raise click.UsageError("Name files, pipe something in, or say --cluster.")
    seen = _read_cluster(cluster) if live else _read(files or ("-",))
    checked = judge(seen.subjects, Clock().moment(), complete=complete or live)
    rows = seen.rows + _rows(checked.complaints, seen.documents)
    rows.sort(key=lambda row: row["severity"] != Severity.UNUSABLE)
    value = {
        "conforming": all(row["severity"] == Severity.WARNING for row in rows),
        "checked": {what: len(subjects) for what, subjects in checked.judged.items()},
        "findings": rows,
    }
    if output == "junit":
        from clusterconform.cli.junit import junit_of  # noqa: PLC0415 - only here

        judged = [subject for subjects in checked.judged.values() for subject in subjects]
        click.echo(junit_of(rows, [_case(subject, seen.documents) for subject in judged]))
    elif output in {"json", "yaml"}:
        print_value(value, output)
    else:
        _print_for_people(value, output)
    severities = {row["severity"] for row in rows}
    sys.exit(2 if Severity.UNUSABLE in severities else int(Severity.ERROR in severities))


def _case(subject: Subject, documents: list[Document]) -> tuple[str, str]:
    return documents[subject.document].file, f"{subject.kind} {subject.name}".rstrip()


def _read(paths: tuple[str, ...]) -> _Input:
    seen = _Input()
    for path in paths:
        try:
            for file in _files(path):
                _read_file(seen, file)
        except UnreadableInputError as error:
            seen.rows.append(_unusable(error.file, error.line, error.reason))
    return seen


def _read_cluster(cluster: Live) -> _Input:
    seen = _Input()
    for path in _COLLECTIONS:
        try:
            items = cluster.items(path)
        except AbsentError as error:
            raise UnavailableError(f"{error}; is the CRD of this program installed?") from error
        for item in items:
            if _is_judged_by_its_owner(item):
                continue
            seen.subjects.append(Subject(document=len(seen.documents), path=(), manifest=item))
            metadata = item["metadata"]
            place = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
            name = f"{item['kind'].lower()}/{place}{metadata['name']}"
            seen.documents.append(Document(file=name, value=item))
    return seen


def _is_judged_by_its_owner(item: Mapping[str, Any]) -> bool:
    """Whether a controller made it: the template that it was made from is judged instead."""
    owners = item["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") for owner in owners)


def _files(path: str) -> Iterator[str]:
    folder = Path(path)
    if path == "-" or not folder.is_dir():
        yield path
        return
    found = sorted(file for file in folder.rglob("*") if file.suffix in _SUFFIXES and file.is_file())
    if not found:
        raise UnreadableInputError(path, "holds no .yaml, .yml or .json file")
    yield from map(str, found)


def _read_file(seen: _Input, file: str) -> None:
    try:
        for document in read_documents(file):
            number = len(seen.documents)
            seen.documents.append(document)
            try:
                for path, manifest in objects_in(document.value):
                    seen.subjects.append(Subject(document=number, path=path, manifest=manifest))
            except NotAnObjectError as error:
                (line,) = document.lines_of([error.path])
                seen.rows.append(_unusable(file, line, str(error)))
    except UnreadableInputError as error:
        seen.rows.append(_unusable(file, error.line, error.reason))


def _unusable(file: str, line: int, message: str) -> dict[str, Any]:
    return {
        "file": file,
        "line": line,
        "kind": "",
        "name": "",
        "path": "",
        "rule": "Input",
        "severity": Severity.UNUSABLE.value,
        "message": message,
    }


def _rows(complaints: tuple[Complaint, ...], documents: list[Document]) -> list[dict[str, Any]]:
    lines: dict[int, int] = {}
    for number in {complaint.subject.document for complaint in complaints}:
        of_it = [complaint for complaint in complaints if complaint.subject.document == number]
        paths = [(*complaint.subject.path, *complaint.path) for complaint in of_it]
        lines |= dict(zip(map(id, of_it), documents[number].lines_of(paths), strict=True))
    return [
        {
            "file": documents[complaint.subject.document].file,
            "line": lines[id(complaint)],
            "kind": complaint.subject.kind,
            "name": complaint.subject.name,
            "path": path_text(complaint.path),
            "rule": complaint.rule,
            "severity": complaint.severity.value,
            "message": complaint.message,
        }
        for complaint in complaints
    ]


def _print_for_people(value: dict[str, Any], output: str) -> None:
    findings = value["findings"]
    # What could not be read goes where errors go, in the form that they have in every command.
    for row in findings:
        if row["severity"] == Severity.UNUSABLE:
            click.echo(f"clusterconform: {_place(row)}: {row['message']}", err=True)
    judged = [row for row in findings if row["severity"] != Severity.UNUSABLE]
    lines = []
    if output == "table" and judged:
        heads = ("FILE", "OBJECT", "PATH", "RULE", "SEVERITY", "MESSAGE")
        lines.append(
            table_text(
                heads,
                [
                    (_place(row), _object(row), row["path"], row["rule"], row["severity"], row["message"])
                    for row in judged
                ],
            )
        )
    elif output == "text":
        lines += [
            f"{_place(row)}: {row['severity']}: {_object(row)}: {row['path']}: {row['message']} ({row['rule']})"
            for row in judged
        ]
    counts = ", ".join(f"{count} {what}" for what, count in value["checked"].items())
    errors = sum(row["severity"] == Severity.ERROR for row in judged)
    lines.append(f"checked {counts}: {errors} errors, {len(judged) - errors} warnings")
    click.echo("\n".join(lines))


def _place(row: dict[str, Any]) -> str:
    return f"{row['file']}:{row['line']}" if row["line"] else str(row["file"])


def _object(row: dict[str, Any]) -> str:
    return f"{row['kind']} {row['name']}".rstrip()
