"""Other versions of the operator: the CRD of one to come, and this program under another number."""

import copy
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from operators import CRDS, ROOT

from clusterconform.contract.names import CRD_NAME
from clusterconform.sandbox.control_plane import ControlPlane

Json = dict[str, Any]

CURRENT: Final[Json] = yaml.safe_load((ROOT / "crds" / "runtimeprofiles.yaml").read_text())


def newer() -> Json:
    """The CRD of a version to come: more fields in spec and status, one with a default, and one more value."""
    crd = copy.deepcopy(CURRENT)
    parts = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    spec, status = parts["spec"]["properties"], parts["status"]["properties"]
    spec["tomorrow"] = {"type": "string", "default": "as today", "maxLength": 16}
    spec["nodeGC"]["properties"]["tomorrow"] = {"type": "string", "maxLength": 16}
    spec["enforcement"]["enum"].append("Tomorrow")
    status["forecast"] = {"type": "string", "maxLength": 16}
    return crd


def apply_crd(plane: ControlPlane, crd: Json) -> None:
    """As ``kubectl apply --server-side`` does."""
    plane.admin.request(
        "PATCH",
        f"{CRDS}/{CRD_NAME}?fieldManager=upgrade&force=true",
        crd,
        content_type="application/apply-patch+yaml",
    )


def served(plane: ControlPlane, path: str) -> bool:
    """Whether the API server stores ``path`` of a status; the schema follows a moment after the CRD."""
    schema = plane.admin.get("/openapi/v3/apis/outpost.dhnt.io/v1alpha1")["components"]["schemas"]
    return path in str(schema)


def under_number(version: str, directory: Path) -> Mapping[str, str]:
    """The environment in which this program calls itself ``version``: a copy of it lies in ``directory``."""
    package, about = directory / "clusterconform", directory / f"clusterconform-{version}.dist-info"
    shutil.copytree(ROOT / "operator" / "clusterconform", package, ignore=shutil.ignore_patterns("__pycache__"))
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: clusterconform\nVersion: {version}\n")
    return {"PYTHONPATH": str(directory)}
