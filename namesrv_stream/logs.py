"""Logging of every process: configured once by the command line, one line per event, in UTC.

``up`` evaluates two kinds of lines that its child processes write to stderr. It shows the text of ``… progress: TEXT``
to the user, and takes ``error: TEXT`` as the reason for a non-zero exit code. In JSON, the key ``mark`` of such a line
is "progress" or "error"; ``up`` also converts the lines of Kafka and Spark, so that every line is JSON.
"""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple

Mark = Literal["progress", "error"]
_MARKED: Final = re.compile(r"(?:\S+ INFO  )?(progress|error): (.*)", re.DOTALL)

_SAFE_CHARS: Final = 200  # characters of untrusted text that a log line may contain


class _TextFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-5s %(name)s %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return _instant(datetime.fromtimestamp(record.created, tz=UTC))


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": _instant(datetime.fromtimestamp(record.created, tz=UTC)),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if mark := getattr(record, "mark", None):
            line["mark"] = mark
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _instant(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


def configure_logging(level: str = "INFO", line_format: Literal["text", "json"] = "text") -> None:
    """Send the log to stderr. If the root logger already has handlers (of a test, a notebook), none is added.

    Args:
        level: DEBUG, INFO, WARNING or ERROR, for the product's own loggers. Other packages log at WARNING and above,
            kafka-python only with DEBUG.
        line_format: Text, or one JSON object per line.
    """
    logging.getLogger("namesrv_stream").setLevel(level)
    # kafka-python logs every failed attempt to connect as an error, several per second; the product logs it once.
    logging.getLogger("kafka").setLevel(logging.INFO if level == "DEBUG" else logging.CRITICAL)
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if line_format == "json" else _TextFormatter())
    root.addHandler(handler)
    root.setLevel(logging.WARNING)


def safe(text: str) -> str:
    """Return ``text`` from a peer in a form safe for a log line: control characters escaped, at most 200 characters."""
    escaped = _escaped(text[: _SAFE_CHARS + 1])
    return escaped if len(escaped) <= _SAFE_CHARS else escaped[: _SAFE_CHARS - 1] + "…"


def _escaped(text: str) -> str:
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def progress(text: str) -> None:
    """Print a line about the progress of this process to stderr; if ``up`` started it, ``up`` shows the text."""
    line = _json_line(__package__, "INFO", text, "progress")
    if not writes_json():
        line = f"{_instant(datetime.now(tz=UTC))} INFO  progress: {text}"
    print(line, file=sys.stderr, flush=True)


def report_error(text: str) -> None:
    """Print the one line that says why this process ends with a non-zero exit code."""
    text = _escaped(" ".join(text.split()))
    line = _json_line(__package__, "ERROR", text, "error") if writes_json() else f"error: {text}"
    print(line, file=sys.stderr, flush=True)


def writes_json() -> bool:
    """Whether this process logs JSON."""
    return any(isinstance(handler.formatter, _JsonFormatter) for handler in logging.getLogger().handlers)


class Line(NamedTuple):
    """A line that a child process of ``up`` printed; ``mark`` is None if the line is only for the log."""

    mark: Mark | None
    text: str


def read_line(line: str) -> Line:
    """Parse a line that a child process of ``up`` printed, in text or JSON."""
    if line.startswith("{"):
        try:
            found = json.loads(line)
            return Line(found.get("mark"), str(found["message"]))
        except (ValueError, KeyError):
            return Line(None, line)
    marked = _MARKED.fullmatch(line)
    if marked is None:
        return Line(None, line)
    return Line("error" if marked[1] == "error" else "progress", marked[2])


def kept_line(program: str, line: str) -> str:
    """Return a line that ``program`` (Kafka, Spark) printed, for its log: in JSON if this process logs JSON."""
    if line.startswith("{") or not writes_json():
        return line
    mark, text = read_line(line)
    return _json_line(program, "ERROR" if mark == "error" else "INFO", text, mark)


def _json_line(logger: str, level: str, text: str, mark: Mark | None) -> str:
    record = {"name": logger, "levelname": level, "msg": text, "mark": mark}
    return _JsonFormatter().format(logging.makeLogRecord(record))
