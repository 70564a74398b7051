"""Reading costs what is live and new, not what was."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from namesrv_stream.errors import TableDamaged
from namesrv_stream.route.changes import Cause, ChangeKind, RouteChange
from namesrv_stream.route.fold.folded_log import Place
from namesrv_stream.tables.changes_writer import ChangesWriter
from namesrv_stream.tables.delta.commit import checkpoint_name, commit_name
from namesrv_stream.tables.repair import prepare_tables
from namesrv_stream.tables.route_state import StateWriter
from namesrv_stream.tables.route_tables import FoldStateRow, read_tables
from namesrv_stream.tables.schema.layout import ROUTE_CHANGES
from namesrv_stream.tables.schema.rows import encode_changes
from namesrv_stream.tables.storage import tables_of
from tests.support.builders import a_registration
from tests.support.tables import TOPIC_ID, TablesOfLog, settings_in

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
    prepare_tables(settings, TOPIC_ID)
    tables = tables_of(settings)
    writer = ChangesWriter(tables, 0)
    for number in range(1, 4):
        writer.write(_rows(number), {0: Place(_AHEAD + number + 1), 1: Place(number + 1)}, number)
    states = {0: FoldStateRow(_AHEAD + 4, 3_000, b"{}"), 1: FoldStateRow(4, 3_000, b"{}")}
    StateWriter(tables).cover(states)
    covered = set((settings.data.tables_dir / ROUTE_CHANGES).glob("*.parquet"))
    writer.write(_rows(9), {0: Place(_AHEAD + 10), 1: Place(10)}, 9)
    newest = max(covered, key=lambda path: path.stat().st_mtime_ns)
    for path in covered - {newest}:
        path.unlink()
    rows = read_tables(tables)
    assert rows.changes["offset"].to_pylist() == [_AHEAD + 9, 9]
    assert rows.next_offsets == {0: _AHEAD + 10, 1: 10}


def test_a_checkpoint_that_lists_other_files_than_the_job_wrote_is_noticed(tmp_path: Path) -> None:
    """As after a flipped bit in the checkpoint, which no checksum of Delta's covers."""
    tables = TablesOfLog(tmp_path)
    for number in range(2):
        tables.log.register(a_registration(f"10.0.0.{number}:1", broker_name=f"b{number}"))
        tables.commit()
    tables.writer.table.checkpoint()
    path = tables.dir / ROUTE_CHANGES / checkpoint_name(2)
    checkpoint = pq.read_table(path)
    is_first_file = pc.and_(pc.is_valid(checkpoint["add"]), pc.equal(pc.cumulative_sum(_ones(checkpoint)), 1))
    pq.write_table(checkpoint.filter(pc.invert(pc.fill_null(is_first_file, False))), path)
    for version in range(2):
        (tables.dir / ROUTE_CHANGES / commit_name(version)).unlink()
    with pytest.raises(TableDamaged, match=r"checkpoint\.parquet is damaged"):
        read_tables(tables.storage)


def _ones(checkpoint: pa.Table) -> pa.ChunkedArray:
    """1 for each row that lists a file."""
    return pc.if_else(pc.is_valid(checkpoint["add"]), 1, 0)
