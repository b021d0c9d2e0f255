"""Which of the locked packages and of the linked modules have known vulnerabilities.

The package index itself answers for Python. For Go the vulnerability database comes as a Go module too, so that a
module proxy is all that is needed; it is asked for its newest version each time, since an old answer is none.
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from clusterconform.sandbox.builder import Builder
from clusterconform.sandbox.parts import GOVULNCHECK, Part
from clusterconform.sandbox.toolchain import find_go, go_environment

ROOT: Final = Path(__file__).parents[1]
LOCKS: Final = (ROOT / "requirements-run.lock", ROOT / "requirements.lock")

_DATABASE: Final = "golang.org/x/vulndb@latest"
_SECONDS: Final = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What was audited, whether anything was found (None: not all were answered for), and what was said."""

    subject: str
    found: bool | None
    said: str


def of_lock(lock: Path) -> Answer:
    """Ask the package index about each package of a lock file."""
    tool = Path(sys.executable).with_name("pip-audit")
    options = ["--require-hashes", "--disable-pip", "--progress-spinner", "off", "--format", "json"]
    done = _run([tool, *options, "--requirement", lock])
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        return Answer(subject=lock.name, found=None, said=done.stdout + done.stderr)
    return judged(lock.name, packages)


def judged(subject: str, packages: Sequence[Mapping[str, Any]]) -> Answer:
    """What pip-audit's list of packages comes to.

    A package that the index does not know is skipped there, and a run that skips everything ends like one that
    finds nothing; here one that was skipped is no answer.
    """
    weak = [
        f"{package['name']} {package['version']}: {vulnerability['id']}, mended in "
        f"{', '.join(vulnerability['fix_versions']) or 'no version yet'}"
        for package in packages
        for vulnerability in package.get("vulns", ())
    ]
    skipped = [str(package["skip_reason"]) for package in packages if "skip_reason" in package]
    lines = [*weak, f"{len(packages) - len(skipped)} of {len(packages)} packages were answered for", *skipped[:1]]
    found = True if weak else None if skipped or not packages else False
    return Answer(subject=subject, found=found, said="\n".join(lines) + "\n")


def of_programs(parts: Iterable[Part], builder: Builder) -> list[Answer]:
    """Compare what each part was linked from with the Go vulnerability database.

    Raises:
        PartUnavailable: a part, or the tool that reads it, is nowhere and cannot be built.
    """
    tool = builder.provide(GOVULNCHECK)
    programs = [(part, builder.provide(part)) for part in parts]
    database, said = _database(builder)
    if database is None:
        return [Answer(subject="Go modules", found=None, said=said)]
    answers = []
    for part, program in programs:
        done = _run([tool, "-mode=binary", "-format=json", f"-db=file://{database}", program])
        subject = f"{part.name} {part.version}, by {said}"
        if done.returncode:
            answers.append(Answer(subject=subject, found=None, said=done.stderr))
        else:
            lines = sorted(set(findings(done.stdout)))
            answers.append(Answer(subject=subject, found=bool(lines), said="".join(f"{line}\n" for line in lines)))
    return answers


def findings(stream: str) -> Iterator[str]:
    """One line for each finding in govulncheck's stream of JSON that concerns a package that was linked.

    It also tells of modules of which another package is vulnerable, one that is not in the program.
    """
    decoder, at = json.JSONDecoder(), 0
    stream = stream.strip()
    while at < len(stream):
        message, at = decoder.raw_decode(stream, at)
        while at < len(stream) and stream[at].isspace():
            at += 1
        finding = message.get("finding")
        if finding and "package" in (where := finding["trace"][0]):
            mended = finding.get("fixed_version") or "no version yet"
            place = f"{where['package']} of {where['module']} {where['version']}"
            yield f"{place}: {finding['osv']}, mended in {mended}"


def _database(builder: Builder) -> tuple[Path | None, str]:
    go = find_go(builder.cache)
    assert go is not None  # noqa: S101 - a part has just been built with it
    environment = {**go_environment(), "GOFLAGS": "-mod=mod"}
    done = subprocess.run(
        [go, "mod", "download", "-json", _DATABASE],
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
        env=environment,
        cwd=builder.cache,
    )
    if done.returncode:
        return None, done.stdout + done.stderr
    told = json.loads(done.stdout)
    return Path(told["Dir"]) / "data" / "osv", told["Version"]


def _run(command: list[str | Path]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
