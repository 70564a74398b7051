"""What the history tables are to say of a log, reckoned in steps cut anywhere: as by their definitions, at once.

No table and no Spark is here: rows are kept in memory as a MERGE would. ``tests/spark`` shows that Spark writes them.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from random import Random
from typing import Any

import polars as pl
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from namesrv_stream.route.changes import RouteChange
from namesrv_stream.streaming.history.event_clocks import MINUTE_MS, clocks_of
from namesrv_stream.streaming.history.heard import heard_in
from namesrv_stream.streaming.history.history_table import PLACE
from namesrv_stream.streaming.history.intervals import interval_rows, keyed
from namesrv_stream.streaming.history.minute_rows import minute_rows
from namesrv_stream.streaming.history.row_keys import HISTORY_KINDS
from namesrv_stream.streaming.history.session_rows import SESSION_COLUMNS, Sessions
from namesrv_stream.tables.schema.columns import ROW_SCHEMA
from namesrv_stream.tables.schema.history_columns import (
    BROKER_SESSIONS,
    DAY_COLUMNS,
    HEARTBEAT_MINUTES,
    HISTORY_SCHEMAS,
    ROUTE_HISTORY,
    TOPIC_ROUTE_HISTORY,
)
from namesrv_stream.tables.schema.rows import encode_changes
from tests.support.builders import Log
from tests.support.examples import examples
from tests.support.history_events import events_of
from tests.support.history_life import live_on
from tests.support.history_oracle import clocks, hearings, instant, intervals, minutes, sessions
from tests.support.strategies_route import Entry, logs

_ANY_GAP_MS = 1 << 60
Rows = dict[tuple[int, ...], dict[str, Any]]


@settings(max_examples=examples(50))
@given(st.integers(0, 1 << 32), st.lists(st.floats(0, 1), max_size=4))
def test_a_life_cut_anywhere_gives_the_tables_of_it(seed: int, cuts: list[float]) -> None:
    log = Log()
    live_on(log, Random(seed), 150)
    _assert_says(log, cuts)


@settings(max_examples=examples(50))
@given(logs(min_size=5, max_size=80), st.lists(st.floats(0, 1), max_size=4))
def test_any_log_cut_anywhere_gives_the_tables_of_it(entries: list[Entry], cuts: list[float]) -> None:
    log = Log()
    for entry in entries:
        log.append(entry.value, entry.after_ms)
    _assert_says(log, cuts)


def _assert_says(log: Log, cuts: list[float]) -> None:
    routes: Rows = {}
    topics: Rows = {}
    lives: Rows = {}
    since_ms: dict[int, int] = {}
    heard = []
    ends = sorted({0, len(log.records), *(int(len(log.records) * cut) for cut in cuts)})
    for begin, end in pairwise(ends):
        changes = [c for c in log.output.changes if begin <= c.offset < end and c.kind in HISTORY_KINDS]
        _upsert(routes, _interval_rows(ROUTE_HISTORY, routes, changes), "valid_from", "valid_to", ["valid_to"])
        of_topics = [c for c in changes if c.kind == "queue_data"]
        found = _interval_rows(TOPIC_ROUTE_HISTORY, topics, of_topics)
        _upsert(topics, found, "valid_from", "valid_to", ["valid_to"])
        events = events_of(log.records[begin:end])
        step_clocks = clocks_of(events, since_ms)
        since_ms = step_clocks.after()
        heard.append(heard_in(events.to_batches(), step_clocks))
        of_live = [c for c in changes if c.kind == "broker_live"]
        going = Sessions(_open(lives, BROKER_SESSIONS, "down_at"))
        going.go_on(_table(of_live), heard[-1])
        _upsert(lives, going.rows(), "up_at", "down_at", SESSION_COLUMNS)
    expected = intervals(log.output.changes)
    names = [*ROW_SCHEMA.names, "valid_to"]
    assert [[routes[place][name] for name in names] for place in sorted(routes)] == [
        [*_values(change), None if end_ms is None else instant(end_ms)] for change, end_ms in expected
    ]
    assert topics == {place: row for place, row in routes.items() if row["kind"] == "queue_data"}
    assert [lives[place] for place in sorted(lives)] == [
        {name: value for name, value in session.items() if name != "up_day"} for session in sessions(log)
    ]
    _assert_heard(log, pl.concat(heard))


def _assert_heard(log: Log, heard: pl.DataFrame) -> None:
    names = ("partition", "offset", "cluster", "broker_name", "broker_addr", "server_id", "at_ms")
    assert heard.sort("offset", "item").select(names).rows() == [
        (h.partition, h.offset, *h.broker, h.server_id, h.at_ms) for h in hearings(log)
    ]
    running_ms = max(clocks(log)) // MINUTE_MS * MINUTE_MS
    ended = heard.filter(pl.col("at_ms") < running_ms)
    # As in steps of one hour each: the second goes on from the rows of the first.
    middle_ms = running_ms - 60 * MINUTE_MS
    first = minute_rows(ended.filter(pl.col("at_ms") < middle_ms), _nothing_of(HEARTBEAT_MINUTES))
    both = pl.concat([first, minute_rows(ended.filter(pl.col("at_ms") >= middle_ms), first)])
    order = ["cluster", "broker_name", "broker_addr", "server_id", "minute"]
    expected = minutes(log, _ANY_GAP_MS)
    assert both.height == len(expected)
    for row, wanted in zip(both.sort(order).to_dicts(), expected, strict=True):
        gaps = sorted(wanted.pop("gaps"))
        quantiles = [row.pop(name) for name in ("gap_p50_ms", "gap_p99_ms", "gap_max_ms")]
        assert row == wanted
        assert quantiles == ([gaps[(len(gaps) - 1) // 2], gaps[-1], gaps[-1]] if gaps else [None] * 3)


def _upsert(rows: Rows, found: pa.Table, begin: str, end: str, updated: Sequence[str]) -> None:
    """As MERGE does."""
    for row in found.to_pylist():
        place = tuple(row[name] for name in PLACE)
        is_old = row.pop("is_old")
        assert is_old == (place in rows)
        if is_old and row[begin] == row[end]:
            del rows[place]
        elif is_old:
            rows[place] |= {name: row[name] for name in updated}
        else:
            rows[place] = row


def _interval_rows(table: str, rows: Rows, changes: list[RouteChange]) -> pa.Table:
    lasting = _open(rows, table, "valid_to")
    return interval_rows(keyed(lasting), _table(changes))


def _open(rows: Rows, table: str, end: str) -> pl.DataFrame:
    schema = pa.schema([f.with_nullable(True) for f in HISTORY_SCHEMAS[table] if f.name != DAY_COLUMNS[table]])
    found = [{name: row[name] for name in schema.names} for row in rows.values() if row[end] is None]
    return pl.DataFrame(pa.Table.from_pylist(found, schema))


def _nothing_of(table: str) -> pl.DataFrame:
    return pl.DataFrame(HISTORY_SCHEMAS[table].empty_table())


def _table(changes: list[RouteChange]) -> pa.Table:
    return pa.Table.from_batches([encode_changes(changes)]).select(ROW_SCHEMA.names).cast(ROW_SCHEMA)


def _values(change: RouteChange) -> Iterator[Any]:
    for name, value in change._asdict().items():
        yield list(value) if isinstance(value, tuple) and name != "kind" else value
