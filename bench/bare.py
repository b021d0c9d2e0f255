"""The bare client as a process of its own: ``python -m bench.bare JOB RESULT``, both files in msgpack."""

import asyncio
import resource
import sys
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.client import CONNECTIONS, Call, Credentials, open_session, send_all, send_paced


class Job(Struct, kw_only=True):
    """What to send: once and as fast as it goes, or for ``seconds`` at ``per_second`` if that is not 0."""

    credentials: Credentials
    calls: list[Call]
    connections: int = CONNECTIONS
    per_second: float = 0.0
    seconds: float = 0.0


class Result(Struct, kw_only=True):
    """How it went: from the first connection to the last answer, and what it cost this process."""

    seconds: float
    cpu: float
    codes: dict[int, int]

    @property
    def answered(self) -> int:
        """How many requests were answered with a success."""
        return sum(count for code, count in self.codes.items() if code < 400)  # noqa: PLR2004 - HTTP's errors


async def run(job: Job) -> Result:
    """Send ``job`` and time it."""
    cpu, started = _cpu(), time.monotonic()
    async with open_session(job.credentials, job.connections) as session:
        if job.per_second:
            codes = await send_paced(session, job.calls, per_second=job.per_second, seconds=job.seconds)
        else:
            codes = await send_all(session, job.calls, job.connections)
        return Result(seconds=time.monotonic() - started, cpu=_cpu() - cpu, codes=dict(codes))


def main() -> None:
    """Do what the job file says."""
    job = msgspec.msgpack.decode(Path(sys.argv[1]).read_bytes(), type=Job)
    Path(sys.argv[2]).write_bytes(msgspec.msgpack.encode(asyncio.run(run(job))))


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
