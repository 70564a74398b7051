"""The end of Spark's JVM, where this process is its parent."""

import os
import sys

from pyspark.sql import SparkSession


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
