"""The counters of the job, and the batches before which it compares the log."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from namesrv_stream.streaming.route_table.fold_query import BatchFigures, BatchSink
from tests.support.tables import TablesOfLog


def test_records_are_counted_from_where_the_job_resumed() -> None:
    figures = BatchFigures(5, {0: 100, 1: 7})
    figures.begin()
    figures.folded(0, 110, 1_000)
    figures.folded(1, 8, 900)
    figures.end()
    now = figures.now()
    assert (now.started_ms, now.records, now.at_ms) == (5, 11, 900)
    assert sum(now.batch_counts) == 1


def test_a_batch_that_spark_delivers_again_counts_no_record_twice() -> None:
    figures = BatchFigures(0, {0: 0})
    for _ in range(2):
        figures.folded(0, 10, 1_000)
    figures.folded(0, 9, 900)
    assert (figures.now().records, figures.now().at_ms) == (10, 1_000)


def test_the_time_reached_is_0_before_the_first_batch() -> None:
    assert BatchFigures(0, {0: 5}).now().at_ms == 0


def test_the_log_is_compared_before_the_first_batch_and_after_every_gap(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    found: list[list[int]] = []
    nothing: Any = lambda batch: None  # noqa: E731
    sink = BatchSink(tables.settings, tables.writer, None, BatchFigures(0, {0: 0}), found.append, nothing)
    max_gap_ms = tables.settings.liveness.max_gap_ms
    step_ms = max_gap_ms + 1
    times = (1_000_000, 1_000_600, 1_000_600 + max_gap_ms, 1_000_600 + max_gap_ms + step_ms, 1_000_000, 1_000_600)
    highest_ms = 0
    for number, at_ms in enumerate(times):
        highest_ms = max(highest_ms, at_ms)
        output = dict.fromkeys(("changes", "dead_letters", "state"))
        reached = {"next_offset": number + 1, "fingerprint": 1, "first_ms": at_ms, "last_ms": at_ms}
        batch: Any = _batch(output | reached | {"at_ms": highest_ms, "partition": 0, "has_direct": False})
        sink(batch, number)
    assert found == [[0], [], [], [0], [0], []]


def _batch(output: dict[str, Any]) -> SimpleNamespace:
    return SimpleNamespace(toArrow=lambda: SimpleNamespace(to_pylist=lambda: [output]))
