"""Spark's JVM: starting it, killing it, and the reason for its end or for an exception of Spark."""

import os
import pwd
import re
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from threading import Thread
from typing import Final

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from namesrv_stream.errors import NamesrvStreamError
from namesrv_stream.jvm import last_failure
from namesrv_stream.logs import safe
from namesrv_stream.prerequisites import find_java
from namesrv_stream.processes import child_processes

_KEPT_LINES: Final = 200
_OUTPUT_S: Final = 1.0  # for the output of a JVM that has just ended


class _Output:
    """Copies the output of the JVM to stderr, and keeps the last lines."""

    def __init__(self, pipe: int) -> None:
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._thread = Thread(target=self._copy, args=(pipe,), name="jvm-output", daemon=True)
        self._thread.start()

    def failure(self) -> str:
        """Return why the JVM ended; "" if its output does not say it."""
        self._thread.join(_OUTPUT_S)
        return safe(last_failure(list(self._lines)))

    def _copy(self, pipe: int) -> None:
        with open(pipe, "rb") as lines:
            for line in lines:
                self._lines.append(line.decode("utf-8", "replace"))
                with suppress(OSError):
                    os.write(2, line)


def start_jvm(config: Mapping[str, str]) -> None:
    """Start Spark's JVM unless this process has one; blocks for some seconds.

    Args:
        config: Settings of Spark. The JVM reads those for its memory and its options only now.

    Raises:
        PrerequisiteMissing: Java 17 is missing.
        NamesrvStreamError: The JVM ended; the text says why.
    """
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit has started the JVM, with a login of its own
    if SparkContext._gateway is not None or is_submitted:  # noqa: SLF001
        return
    find_java()
    read_end, write_end = os.pipe()
    output = _Output(read_end)
    try:
        conf = SparkConf(loadDefaults=False).setAll(list(config.items()))
        gateway = launch_gateway(conf, {"stdout": write_end, "stderr": write_end})  # type: ignore[no-untyped-call]
    except PySparkRuntimeError:
        os.close(write_end)
        reason = output.failure() or "it printed nothing"
        raise NamesrvStreamError(f"Spark's JVM ended at its start: {reason}") from None
    os.close(write_end)
    gateway.output = output
    SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001
    if not is_user_known():  # Hadoop's own login would fail
        users = gateway.jvm.org.apache.hadoop.security.UserGroupInformation
        users.setLoginUser(users.createRemoteUser(os.environ.get("HADOOP_USER_NAME", f"uid-{os.getuid()}")))


def is_user_known() -> bool:
    """Whether the user of this process has an entry in passwd; in a container any number can be the user."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return True


def is_gone(spark: SparkSession) -> bool:
    """Whether the JVM or its SparkContext has ended. Neither can be restarted."""
    try:
        return bool(spark.sparkContext._jsc.sc().isStopped())  # noqa: SLF001
    except (Py4JError, OSError, AttributeError):  # the connection to the JVM is closed
        return True


def reason_of_end(spark: SparkSession | None) -> str:
    """Return that the JVM of a session has ended, and why as far as it is known; "" while it runs."""
    if spark is None or not is_gone(spark):
        return ""
    gateway = vars(spark.sparkContext._gateway)  # noqa: SLF001
    process, output = gateway.get("proc"), gateway.get("output")
    reason = ""
    with suppress(subprocess.TimeoutExpired):
        code = process.wait(_OUTPUT_S) if process is not None else None
        if output is not None and code is not None:
            reason = f"signal {-code}" if code < 0 else output.failure()
    return f"Spark's JVM has ended{reason and ': '}{reason}"


def kill_jvm(spark: SparkSession | None) -> None:
    """Kill Spark's JVM. A JVM that ``spark-submit`` started ends by itself when this process ends.

    If ``spark`` is None, a JVM may be starting. It is then the only child of this process, and would notice the end of
    this process only after its own start, which can take a minute.

    Stderr is silenced first, because pyspark's threads would write errors about their lost connections.
    """
    sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    gateway = spark.sparkContext._gateway if spark is not None else None  # noqa: SLF001
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.kill()
        process.wait()
    elif spark is None:
        for pid in child_processes(os.getpid()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


_APPENDICES: Final = re.compile(r"=== Streaming Query ===|JVM stacktrace:")
_PREAMBLE: Final = re.compile(r"^\[\w+\] Query \[[^]]*\] terminated with exception: ")
#: The last line of a Python traceback: class and text of the exception. Py4JJavaError stands for an exception of Java,
#: whose stack trace follows.
_RAISED: Final = re.compile(r"(?!py4j\.protocol\.Py4JJavaError)[A-Za-z_][\w.]*(?:Error|Exception)(?::.*)?$")


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

    This is the Python exception if there is one, otherwise Java's innermost cause, otherwise the first line of text.

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
