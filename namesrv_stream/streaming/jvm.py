"""Spark's JVM as a process: its state, its end, and the reason of a failure in the text of Spark's exceptions."""

import os
import re
import sys
from typing import Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from namesrv_stream.errors import NamesrvStreamError
from namesrv_stream.logs import safe


def is_gone(spark: SparkSession) -> bool:
    """Whether the JVM or its SparkContext has ended. Neither can be restarted."""
    try:
        return bool(spark.sparkContext._jsc.sc().isStopped())  # noqa: SLF001
    except (Py4JError, OSError, AttributeError):  # the connection to the JVM is closed
        return True


def kill_jvm(spark: SparkSession | None) -> None:
    """Kill Spark's JVM. A JVM that ``spark-submit`` started ends by itself when this process ends.

    Stderr is closed first, because pyspark's threads would write errors about their lost connections.
    """
    sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    gateway = spark.sparkContext._gateway if spark is not None else None  # noqa: SLF001
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.kill()
        process.wait()


_APPENDICES: Final = re.compile(r"=== Streaming Query ===|JVM stacktrace:")
_PREAMBLE: Final = re.compile(r"^\[\w+\] Query \[[^]]*\] terminated with exception: ")
#: The last line of a Python traceback: class and text of the exception.
_RAISED: Final = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception)(?::.*)?$")


#: A Java exception in a stack trace, without its package. The last one is the innermost cause.
_JAVA_CAUSE: Final = re.compile(r"(?:Caused by)?: (?:[a-z]\w*\.)+([A-Z][\w$]*(?:: .*)?)$")


def failure_reason(error: Exception) -> str:
    """Return the reason of an exception on one line. The class names of Spark's own exceptions are left out."""
    if isinstance(error, NamesrvStreamError):
        return str(error)
    text = safe(failure_line(str(error)))
    is_of_spark = type(error).__module__.partition(".")[0] in ("pyspark", "py4j")
    return text if is_of_spark else f"{type(error).__name__}: {text}"


def failure_line(text: str) -> str:
    """Return the reason in the text of a Spark exception.

    This is the Python exception if there is one, otherwise Java's innermost cause, otherwise the first line with words.

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
