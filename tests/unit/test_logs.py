"""Log lines: shapes, and text from peers made harmless."""

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from namesrv_stream.logs import configure_logging, progress, report_error, safe


@contextmanager
def bare_root() -> Iterator[logging.Logger]:
    """The root logger as a fresh process has it, without the handlers that pytest adds; restored afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = []
    try:
        yield root
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        for name in ("namesrv_stream", "kafka"):
            logging.getLogger(name).setLevel(logging.NOTSET)


def test_text_lines_are_utc_with_milliseconds(capsys: pytest.CaptureFixture[str]) -> None:
    record = logging.makeLogRecord({"name": "namesrv_stream.x", "levelname": "INFO", "msg": "up", "created": 0.0125})
    with bare_root() as root:
        configure_logging()
        root.handlers[0].handle(record)
    assert capsys.readouterr().err == "1970-01-01T00:00:00.012Z INFO  namesrv_stream.x up\n"


def test_json_lines_hold_one_object_each(capsys: pytest.CaptureFixture[str]) -> None:
    with bare_root():
        configure_logging(line_format="json")
        try:
            raise ValueError("deep")
        except ValueError:
            logging.getLogger("namesrv_stream.x").exception("failed key=%s", "v")
    line = json.loads(capsys.readouterr().err)
    assert (line["level"], line["logger"], line["message"]) == ("ERROR", "namesrv_stream.x", "failed key=v")
    assert "ValueError: deep" in line["traceback"]


def test_level_is_ours_and_other_packages_are_heard_from_warning_up(capsys: pytest.CaptureFixture[str]) -> None:
    with bare_root():
        configure_logging("DEBUG")
        logging.getLogger("namesrv_stream.x").debug("ours")
        logging.getLogger("uvicorn").info("theirs")
        logging.getLogger("uvicorn").warning("their warning")
    assert [line.rsplit(" ", 1)[1] for line in capsys.readouterr().err.splitlines()] == ["ours", "warning"]


def test_kafka_python_is_heard_with_debug_only(capsys: pytest.CaptureFixture[str]) -> None:
    with bare_root():
        for level in ("INFO", "DEBUG"):
            configure_logging(level)
            logging.getLogger("kafka.net").error("refused at %s", level)
    assert capsys.readouterr().err.splitlines()[0].endswith("refused at DEBUG")


def test_handlers_that_are_there_stay_alone() -> None:
    own = logging.StreamHandler(sys.stderr)
    with bare_root() as root:
        root.addHandler(own)
        configure_logging()
        assert root.handlers == [own]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("broker-a", "broker-a"),
        ("a\r\nINFO forged", "a\\r\\nINFO forged"),
        ("\x1b[31m", "\\x1b[31m"),
        ("主题", "主题"),
        ("x" * 200, "x" * 200),
        ("x" * 201, "x" * 199 + "…"),
        ("\n" * 150, "\\n" * 99 + "\\" + "…"),
    ],
)
def test_safe_escapes_control_characters_and_bounds_length(text: str, shown: str) -> None:
    assert safe(text) == shown


def test_progress_and_error_lines_carry_their_marks(capsys: pytest.CaptureFixture[str]) -> None:
    progress("listening")
    report_error("two\nlines")
    assert capsys.readouterr().err == "progress: listening\nerror: two lines\n"
