"""A step of ``broker_sessions``: changes, and between them who was heard, read in parts of a bounded size."""

from collections.abc import Mapping
from dataclasses import replace

from namesrv_stream.streaming.history.changes_step import Step
from namesrv_stream.streaming.history.event_clocks import read_clocks
from namesrv_stream.streaming.history.heard import heard
from namesrv_stream.streaming.history.history_table import HistoryTable
from namesrv_stream.streaming.history.ranges import is_empty, step_end
from namesrv_stream.streaming.history.session_rows import SESSION_COLUMNS, UPDATED_COLUMNS, Sessions
from namesrv_stream.tables.delta.file_ranges import FileRanges, within
from namesrv_stream.tables.delta.predicates import is_null


def write_sessions(table: HistoryTable, events: HistoryTable, step: Step, limit: int) -> int:
    """Bring ``broker_sessions`` up to date, in one commit; blocks.

    Args:
        table: It.
        events: ``broker_events``.
        step: Its changes are of kind broker_live. One that catches up may be of any number of records.
        limit: Records of which hearings are in memory at a time.

    Returns:
        How many sessions began or were changed.
    """
    sessions = Sessions(table.stored().rows(is_null("down_at"), columns=SESSION_COLUMNS))
    clock_ms = pass_through(sessions, step, events.file_ranges(), table.mark.at_ms, limit)
    after_ms = {p: max(at_ms, step.mark.at_ms.get(p, 0)) for p, at_ms in clock_ms.items()}
    mark = replace(step.mark, at_ms={**step.mark.at_ms, **after_ms})
    return table.upsert(sessions.rows(), UPDATED_COLUMNS, mark)


def pass_through(
    sessions: Sessions, step: Step, events: FileRanges, since_ms: Mapping[int, int], limit: int
) -> Mapping[int, int]:
    """Take sessions through a step, part by part; blocks.

    Args:
        sessions: As they are at its begin.
        step: As of ``write_sessions``.
        events: Files of ``broker_events``.
        since_ms: partition → the log's clock before the step, where it is known.
        limit: Records in one part.

    Returns:
        partition → the clock after the step.
    """
    begin = step.begin
    while True:
        end = step_end(begin, step.end, limit)
        is_last = is_empty(end, step.end)
        # With the last part come rows of the very end: those that a catch-up has from the state, and not from the log.
        own = ~within(step.begin, begin) if is_last else within(begin, end)
        clocks = read_clocks(events, begin, end, since_ms)
        sessions.go_on(step.changes.filter(own), heard(events, begin, end, clocks))
        begin, since_ms = end, clocks.after()
        if is_last:
            return since_ms
