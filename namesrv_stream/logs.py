"""Logging of every process: configured once by the command line, one event a line, UTC.

Two kinds of lines on stderr are more than log lines, because ``up`` reads them from its children:
``progress: TEXT`` is shown to the person who started it, ``error: TEXT`` is the reason of a non-zero exit.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final, Literal

PROGRESS_PREFIX: Final = "progress: "
ERROR_PREFIX: Final = "error: "

_SAFE_CHARS: Final = 200  # characters of untrusted text that one log line may hold


class _TextFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-5s %(name)s %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return _instant(record)


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": _instant(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _instant(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, tz=UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


def configure_logging(level: str = "INFO", line_format: Literal["text", "json"] = "text") -> None:
    """Send the log to stderr. Handlers that are there already (a test's, a notebook's) stay and nothing is added.

    Args:
        level: DEBUG, INFO, WARNING or ERROR, for our own loggers; other packages are heard from WARNING up,
            kafka-python only with DEBUG.
        line_format: Lines for people, or one JSON object a line.
    """
    logging.getLogger("namesrv_stream").setLevel(level)
    # kafka-python logs each attempt to reach a Kafka that is away as an error, several a second; we say it once.
    logging.getLogger("kafka").setLevel(logging.INFO if level == "DEBUG" else logging.CRITICAL)
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if line_format == "json" else _TextFormatter())
    root.addHandler(handler)
    root.setLevel(logging.WARNING)


def safe(text: str) -> str:
    """``text`` from a peer made fit for one log line: control characters escaped, 200 characters at most."""
    head = text[: _SAFE_CHARS + 1]
    escaped = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in head)
    return escaped if len(escaped) <= _SAFE_CHARS else escaped[: _SAFE_CHARS - 1] + "…"


def progress(text: str) -> None:
    """Tell the person who started this what has been reached; under ``up`` the line appears there."""
    print(f"{PROGRESS_PREFIX}{text}", file=sys.stderr, flush=True)


def report_error(text: str) -> None:
    """Print the one line that says why this process ends with a non-zero exit code."""
    print(f"{ERROR_PREFIX}{' '.join(text.split())}", file=sys.stderr, flush=True)
