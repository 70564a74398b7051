"""The SparkSession: every setting that the job relies on, with its reason."""

import os
import sys
import tempfile
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from namesrv_stream.errors import PrerequisiteMissing
from namesrv_stream.settings import Settings, project_home
from namesrv_stream.streaming.placement import is_one_process, is_submitted, pack_package, submitted_config

_STREAMING: Final = "org.apache.spark.sql.execution.streaming"

_FILE_MANAGER: Final = f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"

_JAVA_OPTIONS: Final = (
    "-Xss4m",  # a long class path makes a redaction expression of Spark's recurse deeply when the query stops
    "-XX:+UseSerialGC",
    # The driver plans small batches: optimising its code takes two cores for a minute and gains nothing measurable.
    "-XX:TieredStopAtLevel=1",
    # Of a JVM without memory some threads die and others wait for them for ever; one that ended is started again.
    "-XX:+ExitOnOutOfMemoryError",
)
#: Hadoop's own, without its native library, starts a chmod for each file: three processes a batch.
_FILE_SYSTEM: Final = "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"
_FILE_SYSTEM_JAR: Final = "hadoop-bare-naked-local-fs-*.jar"
# Longest folder for Unix domain sockets that Spark takes; in a longer one each batch fails.
_SOCKET_DIR_BYTES: Final = 61

_FIXED: Final = {
    "spark.app.name": "namesrv-stream job",
    "spark.log.level": "WARN",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Without Hadoop's native library the default manager starts chmod and readlink for each log file: 60 ms a batch.
    "spark.sql.streaming.checkpointFileManagerClass": _FILE_MANAGER,
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # transformWithState knows no other store; without the changelog each batch uploads a snapshot.
    "spark.sql.streaming.stateStore.providerClass": f"{_STREAMING}.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # The fold has no timers, so a batch without records has nothing to do.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.metricsEnabled": "false",
    # Asking Kafka for its latest offsets costs more than waiting a little.
    "spark.sql.streaming.pollingDelay": "20ms",
    "spark.sql.adaptive.enabled": "false",
}
#: Executors that run elsewhere must reach the driver at an address of its own, which Spark finds by itself.
_ONE_PROCESS: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
#: There on every machine, and short; the driver's scratch folder is not.
_EXECUTORS_SOCKETS: Final = Path("/tmp")


def build_session(settings: Settings, extra: dict[str, str] | None = None, scratch: Path | None = None) -> SparkSession:
    """Start the JVM, or join the one that ``spark-submit`` started; blocks for some seconds.

    Args:
        settings: Of which ``streaming``, ``jars`` and ``kafka.partitions`` matter.
        extra: More of Spark's settings, and others instead of those here; ``streaming.extra`` goes before them, and
            what ``spark-submit`` was told after them.
        scratch: What to use as ``scratch_dir``; the job's where None.

    Raises:
        PrerequisiteMissing: The jars of Spark's Kafka source are not there.
    """
    scratch = (scratch or scratch_dir(settings)).absolute()
    scratch.mkdir(parents=True, exist_ok=True)
    given = {k: _text(v) for k, v in settings.streaming.extra.items() if k.startswith("spark.")}
    given |= (extra or {}) | submitted_config()
    master = given.get("spark.master", settings.streaming.master)
    # Else Spark starts the system's python3 for its workers, which lacks our packages.
    if is_one_process(master):
        os.environ["PYSPARK_PYTHON"] = sys.executable
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder
    for name, value in (session_config(settings, master, scratch) | given).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if not is_one_process(master):
        spark.sparkContext.addPyFile(str(pack_package(scratch)))
    return spark


def session_config(settings: Settings, master: str, scratch: Path) -> dict[str, str]:
    """Spark's settings as the job relies on them; what operators say goes before them.

    Raises:
        PrerequisiteMissing: The jars of Spark's Kafka source are not there, and no JVM that has its own.
    """
    config = _FIXED | {
        "spark.master": master,
        "spark.driver.memory": settings.streaming.driver_memory,
        "spark.sql.shuffle.partitions": str(shuffle_partitions(settings, master)),
        # All that Spark leaves behind when it is killed is in one place, which the next start empties.
        "spark.local.dir": str(scratch),
        "spark.driver.extraJavaOptions": " ".join([f'"-Djava.io.tmpdir={scratch}"', *_JAVA_OPTIONS]),
    }
    jars = [] if is_submitted() else [str(jar) for jar in spark_jars(settings)]  # of a JVM that runs: as it has them
    if jars:
        config["spark.driver.extraClassPath"] = os.pathsep.join(jars)
    if is_one_process(master):
        if any(Path(jar).match(_FILE_SYSTEM_JAR) for jar in jars):
            config["spark.hadoop.fs.file.impl"] = _FILE_SYSTEM
        return config | _ONE_PROCESS | _sockets(socket_dir(scratch, Path(tempfile.gettempdir())))
    if jars:
        config["spark.jars"] = ",".join(jars)  # executors fetch them from the driver
    return config | _sockets(_EXECUTORS_SOCKETS)


def shuffle_partitions(settings: Settings, master: str) -> int:
    """Tasks of the fold; a third one gains nothing on two cores."""
    return min(2, settings.kafka.partitions) if is_one_process(master) else settings.kafka.partitions


def scratch_dir(settings: Settings) -> Path:
    """Where Spark keeps what need not survive: shuffle files and RocksDB's working copies."""
    return settings.data.dir / "scratch"


def spark_jars(settings: Settings) -> list[Path]:
    """The jars that pyspark lacks, absolute.

    Raises:
        PrerequisiteMissing: There are none.
    """
    folder = project_home() / settings.jars.spark_dir
    jars = sorted(folder.glob("*.jar"))
    if not jars:
        raise PrerequisiteMissing(
            f"jars of Spark's Kafka source in {folder}", "run `make setup`, or set advanced.jars.spark_dir"
        )
    return jars


def socket_dir(*folders: Path) -> Path | None:
    """The first folder in which Spark's Python workers find its Unix domain sockets; None where there is none.

    Source: pyspark 4.2, worker.py: EvalConf.state_server_socket_port is read in lower case.
    """
    return next((f for f in folders if len(os.fsencode(f)) <= _SOCKET_DIR_BYTES and str(f) == str(f).lower()), None)


def _sockets(folder: Path | None) -> dict[str, str]:
    # Two thirds of a batch was the TCP way to the Python worker.
    enabled, where = "spark.python.unix.domain.socket.enabled", "spark.python.unix.domain.socket.dir"
    return {enabled: "false"} if folder is None else {enabled: "true", where: str(folder)}


def _text(value: bool | int | float | str) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
