"""Finds the programs of the sandbox, and builds those that nobody has.

Where a part is looked for, first hit wins:
 1. the directory that the caller names (``--assets``);
 2. the directory in KUBEBUILDER_ASSETS;
 3. our own cache, under a name that contains version, pins and flags;
 4. the PATH, but only if the program there says that it is exactly the pinned version: an unnoticed other
    version would make every statement about the sandbox wrong.
Otherwise it is built into the cache. A part appears there by one rename, so it is complete or absent, and a
lock per part makes a second process wait for the first one's build instead of repeating it.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from clusterconform.sandbox.parts import NEWEST, Kubernetes, Part
from clusterconform.sandbox.programs import Launcher, kill_group
from clusterconform.sandbox.toolchain import ToolchainUnavailable, find_go, go_environment, install_go

_LOG_LINES: Final = 40
_LOCK_PAUSE_SECONDS: Final = 0.2
_VERSION_SECONDS: Final = 10


class State(StrEnum):
    """How far a part is."""

    FOUND = "found"
    WAITING = "waiting"
    BUILDING = "building"
    BUILT = "built"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """News about one part: its state, seconds since work on it began, and one line on what is going on."""

    part: Part
    state: State
    elapsed: float
    detail: str


class PartUnavailable(Exception):  # noqa: N818 - it names the state that the caller has to deal with
    """A part is nowhere and cannot be built: one sentence, and in ``log`` the end of the build's output."""

    def __init__(self, message: str, *, part: Part, log: str = "") -> None:
        super().__init__(message)
        self.part = part
        self.log = log


def default_cache() -> Path:
    """Give the directory where built parts are kept: below XDG_CACHE_HOME, or below ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "clusterconform"


class Builder:
    """Gives the executable of each part, from wherever it can be had.

    Building runs on one thread: two compilations side by side are no faster on a small machine, and one after
        the other the first part is ready early. Close it (or use it as a context manager) to stop a build
        that is running.
    """

    def __init__(
        self,
        cache: Path | None = None,
        assets: Path | None = None,
        *,
        kubernetes: Kubernetes = NEWEST,
        report: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        """Prepare; nothing is looked for yet.

        Args:
            cache: where built parts are kept; ``default_cache()`` if None.
            assets: a directory with ready executables that is trusted as it is.
            kubernetes: the version whose programs its sandboxes run.
            report: told about every change; called from the building thread.
        """
        self.cache = cache or default_cache()
        self.kubernetes = kubernetes
        self._assets = assets
        self._report = report
        self._launcher = Launcher()
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="builder")
        self._promised: dict[str, Future[Path]] = {}
        self._promising = threading.Lock()
        self._running: subprocess.Popen[str] | None = None
        self._closed = threading.Event()

    def __enter__(self) -> Self:
        """Give the builder itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def start(self, parts: Iterable[Part]) -> dict[Part, Future[Path]]:
        """Look for the parts in the background, build what is missing, in the given order.

        Returns:
            For each part, in that order, a future of its executable; it fails with ``PartUnavailable``. A
            part that was asked for before keeps its first future.
        """
        wanted = tuple(parts)
        with self._promising:
            for part in wanted:
                if part.name not in self._promised:
                    self._promised[part.name] = self._worker.submit(self._provide, part)
            return {part: self._promised[part.name] for part in wanted}

    def provide(self, part: Part) -> Path:
        """Give the executable of a part, and wait for its build if need be.

        Raises:
            PartUnavailable: it is nowhere and could not be built.
        """
        return self.start([part])[part].result()

    def find(self, part: Part) -> Path | None:
        """Give the executable of a part if it can be had without a build (see the order above)."""
        trusted = (self._assets, os.environ.get("KUBEBUILDER_ASSETS"), self._home(part))
        for directory in trusted:
            if not directory:
                continue
            candidate = Path(directory) / part.name
            if candidate.is_file() and os.access(candidate, os.X_OK):
                return candidate.absolute()
        on_path = shutil.which(part.name)
        return Path(on_path) if on_path and _says_its_version(Path(on_path), part) else None

    def close(self) -> None:
        """Stop the running build, forget those that wait, and remove what they left."""
        self._closed.set()
        # Before the running build is ended, or the next one would begin in its place.
        self._worker.shutdown(wait=False, cancel_futures=True)
        running = self._running
        if running is not None:
            kill_group(running)
        self._worker.shutdown(wait=True)
        self._launcher.close()

    def _provide(self, part: Part) -> Path:
        began = time.monotonic()

        def report(state: State, detail: str) -> None:
            self._report(Progress(part=part, state=state, elapsed=time.monotonic() - began, detail=detail))

        if found := self.find(part):
            report(State.FOUND, str(found))
            return found
        try:
            with self._locked(part, part.name, lambda: report(State.WAITING, "another process is building it")):
                if found := self.find(part):
                    report(State.FOUND, str(found))
                    return found
                built = self._build(part, report)
        except PartUnavailable as error:
            report(State.FAILED, str(error))
            raise
        report(State.BUILT, str(built))
        return built

    def _build(self, part: Part, report: Callable[[State, str], None]) -> Path:
        go = self._compiler(part, report)
        report(State.BUILDING, f"compiling {part.source} {part.version}")
        home = self._home(part)
        staging = home.with_name(f".{home.name}.{os.getpid()}")
        # We hold the lock: what others began under that name, they did not live to finish.
        for abandoned in self.cache.glob(f".{home.name}.*"):
            shutil.rmtree(abandoned, ignore_errors=True)
        staging.mkdir(parents=True)
        command = [str(go), "build", "-v", *part.build_flags, "-o", str(staging / part.name), part.package]
        try:
            self._compile(part, command, staging, report)
            if not (staging / part.name).is_file():
                raise PartUnavailable(f"{part.name}: the build ended well but left no program.", part=part)
            shutil.rmtree(home, ignore_errors=True)
            staging.rename(home)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        return home / part.name

    def _compile(
        self, part: Part, command: list[str], staging: Path, report: Callable[[State, str], None]
    ) -> None:
        process = self._launcher.launch(
            command,
            directory=part.module_directory,
            # A build that is killed leaves its temporary files: let them go with the staging directory.
            environment=go_environment() | {"GOTMPDIR": str(staging)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._running = process
        try:
            if self._closed.is_set():  # it may have been closed between the two lines above
                kill_group(process)
            assert process.stdout is not None  # noqa: S101 - asked for above; tells the type checker
            log = _follow(process.stdout, lambda line: report(State.BUILDING, line))
            status = process.wait()
        finally:
            self._running = None
            kill_group(process)
            if process.stdout is not None:
                process.stdout.close()
        if self._closed.is_set():
            raise PartUnavailable(f"{part.name}: the build was stopped before it ended.", part=part)
        if status:
            advice = "see the end of its output, or name a directory with ready programs by --assets"
            message = f"{part.name} {part.version} could not be built (go build ended with {status}): {advice}."
            raise PartUnavailable(message, part=part, log="\n".join(log))

    def _compiler(self, part: Part, report: Callable[[State, str], None]) -> Path:
        if go := find_go(self.cache):
            return go
        try:
            with self._locked(part, "go", lambda: report(State.WAITING, "another process is installing Go")):
                if go := find_go(self.cache):
                    return go
                report(State.BUILDING, "installing a Go compiler for this project alone")
                return install_go(self.cache)
        except ToolchainUnavailable as error:
            raise PartUnavailable(f"{part.name}: {error}", part=part, log=error.log) from error

    def _home(self, part: Part) -> Path:
        return self.cache / f"{part.name}-{part.version}-{fingerprint(part)}"

    @contextmanager
    def _locked(self, part: Part, name: str, waiting: Callable[[], None]) -> Iterator[None]:
        self.cache.mkdir(parents=True, exist_ok=True)
        with (self.cache / f".{name}.lock").open("w") as file:
            told = False
            while not _try_lock(file):
                if not told:
                    waiting()
                    told = True
                if self._closed.wait(_LOCK_PAUSE_SECONDS):  # a blocking lock could not be interrupted by close()
                    raise PartUnavailable(
                        f"{part.name}: stopped while another process was building it.", part=part
                    )
            yield


def fingerprint(part: Part) -> str:
    """Give a short hash of everything that decides what a part's executable will be."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        digest.update((part.module_directory / name).read_bytes())
    digest.update("\0".join([part.package, *part.build_flags]).encode())
    return digest.hexdigest()[:12]


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _says_its_version(program: Path, part: Part) -> bool:
    try:
        answer = subprocess.run(
            [program, *part.version_arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=_VERSION_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.returncode == 0 and part.version_text in answer.stdout


def _follow(output: IO[str], tell: Callable[[str], None]) -> deque[str]:
    """Read a build's output to its end, tell what it is doing, and give its last lines."""
    last: deque[str] = deque(maxlen=_LOG_LINES)
    compiled = 0
    for line in map(str.rstrip, output):
        last.append(line)
        if line.startswith("go: downloading "):
            tell(line.removeprefix("go: "))
        elif line and " " not in line:  # with -v, go prints the import path of each package that it compiles
            compiled += 1
            tell(f"{compiled} packages compiled, now {line}")
        elif line:
            tell(line)
    return last
