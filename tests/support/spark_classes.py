"""An archive of the classes that Spark's drivers load; with it, a driver needs half of the processor time to start.

``make test-setup`` writes it with ``python -m tests.support.spark_classes``, and the tests use it if it is there. A JVM
ignores an archive that another version of Java has written, or with other jars.
"""

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from namesrv_stream.route.events import BrokerRegistered, ServerStarted, Tick

_ARCHIVE: Final = Path(__file__).resolve().parents[2] / "build" / "spark-classes.jsa"
#: Flags of the driver's JVM. `-Xlog:disable` suppresses the message that an archive is ignored.
_VARIABLE: Final = "SPARK_SUBMIT_OPTS"
_EXIT_S: Final = 300.0  # it writes the archive when it ends


def use_spark_classes() -> None:
    """Let the drivers that this process and its children start use the archive."""
    if _ARCHIVE.exists():
        os.environ.setdefault(_VARIABLE, f"-XX:SharedArchiveFile={_ARCHIVE} -Xlog:disable")


def main() -> None:
    """Run both Spark programs in one driver, and write the classes that it has loaded."""
    # Imported here, because the tests that need no Spark import this module.
    from namesrv_stream.streaming.spark_session import build_session
    from tests.support.builders import S1, a_registration, over
    from tests.support.history_rig import HistoryRig
    from tests.support.kafka import KafkaProcess, settings_for
    from tests.support.spark import event_producer, fold_available, own_settings

    _ARCHIVE.unlink(missing_ok=True)
    unfinished = _ARCHIVE.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    os.environ[_VARIABLE] = f"-XX:ArchiveClassesAtExit={unfinished} -Xlog:disable"
    with TemporaryDirectory(prefix="spark-classes-") as folder:
        kafka = KafkaProcess(settings_for(Path(folder, "kafka")))
        try:
            kafka.wait_ready()
            settings = own_settings(kafka.settings, Path(folder, "data"), partitions=2, driver_memory="512m")
            spark = build_session(settings)
            with event_producer(settings) as producer:
                producer.send(ServerStarted(S1), BrokerRegistered(over(S1, 1), a_registration()), Tick(S1))
            fold_available(spark, settings)
            rig = HistoryRig(spark, Path(folder, "history"))
            rig.log.register(a_registration())
            rig.log.unregister(a_registration())
            rig.commit_and_write()
            jvm = spark.sparkContext._gateway.proc  # type: ignore[union-attr]  # noqa: SLF001
            spark.stop()
            jvm.stdin.close()
            jvm.wait(_EXIT_S)
        finally:
            kafka.stop()
    unfinished.rename(_ARCHIVE)


if __name__ == "__main__":
    main()
