"""A sandbox's directory ends with it, and with the next one if it was killed."""

import subprocess
import sys
from pathlib import Path

import pytest

from clusterconform.sandbox.lodging import Lodging, Ports, remove_abandoned

# Takes a temporary directory and is killed in it.
KILLED = """
import os, signal, sys
sys.path[:] = sys.argv[1].split(os.pathsep)
from clusterconform.sandbox.lodging import Lodging
Lodging.open()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def test_a_temporary_directory_is_private_and_removed(temporary: Path) -> None:
    lodging = Lodging.open()
    (lodging.folder("data") / "file").write_text("x")
    assert lodging.path.parent == temporary
    assert lodging.path.stat().st_mode & 0o777 == 0o700
    lodging.close()
    assert list(temporary.iterdir()) == []
    lodging.close()


def test_a_given_directory_may_be_kept(tmp_path: Path) -> None:
    lodging = Lodging.open(tmp_path / "mine", keep=True)
    lodging.close()
    assert (tmp_path / "mine").is_dir()


def test_a_directory_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    with pytest.raises(FileExistsError, match="a directory of its own"):
        Lodging.open(tmp_path)
    assert (tmp_path / "precious").exists()


def test_the_directory_of_a_killed_sandbox_is_removed_by_the_next(temporary: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, ":".join(sys.path)], check=False)
    (abandoned,) = temporary.iterdir()
    lodging = Lodging.open()
    assert list(temporary.iterdir()) == [lodging.path]
    assert abandoned != lodging.path
    lodging.close()


def test_the_directory_of_a_running_sandbox_is_left_alone(temporary: Path) -> None:
    lodging = Lodging.open()
    assert remove_abandoned(temporary) == []
    assert lodging.path.is_dir()
    lodging.close()


def test_directories_of_others_are_left_alone(temporary: Path) -> None:
    (temporary / "clusterconform-sandbox-new").mkdir()
    (temporary / "somebody").mkdir()
    (temporary / "somebody" / "owner").touch()
    assert remove_abandoned(temporary) == []
    assert len(list(temporary.iterdir())) == 2


def test_a_port_is_given_once() -> None:
    ports = Ports()
    taken = [ports.take() for _ in range(50)]
    assert len(set(taken)) == 50


def test_ports_lie_below_tunnels_and_outgoing_connections() -> None:
    assert all(1024 < Ports().take() < 21000 for _ in range(50))
