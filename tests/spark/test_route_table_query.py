"""The fold in Spark writes the same rows as without Spark, whatever the batches are and however often it restarts."""

import json
import logging
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import polars
import pytest
from deltalake import DeltaTable
from kafka import KafkaProducer
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from namesrv_stream.kafka import producer_config
from namesrv_stream.kafka.log_reader import read_extent
from namesrv_stream.route.changes import Cause, ChangeKind
from namesrv_stream.route.events import (
    DIRECT,
    BrokerDisconnected,
    BrokerHeartbeat,
    BrokerRegistered,
    BrokerUnregistered,
    GuardReleased,
    KvPut,
    Origin,
    Proof,
    SettingsChanged,
    Tick,
    TopicDeleted,
    WritePermChanged,
)
from namesrv_stream.settings import Settings
from namesrv_stream.streaming.route_table import fold_query
from namesrv_stream.streaming.route_table.route_job import log_changed_settings
from namesrv_stream.streaming.route_table.stateful import RouteStatefulProcessor, records_that_fit
from namesrv_stream.tables.change_rows import CHANGES_SCHEMA, STATE_SCHEMA, decode_changes, in_log_order
from namesrv_stream.tables.layout import ROUTE_CHANGES, ROUTE_STATE
from namesrv_stream.tables.repair import create_table, prepare_tables
from namesrv_stream.tables.snapshot import load_snapshot, read_newest_state
from namesrv_stream.tables.storage import tables_of
from tests.support.builders import CLUSTER, RW, a_registration
from tests.support.offline_fold import fold_offline
from tests.support.spark import dead_letters, event_producer, fold_available, own_settings, written_changes

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

_S1 = Origin("s1", 1, 1)
_FLEET = [f"broker-{i}" for i in range(6)]  # one of two partitions has five of them
_LONE = "lone"  # the only broker of its cluster
_NAMES = [*_FLEET, _LONE]


def _registered(name: str, **changes: Any) -> BrokerRegistered:
    of_name: dict[str, Any] = {"broker_name": name, "cluster": "c1" if name == _LONE else CLUSTER}
    return BrokerRegistered(_S1, a_registration(f"10.0.0.{_NAMES.index(name)}:10911", **of_name, **changes))


def _heartbeat(name: str) -> BrokerHeartbeat:
    registration = _registered(name).registration
    return BrokerHeartbeat(
        _S1, name, registration.live_key, Proof.REGISTRATION, registration_hash=registration.registration_hash
    )


def _closed(name: str) -> BrokerDisconnected:
    return BrokerDisconnected(_S1, name, _registered(name).registration.live_key, "closed by the peer")


def _send_events_of_a_fleet(settings: Settings) -> None:
    """Send events of every kind. The guard holds brokers twice: many are silent, and later many connections close."""
    with event_producer(settings) as producer:
        values = (("default_timeout_ms", 1_000), ("guard_hold_timeouts", 100), ("guard_known_ms", 0))
        producer.send(SettingsChanged(_S1, "ada", values))
        producer.send(*[_registered(name) for name in _NAMES], KvPut(_S1, "ns", "k", "v"))
        producer.send(
            _registered(_FLEET[0], topics={"TopicTest": RW, "other": RW}, registration_hash="second"),
            *[_heartbeat(name) for name in _NAMES[1:]],
            WritePermChanged(_S1, _FLEET[1], False),
        )
        producer.send_for(1_300, Tick(_S1._replace(connection_id=0)))
        unregistered = BrokerUnregistered(_S1, _FLEET[2], _registered(_FLEET[2]).registration.live_key, 0)
        producer.send(_heartbeat(_LONE), _heartbeat(_FLEET[2]), TopicDeleted(_S1, "TopicTest", None), unregistered)
        # The held brokers are removed, all brokers return, and all connections close.
        producer.send(GuardReleased(Origin(DIRECT, 0), CLUSTER, "ada"), *map(_heartbeat, _FLEET), *map(_closed, _FLEET))


def test_rows_are_those_of_the_fold_without_spark(
    spark: SparkSession, kafka_settings: Settings, tmp_path: Path
) -> None:
    settings = own_settings(kafka_settings, tmp_path, partitions=2, max_offsets_per_trigger=10)
    _send_events_of_a_fleet(settings)
    fold_available(spark, settings)
    expected = fold_offline(settings)
    assert written_changes(settings) == sorted(expected)
    assert {c.partition for c in expected} == {0, 1}
    assert {Cause.TOPIC_DELETED, Cause.UNREGISTERED, Cause.WRITE_PERM_WIPED} <= {c.cause for c in expected}
    lives = [(c.broker_name, c.cause, c.gone) for c in expected if c.kind == ChangeKind.BROKER_LIVE]
    assert [life[1:] for life in lives if life[0] == _LONE] == [
        (Cause.REGISTERED, False),
        (Cause.EXPIRED, True),
        (Cause.RETURNED, False),
    ]
    held = {(c.cause, c.gone) for c in expected if c.kind == ChangeKind.GUARD}
    assert held == {(Cause.GUARD_HELD, False), (Cause.HEARD, True), (Cause.GUARD_RELEASED, True)}
    # The first closed connections removed brokers; the guard restored them.
    assert {life[1:] for life in lives} >= {(Cause.DISCONNECTED, True), (Cause.GUARD_HELD, False)}


def test_a_batch_with_too_many_rows_fails_and_the_backlog_is_folded_in_smaller_ones(
    spark: SparkSession, kafka_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = own_settings(kafka_settings, tmp_path)
    topics = {f"topic-{n}": RW for n in range(100)}
    with event_producer(settings) as producer:
        producer.send(*[_registered(name, topics=topics) for name in _NAMES])
    monkeypatch.setattr(fold_query, "RouteStatefulProcessor", partial(RouteStatefulProcessor, most_rows=350))
    with pytest.raises(StreamingQueryException) as failure:
        fold_available(spark, settings)
    assert records_that_fit(failure.value) == 3
    assert written_changes(settings) == []

    fold_available(spark, settings, backlog_records=1)
    assert written_changes(settings) == fold_offline(settings)


def test_job_logs_held_brokers_and_changed_settings(
    spark: SparkSession, kafka_settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "namesrv_stream")
    settings = own_settings(kafka_settings, tmp_path, partitions=2)
    _send_events_of_a_fleet(settings)
    fold_available(spark, settings)
    assert "brokers held cluster=c0 brokers=5 " in caplog.text
    assert "brokers no longer held cluster=c0 brokers=5 causes=" in caplog.text
    assert "setting changed setting=default_timeout_ms old=120000 new=1000 by=ada at=0:0,1:0" in caplog.text


def test_tables_restored_from_a_backup_catch_up_with_the_log(
    spark: SparkSession, kafka_settings: Settings, tmp_path: Path
) -> None:
    """Other files of the job on this machine are newer than the restored tables."""
    settings = own_settings(kafka_settings, tmp_path / "data", compaction_interval_ms=1)
    backup = tmp_path / "backup"
    with event_producer(settings) as producer:
        producer.send(*[_registered(name) for name in _NAMES])
        fold_available(spark, settings)
        shutil.copytree(settings.data.tables_dir, backup)
        producer.send(_registered(_NAMES[0], topics={"new": RW, "other": RW}), TopicDeleted(_S1, "TopicTest", None))
        fold_available(spark, settings)
        shutil.rmtree(settings.data.tables_dir)
        backup.rename(settings.data.tables_dir)
        producer.send(_heartbeat(_NAMES[0]))
        assert fold_available(spark, settings).offsets == {0: len(_NAMES)}
    assert written_changes(settings) == fold_offline(settings)


def test_restart_continues_from_route_state(spark: SparkSession, kafka_settings: Settings, tmp_path: Path) -> None:
    # Every batch writes its state, so route_state is as new as route_changes.
    settings = own_settings(kafka_settings, tmp_path, partitions=2, compaction_interval_ms=1)
    _send_events_of_a_fleet(settings)
    fold_available(spark, settings)
    states = read_newest_state(tables_of(settings)).fold_states
    with event_producer(settings) as producer:
        producer.send(*[_heartbeat(name) for name in _NAMES], _registered(_NAMES[3], topics={"new": RW, "other": RW}))
        producer.send(TopicDeleted(_S1, "baseTopic", None))
    start = fold_available(spark, settings)
    assert start.offsets == {partition: state.next_offset for partition, state in states.items()}
    assert min(start.offsets.values()) > 0
    assert written_changes(settings) == sorted(fold_offline(settings))


def test_without_route_state_the_log_is_folded_again_and_nothing_is_written_twice(
    spark: SparkSession, kafka_settings: Settings, tmp_path: Path
) -> None:
    settings = own_settings(kafka_settings, tmp_path)
    with event_producer(settings) as producer:
        producer.send(*[_registered(name) for name in _NAMES])
        fold_available(spark, settings)
        shutil.rmtree(settings.data.tables_dir / ROUTE_STATE)
        producer.send(_heartbeat(_NAMES[0]), _registered(_NAMES[1], topics={"new": RW, "other": RW}))
    assert fold_available(spark, settings).offsets == {0: 0}
    assert written_changes(settings) == fold_offline(settings)


def test_invalid_records_become_dead_letters_and_the_fold_continues(
    spark: SparkSession, kafka_settings: Settings, tmp_path: Path
) -> None:
    settings = own_settings(kafka_settings, tmp_path)
    with event_producer(settings) as producer:
        producer.send_value(b"\xff\xfe no JSON")
        bad_item = {"broker_name": "broker-0", "proof": "rumour"}
        fields = {"schema_version": 1, "kind": "broker_heartbeats", "server_id": "s1", "server_epoch": 1}
        producer.send_value(json.dumps({**fields, "items": [bad_item]}).encode())
        producer.send(_registered(_NAMES[0]))
    fold_available(spark, settings)
    letters = {key: json.loads(value) for key, value in dead_letters(settings)}
    assert letters.keys() == {"0-0--1", "0-1-0"}
    assert letters["0-1-0"]["value"] == bad_item
    assert letters["0-1-0"]["reason"] == "proof: rumour is unknown"
    assert ChangeKind.BROKER_DATA in {c.kind for c in written_changes(settings)}


def test_routes_with_and_without_route_state_are_equal(
    spark: SparkSession, kafka_settings: Settings, tmp_path: Path
) -> None:
    settings = own_settings(kafka_settings, tmp_path, partitions=2, compaction_interval_ms=1)
    _send_events_of_a_fleet(settings)
    fold_available(spark, settings)
    with_state = load_snapshot(tables_of(settings))
    shutil.rmtree(settings.data.tables_dir / ROUTE_STATE)
    create_table(tables_of(settings) / ROUTE_STATE, STATE_SCHEMA, read_extent(settings).topic_id, 2)
    without_state = load_snapshot(tables_of(settings))
    assert with_state.table.groups == without_state.table.groups
    assert with_state.table.kv == without_state.table.kv
    assert with_state.table.held == without_state.table.held != {}
    assert with_state.next_offsets == without_state.next_offsets


def test_spark_delta_rs_and_polars_read_the_same_route_changes(
    spark: SparkSession, kafka_settings: Settings, tmp_path: Path
) -> None:
    settings = own_settings(kafka_settings, tmp_path, partitions=2)
    _send_events_of_a_fleet(settings)
    fold_available(spark, settings)
    path = str(settings.data.tables_dir / ROUTE_CHANGES)
    by_delta_rs = in_log_order(DeltaTable(path).to_pyarrow_table())
    by_spark = in_log_order(spark.read.format("delta").load(path).toArrow())
    by_polars = in_log_order(polars.read_delta(path).to_arrow())
    rows = decode_changes(by_delta_rs)
    assert rows
    assert decode_changes(by_spark) == rows
    assert [r["offset"] for r in by_polars.to_pylist()] == [c.offset for c in rows]
    scalar = [f.name for f in CHANGES_SCHEMA if f.name not in ("broker_addrs", "clusters", "filter_servers")]
    assert by_polars.select(scalar).to_pylist() == by_delta_rs.select(scalar).to_pylist()


def test_edited_configuration_is_logged_once(spark: SparkSession, kafka_settings: Settings, tmp_path: Path) -> None:
    settings = own_settings(kafka_settings, tmp_path)
    liveness = settings.liveness.model_copy(update={"default_timeout_ms": 5_000})
    settings = settings.model_copy(update={"liveness": liveness})
    prepare_tables(settings, read_extent(settings).topic_id)
    producer = KafkaProducer(**producer_config(settings))
    try:
        assert log_changed_settings(settings, producer, 1) == {"default_timeout_ms": 5_000}
        fold_available(spark, settings)
        assert log_changed_settings(settings, producer, 2) == {}
    finally:
        producer.close()
    logged = load_snapshot(tables_of(settings)).table.settings
    assert logged["effective", "default_timeout_ms"] == logged["config", "default_timeout_ms"] == "5000"
