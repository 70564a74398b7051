"""The SparkSession of the history process: one core and a small heap, unless it is given more."""

from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from namesrv_stream.settings import Settings
from namesrv_stream.streaming.session import build_session

_HISTORY: Final = {
    "spark.app.name": "namesrv-stream history",
    # A registration of many topics has hundreds of kilobytes.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(8 << 20),
}


def build_history_session(settings: Settings) -> SparkSession:
    """Start the JVM, or join the one that ``spark-submit`` started; blocks for some seconds.

    Raises:
        PrerequisiteMissing: The jars are not there.
    """
    own = {"spark.master": settings.history.master, "spark.driver.memory": settings.history.driver_memory}
    return build_session(settings, _HISTORY | own, history_scratch_dir(settings))


def history_scratch_dir(settings: Settings) -> Path:
    """Where this process's Spark keeps what need not survive; the job's empties its own when it starts."""
    return settings.data.dir / "scratch-history"
