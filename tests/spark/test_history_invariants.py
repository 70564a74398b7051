"""What always holds of the history tables, whatever came late, twice or again, and wherever the writer was killed.

Intervals of a key tile the time; rows that hold at an instant are the fold stopped there; ``--as-of`` is a replay
stopped there; sessions are the live rows, and heartbeats those of the log. All tables here are written by the real
writer.
"""

import json
import shutil
import signal
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from namesrv_stream.history.past_route import RouteOptions, route_body
from namesrv_stream.kafka.log_check import read_extent
from namesrv_stream.route import reducer
from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.table import RouteTable
from namesrv_stream.settings import Settings, to_toml
from namesrv_stream.tables.repair import prepare_tables
from namesrv_stream.tables.route_writers import ChangesWriter
from namesrv_stream.tables.schema.change_rows import encode_changes
from namesrv_stream.tables.schema.history_columns import (
    BROKER_EVENTS,
    HEARTBEAT_MINUTES,
    HISTORY_SCHEMAS,
    ROUTE_ARCHIVE,
)
from namesrv_stream.tables.storage import Folder, tables_of
from namesrv_stream.tools.replay.log_fold import LogFold, start_of_log
from tests.support.builders import Log
from tests.support.command_line import run_command
from tests.support.history import HistoryRig
from tests.support.history_crashes import commits_between, crashes_of, lay_out
from tests.support.history_life import RARE_TOPIC, live_on, names_of
from tests.support.history_lives import Lives
from tests.support.history_oracle import clocks, hearings, instant, intervals, key_of, minutes, sessions
from tests.support.history_views import BROKER_SESSIONS, ROUTE_HISTORY, TOPIC_ROUTE_HISTORY, rows_of
from tests.support.kafka import REPOSITORY
from tests.support.offline_fold import read_records
from tests.support.processes import Process, wait_until
from tests.support.spark import event_producer, own_settings
from tests.support.strategies_route import Entry, logs

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(1_800)]

_HOUR_MS = 3_600_000
_PARTITIONS = 3
_TOPICS = ("t1", "t2", "t3", "t4", "t5", "TopicTest")
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


def test_the_rows_that_hold_at_1000_instants_are_the_fold_stopped_there(rig: HistoryRig) -> None:
    rows = [(_change(r), r["valid_from"], r["valid_to"]) for r in _rows(rig.dir, ROUTE_HISTORY)]
    folds = _Folds(rig.logs)
    random, changed = Random(1_000), sorted({c.at_ms for c, _, _ in rows})
    first_ms, last_ms = changed[0], min(clocks(log)[-1] for log in rig.logs)
    instants = [random.randint(first_ms, last_ms) for _ in range(400)]
    # Most instants of a life with long pauses fall into those: so as many at changes, and just before.
    instants += [max(first_ms, random.choice(changed) - random.randint(0, 1)) for _ in range(600)]
    for at_ms in sorted(instants):
        at = instant(at_ms)
        found = RouteTable()
        reducer.apply(found, [c for c, begin, end in rows if begin <= at and (end is None or at < end)])
        assert _content(found, _PARTITIONS) == _content(folds.stopped_at(at_ms), _PARTITIONS), at
    untold = {"registration", "registration_wanted", "ignored"}
    assert {c.kind for c, _, _ in rows} == {str(kind) for kind in ChangeKind} - untold


def test_as_of_is_a_replay_stopped_at_that_instant(rig: HistoryRig) -> None:
    """By the command itself, also where the history has not been yet; the route, or that there was none."""
    folds, random = _Folds(rig.logs), Random(7)
    ends = [clocks(log) for log in rig.logs]
    first_ms, last_ms = max(c[0] for c in ends), max(c[-1] for c in ends)
    changed = [c.at_ms for log in rig.logs for c in log.output.changes if c.at_ms >= first_ms]
    instants = [random.choice(changed) + random.randint(-1, 1) for _ in range(25)] + [last_ms] * 2
    outcomes: dict[bool, int] = defaultdict(int)
    for at_ms in sorted(max(at_ms, first_ms) for at_ms in instants):
        table = folds.stopped_at(at_ms)
        for topic in (random.choice(_TOPICS), RARE_TOPIC):
            expected = route_body(table, topic, RouteOptions())
            asked = run_command(
                *("route", topic, "--as-of", str(at_ms), "--data-dir", str(rig.settings.data.dir), "--json"),
                *("--set", f"kafka.partitions={_PARTITIONS}"),
            )
            outcomes[expected is not None] += 1
            if expected is None:
                assert (asked.code, asked.out) == (1, ""), (topic, at_ms)
                assert f"no route for topic {topic} as of" in asked.err
                continue
            assert asked.code == 0, asked.err
            found = json.loads(asked.out)
            assert {name: found[name] for name in json.loads(expected)} == json.loads(expected), (topic, at_ms)
            assert found["lastChange"]["at_ms"] <= at_ms
    assert min(outcomes[True], outcomes[False]) > 1, outcomes


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


def test_killed_amid_commits_the_process_itself_loses_nothing_and_writes_nothing_twice(
    spark: SparkSession, kafka_settings: Settings, tmp_path: Path
) -> None:
    """SIGKILL when it has written the data of a commit and not yet the commit; the tests before end a run by hand."""
    settings = own_settings(kafka_settings, tmp_path, partitions=2)
    history = settings.history.model_copy(update={"heartbeats_interval_ms": 1, "driver_memory": "512m"})
    settings = settings.model_copy(update={"history": history})
    # So many commits that one is soon seen under way.
    slowly = settings.model_copy(update={"history": history.model_copy(update={"max_records": 4})})
    logs = _in_kafka(settings, records=40)
    _commit_changes(settings, logs)
    for victim in (BROKER_EVENTS, ROUTE_ARCHIVE):
        with _history_process(slowly) as process:
            torn = wait_until(partial(_uncommitted, settings, victim, process), 600, f"a commit of {victim} under way")
            process.signal(signal.SIGKILL, whole_group=True)
            process.wait(10)
        assert torn
    with _history_process(settings, "--once") as process:
        assert process.wait(600) == 0, process.log_text()
    _assert_says(settings.data.tables_dir, logs)


def _in_kafka(settings: Settings, records: int) -> list[Log]:
    """Lives sent to Kafka, as Kafka has them."""
    with event_producer(settings) as producer:
        for partition in range(settings.kafka.partitions):
            life = Log(partition=partition, partitions=settings.kafka.partitions)
            live_on(life, Random(partition), records)
            for record in life.records:
                producer.send_value(record.value, partition)
    found = [Log(partition=p, partitions=settings.kafka.partitions) for p in range(settings.kafka.partitions)]
    for record in read_records(settings):
        log = found[record.partition]
        assert record.offset == len(log.records)
        log.append(record.value, record.at_ms - log.now_ms)
    return found


def _commit_changes(settings: Settings, logs: Sequence[Log]) -> None:
    """The job's part."""
    topic_id = read_extent(settings).topic_id
    prepare_tables(settings, topic_id)
    rows = pa.Table.from_batches([encode_changes([c for log in logs for c in log.output.changes])])
    writer = ChangesWriter(tables_of(settings), 0)
    writer.write(rows, {p: log.place() for p, log in enumerate(logs)}, 0)


@contextmanager
def _history_process(settings: Settings, *options: str) -> Iterator[Process]:
    conf = settings.data.dir / "conf.toml"
    conf.write_text(to_toml(settings))
    arguments = [sys.executable, "-m", "namesrv_stream", "history-job", "--conf", str(conf), *options]
    with Process("history-job", arguments, settings.data.dir / "history-job.log", cwd=REPOSITORY) as process:
        yield process


def _uncommitted(settings: Settings, table: str, process: Process) -> list[str]:
    """Data files of a table that no commit names, after its first commit."""
    assert process.is_alive, process.log_text()
    folder = settings.data.tables_dir / table
    data = [path.name for path in folder.glob("*/*.parquet") if not path.parent.name.startswith("_")]
    entries = "".join(path.read_text() for path in folder.glob("_delta_log/*.json"))
    return [name for name in data if name not in entries] if "add" in entries else []


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


class _Folds:
    """Replays of all partitions, stopped at one instant after another."""

    def __init__(self, logs: Sequence[Log]) -> None:
        self._logs = logs
        self._clocks = [clocks(log) for log in logs]
        self._folds = [LogFold(start_of_log(p, len(logs))) for p in range(len(logs))]

    def stopped_at(self, at_ms: int) -> RouteTable:
        """All that they say then, but for registrations that they only remember."""
        table = RouteTable()
        for partition, (log, times, fold) in enumerate(zip(self._logs, self._clocks, self._folds, strict=True)):
            begin = end = fold.state.next_offset
            while end < len(times) and times[end] <= at_ms:
                end += 1
            fold.fold(log.records[begin:end])
            own = fold.table()
            for group in own.groups.values():
                table.replace_group(replace(group, registrations={}))
            table.kv |= own.kv
            table.replace_settings(partition, own.settings_of(partition))
            table.servers |= own.servers
            table.held |= own.held
        return table


def _content(table: RouteTable, partitions: int) -> Any:
    settings = [dict(table.settings_of(p)) for p in range(partitions)]
    return dict(table.groups), dict(table.kv), settings, dict(table.servers), dict(table.held)


def _assert_says(tables_dir: Path, logs: Sequence[Log]) -> None:
    """The tables are those of the logs, row by row."""
    _assert_events(_rows(tables_dir, BROKER_EVENTS), logs)
    expected = intervals(c for log in logs for c in log.output.changes)
    routes = _rows(tables_dir, ROUTE_HISTORY)
    _assert_tiled(routes)
    assert [(_change(r), r["valid_to"]) for r in routes] == [
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
        of_key[key_of(_change(row)) if "kind" in row else (row["topic"], row["broker_name"])].append(row)
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


def _change(row: Mapping[str, Any]) -> RouteChange:
    values = {name: row[name] for name in RouteChange._fields}
    for name in ("broker_addrs", "clusters", "filter_servers"):
        values[name] = None if values[name] is None else tuple(values[name])
    return RouteChange(**values)
