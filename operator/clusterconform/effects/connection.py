"""How to reach the API server: configuration, credentials and HTTP sessions from the official client.

Only the lowest floor of ``kubernetes.aio`` is used. Its typed models refuse real objects (a Node with an
unknown condition type, images with null names) and cost 0.7 ms of CPU a call; its session, TLS and credential
code is what every user of the client already trusts.
"""

import asyncio
import os
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp import ClientHandlerType, ClientMiddlewareType, ClientRequest, ClientResponse
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import (
    ConfigException,
    load_incluster_config,
    load_kube_config,
)
from yaml import YAMLError

from clusterconform import __name__ as package

# Enough for every writer (handlers.queue), the watches and the resync at once.
_CONNECTIONS = 64


class ConnectionConfigError(Exception):
    """No usable configuration; the text is one sentence for a person."""


class WriteInterruptedError(aiohttp.ClientConnectionError):
    """The connection broke while a write was under way: it may have been carried out or not."""


class Connection:
    """Where the API server is and who we are there; makes HTTP sessions that carry the credentials."""

    def __init__(self, kubeconfig: Path | None = None, context: str | None = None) -> None:
        """Remember where the configuration comes from; ``open`` reads it.

        Args:
            kubeconfig: A kubeconfig file; None for KUBECONFIG, a pod's own account, or ~/.kube/config.
            context: A context of that file other than its current one.
        """
        self._kubeconfig, self._context = kubeconfig, context
        self._configuration = Configuration()
        self._refreshing = asyncio.Lock()

    async def open(self) -> None:
        """Read the configuration, again when credentials are refused.

        Raises:
            ConnectionConfigError: Where there is none, or an unreadable one.
        """
        async with self._refreshing:
            configuration = Configuration()
            try:
                if self._in_cluster():
                    load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
                else:
                    await self._load_file(configuration)
            except (ConfigException, YAMLError, OSError, ValueError, KeyError, TypeError) as error:
                raise ConnectionConfigError(f"cannot use {self._place()}: {_one_line(error)}") from error
            configuration.connection_pool_maxsize = _CONNECTIONS
            self._configuration = configuration

    def _in_cluster(self) -> bool:
        wanted = self._kubeconfig is not None or self._context is not None or "KUBECONFIG" in os.environ
        return not wanted and "KUBERNETES_SERVICE_HOST" in os.environ

    def _place(self) -> str:
        if self._in_cluster():
            return "the pod's own account"
        return f"the kubeconfig {self._kubeconfig or os.environ.get('KUBECONFIG') or '~/.kube/config'}"

    async def _load_file(self, configuration: Configuration) -> None:
        file = str(self._kubeconfig) if self._kubeconfig else None
        await load_kube_config(  # type: ignore[no-untyped-call]
            config_file=file, context=self._context, client_configuration=configuration, persist_config=False
        )

    @property
    def server(self) -> str:
        """URL of the API server, without a trailing slash."""
        return str(self._configuration.host).rstrip("/")

    def session(self, *middlewares: ClientMiddlewareType) -> aiohttp.ClientSession:
        """A session with TLS and credentials; ``middlewares`` see each request after the credentials do.

        Raises:
            ConnectionConfigError: A certificate or key that is none.
        """
        configuration = self._configuration
        configuration.client_session_kwargs = {
            "middlewares": (self._authorize, *middlewares),
            # Or aiohttp would look for ~/.netrc and a proxy in the environment, in two threads, at each request.
            "trust_env": False,
            "proxy": configuration.proxy or _proxy_of(self.server),
            "headers": {"User-Agent": package},
            "auto_decompress": True,
        }
        # The factory is the documented place to build a session from a configuration (see its docstring).
        try:
            session = RESTClientObject(configuration)._create_pool_manager()  # noqa: SLF001
        except OSError as error:
            # A certificate or key that is none; OpenSSL's errors are OSErrors.
            message = f"cannot use the certificates of {self._place()}: {_one_line(error)}"
            raise ConnectionConfigError(message) from error
        if not isinstance(session, aiohttp.ClientSession):
            raise TypeError("the official client no longer makes aiohttp sessions")
        return session

    async def _authorize(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        # Per request and not per session: a pod's token changes on disk about once an hour.
        key = await self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        if key:
            request.headers["Authorization"] = key
        if self._configuration.tls_server_name:
            request.server_hostname = self._configuration.tls_server_name
        try:
            return await handler(request)
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
            if request.method == "GET":
                raise
            # aiohttp sends PUT and DELETE once more over another connection; what the first one did would then
            # look like another writer's doing: a deletion of ours would read as "gone already".
            raise WriteInterruptedError(str(error) or type(error).__name__) from error


def _proxy_of(server: str) -> str | None:
    """The proxy that the environment names for ``server``, asked once for each session."""
    parts = urlsplit(server)
    return None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
