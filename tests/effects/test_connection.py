"""Where the API server is and who we are there."""

import asyncio
import base64
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from effects_api import NODES, FakeApi
from effects_server import kubeconfig, served
from kubernetes.aio.config import incluster_config, kube_config

from clusterconform.effects.clock import Clock
from clusterconform.effects.connection import Connection, ConnectionConfigError, WriteInterruptedError
from clusterconform.sandbox.certificates import Authority

pytestmark = pytest.mark.usefixtures("nothing_left_over")


@pytest.fixture(autouse=True)
def nothing_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No kubeconfig of this machine, and no pod."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "home" / "config"))


def use_kubeconfig(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    """KUBECONFIG names ``file``; the official client reads it when it is imported."""
    monkeypatch.setenv("KUBECONFIG", str(file))
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(file))


async def opened(file: Path) -> None:
    """Read ``file`` and make a session of it."""
    connection = Connection(file)
    await connection.open()
    await connection.session().close()


async def headers_of(connection: Connection) -> tuple[str, str]:
    """User-Agent and Authorization of one request."""
    await connection.open()
    async with connection.session() as session, session.get(connection.server + NODES) as response:
        assert response.status == 200
    return session.headers["User-Agent"], response.request_info.headers.get("Authorization", "")


async def test_a_token_goes_with_every_request(tmp_path: Path) -> None:
    api = FakeApi()
    async with served(api) as here:
        file = kubeconfig(tmp_path / "config", here.url + "/")
        assert await headers_of(Connection(file)) == ("clusterconform", "Bearer t0")
        assert here.seen == [("GET", NODES, "clusterconform", "Bearer t0")]


async def test_the_server_is_told_without_a_trailing_slash(tmp_path: Path) -> None:
    connection = Connection(kubeconfig(tmp_path / "config", "http://example.com:6443/k8s/"))
    await connection.open()
    assert connection.server == "http://example.com:6443/k8s"


async def test_a_token_that_was_replaced_is_used_after_the_next_opening(tmp_path: Path) -> None:
    async with served(FakeApi()) as here:
        connection = Connection(kubeconfig(tmp_path / "config", here.url))
        await connection.open()
        async with connection.session() as session:
            kubeconfig(tmp_path / "config", here.url, user={"token": "t1"})
            await connection.open()
            async with session.get(here.url + NODES):
                pass
        assert [key for *_, key in here.seen] == ["Bearer t1"]


async def test_a_context_other_than_the_current_one_may_be_asked_for(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "config", "http://here:1")
    config = yaml.safe_load(file.read_text())
    config["clusters"].append({"name": "d", "cluster": {"server": "http://there:2"}})
    config["contexts"].append({"name": "there", "context": {"cluster": "d", "user": "u"}})
    file.write_text(yaml.safe_dump(config))
    connection = Connection(file, "there")
    await connection.open()
    assert connection.server == "http://there:2"


async def test_kubeconfig_of_the_environment_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_kubeconfig(monkeypatch, kubeconfig(tmp_path / "config", "http://there:2"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    connection = Connection()
    await connection.open()
    assert connection.server == "http://there:2"


def broken(tmp_path: Path, what: str) -> tuple[Path, str | None]:
    """A kubeconfig with one thing wrong, and the context to ask for."""
    file = kubeconfig(tmp_path / "config", "https://here:1")
    config = yaml.safe_load(file.read_text())
    garbage = {
        "binary": b"\x00\x01\xff",
        "no YAML": b"a: [b: {c",
        "a tab": b"apiVersion: v1\n\tkind: Config\n",
        "a word": b"hello",
        "a list": b"- a\n- b\n",
        "a number": b"7",
        "empty": b"",
    }
    if what in garbage:
        file.write_bytes(garbage[what])
    elif what == "missing file":
        file.unlink()
    elif what == "a directory":
        file.unlink()
        file.mkdir()
    elif what == "missing context":
        return file, "nowhere"
    elif what == "no current context":
        file.write_text(yaml.safe_dump({**config, "current-context": ""}))
    elif what == "no clusters":
        file.write_text(yaml.safe_dump({**config, "clusters": []}))
    elif what == "null users":
        file.write_text(yaml.safe_dump({**config, "users": None}))
    elif what == "missing certificate file":
        kubeconfig(file, "https://here:1", user={"client-certificate": "nowhere.crt", "client-key": "nowhere.key"})
    return file, None


@pytest.mark.parametrize(
    "what",
    [
        "missing file",
        "a directory",
        "binary",
        "no YAML",
        "a tab",
        "a word",
        "a list",
        "a number",
        "empty",
        "missing context",
        "no current context",
        "no clusters",
        "null users",
        "missing certificate file",
    ],
)
async def test_an_unusable_kubeconfig_is_told_in_one_sentence_that_names_it(tmp_path: Path, what: str) -> None:
    file, context = broken(tmp_path, what)
    with pytest.raises(ConnectionConfigError) as told:
        await Connection(file, context).open()
    assert str(told.value).startswith(f"cannot use the kubeconfig {file}: ")
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("content", ["no certificate", ""])
async def test_a_certificate_that_is_none_is_told_too(tmp_path: Path, content: str) -> None:
    """It is read only when the session is made, or earlier; whichever it is, it is one sentence."""
    data = base64.b64encode(content.encode()).decode() or "Cg=="
    file = kubeconfig(
        tmp_path / "config", "https://here:1", user={"client-certificate-data": data, "client-key-data": data}
    )
    with pytest.raises(ConnectionConfigError):
        await opened(file)


async def test_a_missing_kubeconfig_of_the_environment_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_kubeconfig(monkeypatch, tmp_path / "nowhere")
    with pytest.raises(ConnectionConfigError, match="nowhere"):
        await Connection().open()


async def test_without_any_configuration_the_usual_place_is_named() -> None:
    with pytest.raises(ConnectionConfigError, match=r"~/\.kube/config"):
        await Connection().open()


class Tls:
    """An authority, a server's context that asks for client certificates, and files for a client."""

    def __init__(self, directory: Path) -> None:
        authority = Authority.create("test", now=Clock().moment().wall - timedelta(minutes=1))
        self.authority, self.authority_file = authority, directory / "ca.crt"
        self.authority_file.write_bytes(authority.certificate)
        certificate, key = authority.server("api").write(directory, "server")
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.authority_file))
        self.context.load_cert_chain(certificate, key)
        self.context.verify_mode = ssl.CERT_OPTIONAL


async def test_a_client_certificate_says_who_we_are(tmp_path: Path) -> None:
    tls = Tls(tmp_path)
    admin = tls.authority.client("admin")
    user = {
        "client-certificate-data": base64.b64encode(admin.certificate).decode(),
        "client-key-data": base64.b64encode(admin.key).decode(),
    }
    async with served(FakeApi(), tls.context) as here:
        authority = {"certificate-authority": str(tls.authority_file)}
        file = kubeconfig(tmp_path / "config", here.url, user=user, **authority)
        assert await headers_of(Connection(file)) == ("clusterconform", "")
        assert here.users == ["admin"]


async def test_a_server_of_another_authority_is_not_talked_to(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    tls, other = Tls(tmp_path), Tls(tmp_path / "other")
    async with served(FakeApi(), tls.context) as here:
        authority = {"certificate-authority": str(other.authority_file)}
        connection = Connection(kubeconfig(tmp_path / "config", here.url, **authority))
        await connection.open()
        async with connection.session() as session:
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await session.get(connection.server + NODES)
    assert here.seen == []


class Pod:
    """The account of a pod on this machine's disk."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, host: str, port: int) -> None:
        self.token = directory / "token"
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(port))
        monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(self.token))
        monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(directory / "ca.crt"))
        self.token.write_text("p0")


async def test_in_a_pod_the_account_of_the_pod_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Tls(tmp_path)
    Pod(tmp_path, monkeypatch, "10.0.0.1", 443)
    connection = Connection()
    await connection.open()
    assert connection.server == "https://10.0.0.1:443"


async def test_in_a_pod_the_token_is_read_from_disk_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod's token is replaced on disk about once an hour, and no session is made anew for it."""
    tls = Tls(tmp_path)
    async with served(FakeApi(), tls.context) as here:
        pod = Pod(tmp_path, monkeypatch, "127.0.0.1", int(here.url.rpartition(":")[2]))
        connection = Connection()
        await connection.open()
        async with connection.session() as session:
            for token in ("p0", "p1"):
                pod.token.write_text(token)
                _let_a_minute_pass(connection)
                async with session.get(connection.server + NODES):
                    pass
        assert [key for *_, key in here.seen] == ["bearer p0", "bearer p1"]


def _let_a_minute_pass(connection: Connection) -> None:
    """The official client reads the file once a minute; its loader hides behind the hook."""
    hook: Any = connection._configuration.refresh_api_key_hook
    loader = hook.__closure__[0].cell_contents
    loader.token_expires_at = loader.token_expires_at.replace(year=2000)


async def test_in_a_pod_without_a_token_it_is_told_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Tls(tmp_path)
    Pod(tmp_path, monkeypatch, "10.0.0.1", 443).token.unlink()
    with pytest.raises(ConnectionConfigError) as told:
        await Connection().open()
    assert "~/.kube/config" not in str(told.value)


def test_nothing_is_written_beside_the_kubeconfig(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "config", "http://here:1")
    before = file.read_bytes()
    asyncio.run(Connection(file).open())
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["config"]


class Breaking:
    """A server that answers the first request of each connection, and breaks that connection at the second.

    Attributes:
        url: Where it is.
        arrived: The methods of all requests that arrived, in order.
        reset: Whether a connection is broken by a reset instead of an end.
    """

    def __init__(self) -> None:
        self.url, self.arrived, self.reset = "", list[str](), False

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        with contextlib.suppress(asyncio.IncompleteReadError):
            await self._take(reader)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            await self._take(reader)
        if self.reset:
            # Without lingering, the end of a connection is a reset.
            own = writer.get_extra_info("socket")
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()

    async def _take(self, reader: asyncio.StreamReader) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = [line for line in head.lower().splitlines() if line.startswith("content-length:")]
        await reader.readexactly(int(length[0].partition(":")[2]) if length else 0)
        self.arrived.append(head.partition(" ")[0])


@contextlib.asynccontextmanager
async def breaking() -> AsyncIterator[Breaking]:
    """A server whose connections serve one request each."""
    here = Breaking()
    server = await asyncio.start_server(here.handle, "127.0.0.1", 0)
    async with server:
        here.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield here


@pytest.mark.parametrize("reset", [False, True], ids=["an end", "a reset"])
@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "POST"])
async def test_a_write_whose_connection_breaks_is_sent_once(tmp_path: Path, method: str, *, reset: bool) -> None:
    """Sent again, a deletion of ours that was carried out would read as one that somebody else made."""
    async with breaking() as here:
        here.reset = reset
        connection = Connection(kubeconfig(tmp_path / "config", here.url))
        await connection.open()
        async with connection.session() as session:
            async with session.get(here.url):
                pass
            with pytest.raises(WriteInterruptedError):
                await session.request(method, here.url, data=b"{}")
    assert here.arrived == ["GET", method]


async def test_a_read_whose_connection_breaks_may_be_sent_again(tmp_path: Path) -> None:
    async with breaking() as here:
        connection = Connection(kubeconfig(tmp_path / "config", here.url))
        await connection.open()
        async with connection.session() as session:
            for _ in range(2):
                async with session.get(here.url) as response:
                    assert response.status == 200
    assert here.arrived == ["GET", "GET", "GET"]
