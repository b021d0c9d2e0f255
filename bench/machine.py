"""The machine that the figures are true for."""

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from clusterconform.sandbox.parts import ETCD, NEWEST


def describe() -> dict[str, str | int]:
    """Say what a reader needs to compare figures with those of another machine."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "cores": len(os.sched_getaffinity(0)),
        "cpu": _field("/proc/cpuinfo", "model name") or platform.machine(),
        "memory": f"{int((_field('/proc/meminfo', 'MemTotal') or '0 kB').split()[0]) / 1024**2:.1f} GiB",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "kube-apiserver": NEWEST.version,
        "etcd": ETCD.version,
        **{name: version(name) for name in ("aiohttp", "kopf", "msgspec", "clusterconform")},
        "shared by": "etcd, API server, operator, bench",
    }


def _field(file: str, name: str) -> str:
    for line in Path(file).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""
