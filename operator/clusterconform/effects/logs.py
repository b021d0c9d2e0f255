"""Log lines: a constant sentence with fields beside it; text for a terminal, JSON in a pod."""

import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec


def fields_of(record: logging.LogRecord) -> Mapping[str, Any]:
    """The fields beside the sentence, given as ``extra={"fields": {...}}``."""
    fields = getattr(record, "fields", None)
    return fields if isinstance(fields, Mapping) else {}


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        fields = "  ".join(f"{name}={' '.join(str(value).split())}" for name, value in fields_of(record).items())
        line = f"{at} {record.levelname:<7} {record.getMessage()}" + (f"  {fields}" if fields else "")
        return line + (f"\n{self.formatException(record.exc_info)}" if record.exc_info else "")


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in fields_of(record).items() if name not in line}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


def configure(*, style: str, verbose: bool, stream: TextIO = sys.stderr) -> None:
    """Send all logs to ``stream``.

    Args:
        style: ``text``, ``json``, or ``auto``: text for a terminal, JSON otherwise.
        verbose: Whether debug lines are wanted.
        stream: Where to.
    """
    text = style == "text" or (style == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Text() if text else _Json())
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler], force=True)
    # Kopf says "succeeded" at INFO for each event of each object (a tenth of its CPU, measured), and dumps
    # whole bodies at DEBUG.
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    logging.getLogger("kopf").setLevel(logging.WARNING)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
