"""Spark's JVM as a process: whether it can still work, and its end."""

import os
import sys

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession


def is_gone(spark: SparkSession) -> bool:
    """Whether the JVM has ended, or its SparkContext has: neither comes back."""
    try:
        return bool(spark.sparkContext._jsc.sc().isStopped())  # noqa: SLF001
    except (Py4JError, OSError, AttributeError):  # of a connection that is none any more
        return True


def kill_jvm(spark: SparkSession | None) -> None:
    """End Spark without its farewells; it notices its driver's end by itself where we are not its parent.

    Nothing more is said on stderr: pyspark's threads would, of the connections that they lose.
    """
    sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    gateway = spark.sparkContext._gateway if spark is not None else None  # noqa: SLF001
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.kill()
        process.wait()
