"""The tunnel carries bytes from many endpoints to one port."""

import socket
import threading
from collections.abc import Iterator

import pytest

from clusterconform.sandbox.lodging import Ports
from clusterconform.sandbox.tunnel import Tunnel


@pytest.fixture
def echo() -> Iterator[int]:
    """A server that answers each connection with what it was sent, in capitals."""

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(10)
                while received := connection.recv(1024):
                    connection.sendall(received.upper())

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)


@pytest.fixture
def tunnel(echo: int) -> Iterator[Tunnel]:
    tunnel = Tunnel(echo)
    yield tunnel
    tunnel.close()


def ask(address: str, port: int, words: bytes) -> bytes:
    with socket.create_connection((address, port), timeout=10) as connection:
        connection.sendall(words)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while received := connection.recv(1024):
            answer += received
        return answer


def test_each_endpoint_leads_to_the_same_port(tunnel: Tunnel) -> None:
    port = Ports().take()
    for address in ("127.0.1.1", "127.0.1.2"):
        tunnel.open(address, port)
        assert ask(address, port, b"hello") == b"HELLO"


def test_an_endpoint_that_is_shut_refuses(tunnel: Tunnel) -> None:
    port = Ports().take()
    tunnel.open("127.0.1.1", port)
    tunnel.shut("127.0.1.1", port)
    assert tunnel.endpoints == []
    with pytest.raises(ConnectionRefusedError):
        ask("127.0.1.1", port, b"hello")


def test_an_endpoint_that_is_cut_drops_its_connections_and_refuses(tunnel: Tunnel) -> None:
    port = Ports().take()
    tunnel.open("127.0.1.1", port)
    with socket.create_connection(("127.0.1.1", port), timeout=10) as connection:
        connection.sendall(b"hello")
        assert connection.recv(1024) == b"HELLO"
        tunnel.cut("127.0.1.1", port)
        assert connection.recv(1024) == b""
    with pytest.raises(ConnectionRefusedError):
        ask("127.0.1.1", port, b"hello")


def test_opening_twice_is_opening_once(tunnel: Tunnel) -> None:
    port = Ports().take()
    tunnel.open("127.0.1.1", port)
    tunnel.open("127.0.1.1", port)
    assert tunnel.endpoints == [("127.0.1.1", port)]


def test_a_connection_to_nobody_is_closed() -> None:
    ports = Ports()
    tunnel, port = Tunnel(ports.take()), ports.take()
    tunnel.open("127.0.1.1", port)
    assert ask("127.0.1.1", port, b"") == b""
    tunnel.close()


def test_closing_drops_open_connections(echo: int) -> None:
    tunnel, port = Tunnel(echo), Ports().take()
    tunnel.open("127.0.1.1", port)
    with socket.create_connection(("127.0.1.1", port), timeout=10) as connection:
        connection.sendall(b"x")
        assert connection.recv(10) == b"X"
        tunnel.close()
        assert connection.recv(10) == b""
    tunnel.close()
