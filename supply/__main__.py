"""The command line: ``python -m supply``."""

import sys
from pathlib import Path

import click

from clusterconform.sandbox.builder import Builder, PartUnavailable
from clusterconform.sandbox.parts import NEWEST, VERSIONS
from supply import audit as auditing
from supply import sbom as bills

_kubernetes = click.option(
    "--kubernetes",
    type=click.Choice(list(VERSIONS)),
    default=NEWEST.minor,
    show_default=True,
    help="Of which sandbox.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Tell what this project is built from, and what is known against it."""


@main.command()
@_kubernetes
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def sbom(kubernetes: str, folder: Path) -> None:
    """Write bills of materials (CycloneDX, JSON): of the image, and of each program of a sandbox.

    Exit codes: 0 written, 1 something could not be built or read.
    """
    version = VERSIONS[kubernetes]
    try:
        with Builder(kubernetes=version) as builder:
            for path in bills.write(folder, builder, version.parts):
                click.echo(path)
    except (PartUnavailable, bills.Unwritable) as error:
        raise click.ClickException(str(error)) from error


@main.command()
@_kubernetes
def audit(kubernetes: str) -> None:
    """Ask for known vulnerabilities of the locked Python packages and of the sandbox's Go modules.

    Exit codes: 0 none, 1 some, or not all were answered for.
    """
    version = VERSIONS[kubernetes]
    try:
        with Builder(kubernetes=version) as builder:
            answers = [auditing.of_lock(lock) for lock in auditing.LOCKS]
            answers += auditing.of_programs(version.parts, builder)
    except PartUnavailable as error:
        raise click.ClickException(str(error)) from error
    for answer in answers:
        word = {None: "not answered for", True: "vulnerable", False: "nothing known"}[answer.found]
        click.echo(f"== {answer.subject}: {word}\n{answer.said}")
    sys.exit(any(answer.found is not False for answer in answers))


if __name__ == "__main__":
    main()
