"""Bills of materials in CycloneDX: of the image's Python packages, and of each program of a sandbox.

Both are made by CycloneDX's own tools: for Python from the lock file, with the hashes that pip insists on, for Go
from what the compiler wrote into the executable, with the checksums that Go insisted on.
"""

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from clusterconform.sandbox.builder import Builder
from clusterconform.sandbox.parts import CYCLONEDX_GOMOD, Part

ROOT: Final = Path(__file__).parents[1]
LOCK: Final = ROOT / "requirements-run.lock"

_SECONDS: Final = 120


class Unwritable(Exception):  # noqa: N818 - named like the sandbox's own PartUnavailable
    """A bill could not be made, or is none; the text says why."""


def write(folder: Path, builder: Builder, parts: Iterable[Part]) -> list[Path]:
    """Write the bill of the image and that of each part into ``folder``, and give their paths.

    Raises:
        PartUnavailable: a part, or the tool that reads it, is nowhere and cannot be built.
        Unwritable: a tool failed, or wrote what the schema does not allow.
    """
    folder.mkdir(parents=True, exist_ok=True)
    image = folder / "clusterconform.json"
    of_image(image)
    written = [image]
    for part in parts:
        written.append(folder / f"{part.name}.json")
        of_program(builder.provide(part), written[-1], builder)
    return written


def of_image(target: Path) -> None:
    """Write what the image holds, by its lock file."""
    script = Path(sys.executable).with_name("cyclonedx-py")
    options: list[str | Path] = [
        "--pyproject",
        ROOT / "pyproject.toml",
        "--mc-type",
        "application",
        "--output-reproducible",
    ]
    _run([script, "requirements", *options, "--output-format", "JSON", "--output-file", str(target), LOCK])
    check(target)


def of_program(program: Path, target: Path, builder: Builder) -> None:
    """Write what a program was linked from."""
    tool = builder.provide(CYCLONEDX_GOMOD)
    _run([tool, "bin", "-json", "-std", "-noserial", "-output", target, program])
    check(target)


def check(file: Path) -> None:
    """Make sure that a file is a bill by the schema of the version that it names; no network is asked.

    Raises:
        Unwritable: it is none.
    """
    text = file.read_text()
    version = SchemaVersion.from_version(json.loads(text)["specVersion"])
    if (fault := JsonStrictValidator(version).validate_str(text)) is not None:
        raise Unwritable(f"{file} is no CycloneDX {version.to_version()}: {fault}")


def _run(command: list[str | Path]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    if done.returncode:
        raise Unwritable(f"{Path(command[0]).name} ended with {done.returncode}:\n{done.stderr}")
