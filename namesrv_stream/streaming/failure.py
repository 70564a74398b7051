"""The one line of a failed query that says why, out of the pages that Spark writes."""

import re
from typing import Final

_APPENDICES: Final = re.compile(r"=== Streaming Query ===|JVM stacktrace:")
_PREAMBLE: Final = re.compile(r"^\[\w+\] Query \[[^]]*\] terminated with exception: ")
#: The last line of a Python traceback: the exception's class and text.
_RAISED: Final = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception)(?::.*)?$")


def failure_line(text: str) -> str:
    """The reason in the text of a Spark exception: what Python raised if it did, else the first line that says much.

    Args:
        text: ``str`` of the exception.
    """
    lines = [line.strip() for line in _APPENDICES.split(text)[0].splitlines()]
    lines = [_PREAMBLE.sub("", line) for line in lines if any(map(str.isalpha, line))]
    raised = [line for line in lines if _RAISED.match(line)] if "Traceback" in text else []
    return (raised[-1:] or lines[:1] or ["Spark gave no reason"])[0]
