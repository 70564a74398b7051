"""The SparkSession of both programs: its settings and its environment, and reading the event log."""

import json
import logging
import os
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.sql import DataFrame, SparkSession

import namesrv_stream
from namesrv_stream.errors import NamesrvStreamError
from namesrv_stream.jvm import check_cluster_variables, foreign_variables, is_one_process
from namesrv_stream.kafka import bootstrap_servers, spark_options
from namesrv_stream.prerequisites import spark_jars
from namesrv_stream.settings import Settings
from namesrv_stream.streaming.spark_jvm import failure_reason, is_user_known, start_jvm

logger = logging.getLogger(__name__)


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
        PrerequisiteMissing: Spark's jars or Java are missing.
        ConfigError: A variable of the environment prevents the start.
        NamesrvStreamError: The JVM ended, or Spark of a cluster did not start.
    """
    scratch = (scratch or scratch_dir(settings)).absolute()
    scratch.mkdir(parents=True, exist_ok=True)
    given = {k: _text(v) for k, v in settings.streaming.extra.items() if k.startswith("spark.")}
    given |= (extra or {}) | submitted_config()
    master = given.get("spark.master", settings.streaming.master)
    config = session_config(settings, master, scratch) | given
    builder = SparkSession.builder
    for name, value in config.items():
        builder = builder.config(name, value)
    if is_one_process(master):
        _prepare_environment()
        start_jvm(config)
        return builder.getOrCreate()
    # By default, Spark would start its workers with the system's python3, which lacks the required packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if not is_submitted():
        check_cluster_variables(os.environ)
    start_jvm(config)
    try:
        spark = builder.getOrCreate()
    except Exception as error:
        read = ", ".join(foreign_variables(os.environ))
        reason = f"Spark on {master} did not start: {failure_reason(error)} (variables that it reads: {read})"
        raise NamesrvStreamError(reason) from error
    spark.sparkContext.addPyFile(str(pack_package(scratch)))
    return spark


def _prepare_environment() -> None:
    """Give Spark in one process the variables that it needs, and remove those that are meant for other programs."""
    # The system's python3, the default, lacks the required packages.
    own = {"PYSPARK_PYTHON": sys.executable}
    if is_submitted():  # the running JVM has the other variables
        os.environ |= own
        return
    own |= {
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        # Otherwise Spark resolves the name of this machine, which may have no address.
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "localhost",
    }
    ignored = [name for name in foreign_variables(os.environ) if os.environ[name] != own.get(name)]
    if ignored:
        logger.info("ignored variables of other programs names=%s", ",".join(ignored))
    for name in ignored:
        del os.environ[name]
    os.environ |= own


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
        "spark.driver.extraJavaOptions": " ".join([*_folders(scratch), *_JAVA_OPTIONS]),
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


def _folders(scratch: Path) -> list[str]:
    # Without an entry in passwd, Java has "?" as the user's home, where Spark looks for packages.
    home = [] if is_user_known() else [f'"-Duser.home={scratch}"']
    return [f'"-Djava.io.tmpdir={scratch}"', *home]


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
