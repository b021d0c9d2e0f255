"""Reading a live cluster for the commands: pykube-ng's connection, JSON values, and one sentence when it fails.

Nothing of it is imported before a command asks for a cluster.
"""

import contextlib
import os
import re
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import wraps
from pathlib import Path
from typing import Any, Final, Self

import click

from clusterconform.effects.clock import Clock

_PAGE: Final = 500
_TIMEOUT_SECONDS: Final = 20
_EXEC: Final = "client.authentication.k8s.io"
_SYSTEM_ERROR: Final = re.compile(r"\[Errno -?\d+\] ([^'\")]+)")
_SECRETS: Final = ("certificate-authority", "client-certificate", "client-key")


class UnavailableError(Exception):
    """The cluster, or what was asked of it, cannot be had; one sentence for a person."""


class DeniedError(UnavailableError):
    """The API server knows us and says no (403), or not at all (401)."""


class AbsentError(UnavailableError):
    """No such object, or no such kind (404)."""


class ChangedError(UnavailableError):
    """The object is not what the request was built on (409, or a lost test)."""


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--kubeconfig`` and ``--context``, and give the command a ``cluster`` that opens when it is used."""

    @click.option(
        "--kubeconfig",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Kubeconfig file; default: KUBECONFIG, the pod's account, ~/.kube/config.",
    )
    @click.option("--context", help="Context of the kubeconfig; default: its current one.")
    @wraps(command)
    def with_cluster(*args: Any, kubeconfig: Path | None, context: str | None, **options: Any) -> Any:
        with Live(kubeconfig, context) as cluster:
            return command(*args, cluster=cluster, **options)

    return with_cluster


@contextlib.contextmanager
def progress(what: str) -> Iterator[Callable[[str], None]]:
    """Show on a terminal what takes more than a second; the block is given a way to say how far it is."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 - only on a terminal

    status = Console(stderr=True).status(what)
    timer = threading.Timer(1.0, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda how_far: status.update(f"{what}: {how_far}")
    finally:
        timer.cancel()
        timer.join()
        status.stop()


class Live:
    """One API server; a context, since credentials lie in files of ours while it is used."""

    def __init__(self, kubeconfig: Path | None = None, context: str | None = None) -> None:
        """Remember where the configuration comes from; the first request reads it."""
        self._kubeconfig, self._context = kubeconfig, context
        self._api: Any = None
        self._open = contextlib.ExitStack()
        self.server_date: tuple[datetime, float] | None = None

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection and remove the credentials' files."""
        self._open.close()

    @property
    def server(self) -> str:
        """URL of the API server."""
        return str(self._client().url)

    def now(self) -> datetime:
        """The API server's time, by which its stamps are to be read; this machine's before the first answer."""
        return self.server_date[0] if self.server_date else Clock().moment().wall

    def get(self, path: str) -> Any:
        """The object at ``path`` as JSON values; what is no object (a log) is got by ``send``.

        Raises:
            UnavailableError: One of its kinds says which.
        """
        value = self.send("GET", path)
        if not isinstance(value, dict):
            raise UnavailableError(f"{self.server} does not answer with objects; is it an API server?")
        return value

    def find(self, path: str) -> Any | None:
        """As ``get``; None where there is no such object or kind."""
        try:
            return self.get(path)
        except AbsentError:
            return None

    def items(self, path: str) -> list[Any]:
        """All objects of the collection ``path``, page by page, with the kind that their list leaves out."""
        found: list[Any] = []
        token = ""
        with progress(f"reading {path.rsplit('/', 1)[-1]}") as say:
            while True:
                joint = "&" if "?" in path else "?"
                page = self.get(f"{path}{joint}limit={_PAGE}" + (f"&continue={token}" if token else ""))
                if not isinstance(page, dict) or not {"kind", "apiVersion"} <= page.keys():
                    raise UnavailableError(
                        f"{self.server} does not answer as an API server does: no list at {path}"
                    )
                head = {"kind": page["kind"].removesuffix("List"), "apiVersion": page["apiVersion"]}
                found += [{**head, **item} for item in page.get("items") or ()]
                token = (page.get("metadata") or {}).get("continue") or ""
                say(f"{len(found):,}")
                if not token:
                    return found

    def send(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        """What ``method`` on ``path`` answers, as JSON values.

        Raises:
            UnavailableError: One of its kinds says which.
        """
        import msgspec  # noqa: PLC0415
        import requests  # noqa: PLC0415

        client = self._client()
        data = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": content_type, "Accept": "application/json"}
        try:
            answer = client.session.request(
                method, client.url.rstrip("/") + path, data=data, headers=headers, timeout=_TIMEOUT_SECONDS
            )
        except requests.RequestException as error:
            raise UnavailableError(f"cannot reach the API server {client.url}: {_root_of(error)}") from error
        except Exception as error:  # a credential plugin may fail in any way; pykube lets it through as it is
            raise UnavailableError(f"cannot use {self._place()}: {_one_line(error)}") from error
        date = answer.headers.get("Date")
        if date:
            with contextlib.suppress(TypeError, ValueError):
                self.server_date = parsedate_to_datetime(date).astimezone(UTC), answer.elapsed.total_seconds()
        try:
            value = msgspec.json.decode(answer.content) if answer.content else None
        except msgspec.DecodeError:
            value = answer.text
        if not answer.ok:
            raise _refusal(method, path, answer.status_code, value)
        return value

    def _client(self) -> Any:
        if self._api is None:
            import pykube  # noqa: PLC0415
            from urllib3.exceptions import InsecureRequestWarning  # noqa: PLC0415
            from yaml import YAMLError  # noqa: PLC0415

            try:
                config = self._read_config(pykube.KubeConfig)
                self._hide_secrets(config.doc)
                self._api = pykube.HTTPClient(config, timeout=_TIMEOUT_SECONDS)
                _ = config.user  # now, and not in the middle of the first request
            except (
                pykube.exceptions.PyKubeError,
                YAMLError,
                OSError,
                LookupError,
                AttributeError,
                TypeError,
                ValueError,
            ) as error:
                raise UnavailableError(f"cannot use {self._place()}: {_one_line(error)}") from error
            self._open.callback(self._api.session.close)
            if config.cluster.get("insecure-skip-tls-verify"):
                # Whoever wrote that into the kubeconfig knows it, and need not be told at every request.
                self._open.enter_context(warnings.catch_warnings())
                warnings.simplefilter("ignore", InsecureRequestWarning)
        return self._api

    def _read_config(self, kind: Any) -> Any:
        in_pod = "KUBERNETES_SERVICE_HOST" in os.environ and "KUBECONFIG" not in os.environ
        if in_pod and self._kubeconfig is None and self._context is None:
            return kind.from_service_account()
        config = _config_of(kind, self._kubeconfig or self._first_file() or os.environ.get("KUBECONFIG"))
        if self._context is not None:
            if self._context not in config.contexts:
                raise LookupError(f"no context {self._context!r}, but {', '.join(sorted(config.contexts))}")
            config.set_current_context(self._context)
        return config

    def _first_file(self) -> str | None:
        """Of several files in KUBECONFIG the first that exists: the client reads one, and merges none."""
        files = os.environ.get("KUBECONFIG", "").split(os.pathsep)
        return next((file for file in files if file and Path(file).expanduser().is_file()), None)

    def _hide_secrets(self, doc: Any) -> None:
        """Write inline keys and certificates into a directory that only we can read, and that goes with us.

        The client itself would leave them in the shared directory for temporary files.
        """
        import base64  # noqa: PLC0415

        if not isinstance(doc, dict):
            raise TypeError("it is no kubeconfig")

        folder = Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="clusterconform-")))
        holders = [entry["cluster"] for entry in doc.get("clusters") or ()]
        holders += [entry["user"] for entry in doc.get("users") or () if entry.get("user")]
        for number, holder in enumerate(holders):
            for name in _SECRETS:
                data = holder.pop(f"{name}-data", None)
                if data:
                    file = folder / f"{number}-{name}"
                    file.write_bytes(base64.b64decode(data))
                    holder[name] = str(file)
            # The newest version of the protocol is the same in all that is read of an answer.
            if isinstance(holder.get("exec"), dict) and holder["exec"].get("apiVersion") == f"{_EXEC}/v1":
                holder["exec"]["apiVersion"] = f"{_EXEC}/v1beta1"

    def _place(self) -> str:
        if self._kubeconfig is not None:
            return f"the kubeconfig {self._kubeconfig}"
        return f"the kubeconfig {os.environ.get('KUBECONFIG') or '~/.kube/config'}"


def _config_of(kind: Any, path: Path | str | None) -> Any:
    """The kubeconfig at ``path``, read within the bounds of every other file that others may have written."""
    from clusterconform.cli.reading import UnreadableInputError, documents_in  # noqa: PLC0415

    file = Path(path or "~/.kube/config").expanduser()
    if not file.exists():
        raise LookupError(f"configuration file {path or file} not found")
    try:
        documents = list(documents_in(str(file)))
    except UnreadableInputError as error:
        raise ValueError(error.reason) from error
    if len(documents) != 1:
        raise TypeError("it is no kubeconfig")
    config = kind(documents[0])
    config.filepath = file  # what it names is found beside it
    return config


def _refusal(method: str, path: str, status: int, answer: Any) -> UnavailableError:
    message = answer.get("message") if isinstance(answer, dict) else str(answer)[:200]
    details = answer.get("details") if isinstance(answer, dict) else None
    causes = details.get("causes") if isinstance(details, dict) else None
    what = f"{method} {path.partition('?')[0]}: {_one_line(message or f'HTTP status {status}')}"
    if status in {401, 403}:
        return DeniedError(what)
    if status == 404:  # noqa: PLR2004 - as everywhere
        return AbsentError(what)
    if status == 409 or (status == 422 and not causes):  # noqa: PLR2004 - see effects.errors
        return ChangedError(what)
    return UnavailableError(what)


def _root_of(error: BaseException) -> str:
    """The innermost reason: what surrounds it are the names of four libraries."""
    seen = error
    while True:
        inner = getattr(seen, "reason", None) or next(
            (arg for arg in seen.args if isinstance(arg, Exception)), None
        )
        if not isinstance(inner, BaseException):
            break
        seen = inner
    text = _one_line(getattr(seen, "strerror", None) or seen)
    system = _SYSTEM_ERROR.search(text)
    return system.group(1) if system else text


def _one_line(error: object) -> str:
    return " ".join(str(error).split()) or type(error).__name__
