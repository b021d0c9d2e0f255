"""The files that are shipped with the program, as a user would apply them."""

import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from clusterconform.cli.reading import documents_in
from clusterconform.sandbox.admin import Admin

CRD: Final = "crds/runtimeprofiles.yaml"
NAMESPACE: Final = "deploy/base/namespace.yaml"
RBAC: Final = "deploy/base/rbac.yaml"
FENCE: Final = "deploy/base/admission.yaml"
PINNING: Final = "deploy/overlays/pinned-addresses/pinning.yaml"

# A checkout has them at its root; an installed package beside the other data of its environment.
_CHECKOUT: Final = Path(__file__).parents[4]
_INSTALLED: Final = Path(sysconfig.get_path("data")) / "share" / "clusterconform"
_ROOT: Final = _CHECKOUT if (_CHECKOUT / CRD).is_file() else _INSTALLED
_MANAGER: Final = "sandbox"


class ShippedFileMissingError(Exception):
    """A file that belongs to this program is not where it should be; one sentence."""


def shipped(name: str, root: Path = _ROOT) -> Path:
    """Give the path of a shipped file, such as ``crds/runtimeprofiles.yaml``.

    Raises:
        ShippedFileMissingError: it is not there.
    """
    path = root / name
    if not path.is_file():
        raise ShippedFileMissingError(
            f"{name} is not below {root}: run this from a checkout of the repository (pip install -e .)."
        )
    return path


def apply_file(admin: Admin, path: Path) -> list[str]:
    """Apply all objects of a file as ``kubectl apply --server-side`` does, and give them as kind/name."""
    return [_apply(admin, manifest) for manifest in _objects(path)]


def _objects(path: Path) -> Iterator[dict[str, Any]]:
    return (document for document in documents_in(str(path)) if document)


def _apply(admin: Admin, manifest: dict[str, Any]) -> str:
    kind, metadata = manifest["kind"], manifest["metadata"]
    version = manifest["apiVersion"]
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    resource = next(
        found for found in admin.get(base)["resources"] if found["kind"] == kind and "/" not in found["name"]
    )
    inside = f"/namespaces/{metadata['namespace']}" if resource["namespaced"] else ""
    admin.request(
        "PATCH",
        f"{base}{inside}/{resource['name']}/{metadata['name']}?fieldManager={_MANAGER}&force=true",
        manifest,
        content_type="application/apply-patch+yaml",
    )
    return f"{kind}/{metadata['name']}"
