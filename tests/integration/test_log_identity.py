"""A log that does not belong to the tables: the job refuses it; a server answers, reports it and writes nothing."""

import shutil
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from kafka import KafkaAdminClient, KafkaProducer

from namesrv_stream.kafka import admin_config, ensure_topics, producer_config
from namesrv_stream.kafka.log_reader import LogReader, check_log, read_extent
from namesrv_stream.remoting.command import RequestCode, ResponseCode
from namesrv_stream.route.event_json import encode_event
from namesrv_stream.route.events import KvPut
from namesrv_stream.route.fold.folded_log import FoldedLog
from namesrv_stream.settings import Settings, to_toml
from namesrv_stream.table_errors import LogReplaced, LogTruncated, TableDamaged
from namesrv_stream.tables.change_rows import encode_changes
from namesrv_stream.tables.repair import prepare_tables
from namesrv_stream.tables.route_writers import ChangesWriter
from namesrv_stream.tables.snapshot import load_settings_table
from namesrv_stream.tables.storage import tables_of
from namesrv_stream.tables.stored_changes import StoredChanges
from tests.integration.test_server import Serve
from tests.support.builders import S1
from tests.support.kafka import REPOSITORY, KafkaProcess, settings_for
from tests.support.offline_fold import fold_offline, places_of, read_records
from tests.support.processes import Process, wait_until
from tests.support.scripted_brokers import ScriptedBrokers

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

_WAIT_S = 60.0
_SPARK_S = 120.0
_YEAR_MS = 365 * 86_400_000
_REASON = "the tables were made from one"


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[KafkaProcess]:
    """A Kafka that a test may break."""
    process = KafkaProcess(settings_for(tmp_path / "data", kafka__delivery_timeout_ms=3000))
    process.wait_ready()
    yield process
    process.stop()


def _log(settings: Settings, values: range) -> None:
    """Log KV entries with these numbers."""
    producer = KafkaProducer(**producer_config(settings))
    for number in values:
        event = encode_event(KvPut(S1, "ns", f"k{number}", "v"))
        producer.send(settings.kafka.broker_events_topic, value=event, partition=0).get(timeout=_WAIT_S)
    producer.close()


def _fold(settings: Settings) -> FoldedLog:
    """Write the tables as the job would."""
    extent = read_extent(settings)
    prepare_tables(settings, extent.topic_id)
    writer = ChangesWriter(tables_of(settings), 0)
    rows = pa.Table.from_batches([encode_changes(fold_offline(settings, dict(extent.end)))])
    writer.write(rows, places_of(read_records(settings, dict(extent.end))), 1)
    return FoldedLog(extent.topic_id, writer.table.progress)


def _copy(kafka: KafkaProcess, folder: Path) -> None:
    """Copy Kafka's data while Kafka is stopped."""
    kafka.stop()
    shutil.copytree(kafka.settings.data.kafka_dir, folder)
    _start_again(kafka)


def _start_again(kafka: KafkaProcess) -> None:
    kafka.process = kafka._start()  # noqa: SLF001 (the same process object, so that the fixture stops it)
    kafka.wait_ready()


def _restart_on(kafka: KafkaProcess, folder: Path) -> None:
    """Replace Kafka's data by an older copy, like a disk that has lost unsynced data."""
    kafka.stop()
    shutil.rmtree(kafka.settings.data.kafka_dir)
    shutil.copytree(folder, kafka.settings.data.kafka_dir)
    _start_again(kafka)


def _delete_topic(settings: Settings) -> None:
    admin = KafkaAdminClient(**admin_config(settings))
    admin.delete_topics([settings.kafka.broker_events_topic])
    admin.close()


@contextmanager
def _server_of_folded_log(settings: Settings, work_dir: Path) -> Iterator[Serve]:
    """Log and fold twenty records, and run a server whose own records Kafka accepts."""
    _log(settings, range(20))
    _fold(settings)
    serve = Serve(settings, work_dir)
    serve.start()
    try:
        wait_until(serve.talks, _WAIT_S, "Kafka accepts the server's records")
        yield serve
    finally:
        serve.process.close()


def test_log_that_lost_folded_records_is_refused_whatever_its_length(kafka: KafkaProcess, tmp_path: Path) -> None:
    settings = kafka.settings
    _log(settings, range(20))
    _copy(kafka, tmp_path / "kafka-20")
    _log(settings, range(20, 30))
    folded = _fold(settings)
    assert folded.progress[0].next_offset == 30
    assert check_log(settings, folded).end == {0: 30}

    _restart_on(kafka, tmp_path / "kafka-20")
    with pytest.raises(LogTruncated, match="rebuild --accept-loss"):
        check_log(settings, folded)
    _log(settings, range(100, 130))
    assert read_extent(settings).end == {0: 50}
    with pytest.raises(
        LogReplaced, match=r"offset 29 is not the one that was folded.*rebuild --accept-loss"
    ) as refused:
        check_log(settings, folded)
    assert refused.value.exit_code == 2


def test_topic_that_is_recreated_while_its_offsets_are_read_is_another_log(
    kafka: KafkaProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = kafka.settings
    _log(settings, range(20))
    folded = _fold(settings)
    read = LogReader.extents

    def recreated(reader: LogReader, partitions: Collection[int]) -> dict[int, tuple[int, int]]:
        _delete_topic(settings)
        ensure_topics(settings)
        return read(reader, partitions)

    monkeypatch.setattr(LogReader, "extents", recreated)
    with pytest.raises(LogReplaced, match="the log is another one"):
        check_log(settings, folded)


def test_server_with_a_recreated_topic_answers_reports_it_and_keeps_acknowledged_changes(
    kafka: KafkaProcess, tmp_path: Path
) -> None:
    settings = kafka.settings
    with _server_of_folded_log(settings, tmp_path) as serve:
        with serve.connect() as operator:
            assert _put(operator, "before") == ResponseCode.SUCCESS
        _delete_topic(settings)
        wait_until(lambda: not serve.talks(), _WAIT_S, "the server notices that its topic was deleted")
        ensure_topics(settings)
        _assert_answers_and_writes_nothing(serve)
        serve.process.terminate(30)
        serve.process.start()  # it answers, but is not READY before Kafka accepts its records
        _assert_answers_and_writes_nothing(serve)


def test_server_that_was_suspended_while_kafka_lost_folded_records_refuses_changes(
    kafka: KafkaProcess, tmp_path: Path
) -> None:
    settings = kafka.settings
    with _server_of_folded_log(settings, tmp_path) as serve:
        serve.process.freeze()
        _copy(kafka, tmp_path / "earlier")
        _log(settings, range(20, 100))
        end = _fold(settings).progress[0].next_offset
        _restart_on(kafka, tmp_path / "earlier")
        serve.process.thaw()
        with serve.connect() as operator:
            wait_until(
                lambda: _put(operator, "after") == ResponseCode.SYSTEM_BUSY, _WAIT_S, "the server refuses changes"
            )
        wait_until(lambda: "rebuild --accept-loss" in serve.get("/healthz")[2], _WAIT_S, "/healthz reports the reason")
        assert read_extent(settings).end[0] < end


@pytest.mark.spark
def test_running_job_notices_that_kafka_lost_records_which_are_not_committed(
    kafka: KafkaProcess, tmp_path: Path
) -> None:
    settings = kafka.settings
    conf = tmp_path / "job.toml"
    conf.write_text(to_toml(settings))
    command = [sys.executable, "-m", "namesrv_stream", "job", "--conf", str(conf)]
    # The job's ticks cause neither commits without rows nor rows about a silent server.
    for key in (
        "streaming.progress_commit_interval_ms",
        "streaming.compaction_interval_ms",
        "liveness.server_silent_ms",
    ):
        command += ["--set", f"advanced.{key}={_YEAR_MS}"]
    command += ["--set", f"advanced.liveness.server_lost_ms={2 * _YEAR_MS}"]
    _log(settings, range(20))
    with Process("job", command, tmp_path / "job.log", cwd=REPOSITORY) as job:
        has_settings = lambda: load_settings_table(tables_of(settings)).settings_of(0)  # noqa: E731
        wait_until(has_settings, _SPARK_S, "the job commits its settings, its last rows", ignoring=(TableDamaged,))
        _copy(kafka, tmp_path / "earlier")
        end = read_extent(settings).end[0]

        def has_sent_ticks() -> bool:
            assert job.is_alive, job.log_text()[-2000:]
            return read_extent(settings).end[0] >= end + 10

        # The job folds its ticks within a second, and does not commit them.
        wait_until(has_sent_ticks, _WAIT_S, "the job sends ticks")
        _restart_on(kafka, tmp_path / "earlier")
        _log(settings, range(100, 130))
        assert job.wait(_SPARK_S) == 1, job.log_text()[-2000:]
        assert "Kafka has lost records that were folded but not committed" in job.log_text()
    assert _covered(settings) <= end


def _covered(settings: Settings) -> int:
    stored = StoredChanges.open(tables_of(settings))
    return 0 if stored is None else stored.next_offsets.get(0, 0)


def _put(operator: object, key: str) -> int:
    fields = {"namespace": "ns", "key": key, "value": "v"}
    return int(operator.ask(RequestCode.PUT_KV_CONFIG, fields).code)  # type: ignore[attr-defined]


def _assert_answers_and_writes_nothing(serve: Serve) -> None:
    # A restarted server has no run file before it has opened its log.
    is_refused = lambda: _REASON in serve.get("/readyz")[2]  # noqa: E731
    wait_until(is_refused, _WAIT_S, "/readyz reports the reason", ignoring=(OSError, KeyError))
    health = serve.get("/healthz")[2]
    assert _REASON in health
    assert "start with new tables" in health  # a rebuild would leave the history tables to the lost topic
    assert "rebuild" not in health
    with ScriptedBrokers("anew", 1, [serve.addr]) as broker, serve.connect() as client:
        broker.register()
        assert _put(client, "after") == ResponseCode.SYSTEM_BUSY
        for _ in range(2):  # once more after some time, which must not change the answer
            assert b"anew-0" in client.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body
            value = client.ask(RequestCode.GET_KV_CONFIG, {"namespace": "ns", "key": "k7"})
            assert value.code == ResponseCode.SUCCESS
    assert read_extent(serve.settings).end == {0: 0}
