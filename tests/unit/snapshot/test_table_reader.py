"""Reading costs what is live and new, not what was."""

from pathlib import Path

import pyarrow as pa

from namesrv_stream.route.changes import Cause, ChangeKind, RouteChange
from namesrv_stream.snapshot import read_tables
from namesrv_stream.snapshot.table_reader import FoldStateRow
from namesrv_stream.streaming.changes_writer import ChangesWriter
from namesrv_stream.streaming.compaction import write_route_state
from namesrv_stream.streaming.delta_tables import ensure_tables
from namesrv_stream.tables import ROUTE_CHANGES, encode_changes, table_path
from tests.support.tables import TOPIC_ID, settings_in

_AHEAD = 1_000_000  # records by which partition 0 is ahead of partition 1


def _rows(number: int) -> pa.Table:
    """One change in each partition, a second after those before."""
    rows = [
        RouteChange(partition, offset, 0, 1_000 * number, ChangeKind.KV, False, Cause.KV_PUT, namespace=f"n{partition}")
        for partition, offset in ((0, _AHEAD + number), (1, number))
    ]
    return pa.Table.from_batches([encode_changes(rows)])


def test_covered_files_are_not_read_though_one_partition_is_far_ahead_of_another(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    settings = settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"partitions": 2})})
    ensure_tables(settings, TOPIC_ID)
    writer = ChangesWriter(settings.data.tables_dir, TOPIC_ID, 2, 0)
    for number in range(1, 4):
        writer.write(_rows(number), {0: _AHEAD + number + 1, 1: number + 1}, number)
    states = {0: FoldStateRow(_AHEAD + 4, 3_000, b"{}"), 1: FoldStateRow(4, 3_000, b"{}")}
    write_route_state(settings, states)
    covered = set(table_path(settings.data.tables_dir, ROUTE_CHANGES).glob("*.parquet"))
    writer.write(_rows(9), {0: _AHEAD + 10, 1: 10}, 9)
    newest = max(covered, key=lambda path: path.stat().st_mtime_ns)
    for path in covered - {newest}:
        path.unlink()
    rows = read_tables(settings.data.tables_dir)
    assert rows.changes["offset"].to_pylist() == [_AHEAD + 9, 9]
    assert rows.next_offsets == {0: _AHEAD + 10, 1: 10}
