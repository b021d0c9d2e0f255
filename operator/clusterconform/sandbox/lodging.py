"""Where a sandbox lives on this machine: a directory of its own, and free ports on loopback.

A sandbox that was killed with SIGKILL cannot remove its directory. So each one holds a lock on a file in it,
which the kernel releases whatever happens, and a new sandbox first removes the directories that nobody holds
any more.
"""

import contextlib
import fcntl
import os
import secrets
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Final

_PREFIX: Final = "clusterconform-sandbox-"
_OWNER: Final = "owner"
# Below 21000, where the ports of the agents' tunnels begin, and below the range from which the kernel takes
# ports for outgoing connections: otherwise, while the API server is away, a client that keeps trying to reach
# it could be given that very port, connect to itself, and keep the API server from coming back.
_PORTS: Final = range(12000, 20000)
_PORT_ATTEMPTS: Final = 1000


class Lodging:
    """A directory that belongs to one sandbox from ``open`` to ``close``."""

    def __init__(self, path: Path, lock: int, *, keep: bool) -> None:
        self.path = path
        self._lock = lock
        self._keep = keep

    @classmethod
    def open(cls, directory: Path | None = None, *, keep: bool = False) -> "Lodging":
        """Take a directory.

        Args:
            directory: one that does not exist or is empty; a temporary one if None.
            keep: leave it where it is at the end.

        Raises:
            FileExistsError: there is something in ``directory`` already.
        """
        if directory is None:
            remove_abandoned(Path(tempfile.gettempdir()))
            path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        else:
            path = directory.absolute()
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if any(path.iterdir()):
                raise FileExistsError(f"{path} is not empty: a sandbox needs a directory of its own.")
        # Locked first and named after: a directory without the name is not judged by others.
        fresh = path / f".{_OWNER}"
        lock = os.open(fresh, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        fresh.rename(path / _OWNER)
        return cls(path, lock, keep=keep)

    def folder(self, name: str) -> Path:
        """Give a folder in it, made if need be, that only its owner can enter."""
        folder = self.path / name
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def close(self) -> None:
        """Remove the directory, unless it is to be kept. May be called again."""
        if not self._keep:
            shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.close(self._lock)


def remove_abandoned(parent: Path) -> list[Path]:
    """Remove the directories in ``parent`` of sandboxes whose process has ended, and give their paths."""
    removed = []
    for owner in parent.glob(f"{_PREFIX}*/{_OWNER}"):
        try:
            with owner.open("r+") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(owner.parent, ignore_errors=True)
        except OSError:  # held, gone in the meantime, or somebody else's
            continue
        removed.append(owner.parent)
    return removed


class Ports:
    """Gives ports on 127.0.0.1 that are free, each only once."""

    def __init__(self) -> None:
        self._given: set[int] = set()

    def take(self) -> int:
        """Give a free port.

        Raises:
            OSError: none was found in a thousand attempts.
        """
        for _ in range(_PORT_ATTEMPTS):
            port = _PORTS.start + secrets.randbelow(len(_PORTS))
            if port not in self._given and _is_free(port):
                self._given.add(port)
                return port
        raise OSError(f"no free port on 127.0.0.1 between {_PORTS.start} and {_PORTS.stop - 1}")


def _is_free(port: int) -> bool:
    with socket.socket() as candidate:
        # As the Go programs do: a port whose last connections are still being buried is free for them.
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
