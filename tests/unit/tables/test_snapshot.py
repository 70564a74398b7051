"""The cost of reading depends on live and new rows, not on old ones."""

from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from namesrv_stream.route import reducer
from namesrv_stream.route.changes import Cause, ChangeKind, RouteChange, diff
from namesrv_stream.route.events import KvDeleted, KvPut, TopicDeleted
from namesrv_stream.route.fold.folded_log import Place
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.model import DataVersion
from namesrv_stream.route.table import RouteTable
from namesrv_stream.table_errors import TableDamaged, TableSchemaMismatch
from namesrv_stream.tables.change_rows import encode_changes
from namesrv_stream.tables.delta.commit import checkpoint_name, commit_name
from namesrv_stream.tables.layout import ROUTE_CHANGES
from namesrv_stream.tables.repair import prepare_tables
from namesrv_stream.tables.route_writers import ChangesWriter, StateWriter
from namesrv_stream.tables.snapshot import FoldStateRow, load_settings_table, load_snapshot, read_tables, route_table
from namesrv_stream.tables.storage import Folder, tables_of
from tests.support.builders import READ_ONLY, RW, S1, a_registration
from tests.support.strategies_route import groups
from tests.support.tables import TOPIC_ID, TablesOfLog, settings_in

_AHEAD = 1_000_000  # number of records that partition 0 has more than partition 1


def _rows(number: int) -> pa.Table:
    """Return one change in each partition, a second after the previous ones."""
    rows = [
        RouteChange(partition, offset, 0, 1_000 * number, ChangeKind.KV, False, Cause.KV_PUT, namespace=f"n{partition}")
        for partition, offset in ((0, _AHEAD + number), (1, number))
    ]
    return pa.Table.from_batches([encode_changes(rows)])


def test_covered_files_are_not_read_although_one_partition_is_far_ahead_of_another(tmp_path: Path) -> None:
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
    """A flipped bit in the checkpoint has this effect; Delta has no checksum for it."""
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
    """Return 1 for each row that lists a file."""
    return pc.if_else(pc.is_valid(checkpoint["add"]), 1, 0)


_NEXT = DataVersion(2, 1_000, 0)


def _state_and_a_later_change(path: Path) -> TablesOfLog:
    """Return tables with a ``route_state`` of one broker, and a later commit that deletes the broker's topic."""
    tables = TablesOfLog(path)
    tables.log.register(a_registration())
    tables.commit()
    tables.compact()
    tables.log.say(TopicDeleted(S1, "TopicTest", None))
    tables.commit()
    return tables


def test_without_tables_the_snapshot_is_empty(tmp_path: Path) -> None:
    snapshot = load_snapshot(Folder(tmp_path))
    assert (snapshot.version, snapshot.table.groups, snapshot.next_offsets) == (-1, {}, {})


def test_changes_alone_make_the_table(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.register(a_registration())
    tables.log.say(KvPut(S1, "ns", "k", "v"))
    tables.commit()
    snapshot = load_snapshot(tables.storage)
    assert snapshot.table.groups == tables.log.groups.groups
    assert snapshot.table.kv == {"ns": {"k": "v"}}
    assert (snapshot.version, snapshot.next_offsets) == (1, {0: 2})


def test_state_and_the_changes_since_make_the_table(tmp_path: Path) -> None:
    tables = _state_and_a_later_change(tmp_path)
    assert load_snapshot(tables.storage).table.groups == tables.log.groups.groups


@given(st.lists(groups(), max_size=6), st.data())
def test_rows_of_topics_make_the_same_table_as_columns(later: list[BrokerGroup], data: st.DataObject) -> None:
    table = RouteTable()
    records: list[list[RouteChange]] = []
    for offset, group in enumerate(later):
        differences = diff(table.group(group.broker_name), group)
        rows = [RouteChange(0, offset, n, 1, d.kind, d.gone, "", **d.columns) for n, d in enumerate(differences)]
        reducer.apply(table, rows)
        records.append(rows)
    middle = data.draw(st.integers(0, len(records)))
    live, changes = (
        pa.Table.from_batches([encode_changes(list(chain.from_iterable(part)))])
        for part in (records[:middle], records[middle:])
    )
    loaded = route_table(live, changes)
    assert loaded.groups == table.groups
    assert {t: loaded.names_offering(t) for t in loaded.topics()} == {
        t: table.names_offering(t) for t in table.topics()
    }


def test_a_namespace_outlives_its_last_key(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.say(KvPut(S1, "ns", "k", "v"))
    tables.log.say(KvDeleted(S1, "ns", "k"))
    tables.log.say(KvDeleted(S1, "never", "k"))
    tables.commit()
    assert load_snapshot(tables.storage).table.kv == {"ns": {}}
    tables.compact()
    assert load_snapshot(tables.storage).table.kv == {"ns": {}}


def test_brokers_with_equal_topics_share_one_object_until_the_topics_of_one_change(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    topics = {f"orders-{n}": RW for n in range(5)}
    for name in ("broker-a", "broker-b", "broker-c"):
        tables.log.register(a_registration(broker_name=name, topics=topics))
    tables.commit()
    tables.compact()
    without = a_registration(broker_name="broker-c", topics=topics | {"orders-0": READ_ONLY}, data_version=_NEXT)
    tables.log.register(without)
    tables.commit()
    table = load_snapshot(tables.storage).table
    a, b, c = (table.group(name) for name in ("broker-a", "broker-b", "broker-c"))
    assert a.topics is b.topics
    assert (dict(a.topics), dict(c.topics)) == (topics, {**topics, "orders-0": READ_ONLY})
    assert table.names_offering("orders-3") == ("broker-a", "broker-b", "broker-c")


def test_files_that_the_state_covers_are_not_read(tmp_path: Path) -> None:
    tables = _state_and_a_later_change(tmp_path)
    paths = sorted((tables.dir / ROUTE_CHANGES).glob("*.parquet"), key=lambda p: p.stat().st_mtime_ns)
    paths[0].unlink()
    assert load_snapshot(tables.storage).table.groups == tables.log.groups.groups


def test_settings_can_be_read_alone(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.register(a_registration())
    tables.log.change_settings(default_timeout_ms=5_000)
    tables.commit()
    table = load_settings_table(tables.storage)
    assert table.settings_of(0) == load_snapshot(tables.storage).table.settings_of(0) != {}
    assert table.groups == {}


def test_table_with_other_columns_is_refused(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    rows = tables.rows_from(0).select(["partition", "offset"])
    write_deltalake((tables.dir / ROUTE_CHANGES), rows, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(TableSchemaMismatch):
        load_snapshot(tables.storage)
