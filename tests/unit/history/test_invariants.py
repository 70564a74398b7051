"""What the history tables are defined to say, without tables: of any log, the rows that hold at an instant are it."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from namesrv_stream.event_log.log_fold import LogFold, start_of_log
from namesrv_stream.route import reducer
from namesrv_stream.route.table import RouteTable
from tests.support.builders import Log
from tests.support.history_oracle import clocks, instant, intervals, key_of, sessions
from tests.support.history_tables import route_intervals
from tests.support.history_tables import sessions as sessions_of_tables
from tests.support.strategies_route import Entry, logs


def _log_of(entries: list[Entry]) -> Log:
    log = Log()
    for entry in entries:
        log.append(entry.value, entry.after_ms)
    return log


@given(logs(min_size=5))
def test_the_rows_that_hold_at_an_instant_are_the_fold_stopped_there(entries: list[Entry]) -> None:
    log = _log_of(entries)
    rows = intervals(log.output.changes)
    fold = LogFold(start_of_log(0, 1))
    times = clocks(log)
    for record, at_ms, next_ms in zip(log.records, times, [*times[1:], None], strict=True):
        fold.fold([record])
        if next_ms == at_ms:
            continue  # all of the same millisecond counts
        found = RouteTable()
        reducer.apply(found, (c for c, end_ms in rows if c.at_ms <= at_ms and (end_ms is None or at_ms < end_ms)))
        expected = fold.table()
        groups = {name: replace(group, registrations={}) for name, group in expected.groups.items()}
        assert found.groups == {name: g for name, g in groups.items() if g.lives or g.broker_addrs or g.topic_mappings}
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


@given(logs(min_size=5), st.integers(0, 60))
def test_two_reckonings_of_the_tables_agree(entries: list[Entry], kept: int) -> None:
    """The one that judges Spark's tables and the one that makes tables for the readers' tests."""
    log = _log_of(entries[:kept])
    names = ["offset", "seq", "up_at", "down_at", "heartbeats"]
    if clocks(log) == [r.at_ms for r in log.records]:
        names.append("longest_gap_ms")  # of LogAppendTimes in the one, of the log's clock in the other
    found = [[row.get(name) for name in names] for row in sessions_of_tables(log.output.changes, log.records)]
    assert sorted(found, key=lambda row: row[:2]) == [[row[name] for name in names] for row in sessions(log)]
    assert sorted((r["offset"], r["seq"], r["valid_to"]) for r in route_intervals(log.output.changes)) == sorted(
        (c.offset, c.seq, None if end is None else instant(end)) for c, end in intervals(log.output.changes)
    )
