"""For any log, the history rows valid at an instant equal a fold that stops there."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from namesrv_stream.route import reducer
from namesrv_stream.route.table import RouteTable
from namesrv_stream.tables.storage import tables_of
from namesrv_stream.tools.replay.log_fold import LogFold, start_of_log
from tests.support.builders import Log
from tests.support.examples import examples
from tests.support.history_oracle import clocks, instant, intervals, key_of, sessions
from tests.support.history_tables import HistoryOfLogs
from tests.support.history_views import BROKER_SESSIONS, ROUTE_HISTORY, rows_of
from tests.support.strategies_route import Entry, logs


def _log_of(entries: list[Entry]) -> Log:
    log = Log()
    for entry in entries:
        log.append(entry.value, entry.after_ms)
    return log


@given(logs(min_size=5))
def test_rows_valid_at_an_instant_equal_a_fold_to_that_instant(entries: list[Entry]) -> None:
    log = _log_of(entries)
    rows = intervals(log.output.changes)
    fold = LogFold(start_of_log(0, 1))
    times = clocks(log)
    for record, at_ms, next_ms in zip(log.records, times, [*times[1:], None], strict=True):
        fold.fold([record])
        if next_ms == at_ms:
            continue  # all changes of a millisecond belong together
        found = RouteTable()
        reducer.apply(found, (c for c, end_ms in rows if c.at_ms <= at_ms and (end_ms is None or at_ms < end_ms)))
        expected = fold.table()
        groups = {name: replace(group, registrations={}) for name, group in expected.groups.items()}
        assert found.groups == {
            name: g for name, g in groups.items() if g.live_brokers or g.broker_addrs or g.topic_mappings
        }
        assert (found.kv, found.settings) == (expected.kv, expected.settings)
        assert (found.servers, found.held) == (expected.servers, expected.held)


@given(logs(min_size=5))
def test_the_intervals_of_a_key_follow_each_other_from_its_first_row_on(entries: list[Entry]) -> None:
    of_key: dict[object, list[tuple[int, int | None]]] = {}
    for change, end_ms in intervals(_log_of(entries).output.changes):
        of_key.setdefault(key_of(change), []).append((change.at_ms, end_ms))
    for spans in of_key.values():
        assert [end for _, end in spans[:-1]] == [begin for begin, _ in spans[1:]]
        assert spans[-1][1] is None


@settings(max_examples=examples(12), suppress_health_check=[HealthCheck.too_slow])
@given(logs(min_size=5), st.floats(0, 1))
def test_the_views_are_the_intervals_and_sessions_of_the_log(entries: list[Entry], share: float) -> None:
    """The archive may end anywhere; later changes come from ``route_changes``."""
    log = _log_of(entries)
    with TemporaryDirectory() as folder:
        tables = HistoryOfLogs(Path(folder), log)
        tables.commit()
        tables.write({0: int(len(log.records) * share)})
        storage = tables_of(tables.settings)
        assert [(_place(r), r["valid_to"]) for r in rows_of(storage, ROUTE_HISTORY)] == [
            (change[:3], None if end is None else instant(end)) for change, end in intervals(log.output.changes)
        ]
        assert rows_of(storage, BROKER_SESSIONS) == sessions(log)


def _place(row: dict[str, Any]) -> tuple[int, int, int]:
    return row["partition"], row["offset"], row["seq"]
