"""The job as a process with a real Kafka: it is killed, stopped and restarted."""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from namesrv_stream.kafka import LogReader
from namesrv_stream.kafka.log_reader import read_extent
from namesrv_stream.processes import read_run_file
from namesrv_stream.route.changes import Cause
from namesrv_stream.route.events import DIRECT, JOB, BrokerRegistered, Origin, Tick, TopicDeleted
from namesrv_stream.settings import Settings, to_toml
from tests.support.builders import RW, a_registration
from tests.support.kafka import REPOSITORY
from tests.support.offline_fold import fold_offline
from tests.support.processes import Process, wait_until
from tests.support.spark import EventProducer, committed_offsets, event_producer, own_settings, written_changes

pytestmark = [pytest.mark.integration, pytest.mark.kafka, pytest.mark.spark]

_DEADLINE_S = 120.0
_S1 = Origin("s1", 1, 1)
#: More records than a server writes between two ticks of the job.
_SILENCE_RECORDS = 12


@contextmanager
def _job(settings: Settings) -> Iterator[Process]:
    conf = settings.data.dir / "job.toml"
    conf.parent.mkdir(parents=True, exist_ok=True)
    conf.write_text(to_toml(settings))
    command = [sys.executable, "-m", "namesrv_stream", "job", "--conf", str(conf)]
    with Process("job", command, settings.data.dir / "job.log", cwd=REPOSITORY) as process:
        yield process


def _until(condition: Callable[[], object], what: str, process: Process) -> None:
    def holds() -> object:
        assert process.is_alive, f"the job ended before {what}: {process.log_text()[-3000:]}"
        return condition()

    wait_until(holds, _DEADLINE_S, f"{what}; see {process.log_path}", every_s=0.1)


def _send_some(producer: EventProducer, number: int) -> None:
    name = f"broker-{number % 7}"
    topics = {f"t{number}": RW, "TopicTest": RW}
    hash_ = f"hash {number}"
    producer.send(BrokerRegistered(_S1, a_registration(broker_name=name, topics=topics, registration_hash=hash_)))
    if number % 5 == 0:
        producer.send(TopicDeleted(_S1, f"t{number - 1}", None))


def test_killed_job_loses_nothing_and_ticks_while_direct_producers_have_brokers(
    kafka_settings: Settings, tmp_path: Path
) -> None:
    settings = own_settings(kafka_settings, tmp_path, partitions=2, driver_memory="512m", compaction_interval_ms=1_000)
    registered = BrokerRegistered(Origin(DIRECT, 0), a_registration(broker_name="direct", timeout_ms=1_000))
    with event_producer(settings) as producer:

        def are_servers_alone() -> bool:
            producer.send(Tick(_S1))
            writers = _newest_writers(settings)
            return len(writers) == _SILENCE_RECORDS and JOB not in writers

        def has_expired(times: int) -> bool:
            producer.send(Tick(_S1))
            return sum(c.cause == Cause.EXPIRED and c.kind == "broker_live" for c in written_changes(settings)) == times

        with _job(settings) as job:
            _until(are_servers_alone, "the job's ticks end", job)
            producer.send(registered)
            _until(lambda: has_expired(1), "the direct producer's broker expires", job)
            # Send many records, so that the job is killed at an arbitrary moment of a batch.
            for number in range(150):
                _send_some(producer, number)
            producer.send(registered)
            job.signal(signal.SIGKILL, whole_group=True)
            job.wait(10)
        for number in range(150, 200):
            _send_some(producer, number)
        with _job(settings) as job:
            _until(lambda: has_expired(2), "it expires again, under another job", job)
            assert job.terminate() == 0
    committed = committed_offsets(settings, read_extent(settings).topic_id)
    assert written_changes(settings) == sorted(fold_offline(settings, until=committed))


def _newest_writers(settings: Settings) -> list[str]:
    """Return the servers that logged the newest records."""
    with LogReader(settings) as log:
        _, end = log.extent(0)
        records = [r for batch in log.batches(0, max(0, end - _SILENCE_RECORDS), end) for r in batch]
    return [str(orjson.loads(record.value).get("server_id")) for record in records]


@pytest.mark.alone
def test_second_job_is_refused_and_a_stop_is_quick_logs_no_error_and_removes_scratch_files(
    kafka_settings: Settings, tmp_path: Path
) -> None:
    settings = own_settings(kafka_settings, tmp_path, driver_memory="512m")
    with _job(settings) as job:
        _until(lambda: "starting Spark" in job.log_text(), "the first job has the lock", job)
        command = [sys.executable, "-m", "namesrv_stream", "job", "--conf", str(settings.data.dir / "job.toml")]
        with Process("second", command, tmp_path / "second.log", cwd=REPOSITORY) as second:
            assert second.wait(_DEADLINE_S) == 2
            assert "another job runs here" in second.log_text()
        _until(lambda: read_run_file(settings.data.run_dir / "job.json"), "the first batch", job)
        began = time.monotonic()
        assert job.terminate() == 0
        assert time.monotonic() - began < 3
        assert "Traceback" not in job.log_text()
        assert not (settings.data.dir / "scratch").exists()
