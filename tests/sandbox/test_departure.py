"""SIGTERM ends a sandbox as Ctrl-C does, and neither interrupts the cleaning-up."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterconform.sandbox.departure import Departure, undisturbed


@pytest.fixture(autouse=True)
def nobody_listens() -> Iterator[None]:
    """A sandbox of other tests may still be open in this process, and has taken over SIGTERM."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


def test_sigterm_raises_while_armed() -> None:
    departure = Departure()
    departure.arm()
    try:
        with pytest.raises(SystemExit) as leaving:
            os.kill(os.getpid(), signal.SIGTERM)
        assert leaving.value.code == 143
    finally:
        departure.disarm()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_somebody_elses_handler_is_left_in_place() -> None:
    heard = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: heard.set())
    departure = Departure()
    departure.arm()
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        assert heard.wait(10)
    finally:
        departure.disarm()
        signal.signal(signal.SIGTERM, before)


def test_another_thread_changes_nothing() -> None:
    departure = Departure()
    thread = threading.Thread(target=departure.arm)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_neither_signal_disturbs_the_cleaning_up() -> None:
    with undisturbed():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda it: it.name)
def test_a_process_that_is_asked_to_end_cleans_up_first(tmp_path: Path, number: signal.Signals) -> None:
    text = (
        "import sys, time, pathlib\n"
        "from clusterconform.sandbox.departure import Departure\n"
        "Departure().arm()\n"
        "try:\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(600)\n"
        "finally:\n"
        "    pathlib.Path(sys.argv[1]).touch()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", text, str(tmp_path / "cleaned")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        process.wait(10)
    assert (tmp_path / "cleaned").exists()
