"""Kubeconfig files: how anybody else is let in."""

import base64
import json
from pathlib import Path

from clusterconform.sandbox.certificates import Credential, write_privately


def write_kubeconfig(
    path: Path,
    *,
    server: str,
    authority: bytes,
    user: str,
    credential: Credential | None = None,
    token: str | None = None,
    namespace: str = "default",
) -> Path:
    """Write a kubeconfig that needs no other file, and give its path.

    It is JSON, which every reader of kubeconfigs accepts, since YAML contains it.

    Args:
        path: where to; an existing file is replaced.
        server: URL of the API server.
        authority: PEM text of the certificate authority.
        user: name of the entry, for people.
        credential: client certificate and key, or None.
        token: bearer token, or None.
        namespace: the namespace that commands mean when they name none.
    """
    identity: dict[str, str] = {}
    if credential is not None:
        identity["client-certificate-data"] = base64.b64encode(credential.certificate).decode()
        identity["client-key-data"] = base64.b64encode(credential.key).decode()
    if token is not None:
        identity["token"] = token
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(authority).decode()}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "sandbox", "cluster": cluster}],
        "users": [{"name": user, "user": identity}],
        "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": user, "namespace": namespace}}],
        "current-context": "sandbox",
    }
    write_privately(path, json.dumps(content, indent=1).encode())
    return path
