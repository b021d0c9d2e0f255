"""A terminal for a program that asks whether it has one."""

import os
import pty
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def on_a_terminal(command: Sequence[str | Path], environment: Mapping[str, str]) -> str:
    """What ``command`` writes to a terminal, on both ways out."""
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
            os.close(theirs)
            written = b""
            while chunk := _read(ours):
                written += chunk
            process.wait(60)
    finally:
        os.close(ours)
    return written.decode()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 4096)
    except OSError:  # how Linux says that nobody has the other end any more
        return b""
