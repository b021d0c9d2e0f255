"""Ties a program's life to the life of the process that starts it, then becomes that program.

Run as a script between the two: ``python tether.py <pid of the parent> <program> <arguments>``. It asks the
kernel to kill it when the parent ends, however the parent ends, and replaces itself by the program, which
inherits the wish together with the process id. Doing the same between fork and exec inside of the parent is
no option: Python code must not run there in a process with threads.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Become the program named on the command line; exit with 127 if that is impossible."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have ended before the kernel was asked; then nobody would tell us any more.
    if os.getppid() != parent:
        sys.exit(f"{command[0]}: the process that wanted it is gone")
    try:
        os.execv(command[0], command)  # noqa: S606 - the programs of the sandbox, never a shell
    except OSError as error:
        print(f"{command[0]} cannot be run: {error.strerror}", file=sys.stderr)  # noqa: T201 - goes to its log
        sys.exit(127)


if __name__ == "__main__":
    main()
