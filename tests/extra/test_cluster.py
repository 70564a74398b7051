"""The job on several processes: workers are killed during the fold, and the tables still equal the log."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from namesrv_stream.kafka.log_reader import read_extent
from namesrv_stream.processes import read_run_file
from namesrv_stream.route.events import BrokerRegistered, Origin, TopicDeleted
from namesrv_stream.settings import Settings, to_toml
from tests.support.builders import RW, a_registration
from tests.support.kafka import REPOSITORY
from tests.support.offline_fold import fold_offline
from tests.support.processes import Process
from tests.support.spark import (
    EventProducer,
    committed_offsets,
    event_producer,
    has_folded,
    own_settings,
    written_changes,
)
from tests.support.spark_cluster import (
    SPARK_HOME,
    executors_of,
    kill_one_executor,
    spark_home_of_its_own,
    standalone_cluster,
)

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(1800)]

_PARTITIONS = 8
_NAMES = [f"broker-{number}" for number in range(60)]  # every partition has some of them
_DEADLINE_S = 600.0
_SMALL = {"spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.driver.host": "127.0.0.1"}
_ORIGIN = Origin("s1", 1, 1)


@contextmanager
def _job(settings: Settings, env: Mapping[str, str] | None = None, *, is_submitted: bool = False) -> Iterator[Process]:
    conf = settings.data.dir / "job.toml"
    conf.parent.mkdir(parents=True, exist_ok=True)
    conf.write_text(to_toml(settings))
    command = _submit(settings) if is_submitted else [sys.executable, "-m", "namesrv_stream", "job"]
    with Process("job", [*command, "--conf", conf], settings.data.dir / "job.log", env=env, cwd=REPOSITORY) as process:
        yield process


def _submit(settings: Settings) -> list[str | Path]:
    """Return the command that submits the job, as in docs/deploy.md; the configuration file names a wrong master."""
    options = ["--master", settings.streaming.master, "--driver-memory", "512m"]
    options += ["--jars", ",".join(str(jar) for jar in sorted(settings.jars.spark_dir.glob("*.jar")))]
    options += ["--driver-java-options", "-Xss4m -XX:+ExitOnOutOfMemoryError"]
    options += [part for name, value in _SMALL.items() for part in ("--conf", f"{name}={value}")]
    options += ["--conf", f"spark.pyspark.python={sys.executable}"]
    return [SPARK_HOME / "bin" / "spark-submit", *options, REPOSITORY / "jobs" / "route_table.py"]


def _settings(kafka_settings: Settings, folder: Path, master: str) -> Settings:
    return own_settings(
        kafka_settings, folder, _PARTITIONS, master=master, driver_memory="512m", extra=_SMALL,
        compaction_interval_ms=5_000,
    )  # fmt: skip


class _Traffic:
    """Registrations and topic deletions of brokers whose names are in all partitions."""

    def __init__(self, producer: EventProducer) -> None:
        self._producer = producer
        self._sent = 0

    def send(self, events: int) -> None:
        for number in range(self._sent, self._sent + events):
            topics = {f"t{number}": RW, "TopicTest": RW}
            registration = a_registration(
                broker_name=_NAMES[number % len(_NAMES)], topics=topics, registration_hash=f"hash {number}"
            )
            self._producer.send(BrokerRegistered(_ORIGIN, registration))
            if number % 7 == 0:
                self._producer.send(TopicDeleted(_ORIGIN, f"t{number - 1}", None))
        self._sent += events


def _until(condition: Callable[[], object], what: str, job: Process, meanwhile: Callable[[], object]) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not condition():
        assert job.is_alive, f"the job ended before {what}: {job.log_text()[-3000:]}"
        assert time.monotonic() < deadline, f"{what}: not within {_DEADLINE_S} s: {job.log_text()[-3000:]}"
        meanwhile()
        time.sleep(0.05)


def _fold_while(settings: Settings, job: Process, kill: Callable[[], None]) -> None:
    """Let the job fold traffic, kill something meanwhile, and compare all rows with the offline fold."""
    with event_producer(settings) as producer:
        traffic = _Traffic(producer)
        _until(
            lambda: read_run_file(settings.data.run_dir / "job.json"), "the first batch", job, lambda: traffic.send(2)
        )
        rows = len(written_changes(settings))
        _until(lambda: len(written_changes(settings)) > rows + 50, "some rows", job, lambda: traffic.send(10))
        traffic.send(100)  # more than a batch is under way
        kill()
        traffic.send(100)
        topic = read_extent(settings)
        _until(lambda: has_folded(settings, topic), "all sent events are folded", job, lambda: None)
    job.terminate()
    assert job.log_text().count("starting Spark") == 1  # Spark recovered by itself: the job was not restarted
    changes = written_changes(settings)
    assert {change.partition for change in changes} == set(range(_PARTITIONS))
    assert changes == sorted(fold_offline(settings, until=committed_offsets(settings, topic.topic_id)))


@pytest.mark.parametrize("is_submitted", [False, True], ids=["namesrv-stream job", "spark-submit"])
def test_killed_worker_of_a_standalone_master_loses_no_row(
    kafka_settings: Settings, tmp_path: Path, is_submitted: bool
) -> None:
    with standalone_cluster(tmp_path / "cluster") as cluster:
        settings = _settings(kafka_settings, tmp_path / "data", cluster.url)
        with _job(settings, is_submitted=is_submitted) as job:

            def kill_a_worker() -> None:
                assert all(worker.holds_state for worker in cluster.workers)
                cluster.workers[0].kill()

            _fold_while(settings, job, kill_a_worker)


def test_killed_executor_of_local_cluster_loses_no_row(kafka_settings: Settings, tmp_path: Path) -> None:
    settings = _settings(kafka_settings, tmp_path / "data", "local-cluster[2,1,512]")
    with _job(settings, {"SPARK_HOME": str(spark_home_of_its_own(tmp_path / "spark"))}) as job:

        def kill_an_executor() -> None:
            assert len(executors_of(job.pid)) == 2
            kill_one_executor(job.pid)

        _fold_while(settings, job, kill_an_executor)
