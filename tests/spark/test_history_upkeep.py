"""Upkeep of the history tables: joined files, retention, and catching up after lost changes."""

import logging
import os
import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from namesrv_stream.clock import SystemClock
from namesrv_stream.errors import ConfigError
from namesrv_stream.tables.history_files import read_mark
from namesrv_stream.tables.history_tables import ensure_history_tables
from namesrv_stream.tables.history_upkeep import Upkeep
from namesrv_stream.tables.layout import (
    BROKER_EVENTS,
    DAY_COLUMNS,
    HEARTBEAT_MINUTES,
    HISTORY_SCHEMAS,
    ROUTE_ARCHIVE,
)
from tests.support.builders import RW, a_registration
from tests.support.history_rig import TOPIC_ID, HistoryRig
from tests.support.history_views import BROKER_SESSIONS, ROUTE_HISTORY, TOPIC_ROUTE_HISTORY

pytestmark = [pytest.mark.spark]

_DAY_MS = 86_400_000
_STAYS = a_registration(timeout_ms=3_000)
_LEAVES = a_registration("10.0.0.2:10911", broker_name="broker-b", timeout_ms=3_000)


def _files(rig: HistoryRig, table: str) -> int:
    return len(DeltaTable(rig.dir / table).file_uris())


def _left_behind_by_a_killed_writer(rig: HistoryRig) -> Path:
    """Create a data file that belongs to no commit and is two days old."""
    path = rig.dir / BROKER_EVENTS / f"{DAY_COLUMNS[BROKER_EVENTS]}=2023-01-01" / "part-0.parquet"
    path.parent.mkdir()
    path.touch()
    two_days_ago_s = SystemClock().now_ms() / 1000 - 2 * 86_400
    os.utime(path, (two_days_ago_s, two_days_ago_s))
    return path


def test_upkeep_joins_files_and_removes_rows_past_their_retention_unless_they_are_current(
    spark: SparkSession, tmp_path: Path
) -> None:
    keep = {f"history__{name}_retention_ms": _DAY_MS for name in ("events", "minutes", "sessions", "routes")}
    rig = HistoryRig(spark, tmp_path, history__heartbeats_interval_ms=1, **keep)
    log = rig.log
    log.register(_STAYS)
    log.register(_LEAVES)
    rig.commit_and_write()
    log.unregister(_LEAVES)
    rig.commit_and_write()
    for _ in range(2):
        log.tick(2 * _DAY_MS)
        log.heard(_STAYS)
        rig.commit_and_write()
    upkeep = Upkeep(rig.settings)
    marks = {table: read_mark(rig.storage / table) for table in HISTORY_SCHEMAS}
    events = len(rig.rows(BROKER_EVENTS))
    files = _files(rig, BROKER_EVENTS)
    upkeep.join_files()
    assert _files(rig, BROKER_EVENTS) < files
    assert len(rig.rows(BROKER_EVENTS)) == events
    left_behind = _left_behind_by_a_killed_writer(rig)
    upkeep.clean_up()
    assert not left_behind.parent.exists()
    assert all(any((rig.dir / table).glob("_delta_log/*.checkpoint.parquet")) for table in HISTORY_SCHEMAS)
    assert {r["offset"] for r in rig.rows(BROKER_EVENTS)} == {5, 6}
    assert rig.rows(HEARTBEAT_MINUTES) == []
    assert {r["broker_name"] for r in rig.rows(BROKER_SESSIONS)} == {"broker-a"}
    assert {r["broker_name"] for r in rig.rows(TOPIC_ROUTE_HISTORY) if not r["gone"]} == {"broker-a"}
    assert all(r["valid_to"] is None for r in rig.rows(ROUTE_HISTORY))
    assert {r["offset"] for r in rig.rows(ROUTE_HISTORY) if r["gone"]} == {2}  # the last change of all
    assert {table: read_mark(rig.storage / table) for table in HISTORY_SCHEMAS} == marks
    log.heard(_STAYS, after_ms=1_000)
    rig.restart()
    rig.commit_and_write()
    assert {r["offset"] for r in rig.rows(BROKER_EVENTS)} == {5, 6, 7}


def test_log_of_a_table_contains_only_commits(spark: SparkSession, tmp_path: Path) -> None:
    rig = HistoryRig(spark, tmp_path)
    rig.log.register(_STAYS)
    rig.commit_and_write()
    rig.log.unregister(_STAYS)
    rig.commit_and_write()
    logs = {table: rig.dir / table / "_delta_log" for table in HISTORY_SCHEMAS}
    names = {table: sorted(p.name for p in log.iterdir()) for table, log in logs.items()}
    assert names == {table: [f"{n:020d}.json" for n in range(len(there))] for table, there in names.items()}
    assert len(names[BROKER_EVENTS]) > 2


def test_upkeep_runs_once_per_interval(spark: SparkSession, tmp_path: Path) -> None:
    rig = HistoryRig(spark, tmp_path)
    rig.log.register(_STAYS)
    rig.commit_and_write()
    for _ in range(2):
        rig.log.tick(1_000)
        rig.commit_and_write()
        rig.log.tick(_DAY_MS)
    rig.commit_and_write()
    upkeep, now_ms = Upkeep(rig.settings), 1_000_000_000
    before = _files(rig, BROKER_EVENTS)
    upkeep.run(now_ms)
    upkeep.run(now_ms + rig.settings.history.upkeep_interval_ms - 1)
    assert _files(rig, BROKER_EVENTS) == before
    upkeep.run(now_ms + rig.settings.history.upkeep_interval_ms)
    assert _files(rig, BROKER_EVENTS) < before


def test_after_losing_changes_the_history_continues_from_route_state_and_warns(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rig = HistoryRig(spark, tmp_path, streaming__changes_retention_ms=_DAY_MS)
    log = rig.log
    log.register(_STAYS)
    log.register(_LEAVES)
    rig.commit_and_write()
    # The history process does not run for days. Meanwhile broker-b is removed and a topic is added, and the rows of
    # both changes are deleted.
    log.unregister(_LEAVES)
    log.register(a_registration(timeout_ms=3_000, topics={"new": RW, "baseTopic": RW}, registration_hash="second"))
    new_at_ms = log.now_ms
    rig.commit()
    log.tick(20 * _DAY_MS)
    log.heard(_STAYS)
    rig.commit()
    rig.compact()
    rig.clean_up()
    with caplog.at_level(logging.WARNING, "namesrv_stream"):
        rig.write()
    assert "continuing from route_state partition=0 first=2 " in caplog.text
    assert new_at_ms
    topics = [r for r in rig.rows(TOPIC_ROUTE_HISTORY) if r["valid_to"] is None]
    assert {(r["topic"], r["broker_name"]) for r in topics if not r["gone"]} == {
        (topic, name) for name, group in log.groups.groups.items() for topic in group.topics
    }
    gone = [r for r in topics if r["gone"]]
    assert {r["cause"] for r in gone} == {"state_rebuilt"}
    assert {r["seq"] < 0 for r in gone} == {True}
    sessions = {r["broker_name"]: r for r in rig.rows(BROKER_SESSIONS)}
    assert sessions["broker-b"]["down_cause"] == "state_rebuilt"
    log.register(_LEAVES)
    rig.commit_and_write()
    rows = [r for r in rig.rows(ROUTE_HISTORY) if r["kind"] == "broker_data" and r["broker_name"] == "broker-b"]
    assert [r["valid_to"] for r in rows[:-1]] == [r["valid_from"] for r in rows[1:]]


def test_progress_is_recorded_without_new_rows(spark: SparkSession, tmp_path: Path) -> None:
    rig = HistoryRig(spark, tmp_path, history__heartbeats_interval_ms=1)
    rig.log.register(_STAYS)
    rig.commit_and_write()
    files = _files(rig, ROUTE_ARCHIVE)
    rig.log.tick()
    rig.log.tick()
    rig.commit_and_write()
    mark = read_mark(rig.storage / ROUTE_ARCHIVE)
    assert mark is not None
    assert mark.next_offsets == {0: len(rig.log.records)}
    assert _files(rig, ROUTE_ARCHIVE) == files


def test_records_missing_in_kafka_are_logged_and_skipped(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rig = HistoryRig(spark, tmp_path)
    rig.log.register(_STAYS)
    rig.commit_and_write()
    for _ in range(5):
        rig.log.heard(_STAYS, after_ms=1_000)
    rig.earliest = {0: 4}
    rig.restart()
    with caplog.at_level(logging.WARNING, "namesrv_stream"):
        rig.commit_and_write()
    assert "broker_events has a gap partition=0 first=1 last=3" in caplog.text
    assert sorted(r["offset"] for r in rig.rows(BROKER_EVENTS)) == [0, 4, 5]


def test_removed_tables_are_rebuilt_from_the_log(spark: SparkSession, tmp_path: Path) -> None:
    rig = HistoryRig(spark, tmp_path)
    rig.log.register(_STAYS)
    rig.commit_and_write()
    before = {table: rig.rows(table) for table in (BROKER_EVENTS, ROUTE_ARCHIVE)}
    for table in before:
        shutil.rmtree(rig.dir / table)
    rig.restart()
    rig.write()
    assert {table: rig.rows(table) for table in before} == before
    for table in before:
        assert DeltaTable(rig.dir / table).metadata().partition_columns == [DAY_COLUMNS[table]]


def test_only_broker_events_removed_is_written_again_while_the_minutes_stay(
    spark: SparkSession, tmp_path: Path
) -> None:
    rig = HistoryRig(spark, tmp_path, history__max_records=7, history__heartbeats_interval_ms=1)
    rig.log.register(_STAYS)
    for _ in range(12):
        rig.log.heard(_STAYS, after_ms=30_000)
    rig.commit_and_write()
    before = {table: rig.rows(table) for table in (BROKER_EVENTS, HEARTBEAT_MINUTES)}
    shutil.rmtree(rig.dir / BROKER_EVENTS)
    rig.restart()
    rig.write()
    assert {table: rig.rows(table) for table in before} == before


def test_tables_of_another_topic_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    rig = HistoryRig(spark, tmp_path)
    ensure_history_tables(rig.settings, TOPIC_ID)
    with pytest.raises(ConfigError, match="the log is another one"):
        ensure_history_tables(rig.settings, "another")
