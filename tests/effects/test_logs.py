"""Log lines: a constant sentence with fields beside it."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from clusterconform.effects import logs


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Leave the loggers of this process as they were."""
    root, names = logging.getLogger(), ("kopf", "kopf.objects", "aiohttp.access")
    before = root.level, root.handlers[:], {name: logging.getLogger(name).level for name in names}
    yield
    root.setLevel(before[0])
    root.handlers[:] = before[1]
    for name, level in before[2].items():
        logging.getLogger(name).setLevel(level)


def said(style: str, *, verbose: bool = False, stream: io.StringIO | None = None) -> list[str]:
    """The lines of a few typical calls."""
    stream = stream or io.StringIO()
    logs.configure(style=style, verbose=verbose, stream=stream)
    log = logging.getLogger("clusterconform.handlers.nodes")
    log.info("node repaired", extra={"fields": {"node": "pi", "why": "label ü is absent"}})
    log.debug("details")
    log.warning("no fields")
    return stream.getvalue().splitlines()


def test_json_lines_hold_sentence_fields_level_time_and_logger() -> None:
    lines = [json.loads(line) for line in said("json")]
    assert lines[0].pop("time").endswith("+00:00")
    assert lines[0] == {
        "level": "info",
        "logger": "clusterconform.handlers.nodes",
        "message": "node repaired",
        "node": "pi",
        "why": "label ü is absent",
    }
    assert [line["message"] for line in lines] == ["node repaired", "no fields"]


def test_text_lines_hold_the_sentence_and_then_the_fields() -> None:
    first, second = said("text")
    assert first.endswith("INFO    node repaired  node=pi  why=label ü is absent")
    assert second.endswith("WARNING no fields")


def test_auto_is_text_on_a_terminal_and_json_elsewhere() -> None:
    assert said("auto", stream=Terminal())[0].endswith("why=label ü is absent")
    assert json.loads(said("auto")[0])["node"] == "pi"


def test_debug_lines_appear_only_when_wanted() -> None:
    assert [json.loads(line)["message"] for line in said("json", verbose=True)] == [
        "node repaired",
        "details",
        "no fields",
    ]


@pytest.mark.parametrize("style", ["json", "text"])
def test_a_traceback_belongs_to_its_line(style: str) -> None:
    stream = io.StringIO()
    logs.configure(style=style, verbose=False, stream=stream)
    try:
        int("boom")
    except ValueError:
        logging.getLogger("x").exception("a decision failed", extra={"fields": {"node": "pi"}})
    text = stream.getvalue()
    assert "boom" in text
    assert "Traceback" in text
    if style == "json":
        assert json.loads(text)["node"] == "pi"


def test_json_lines_take_any_field() -> None:
    stream = io.StringIO()
    logs.configure(style="json", verbose=False, stream=stream)
    fields = {"error": ValueError("x"), "set": {1}, "none": None, "message": "not the sentence"}
    logging.getLogger("x").info("sentence", extra={"fields": fields})
    line = json.loads(stream.getvalue())
    assert line["message"] == "sentence"
    assert line["error"] == "x"


@pytest.mark.parametrize("style", ["json", "text"])
def test_one_record_without_a_traceback_is_one_line(style: str) -> None:
    """What an API server or a proxy says may hold line breaks."""
    stream = io.StringIO()
    logs.configure(style=style, verbose=False, stream=stream)
    logging.getLogger("x").warning("write failed", extra={"fields": {"error": "<html>\n<body>\r\nno"}})
    assert len(stream.getvalue().splitlines()) == 1


def test_kopf_and_access_lines_are_kept_for_trouble() -> None:
    stream = io.StringIO()
    logs.configure(style="json", verbose=True, stream=stream)
    for name in ("kopf.objects", "kopf._core.reactor", "aiohttp.access"):
        logging.getLogger(name).info("Handler succeeded.")
        logging.getLogger(name).debug("whole body")
        logging.getLogger(name).warning("trouble")
    assert [json.loads(line)["message"] for line in stream.getvalue().splitlines()] == ["trouble"] * 3


def test_a_record_whose_fields_are_no_fields_is_a_record_without() -> None:
    record = logging.LogRecord("x", logging.INFO, "", 1, "m", (), None)
    assert logs.fields_of(record) == {}
    record.fields = "text"
    assert logs.fields_of(record) == {}
