"""``clusterconform manifests``: what is to be applied to a cluster, as it belongs to this version."""

from pathlib import Path
from typing import Any, Final

import click

from clusterconform.cli.demo.shipped import ShippedFileMissingError, shipped
from clusterconform.cli.formats import Word, output_option_of, print_value, table_text
from clusterconform.cli.live import UnavailableError
from clusterconform.cli.reading import documents_in

_PARTS: Final = {
    "crd": "crds/runtimeprofiles.yaml",
    "namespace": "deploy/base/namespace.yaml",
    "rbac": "deploy/base/rbac.yaml",
    "admission": "deploy/base/admission.yaml",
    "deployment": "deploy/base/deployment.yaml",
    "pinning": "deploy/overlays/pinned-addresses/pinning.yaml",
    "profiles": "crds/profiles.yaml",
}
# Applying the profiles overwrites what people have edited, and the operator seeds them by itself, once; the
# pinning is for one mode of addresses, on Kubernetes 1.36 or newer.
_ONLY_BY_NAME: Final = frozenset({"profiles", "pinning"})


@click.command(
    epilog="""\b
Examples:
  clusterconform manifests | kubectl apply -f -
  clusterconform manifests profiles
Docs: docs/cli.md"""
)
@click.argument("parts", nargs=-1, type=Word(list(_PARTS)), metavar="[PART]...")
@output_option_of("yaml")
def manifests(parts: tuple[str, ...], output: str) -> None:
    """Print the manifests of this version: crd, namespace, rbac, admission, deployment, pinning, profiles.

    Without a PART all in the order of applying, but for the profiles, since applying them would overwrite what
    was edited (the operator seeds them once), and the pinning, which is for addressReconcile.mode Pinned.

    Exit codes: 0 printed, 2 a part is not shipped here.
    """
    files = [_file(part) for part in parts] if parts else _all()
    if output == "yaml":
        texts = [file.read_text().strip("\n") for file in files]
        click.echo("\n---\n".join(texts))
        return
    objects = [document for file in files for document in documents_in(str(file)) if document]
    if output == "json":
        print_value({"apiVersion": "v1", "kind": "List", "items": objects}, output)
    else:
        click.echo(table_text(("KIND", "NAME", "API VERSION"), [_row(item) for item in objects]))


def _all() -> list[Path]:
    found = []
    for part in _PARTS:
        if part not in _ONLY_BY_NAME:
            try:
                found.append(shipped(_PARTS[part]))
            except ShippedFileMissingError:
                if part == "crd":
                    raise UnavailableError("no manifests are shipped beside this program") from None
    return found


def _file(part: str) -> Path:
    try:
        return shipped(_PARTS[part])
    except ShippedFileMissingError as error:
        raise UnavailableError(f"{part} is not shipped with this version") from error


def _row(item: dict[str, Any]) -> tuple[str, str, str]:
    metadata = item["metadata"]
    place = f"{metadata['namespace']}/" if "namespace" in metadata else ""
    return item["kind"], f"{place}{metadata['name']}", item["apiVersion"]
