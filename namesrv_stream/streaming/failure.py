"""The one line of a failed query that says why, out of the pages that Spark writes."""

import re
from typing import Final

from namesrv_stream.errors import NamesrvStreamError
from namesrv_stream.logs import safe

_APPENDICES: Final = re.compile(r"=== Streaming Query ===|JVM stacktrace:")
_PREAMBLE: Final = re.compile(r"^\[\w+\] Query \[[^]]*\] terminated with exception: ")
#: The last line of a Python traceback: the exception's class and text.
_RAISED: Final = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception)(?::.*)?$")


#: A Java exception without its package, in a stack trace as py4j and Java print it; the last one is the innermost.
_JAVA_CAUSE: Final = re.compile(r"(?:Caused by)?: (?:[a-z]\w*\.)+([A-Z][\w$]*(?:: .*)?)$")


def failure_reason(error: Exception) -> str:
    """Why it was raised, fit for one line of a log; Spark's own classes say nothing that their text does not."""
    if isinstance(error, NamesrvStreamError):
        return str(error)
    text = safe(failure_line(str(error)))
    is_of_spark = type(error).__module__.partition(".")[0] in ("pyspark", "py4j")
    return text if is_of_spark else f"{type(error).__name__}: {text}"


def failure_line(text: str) -> str:
    """The reason in the text of a Spark exception.

    It is what Python raised if it did, else Java's innermost cause, else the first line that has words.

    Args:
        text: ``str`` of the exception.
    """
    lines = [line.strip() for line in _APPENDICES.split(text)[0].splitlines()]
    lines = [_PREAMBLE.sub("", line) for line in lines if any(map(str.isalpha, line))]
    raised = [line for line in lines if _RAISED.match(line)] if "Traceback" in text else []
    found = (_JAVA_CAUSE.match(line.strip()) for line in text.splitlines())
    causes = [cause[1] for cause in found if cause]
    explained = [cause for cause in causes if ": " in cause]
    return (raised[-1:] or explained[-1:] or causes[-1:] or lines[:1] or ["Spark gave no reason"])[0]
