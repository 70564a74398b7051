"""The SparkSession of both programs: its settings, reading the event log, and checking and killing its JVM."""

import json
import os
import re
import signal
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.sql import DataFrame, SparkSession

import namesrv_stream
from namesrv_stream.errors import NamesrvStreamError
from namesrv_stream.kafka import bootstrap_servers, spark_options
from namesrv_stream.logs import safe
from namesrv_stream.prerequisites import spark_jars
from namesrv_stream.processes import child_processes
from namesrv_stream.settings import Settings


def is_gone(spark: SparkSession) -> bool:
    """Whether the JVM or its SparkContext has ended. Neither can be restarted."""
    try:
        return bool(spark.sparkContext._jsc.sc().isStopped())  # noqa: SLF001
    except (Py4JError, OSError, AttributeError):  # the connection to the JVM is closed
        return True


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


_STREAMING: Final = "org.apache.spark.sql.execution.streaming"

_FILE_MANAGER: Final = f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"

_JAVA_OPTIONS: Final = (
    "-Xss4m",  # with a long class path, a regular expression of Spark recurses deeply when the query stops
    "-XX:+UseSerialGC",
    # The driver plans small batches. Optimizing its code takes two cores for a minute, without a measurable gain.
    "-XX:TieredStopAtLevel=1",
    # Without memory, some threads of a JVM die and others wait for them forever. A JVM that ends is restarted.
    "-XX:+ExitOnOutOfMemoryError",
)
#: Hadoop's own file system, without its native library, starts a chmod for each file: three processes per batch.
_FILE_SYSTEM: Final = "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"
_FILE_SYSTEM_JAR: Final = "hadoop-bare-naked-local-fs-*.jar"
# The longest folder name for Spark's Unix domain sockets. With a longer one, every batch fails.
_SOCKET_DIR_BYTES: Final = 61

_FIXED: Final = {
    "spark.app.name": "namesrv-stream job",
    "spark.log.level": "WARN",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Without Hadoop's native library, the default starts chmod and readlink for each log file: 60 ms per batch.
    "spark.sql.streaming.checkpointFileManagerClass": _FILE_MANAGER,
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # transformWithState supports no other store. Without the changelog, each batch uploads a snapshot.
    "spark.sql.streaming.stateStore.providerClass": f"{_STREAMING}.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # The fold has no timers, so batches without records are not needed.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.metricsEnabled": "false",
    # Requesting Kafka's latest offsets costs more than a short wait.
    "spark.sql.streaming.pollingDelay": "20ms",
    "spark.sql.adaptive.enabled": "false",
}
#: Executors on other machines need the driver's external address, which Spark determines by itself.
_ONE_PROCESS: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
#: This folder exists on every machine and has a short name, in contrast to the driver's scratch folder.
_EXECUTORS_SOCKETS: Final = Path("/tmp")


def build_session(settings: Settings, extra: dict[str, str] | None = None, scratch: Path | None = None) -> SparkSession:
    """Start the JVM, or join the one that ``spark-submit`` started; blocks for some seconds.

    Args:
        settings: ``streaming``, ``jars`` and ``kafka.partitions`` are used.
        extra: Further settings of Spark. They override the settings of this module and ``streaming.extra``; those of
            ``spark-submit`` override them.
        scratch: Folder for temporary files; None for that of the job.

    Raises:
        PrerequisiteMissing: Spark's jars are missing.
    """
    scratch = (scratch or scratch_dir(settings)).absolute()
    scratch.mkdir(parents=True, exist_ok=True)
    given = {k: _text(v) for k, v in settings.streaming.extra.items() if k.startswith("spark.")}
    given |= (extra or {}) | submitted_config()
    master = given.get("spark.master", settings.streaming.master)
    # By default, Spark would start its workers with the system's python3, which lacks the required packages.
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
    """Return the Spark settings that the programs need. The operator's settings override them.

    Raises:
        PrerequisiteMissing: Spark's jars are missing, and ``spark-submit`` did not start the JVM.
    """
    config = _FIXED | {
        "spark.master": master,
        "spark.driver.memory": settings.streaming.driver_memory,
        "spark.sql.shuffle.partitions": str(shuffle_partitions(settings, master)),
        # Everything that a killed Spark leaves behind is in one folder, which the next start empties.
        "spark.local.dir": str(scratch),
        "spark.driver.extraJavaOptions": " ".join([f'"-Djava.io.tmpdir={scratch}"', *_JAVA_OPTIONS]),
    }
    jars: list[str] = []
    if not is_submitted():  # a running JVM has its jars
        spark_jars(settings.jars.spark_dir).require()
        jars = sorted(map(str, settings.jars.spark_dir.glob("*.jar")))
        config["spark.driver.extraClassPath"] = os.pathsep.join(jars)
    if is_one_process(master):
        if any(Path(jar).match(_FILE_SYSTEM_JAR) for jar in jars):
            config["spark.hadoop.fs.file.impl"] = _FILE_SYSTEM
        return config | _ONE_PROCESS | _sockets(socket_dir(scratch, Path(tempfile.gettempdir())))
    if jars:
        config["spark.jars"] = ",".join(jars)  # executors fetch them from the driver
    return config | _sockets(_EXECUTORS_SOCKETS)


def shuffle_partitions(settings: Settings, master: str) -> int:
    """Return the number of tasks of the fold: at most 2 in one process, because more are of no use on two cores."""
    return min(2, settings.kafka.partitions) if is_one_process(master) else settings.kafka.partitions


def scratch_dir(settings: Settings) -> Path:
    """Return the folder of Spark's temporary files: shuffle files, checkpoints and RocksDB's working copies."""
    return settings.data.dir / "scratch"


def socket_dir(*folders: Path) -> Path | None:
    """Return the first folder whose path is suitable for Spark's Unix domain sockets: short, and in lower case.

    None if there is no such folder.

    Source: pyspark 4.2, worker.py: EvalConf.state_server_socket_port is read in lower case.
    """
    return next((f for f in folders if len(os.fsencode(f)) <= _SOCKET_DIR_BYTES and str(f) == str(f).lower()), None)


def _sockets(folder: Path | None) -> dict[str, str]:
    # TCP to the Python worker took two thirds of a batch.
    enabled, where = "spark.python.unix.domain.socket.enabled", "spark.python.unix.domain.socket.dir"
    return {enabled: "false"} if folder is None else {enabled: "true", where: str(folder)}


def _text(value: bool | int | float | str) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_LOCAL_MASTER: Final = re.compile(r"local(\[[^\]]*\])?")  # not local-cluster[…], whose executors are processes


def is_one_process(master: str) -> bool:
    """Whether driver and executors run in one process."""
    return _LOCAL_MASTER.fullmatch(master) is not None


def is_submitted() -> bool:
    """Whether ``spark-submit`` started the JVM and this process.

    Source: pyspark 4.2, java_gateway.py: launch_gateway.
    """
    return "PYSPARK_GATEWAY_PORT" in os.environ


def submitted_config() -> dict[str, str]:
    """Return the settings of ``spark-submit``: flags, ``--conf`` and ``spark-defaults.conf``; {} if it was not used."""
    if not is_submitted():
        return {}
    SparkContext._ensure_initialized()  # noqa: SLF001 (otherwise SparkConf does not read those of the JVM)
    return dict(SparkConf().getAll())


def pack_package(folder: Path) -> Path:
    """Write the modules of this program as a zip from which Python can import; blocks for about 100 ms.

    Executors get it from the driver, so that two versions of the fold never work on the same state.
    """
    package = Path(namesrv_stream.__file__).parent
    archive = folder / "namesrv_stream.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
        for module in sorted(package.rglob("*.py")):
            target.write(module, module.relative_to(package.parent))
    return archive


def read_log(
    spark: SparkSession, settings: Settings, begin: Mapping[int, int], max_records: int, options: Mapping[str, str]
) -> DataFrame:
    """Return all records of the events topic from given offsets on. Missing records end the query.

    Args:
        settings: ``kafka``, and options ``kafka.…`` of ``streaming.extra``, are used.
        begin: Partition → first offset, which Kafka must have.
        max_records: Maximum number of records in a batch.
        options: Further options of Spark's Kafka source, which the settings override.

    Returns:
        The columns of Spark's Kafka source.
    """
    topic = settings.kafka.broker_events_topic
    usual = {
        "kafka.bootstrap.servers": bootstrap_servers(settings),
        "assign": json.dumps({topic: sorted(begin)}),
        "startingOffsets": json.dumps({topic: {str(p): o for p, o in sorted(begin.items())}}),
        "maxOffsetsPerTrigger": str(max_records),
        "failOnDataLoss": "true",  # the next start reports what was lost
    }
    return spark.readStream.format("kafka").options(**usual | dict(options) | spark_options(settings)).load()
