"""The JVMs of Spark and of the embedded Kafka: which variables of the environment reach them, and why they ended."""

import re
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Final

from namesrv_stream.errors import ConfigError

#: Variables of other installations of Java, Spark and Hadoop. Kubernetes also sets SPARK_… for a Service named spark.
_FOREIGN: Final = re.compile(
    r"JAVA_TOOL_OPTIONS|JDK_JAVA_OPTIONS|_JAVA_OPTIONS|CLASSPATH|_?(?:SPARK|PYSPARK|HADOOP|YARN|HIVE)_\w+"
)
#: Options for the JVM of this product's Spark, in Spark's own variable.
_MEANT: Final = frozenset({"SPARK_SUBMIT_OPTS"})


def foreign_variables(environ: Mapping[str, str]) -> list[str]:
    """Return the names of variables that change a JVM of Spark or Kafka, and are meant for other programs."""
    return sorted(name for name in environ if _FOREIGN.fullmatch(name) and name not in _MEANT)


def jvm_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a JVM of this machine: without variables that are meant for other programs."""
    foreign = foreign_variables(environ)
    return {name: value for name, value in environ.items() if name not in foreign}


_LOCAL_MASTER: Final = re.compile(r"local(\[[^\]]*\])?")  # not local-cluster[…], whose executors are processes


def is_one_process(master: str) -> bool:
    """Whether driver and executors of Spark run in one process."""
    return _LOCAL_MASTER.fullmatch(master) is not None


def check_cluster_variables(environ: Mapping[str, str]) -> None:
    """Check the variables that Spark reads if its master is a cluster.

    Raises:
        ConfigError: Spark cannot start with a variable.
    """
    version, home = metadata.version("pyspark"), environ.get("SPARK_HOME")
    if home is not None and not any(Path(home, "jars").glob(f"spark-core_*-{version}.jar")):
        reason = f"there is no Spark {version} in {home!r}: unset SPARK_HOME, or install that version there"
        raise ConfigError("environment", "SPARK_HOME", reason)
    if "pyspark-shell" not in environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell").split():
        reason = "must end with pyspark-shell: unset it, and use streaming.extra for options of Spark"
        raise ConfigError("environment", "PYSPARK_SUBMIT_ARGS", reason)


#: Lines that say nothing about the cause, around the one that does.
_EMPTY: Final = re.compile(
    r"[\W_]*|Error: (?:Could not create the Java Virtual Machine|A fatal exception has occurred)\b.*|#.*"
)
_FRAME: Final = re.compile(r"\tat \S.*|\t\.\.\. \d+ more")
_EXCEPTION: Final = re.compile(
    r'(?:(?P<cause>Caused by: )|Exception in thread "[^"]*" )?(?:[a-z][\w$]*\.)+(?P<text>[A-Z][\w$]*(?:: .*)?)'
)


def last_failure(lines: Iterable[str]) -> str:
    """Return why a process ended, from the end of its output: the last line, or the cause in the stack trace there.

    Of a chain of Java exceptions this is the innermost one with a text; the package of its class is left out.

    Returns:
        One line; "" if the output has none.
    """
    causes: list[str] = []  # the innermost one first
    for line in reversed([line.rstrip() for line in lines if not _EMPTY.fullmatch(line.strip())]):
        found = _EXCEPTION.fullmatch(line)
        if found:
            causes.append(found["text"])
        elif not _FRAME.fullmatch(line):
            causes = causes or [line.strip()]
        if causes and not (found and found["cause"]):  # the beginning of the stack trace
            break
    return next((cause for cause in causes if ": " in cause), causes[0] if causes else "")
