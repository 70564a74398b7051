"""A step of ``broker_sessions`` of more records than may be in memory: read in parts, and the same sessions."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random

import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from namesrv_stream.route.changes import Cause, ChangeKind, RouteChange
from namesrv_stream.streaming.history.changes_step import Step
from namesrv_stream.streaming.history.session_rows import SESSION_COLUMNS, Sessions
from namesrv_stream.streaming.history.sessions_step import pass_through
from namesrv_stream.tables.delta.data_file import DataFile
from namesrv_stream.tables.delta.file_ranges import FileRanges
from namesrv_stream.tables.history_mark import HistoryMark
from namesrv_stream.tables.schema.columns import ROW_SCHEMA
from namesrv_stream.tables.schema.history_columns import BROKER_EVENTS, BROKER_SESSIONS, HISTORY_SCHEMAS
from namesrv_stream.tables.schema.rows import encode_changes
from namesrv_stream.tables.storage import Folder
from tests.support.builders import Log, of_kind
from tests.support.history_events import event_files
from tests.support.history_life import live_on
from tests.support.history_oracle import instant, sessions

_LIMIT = 40


class _Counted(FileRanges):
    """Remembers how many records were asked for at a time."""

    def __init__(self, folder: Path) -> None:
        files = map(DataFile.from_listing, pa.table(DeltaTable(folder).get_add_actions(flatten=True)).to_pylist())
        super().__init__(Folder(folder), files, HISTORY_SCHEMAS[BROKER_EVENTS])
        self.asked: list[int] = []

    def dataset(
        self, begin: Mapping[int, int], end: Mapping[int, int], since_ms: Mapping[int, int] | None = None
    ) -> ds.Dataset:
        self.asked.append(sum(end[p] - first for p, first in begin.items()))
        return super().dataset(begin, end, since_ms)

    def batches(
        self, begin: Mapping[int, int], end: Mapping[int, int], columns: Sequence[str], rows: int
    ) -> Iterator[pa.RecordBatch]:
        self.asked.append(sum(end[p] - first for p, first in begin.items()))
        return super().batches(begin, end, columns, rows)


@pytest.fixture(scope="module")
def lives() -> list[Log]:
    made = [Log(partition=partition, partitions=2) for partition in range(2)]
    for log in made:
        live_on(log, Random(5), 300)
    return made


def _gone_through(
    folder: Path, logs: list[Log], step: Step, limit: int
) -> tuple[dict[tuple[int, int, int], dict[str, object]], Mapping[int, int], list[int]]:
    event_files(folder, *(log.records for log in logs))
    events = _Counted(folder)
    schema = pa.schema([HISTORY_SCHEMAS[BROKER_SESSIONS].field(name) for name in SESSION_COLUMNS])
    going = Sessions(pl.DataFrame(schema.empty_table()))
    clock_ms = pass_through(going, step, events, {}, limit)
    rows = {(r["partition"], r["offset"], r["seq"]): r for r in going.rows().drop_columns("is_old").to_pylist()}
    return rows, clock_ms, events.asked


def _step(logs: list[Log], more: Sequence[RouteChange] = ()) -> Step:
    changes = [*(c for log in logs for c in of_kind(log.output.changes, ChangeKind.BROKER_LIVE)), *more]
    end = {p: len(log.records) for p, log in enumerate(logs)}
    rows = pa.Table.from_batches([encode_changes(changes)]).select(ROW_SCHEMA.names).cast(ROW_SCHEMA)
    return Step(dict.fromkeys(end, 0), end, rows, HistoryMark())


def test_no_more_records_are_asked_for_at_a_time_than_the_limit(tmp_path: Path, lives: list[Log]) -> None:
    _, _, asked = _gone_through(tmp_path, lives, _step(lives), _LIMIT)
    assert max(asked) <= _LIMIT
    assert sum(len(log.records) for log in lives) > 10 * _LIMIT


@pytest.mark.parametrize("limit", [7, _LIMIT, 1_000_000])
def test_sessions_are_those_of_the_log_whatever_the_limit(tmp_path: Path, lives: list[Log], limit: int) -> None:
    rows, clock_ms, _ = _gone_through(tmp_path, lives, _step(lives), limit)
    expected = [{name: s[name] for name in SESSION_COLUMNS} for log in lives for s in sessions(log)]
    assert [rows[place] for place in sorted(rows)] == expected
    assert clock_ms == {p: log.state.at_ms for p, log in enumerate(lives)}


@pytest.mark.parametrize("limit", [7, _LIMIT])
def test_what_the_state_adds_at_the_end_of_a_catch_up_comes_after_all_hearings(
    tmp_path: Path, lives: list[Log], limit: int
) -> None:
    up = [session for session in sessions(lives[0]) if session["down_at"] is None]
    at_ms, end = lives[0].state.at_ms + 1, len(lives[0].records)
    rebuilt = [
        RouteChange(
            *(0, end, -1 - number, at_ms, ChangeKind.BROKER_LIVE, True, Cause.STATE_REBUILT),
            **{name: session[name] for name in ("cluster", "broker_name", "broker_addr")},
        )
        for number, session in enumerate(up)
    ]
    rows, _, _ = _gone_through(tmp_path, lives, _step(lives, rebuilt), limit)
    assert up
    for session in up:
        found = rows[session["partition"], session["offset"], session["seq"]]
        assert found["heartbeats"] == session["heartbeats"]
        assert (found["down_at"], found["down_cause"]) == (instant(at_ms), "state_rebuilt")


def test_a_catch_up_of_no_records_has_what_the_state_says(tmp_path: Path, lives: list[Log]) -> None:
    step = _step(lives)
    rows, clock_ms, _ = _gone_through(tmp_path, lives, Step(step.end, step.end, step.changes, step.mark), _LIMIT)
    assert len(rows) > 1
    assert {row["heartbeats"] for row in rows.values()} == {0}
    assert clock_ms == {}
