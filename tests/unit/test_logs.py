"""Log lines: formats, and escaping of text from peers."""

import json
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from namesrv_stream.logs import configure_logging, kept_line, progress, read_line, report_error, safe


@contextmanager
def bare_root() -> Iterator[logging.Logger]:
    """The root logger of a new process, without the handlers of pytest; it is restored afterwards."""
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


def test_json_lines_contain_one_object_each(capsys: pytest.CaptureFixture[str]) -> None:
    with bare_root():
        configure_logging(line_format="json")
        try:
            raise ValueError("deep")
        except ValueError:
            logging.getLogger("namesrv_stream.x").exception("failed key=%s", "v")
    line = json.loads(capsys.readouterr().err)
    assert (line["level"], line["logger"], line["message"]) == ("ERROR", "namesrv_stream.x", "failed key=v")
    assert "ValueError: deep" in line["traceback"]


def test_level_applies_to_the_product_and_other_packages_log_from_warning(capsys: pytest.CaptureFixture[str]) -> None:
    with bare_root():
        configure_logging("DEBUG")
        logging.getLogger("namesrv_stream.x").debug("ours")
        logging.getLogger("uvicorn").info("theirs")
        logging.getLogger("uvicorn").warning("their warning")
    assert [line.rsplit(" ", 1)[1] for line in capsys.readouterr().err.splitlines()] == ["ours", "warning"]


def test_messages_of_kafka_python_are_logged_only_with_debug(capsys: pytest.CaptureFixture[str]) -> None:
    with bare_root():
        for level in ("INFO", "DEBUG"):
            configure_logging(level)
            logging.getLogger("kafka.net").error("refused at %s", level)
    assert capsys.readouterr().err.splitlines()[0].endswith("refused at DEBUG")


def test_existing_handlers_are_kept() -> None:
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
    report_error("two\nlines\x1b[2J")
    first, second = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO  progress: listening", first)
    assert second == r"error: two lines\x1b[2J"
    assert read_line(first) == ("progress", "listening")
    assert read_line(second) == ("error", r"two lines\x1b[2J")


def test_with_json_every_line_is_json_with_the_same_marks(capsys: pytest.CaptureFixture[str]) -> None:
    spark = "26/11/24 15:20:32 WARN Utils: Your hostname resolves to a loopback address"
    with bare_root():
        configure_logging(line_format="json")
        progress("listening: {%s}")
        report_error("two\nlines")
        logging.getLogger("namesrv_stream.x").info("up")
        lines = [*capsys.readouterr().err.splitlines(), kept_line("job", spark), kept_line("job", "error: no Kafka")]
    read = [json.loads(line) for line in lines]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["at"]) for line in read)
    assert [read_line(line) for line in lines] == [
        *(("progress", "listening: {%s}"), ("error", "two lines"), (None, "up")),
        *((None, spark), ("error", "no Kafka")),
    ]
    assert [(line["logger"], line["level"]) for line in read[3:]] == [("job", "INFO"), ("job", "ERROR")]
    assert kept_line("job", lines[0]) == lines[0]


@pytest.mark.parametrize("line", ["", "{", '{"message"', '{"a": 1}', "my progress: x", "[1]", "{}"])
def test_unmarked_lines_appear_only_in_the_log(line: str) -> None:
    assert read_line(line) == (None, line)
    assert kept_line("kafka", line) == line
