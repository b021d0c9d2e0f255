"""The audit log is read while the API server writes it."""

import pytest

from clusterconform.sandbox.control_plane import whole_lines

TORN = b'{"kind":"Event","apiVersion":"audi'


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (b"", []),
        (TORN, []),
        (b"one\n", [b"one"]),
        (b"one\n" + TORN, [b"one"]),
        (b"one\ntwo\n", [b"one", b"two"]),
    ],
)
def test_an_event_that_is_being_written_is_not_read_yet(text: bytes, lines: list[bytes]) -> None:
    assert whole_lines(text) == lines
