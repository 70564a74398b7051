"""What always holds of the history tables, whatever came late, twice or again, and wherever the writer was killed.

Intervals of a key tile the time, sessions are the live rows, and heartbeats those of the log. All tables here are
written by the real writer; what they say of an instant is in ``test_history_through_faults``.
"""

import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from namesrv_stream.route.changes import ChangeKind
from namesrv_stream.settings import Settings
from namesrv_stream.tables.layout import (
    BROKER_EVENTS,
    HEARTBEAT_MINUTES,
    HISTORY_SCHEMAS,
)
from namesrv_stream.tables.storage import Folder
from tests.support.builders import Log
from tests.support.history import HistoryRig
from tests.support.history_crashes import commits_between, crashes_of, lay_out
from tests.support.history_life import live_on, names_of
from tests.support.history_lives import Lives
from tests.support.history_oracle import clocks, hearings, instant, intervals, key_of, minutes, sessions
from tests.support.history_views import BROKER_SESSIONS, ROUTE_HISTORY, TOPIC_ROUTE_HISTORY, change_of, rows_of
from tests.support.strategies_route import Entry, logs

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(1_800)]

_HOUR_MS = 3_600_000
#: Each example is some seconds of Spark. The same law without Spark, of hundreds of logs: ``test_rows_of_a_log``.
_EXAMPLES = max(2, examples().max_examples // 100)
#: A smaller one is not worth the minutes.
_WITHOUT_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)
Rows = list[dict[str, Any]]


@pytest.fixture
def rig(lives: Lives) -> HistoryRig:
    return lives.rig


def test_intervals_of_a_key_tile_the_time_from_its_first_row_on(rig: HistoryRig) -> None:
    for table in (ROUTE_HISTORY, TOPIC_ROUTE_HISTORY):
        rows = _rows(rig.dir, table)
        assert len(rows) > 200
        _assert_tiled(rows)


def test_sessions_are_the_time_for_which_rows_say_live(rig: HistoryRig) -> None:
    live: dict[Any, list[tuple[Any, Any]]] = defaultdict(list)
    for row in _rows(rig.dir, ROUTE_HISTORY):
        if row["kind"] == ChangeKind.BROKER_LIVE and not row["gone"]:
            live[_broker(row)].append((row["valid_from"], row["valid_to"]))
    up: dict[Any, list[tuple[Any, Any]]] = defaultdict(list)
    for row in _rows(rig.dir, BROKER_SESSIONS):
        up[_broker(row)].append((row["up_at"], row["down_at"]))
    assert {broker: _joined(spans) for broker, spans in up.items()} == {b: _joined(s) for b, s in live.items()}


def test_heartbeats_of_all_minutes_are_those_of_the_log(rig: HistoryRig, lives: Lives) -> None:
    counted: dict[Any, int] = defaultdict(int)
    for row in _rows(rig.dir, HEARTBEAT_MINUTES):
        counted[(_broker(row), row["server_id"])] += row["heartbeats"]
    in_log: dict[Any, int] = defaultdict(int)
    for log in lives.seen:
        running_ms = max(clocks(log)) // 60_000 * 60_000
        for heard in hearings(log):
            if heard.at_ms < running_ms:
                in_log[(heard.broker, heard.server_id)] += 1
    assert counted == in_log
    assert sum(in_log.values()) > 100


def test_killed_at_any_moment_of_a_run_it_goes_on_as_if_it_had_not_been(spark: SparkSession, tmp_path: Path) -> None:
    random = Random(3)
    # So few rows at a time that some tables take several commits.
    flags = {"history__max_records": 100, "history__heartbeats_interval_ms": 1}
    rig = HistoryRig(spark, tmp_path / "whole", 2, **flags)
    for log in rig.logs:
        live_on(log, random, 60)
    rig.commit_and_write()
    for log in rig.logs:
        live_on(log, random, 100)
    rig.commit()
    before = tmp_path / "before"
    shutil.copytree(rig.dir, before)
    rig.restart()
    rig.write()
    commits = commits_between(before, rig.dir)
    assert {c.table for c in commits} == set(HISTORY_SCHEMAS)
    assert len(commits) > len(HISTORY_SCHEMAS)
    _assert_says(rig.dir, rig.logs)
    for number, crash in enumerate(crashes_of(commits)):
        # In a folder of its own, of which the JVM remembers as much as a new one would.
        data_dir = tmp_path / f"crash-{number}"
        lay_out(crash, before, rig.dir, data_dir / "tables")
        _run_again(rig, data_dir)
        try:
            _assert_says(data_dir / "tables", rig.logs)
        except AssertionError as error:
            raise AssertionError(f"killed {crash}") from error
        shutil.rmtree(data_dir)


_SUPPRESSED = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]


@examples(max_examples=_EXAMPLES, deadline=None, phases=_WITHOUT_SHRINKING, suppress_health_check=_SUPPRESSED)
@given(
    st.lists(logs(min_size=25, max_size=70), min_size=4, max_size=4),
    st.floats(0, 1),
    st.floats(0, 1, exclude_max=True),
)
def test_any_log_cut_anywhere_and_killed_once_gives_the_same_tables(
    spark: SparkSession, entries: list[list[Entry]], cut: float, crash_at: float
) -> None:
    with TemporaryDirectory() as folder:
        flags = {"history__max_records": 200, "history__heartbeats_interval_ms": 1}
        rig = HistoryRig(spark, Path(folder, "whole"), 4, **flags)
        for log, own in zip(rig.logs, entries, strict=True):
            _append(log, own[: int(len(own) * cut)])
        rig.commit_and_write()
        for log, own in zip(rig.logs, entries, strict=True):
            _append(log, own[int(len(own) * cut) :])
        rig.commit()
        before = Path(folder, "before")
        shutil.copytree(rig.dir, before)
        rig.restart()
        rig.write()
        _assert_says(rig.dir, rig.logs)
        crashes = crashes_of(commits_between(before, rig.dir))
        if crashes:
            crashed = Path(folder, "crashed")
            lay_out(crashes[int(len(crashes) * crash_at)], before, rig.dir, crashed / "tables")
            _run_again(rig, crashed)
            _assert_says(crashed / "tables", rig.logs)


def _append(log: Log, entries: Sequence[Entry]) -> None:
    """Append records, told of broker names and namespaces that belong into the log's partition."""
    partition, partitions = log.state.partition, log.state.partitions
    names = zip((b'"broker-a"', b'"broker-b"'), names_of(partition, partitions, 2), strict=True)
    spaces = zip((b'"ns"', b'"other"'), names_of(partition, partitions, 2, "ns"), strict=True)
    new = {old: f'"{name}"'.encode() for old, name in (*names, *spaces)}
    for entry in entries:
        value = entry.value
        for old, name in new.items():
            value = value.replace(old, name)
        log.append(value, entry.after_ms)


def _run_again(rig: HistoryRig, data_dir: Path) -> None:
    """The process starts again on tables that a crash has left."""
    data = rig.settings.data.model_copy(update={"dir": data_dir})
    settings: Settings = rig.settings.model_copy(update={"data": data})
    rig.write(settings)


def _assert_says(tables_dir: Path, logs: Sequence[Log]) -> None:
    """The tables are those of the logs, row by row."""
    _assert_events(_rows(tables_dir, BROKER_EVENTS), logs)
    expected = intervals(c for log in logs for c in log.output.changes)
    routes = _rows(tables_dir, ROUTE_HISTORY)
    _assert_tiled(routes)
    assert [(change_of(r), r["valid_to"]) for r in routes] == [
        (change, None if end is None else instant(end)) for change, end in expected
    ]
    topics = [r for r in routes if r["kind"] == ChangeKind.QUEUE_DATA]
    found = _rows(tables_dir, TOPIC_ROUTE_HISTORY)
    assert found == [{name: r[name] for name in found[0]} for r in topics]
    assert _rows(tables_dir, BROKER_SESSIONS) == [session for log in logs for session in sessions(log)]
    _assert_minutes(_rows(tables_dir, HEARTBEAT_MINUTES), logs)


def _assert_events(rows: Rows, logs: Sequence[Log]) -> None:
    found = [
        (r["partition"], r["offset"], r["at"], r["raw"] if r["value"] is None else r["value"].encode()) for r in rows
    ]
    assert sorted(found) == [(r.partition, r.offset, instant(r.at_ms), r.value) for log in logs for r in log.records]


def _assert_minutes(rows: Rows, logs: Sequence[Log]) -> None:
    keys = ("partition", "cluster", "broker_name", "broker_addr", "server_id", "minute")
    expected = [row for log in logs for row in minutes(log, _HOUR_MS)]
    found = sorted(rows, key=lambda r: [r[name] for name in keys])
    assert len(found) == len(expected)
    for row, wanted in zip(found, expected, strict=True):
        gaps = wanted.pop("gaps")
        quantiles = [row.pop(name) for name in ("gap_p50_ms", "gap_p99_ms", "gap_max_ms")]
        assert row == wanted
        if gaps is not None:
            ordered = sorted(gaps)
            assert quantiles == ([ordered[(len(ordered) - 1) // 2], ordered[-1], ordered[-1]] if gaps else [None] * 3)


def _assert_tiled(rows: Rows) -> None:
    of_key: dict[Any, Rows] = defaultdict(list)
    for row in rows:
        of_key[key_of(change_of(row)) if "kind" in row else (row["topic"], row["broker_name"])].append(row)
    for key, own in of_key.items():
        assert [r["valid_to"] for r in own[:-1]] == [r["valid_from"] for r in own[1:]], key
        assert own[-1]["valid_to"] is None, key
        assert all(r["valid_to"] is None or r["valid_from"] < r["valid_to"] for r in own), key


def _joined(spans: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Spans of time with those that follow each other without a gap made one."""
    joined: list[tuple[Any, Any]] = []
    for begin, end in sorted(spans):
        if joined and joined[-1][1] == begin:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((begin, end))
    return joined


def _broker(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return row["cluster"], row["broker_name"], row["broker_addr"]


def _rows(tables_dir: Path, table: str) -> Rows:
    return rows_of(Folder(tables_dir), table)
