"""The counters of the job, and the batches before which it compares the log."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from namesrv_stream.streaming.route_table.fold_query import BatchFigures, BatchSink, FoldedBatch
from namesrv_stream.tables.change_rows import changes_to_ipc
from namesrv_stream.tables.snapshot import load_snapshot
from tests.support.builders import BEGIN_MS, a_registration
from tests.support.tables import TablesOfLog

_NO_PRODUCER: Any = None


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
    sink = BatchSink(tables.settings, tables.writer, _NO_PRODUCER, BatchFigures(0, {0: 0}), found.append, nothing)
    max_gap_ms = tables.settings.liveness.max_gap_ms
    step_ms = max_gap_ms + 1
    times = (1_000_000, 1_000_600, 1_000_600 + max_gap_ms, 1_000_600 + max_gap_ms + step_ms, 1_000_000, 1_000_600)
    highest_ms = 0
    for number, at_ms in enumerate(times):
        highest_ms = max(highest_ms, at_ms)
        output = dict.fromkeys(("changes", "dead_letters", "state"))
        reached = {"next_offset": number + 1, "fingerprint": 1, "first_ms": at_ms, "last_ms": at_ms}
        batch = _batch(output | reached | {"at_ms": highest_ms, "partition": 0, "has_direct": False})
        sink(batch, number)
    assert found == [[0], [], [], [0], [0], []]


def test_a_large_batch_becomes_several_commits(tmp_path: Path) -> None:
    tables, rows_before, outputs = TablesOfLog(tmp_path), 0, []
    for number in range(25):
        tables.log.register(a_registration(broker_name=f"broker-{number}"))
        changes = changes_to_ipc(tables.log.output.changes[rows_before:])
        rows_before = len(tables.log.output.changes)
        place = tables.reached()[0]
        ends = dict.fromkeys(("dead_letters", "state", "first_ms", "last_ms", "has_direct"))
        if number == 24:
            ends |= {"first_ms": BEGIN_MS, "last_ms": BEGIN_MS, "has_direct": False}
        at_place = {"next_offset": place.next_offset, "fingerprint": place.fingerprint, "at_ms": BEGIN_MS}
        outputs.append({"partition": 0, "changes": changes} | at_place | ends)
    folded: list[FoldedBatch] = []
    version = tables.writer.table.version
    sink = BatchSink(
        tables.settings, tables.writer, _NO_PRODUCER, BatchFigures(0, {0: 0}), lambda _: None, folded.append
    )

    sink(_batch(*outputs), 0)

    assert tables.writer.table.version == version + 3
    assert load_snapshot(tables.storage).next_offsets == {0: 25}
    assert set(load_snapshot(tables.storage).table.groups) == {f"broker-{number}" for number in range(25)}
    assert folded == [FoldedBatch({}, {0: False})]


def _batch(*outputs: dict[str, Any]) -> Any:
    return SimpleNamespace(toArrow=lambda: SimpleNamespace(to_pylist=lambda: list(outputs)))
