"""Invariants of the history tables, whatever is late or duplicated, and wherever the writer is killed.

Intervals of a key follow each other without gaps, sessions are the time for which rows say live, and heartbeats are
those of the log. ``test_history_with_faults`` tests what the tables say at an instant.

A commit consists of new data files and of one new entry in the log of the table, which a rename puts into place. A
killed writer therefore leaves all earlier commits, possibly some data files and an entry without its final name of the
next commit, and nothing of later ones. The tests build each of these states from a run that was not killed.
"""

import os
import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from urllib.parse import unquote

import orjson
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
from tests.support.history_oracle import clocks, instant, intervals, key_of, minutes, sessions, signs_of_life
from tests.support.history_rig import HistoryRig, WrittenHistory
from tests.support.history_views import BROKER_SESSIONS, ROUTE_HISTORY, TOPIC_ROUTE_HISTORY, change_of, rows_of
from tests.support.random_events import append_random_events, names_in_partition
from tests.support.strategies_route import Entry, logs

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(1_800)]

_HOUR_MS = 3_600_000
_LOG = "_delta_log"
#: An example takes some seconds. ``test_rows_of_a_log`` checks hundreds of logs without Spark.
_EXAMPLES = max(2, examples().max_examples // 100)
#: Shrinking would take minutes.
_WITHOUT_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)
Rows = list[dict[str, Any]]


class Commit(NamedTuple):
    """A commit of one table in a run that was not killed.

    Attributes:
        made_ns: When the commit was written.
        table: Name of the table.
        version: Version of the table.
    """

    made_ns: int
    table: str
    version: int

    @property
    def entry(self) -> Path:
        """Path of its entry in the log, relative to the folder of the tables."""
        return Path(self.table, _LOG, f"{self.version:020}.json")


class Crash(NamedTuple):
    """A kill during a commit.

    Attributes:
        complete: The commits before it.
        unfinished: The commit of which only data files exist.
    """

    complete: tuple[Commit, ...]
    unfinished: Commit

    def __str__(self) -> str:
        table, version = self.unfinished.table, self.unfinished.version
        return f"during the commit of {table}@{version}, after {len(self.complete)} commits"


def commits_between(before: Path, after: Path) -> list[Commit]:
    """Return the commits of a run, in order.

    Args:
        before: A copy of the folder of the tables, made before the run.
        after: The folder after the run.
    """
    found = [
        Commit(entry.stat().st_mtime_ns, entry.parent.parent.name, int(entry.stem))
        for entry in after.glob(f"*/{_LOG}/*.json")
        if entry.stem.isdecimal() and not (before / entry.relative_to(after)).exists()
    ]
    return sorted(found)


def possible_crashes(commits: list[Commit]) -> list[Crash]:
    """Return a crash during each commit."""
    return [Crash(tuple(commits[:number]), commit) for number, commit in enumerate(commits)]


def build_tables_after(crash: Crash, before: Path, after: Path, target: Path) -> None:
    """Make a folder of tables as a crash leaves it.

    Args:
        crash: The crash.
        before: See ``commits_between``.
        after: See ``commits_between``.
        target: The new folder.
    """
    shutil.copytree(before, target)
    for commit in crash.complete:
        _link_data(commit, after, target)
        _link(after, target, commit.entry)
    entry = _link_data(crash.unfinished, after, target)
    unfinished = crash.unfinished.entry.with_name(f".{crash.unfinished.entry.name}.00000000-dead-beef.tmp")
    (target / unfinished).write_bytes(entry[: len(entry) // 2])


def _link_data(commit: Commit, source: Path, target: Path) -> bytes:
    """Link the data files of a commit into ``target``; returns the entry of the commit."""
    entry = (source / commit.entry).read_bytes()
    for action in map(orjson.loads, entry.splitlines()):
        if "add" in action:
            _link(source, target, Path(commit.table, unquote(action["add"]["path"])))
    return entry


def _link(source: Path, target: Path, path: Path) -> None:
    (target / path).parent.mkdir(parents=True, exist_ok=True)
    os.link(source / path, target / path)


@pytest.fixture
def rig(written_history: WrittenHistory) -> HistoryRig:
    return written_history.rig


def test_intervals_of_a_key_have_no_gap_and_no_overlap(rig: HistoryRig) -> None:
    for table in (ROUTE_HISTORY, TOPIC_ROUTE_HISTORY):
        rows = _rows(rig.dir, table)
        assert len(rows) > 200
        _assert_no_gap_or_overlap(rows)


def test_sessions_cover_the_time_for_which_rows_say_live(rig: HistoryRig) -> None:
    live: dict[Any, list[tuple[Any, Any]]] = defaultdict(list)
    for row in _rows(rig.dir, ROUTE_HISTORY):
        if row["kind"] == ChangeKind.BROKER_LIVE and not row["gone"]:
            live[_broker(row)].append((row["valid_from"], row["valid_to"]))
    up: dict[Any, list[tuple[Any, Any]]] = defaultdict(list)
    for row in _rows(rig.dir, BROKER_SESSIONS):
        up[_broker(row)].append((row["up_at"], row["down_at"]))
    assert {broker: _joined(spans) for broker, spans in up.items()} == {b: _joined(s) for b, s in live.items()}


def test_sum_of_heartbeat_minutes_equals_the_heartbeats_of_the_log(
    rig: HistoryRig, written_history: WrittenHistory
) -> None:
    counted: dict[Any, int] = defaultdict(int)
    for row in _rows(rig.dir, HEARTBEAT_MINUTES):
        counted[(_broker(row), row["server_id"])] += row["heartbeats"]
    in_log: dict[Any, int] = defaultdict(int)
    for log in written_history.read_logs:
        running_ms = max(clocks(log)) // 60_000 * 60_000
        for heard in signs_of_life(log):
            if heard.at_ms < running_ms:
                in_log[(heard.broker, heard.server_id)] += 1
    assert counted == in_log
    assert sum(in_log.values()) > 100


def test_history_is_complete_after_a_kill_during_any_commit(spark: SparkSession, tmp_path: Path) -> None:
    random = Random(3)
    # Batches are so small that some tables take several commits.
    flags = {"history__max_records": 100, "history__heartbeats_interval_ms": 1}
    rig = HistoryRig(spark, tmp_path / "whole", 2, **flags)
    for log in rig.logs:
        append_random_events(log, random, 60)
    rig.commit_and_write()
    for log in rig.logs:
        append_random_events(log, random, 100)
    rig.commit()
    before = tmp_path / "before"
    shutil.copytree(rig.dir, before)
    rig.restart()
    rig.write()
    commits = commits_between(before, rig.dir)
    assert {c.table for c in commits} == set(HISTORY_SCHEMAS)
    assert len(commits) > len(HISTORY_SCHEMAS)
    _assert_tables_equal_logs(rig.dir, rig.logs)
    for number, crash in enumerate(possible_crashes(commits)):
        # Each crash gets its own folder, so that the JVM has nothing cached of it.
        data_dir = tmp_path / f"crash-{number}"
        build_tables_after(crash, before, rig.dir, data_dir / "tables")
        _run_again(rig, data_dir)
        try:
            _assert_tables_equal_logs(data_dir / "tables", rig.logs)
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
def test_tables_do_not_depend_on_batches_and_on_a_kill(
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
        _assert_tables_equal_logs(rig.dir, rig.logs)
        crashes = possible_crashes(commits_between(before, rig.dir))
        if crashes:
            crashed = Path(folder, "crashed")
            build_tables_after(crashes[int(len(crashes) * crash_at)], before, rig.dir, crashed / "tables")
            _run_again(rig, crashed)
            _assert_tables_equal_logs(crashed / "tables", rig.logs)


def _append(log: Log, entries: Sequence[Entry]) -> None:
    """Append records with broker names and namespaces that belong to the partition of the log."""
    partition, partitions = log.state.partition, log.state.partitions
    names = zip((b'"broker-a"', b'"broker-b"'), names_in_partition(partition, partitions, 2), strict=True)
    spaces = zip((b'"ns"', b'"other"'), names_in_partition(partition, partitions, 2, "ns"), strict=True)
    new = {old: f'"{name}"'.encode() for old, name in (*names, *spaces)}
    for entry in entries:
        value = entry.value
        for old, name in new.items():
            value = value.replace(old, name)
        log.append(value, entry.after_ms)


def _run_again(rig: HistoryRig, data_dir: Path) -> None:
    """Run the history process on tables that a crash has left."""
    data = rig.settings.data.model_copy(update={"dir": data_dir})
    settings: Settings = rig.settings.model_copy(update={"data": data})
    rig.write(settings)


def _assert_tables_equal_logs(tables_dir: Path, logs: Sequence[Log]) -> None:
    """Assert that the tables contain exactly the rows of the logs."""
    _assert_events(_rows(tables_dir, BROKER_EVENTS), logs)
    expected = intervals(c for log in logs for c in log.output.changes)
    routes = _rows(tables_dir, ROUTE_HISTORY)
    _assert_no_gap_or_overlap(routes)
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


def _assert_no_gap_or_overlap(rows: Rows) -> None:
    of_key: dict[Any, Rows] = defaultdict(list)
    for row in rows:
        of_key[key_of(change_of(row)) if "kind" in row else (row["topic"], row["broker_name"])].append(row)
    for key, own in of_key.items():
        assert [r["valid_to"] for r in own[:-1]] == [r["valid_from"] for r in own[1:]], key
        assert own[-1]["valid_to"] is None, key
        assert all(r["valid_to"] is None or r["valid_from"] < r["valid_to"] for r in own), key


def _joined(spans: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Join spans that follow each other without a gap."""
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
