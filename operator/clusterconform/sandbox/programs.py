"""Starts the sandbox's programs and makes sure that none of them outlives it.

Rules:
 1. Each program has a process group of its own, so that Ctrl-C in a terminal reaches us alone and we decide
     who
    ends, and so that a program's own children end with it.
 2. Each program is tied to us by ``tether``: the kernel kills it when we end, even by SIGKILL.
 3. The kernel watches the *thread* that started a program, not the process. So there is one thread that
     starts
    them all and lives as long as they may.
 4. No shell, and no standard input.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, Final

_TETHER: Final = Path(__file__).with_name("tether.py")
_TAIL_LINES: Final = 15
_STOP_SECONDS: Final = 10.0
# How long the kernel may take to end a killed process; it is waiting for its disk if it needs more than a
# moment.
_KILL_SECONDS: Final = 10.0


class ProgramEnded(Exception):  # noqa: N818 - an observation about a program
    """A program ended by itself; the message is one sentence, ``log`` the end of its output."""

    def __init__(self, message: str, *, log: str = "") -> None:
        super().__init__(message)
        self.log = log


class Launcher:
    """The one thread that starts programs (rule 3)."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="launcher")

    def launch(
        self,
        command: Sequence[str],
        *,
        directory: Path,
        environment: Mapping[str, str],
        stdout: int | IO[Any],
        stderr: int | IO[Any],
    ) -> subprocess.Popen[str]:
        """Start ``command`` (an absolute path and its arguments) in ``directory``.

        Raises:
            OSError: no process could be started at all. A program that cannot be run shows as exit code 127.
        """
        tethered = [sys.executable, "-I", "-S", str(_TETHER), str(os.getpid()), *command]

        def start() -> subprocess.Popen[str]:
            return subprocess.Popen(
                tethered,
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                text=True,
                process_group=0,
            )

        return self._thread.submit(start).result()

    def close(self) -> None:
        """End the thread, and with it, by rule 3, every program that still runs."""
        self._thread.shutdown(wait=True, cancel_futures=True)


class Program:
    """One running program with its log file."""

    def __init__(self, name: str, process: subprocess.Popen[str], log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process
        self._settled = False

    @property
    def pid(self) -> int:
        """Its process id, which is also the id of its process group."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended; a paused program counts as running."""
        return self._process.poll() is None

    def check(self) -> None:
        """Make sure that it still runs.

        Raises:
            ProgramEnded: it has ended.
        """
        status = self._process.poll()
        if status is None:
            return
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with code {status}"
        tail = self.log_tail()
        last = tail.rsplit("\n", 1)[-1] or "it said nothing"
        raise ProgramEnded(f"{self.name} {how}: {last}", log=tail)

    def log_tail(self, lines: int = _TAIL_LINES) -> str:
        """Give the last lines of its output, without a newline at the end."""
        with contextlib.suppress(FileNotFoundError), self.log.open(errors="replace") as file:
            return "".join(deque(file, maxlen=lines)).rstrip("\n")
        return ""

    def pause(self) -> None:
        """Freeze it: it keeps its connections and its ports, and does nothing."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after ``pause``."""
        self._signal(signal.SIGCONT)

    def stop(self, *, seconds: float = _STOP_SECONDS) -> None:
        """Ask it to end, and kill it if it has not done so after ``seconds``; works on a paused one too."""
        self._signal(signal.SIGTERM)
        self.resume()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        self.kill()

    def kill(self) -> None:
        """End it without asking, with the children in its group, and wait until it is gone."""
        # Once only: later the number may belong to somebody else's group.
        if not self._settled:
            kill_group(self._process)
            self._settled = True

    def _signal(self, number: signal.Signals) -> None:
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)


class Programs:
    """All programs of one sandbox."""

    def __init__(self, logs: Path) -> None:
        """Prepare.

        Args:
            logs: an existing directory, where each program's output goes to ``<name>.log``.
        """
        self._logs = logs
        self._launcher = Launcher()
        self._started: list[Program] = []

    def start(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        environment: Mapping[str, str] | None = None,
    ) -> Program:
        """Start a program and return at once.

        Args:
            name: what it is called in messages, and its log file's name. A name may be used again after the
                program has ended: the log is continued.
            command: the executable's absolute path and its arguments.
            environment: variables to set for it, beside our own.
        """
        log = self._logs / f"{name}.log"
        with log.open("a") as output:
            process = self._launcher.launch(
                [str(word) for word in command],
                directory=self._logs,
                environment=dict(os.environ) | dict(environment or {}),
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        program = Program(name, process, log)
        self._started.append(program)
        return program

    @property
    def running(self) -> list[Program]:
        """Those that have not ended, in the order of their start."""
        return [program for program in self._started if program.running]

    def close(self) -> None:
        """Kill every program that still runs, and wait until all are gone.

        Without asking: what they would put in order at the end is thrown away with the sandbox anyway.
        """
        for program in self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
        for program in self._started:
            program.kill()
        self._launcher.close()


def kill_group(process: subprocess.Popen[str]) -> None:
    """Kill a process that ``Launcher`` started, with the children in its group, and wait for its end."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(_KILL_SECONDS)
