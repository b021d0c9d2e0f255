"""The command line's way to a cluster: pykube-ng's configuration and credentials, plain JSON values."""

from pathlib import Path
from typing import Any, Final

import pykube
import requests
import yaml

_SECONDS: Final = 10.0
MERGE_PATCH: Final = "application/merge-patch+json"


class ClusterError(Exception):
    """The cluster cannot be reached, or refuses; one sentence for a person.

    Attributes:
        status: HTTP status; 0 where there was no answer.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class Cluster:
    """A cluster as a person with a kubeconfig sees it."""

    def __init__(self, kubeconfig: Path | None, context: str | None) -> None:
        """Read the configuration; nothing is asked yet.

        Args:
            kubeconfig: A kubeconfig file; None for KUBECONFIG, a pod's own account, or ~/.kube/config.
            context: A context of it; None for its current one.

        Raises:
            ClusterError: No usable configuration.
        """
        try:
            config = pykube.KubeConfig.from_file(str(kubeconfig)) if kubeconfig else pykube.KubeConfig.from_env()
            if context is not None:
                if context not in config.contexts:
                    raise ClusterError(f"there is no context {context!r} in {config.kubeconfig_path}")
                config.set_current_context(context)
            self._client = pykube.HTTPClient(config, timeout=_SECONDS)
            self.server: str = self._client.url
        except (pykube.exceptions.PyKubeError, OSError, KeyError, TypeError, ValueError, yaml.YAMLError) as error:
            raise ClusterError(f"no usable kubeconfig: {_one_line(error)}") from error

    def get(self, path: str) -> Any:
        """The object or list at ``path`` as JSON values.

        Raises:
            ClusterError: Not there, not allowed, or out of reach.
        """
        return self._answer("GET", path)

    def merge(self, path: str, change: Any) -> Any:
        """Merge ``change`` into the object at ``path``. Raises as ``get``."""
        return self._answer("PATCH", path, json=change, headers={"Content-Type": MERGE_PATCH})

    def _answer(self, method: str, path: str, **extra: Any) -> Any:
        try:
            response = self._client.session.request(method, self.server + path, timeout=_SECONDS, **extra)
        except requests.RequestException as error:
            raise ClusterError(f"{self.server} cannot be reached: {_one_line(error)}") from error
        try:
            value = response.json()
        except ValueError as error:
            raise ClusterError(f"{self.server} does not answer in JSON; is it an API server?") from error
        if not response.ok:
            message = value.get("message") if isinstance(value, dict) else None
            raise ClusterError(str(message or f"HTTP status {response.status_code}"), response.status_code)
        return value


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
