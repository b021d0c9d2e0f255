"""Programs are started, paused and ended as told, and none outlives the sandbox."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterconform.sandbox.programs import Program, ProgramEnded, Programs
from clusterconform.sandbox.waiting import wait_until

# Says that it is there, and notes what it is asked to do; "deaf" ones do not obey.
PROGRAM = """
import signal, sys, time
def obey(number, frame):
    print("asked to end", flush=True)
    if "deaf" not in sys.argv:
        sys.exit(0)
signal.signal(signal.SIGTERM, obey)
print("ready", flush=True)
count = 0
while True:
    time.sleep(0.01)
    count += 1
    if "counting" in sys.argv:
        print(count, flush=True)
"""

# Starts a sandbox's program, tells its process id, and waits to be killed.
PARENT = """
import sys, time
from pathlib import Path
from clusterconform.sandbox.programs import Programs
programs = Programs(Path(sys.argv[1]))
child = programs.start("child", [sys.executable, "-c", sys.argv[2]])
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    programs = Programs(tmp_path)
    yield programs
    programs.close()


def start(programs: Programs, *arguments: str, name: str = "subject") -> Program:
    program = programs.start(name, [sys.executable, "-c", PROGRAM, *arguments])
    wait_until(lambda: "ready" in program.log_tail(), what="it is ready", seconds=10, programs=[program])
    return program


def exists(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_a_program_runs_in_a_process_group_of_its_own(programs: Programs) -> None:
    program = start(programs)
    assert os.getpgid(program.pid) == program.pid != os.getpgid(0)


def test_a_program_is_asked_to_end_before_it_is_killed(programs: Programs) -> None:
    program = start(programs)
    program.stop()
    assert not program.running
    assert program.log_tail(1) == "asked to end"


def test_a_program_that_does_not_obey_is_killed(programs: Programs) -> None:
    program = start(programs, "deaf")
    program.stop(seconds=0.2)
    assert not program.running
    assert program.log_tail(1) == "asked to end"


def test_a_paused_program_does_nothing_until_it_is_resumed(programs: Programs) -> None:
    program = start(programs, "counting")
    program.pause()
    wait_until(
        lambda: Path(f"/proc/{program.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T",
        what="it is paused",
        seconds=10,
    )
    before = program.log_tail(1)
    assert program.running
    assert program.log_tail(1) == before
    program.resume()
    wait_until(lambda: program.log_tail(1) != before, what="it goes on", seconds=10)


def test_a_paused_program_can_be_stopped(programs: Programs) -> None:
    program = start(programs)
    program.pause()
    program.stop()
    assert program.log_tail(1) == "asked to end"


def test_a_program_that_ended_is_noticed_with_its_last_words(programs: Programs) -> None:
    program = programs.start("short", [sys.executable, "-c", "print('first'); print('last'); raise SystemExit(3)"])
    wait_until(lambda: not program.running, what="it ends", seconds=10)
    with pytest.raises(ProgramEnded, match=r"^short ended with code 3: last$") as ended:
        program.check()
    assert ended.value.log == "first\nlast"


def test_a_program_that_was_killed_is_noticed(programs: Programs) -> None:
    program = start(programs)
    os.kill(program.pid, signal.SIGKILL)
    wait_until(lambda: not program.running, what="it ends", seconds=10)
    with pytest.raises(ProgramEnded, match=r"was ended by SIGKILL: ready"):
        program.check()


def test_a_program_that_cannot_be_run_says_so(programs: Programs, tmp_path: Path) -> None:
    program = programs.start("absent", [tmp_path / "absent"])
    wait_until(lambda: not program.running, what="it ends", seconds=10)
    with pytest.raises(ProgramEnded, match=r"absent ended with code 127: .* cannot be run: No such file"):
        program.check()


def test_a_running_program_has_nothing_to_complain_about(programs: Programs) -> None:
    start(programs).check()


def test_a_name_that_is_used_again_continues_the_log(programs: Programs) -> None:
    start(programs).kill()
    again = start(programs)
    wait_until(lambda: again.log.read_text() == "ready\nready\n", what="both have spoken", seconds=10)


def test_a_program_gets_no_input_and_the_given_environment(programs: Programs) -> None:
    text = "import os, sys; print(repr(sys.stdin.read()), os.environ['COLOUR'])"
    program = programs.start("reader", [sys.executable, "-c", text], environment={"COLOUR": "red"})
    wait_until(lambda: not program.running, what="it ends", seconds=10)
    assert program.log_tail() == "'' red"


def test_a_program_outlives_the_thread_that_asked_for_it(programs: Programs) -> None:
    started: list[Program] = []
    thread = threading.Thread(target=lambda: started.append(start(programs, "counting")))
    thread.start()
    thread.join()
    (program,) = started
    before = program.log_tail(1)
    wait_until(lambda: program.log_tail(1) != before, what="it goes on", seconds=10, programs=[program])


def test_closing_ends_all_programs_and_their_children(tmp_path: Path) -> None:
    programs = Programs(tmp_path)
    text = (
        "import subprocess, sys, time\n"
        "print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']).pid, flush=True)\n"
        "time.sleep(600)"
    )
    family = programs.start("family", [sys.executable, "-c", text])
    deaf = start(programs, "deaf", name="deaf")
    wait_until(lambda: family.log_tail().isdigit(), what="the child is there", seconds=10, programs=[family])
    child = int(family.log_tail())
    programs.close()
    wait_until(lambda: not exists(child), what="the child is gone", seconds=10)
    assert not exists(family.pid)
    assert not exists(deaf.pid)
    assert programs.running == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda it: it.name)
def test_no_program_outlives_its_parent(tmp_path: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path), PROGRAM],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        log = tmp_path / "child.log"
        wait_until(lambda: log.read_text() == "ready\n", what="the child is ready", seconds=10)
        parent.send_signal(number)
        parent.wait(10)
    wait_until(lambda: not exists(child), what="the child is gone", seconds=10)
