"""Kubeconfigs are read by the clients that our users have."""

import base64
from pathlib import Path

import yaml

from clusterconform.sandbox.certificates import Credential
from clusterconform.sandbox.kubeconfig import write_kubeconfig


def test_a_kubeconfig_with_a_certificate_needs_no_other_file(tmp_path: Path) -> None:
    path = write_kubeconfig(
        tmp_path / "config",
        server="https://127.0.0.1:1",
        authority=b"PEM",
        user="jane",
        credential=Credential(certificate=b"certificate", key=b"key"),
    )
    content = yaml.safe_load(path.read_text())
    assert content["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:1"
    (entry,) = content["users"]
    assert entry["name"] == content["contexts"][0]["context"]["user"] == "jane"
    assert base64.b64decode(entry["user"]["client-certificate-data"]) == b"certificate"
    assert base64.b64decode(entry["user"]["client-key-data"]) == b"key"


def test_a_kubeconfig_with_a_token_holds_nothing_else(tmp_path: Path) -> None:
    path = write_kubeconfig(
        tmp_path / "config",
        server="https://127.0.0.1:1",
        authority=b"PEM",
        user="robot",
        token="secret",  # noqa: S106 - no secret
        namespace="factory",
    )
    content = yaml.safe_load(path.read_text())
    assert content["users"] == [{"name": "robot", "user": {"token": "secret"}}]
    assert content["contexts"][0]["context"]["namespace"] == "factory"
    authority = content["clusters"][0]["cluster"]["certificate-authority-data"]
    assert base64.b64decode(authority) == b"PEM"


def test_a_kubeconfig_is_for_its_owners_eyes(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "config", server="https://x", authority=b"", user="u")
    assert path.stat().st_mode & 0o777 == 0o600
