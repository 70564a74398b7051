"""Columns of ``route_changes`` and ``route_state``, and the conversion of ``RouteChange`` rows to and from Arrow.

The columns are the fields of ``RouteChange`` in their order, followed by columns that only the table has. Conversions
work on whole columns: 80,000 rows take a fraction of a second.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from sys import intern
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.model import QueueData, shared_queue_data

_COLUMNS: Final[dict[str, tuple[pa.DataType, str]]] = {
    "partition": (pa.int32(), "Kafka partition of the record that caused the row"),
    "offset": (pa.int64(), "Offset of that record"),
    "seq": (pa.int32(), "0, 1, ... among the rows of one record; rows are ordered by (partition, offset, seq)"),
    "at_ms": (pa.int64(), "Highest LogAppendTime so far in the partition, epoch milliseconds"),
    "kind": (pa.string(), "What the row is about: broker_data, broker_live, holder, queue_data, ..."),
    "gone": (pa.bool_(), "Whether the key was deleted; otherwise the row has its new value"),
    "cause": (pa.string(), "Why: registered, expired, disconnected, unregistered, topic_deleted, ..."),
    "detail": (pa.string(), "Human-readable details of the cause"),
    "cluster": (pa.string(), "Cluster name"),
    "broker_name": (pa.string(), "Broker name; all rows of a broker name are in one partition"),
    "broker_addr": (pa.string(), "Address of one broker process, host:port"),
    "broker_id": (pa.int64(), "0 is the master"),
    "topic": (pa.string(), "Topic name"),
    "server_id": (pa.string(), "Name server that receives the broker's heartbeats; server: the server itself"),
    "namespace": (pa.string(), "KV namespace; of a setting: effective or config"),
    "key": (pa.string(), "KV key or name of the setting; null in a KV row that only says that the namespace exists"),
    "read_queue_nums": (pa.int32(), "queue_data: readQueueNums"),
    "write_queue_nums": (pa.int32(), "queue_data: writeQueueNums"),
    "perm": (pa.int32(), "queue_data: permission bits, 4 read, 2 write"),
    "topic_sys_flag": (pa.int32(), "queue_data: topicSysFlag bits"),
    "zone_name": (pa.string(), "broker_data: zoneName"),
    "enable_acting_master": (pa.bool_(), "broker_data: enableActingMaster"),
    "broker_addrs": (pa.map_(pa.int64(), pa.string()), "broker_data: brokerId to address"),
    "clusters": (pa.list_(pa.string()), "broker_data: clusters that list the broker name"),
    "data_version_counter": (pa.int64(), "broker_live: DataVersion.counter"),
    "data_version_timestamp": (pa.int64(), "broker_live: DataVersion.timestamp"),
    "data_version_state": (pa.int64(), "broker_live: DataVersion.stateVersion"),
    "timeout_ms": (pa.int64(), "broker_live: heartbeat timeout that the broker requested, milliseconds"),
    "ha_server_addr": (pa.string(), "broker_live: haServerAddr"),
    "filter_servers": (pa.list_(pa.string()), "broker_live: filter servers"),
    "registration_hash": (pa.string(), "Hash of the broker's last accepted registration"),
    "server_epoch": (pa.int64(), "holder, server: start of that server"),
    "connection_id": (pa.int64(), "holder: connection at that server"),
    "value": (pa.string(), "KV value, setting, status of a server, or JSON of a registration, mapping or hold"),
}

#: Columns that every row has.
_REQUIRED: Final = frozenset({"partition", "offset", "seq", "at_ms", "kind", "gone", "cause", "batch_id"})

_BATCH_ID: Final = (
    pa.int64(),
    "Micro-batch that wrote the row, for information only; starts again at 0 whenever the job starts",
)
_STATE: Final = (pa.binary(), "kind fold_state only: the fold's state of the partition before `offset`, JSON")


def _schema(extra: dict[str, tuple[pa.DataType, str]]) -> pa.Schema:
    return pa.schema(
        [
            pa.field(name, arrow_type, nullable=name not in _REQUIRED, metadata={"comment": comment})
            for name, (arrow_type, comment) in (_COLUMNS | extra).items()
        ]
    )


assert tuple(_COLUMNS) == RouteChange._fields

#: ``route_changes``: one row per change.
CHANGES_SCHEMA: Final = _schema({"batch_id": _BATCH_ID})
#: ``route_state``: one row per live key, and one of kind ``fold_state`` per partition.
STATE_SCHEMA: Final = _schema({"batch_id": _BATCH_ID, "state": _STATE})
#: The rows of a batch before they are written.
ROW_SCHEMA: Final = _schema({})

#: Columns with few distinct values. Reading them as dictionaries saves most of the time and memory.
OF_FEW_VALUES: Final = ("kind", "cause", "cluster", "broker_name", "topic")


def as_read(schema: pa.Schema) -> pa.Schema:
    """Return the schema in which readers get the rows of a table: some columns are dictionary-encoded."""
    for name in OF_FEW_VALUES:
        field = schema.field(name)
        schema = schema.set(schema.names.index(name), field.with_type(pa.dictionary(pa.int32(), field.type)))
    return schema


#: Kind of the rows of ``route_state`` that contain a partition's fold state.
FOLD_STATE_KIND: Final = "fold_state"

#: From this number of rows, compression saves more than it costs: 24 bytes per row instead of 250.
_MANY_CHANGES: Final = 1_000
#: Converting a column holds the interpreter's lock, and servers decode while they answer requests.
_ROWS_AT_ONCE: Final = 2_000
_QUEUE_COLUMNS: Final = ("read_queue_nums", "write_queue_nums", "perm", "topic_sys_flag", "gone")
#: The columns of rows of kind ``queue_data``.
QUEUE_DATA_SCHEMA: Final = pa.schema(map(as_read(ROW_SCHEMA).field, ("broker_name", "topic", *_QUEUE_COLUMNS)))
_LOG_ORDER: Final = [("partition", "ascending"), ("offset", "ascending"), ("seq", "ascending")]


def encode_changes(changes: Sequence[RouteChange]) -> pa.RecordBatch:
    """Return the rows as an Arrow batch with one column for each field of ``RouteChange``."""
    if not changes:
        return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in ROW_SCHEMA], schema=ROW_SCHEMA)
    columns = zip(*changes, strict=True)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, ROW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ROW_SCHEMA)


def decode_changes(rows: pa.Table | pa.RecordBatch) -> list[RouteChange]:
    """Inverse of ``encode_changes``. Other columns, such as ``batch_id``, are ignored."""
    return list(iter_changes(rows))


def iter_changes(rows: pa.Table | pa.RecordBatch) -> Iterator[RouteChange]:
    """Like ``decode_changes``, without having all rows in memory at once."""
    return chain.from_iterable(map(_decoded, _parts(rows)))


def _decoded(rows: pa.Table | pa.RecordBatch) -> Iterator[RouteChange]:
    columns = [_values(rows.column(name)) for name in RouteChange._fields]
    return map(RouteChange._make, zip(*columns, strict=False))


def is_queue_data(rows: pa.Table) -> pa.ChunkedArray:
    """Return for each row whether ``decode_queue_data`` can decode it."""
    return pc.equal(rows["kind"], ChangeKind.QUEUE_DATA.value)


def decode_queue_data(rows: pa.Table) -> dict[str, Mapping[str, QueueData | None]]:
    """Decode rows of kind ``queue_data`` without creating a ``RouteChange`` for each.

    Nearly all rows of a table are of this kind. 1.6 million of them take 0.4 s and little memory this way, and 25 s and
    2 GB as ``RouteChange`` objects.

    Args:
        rows: Rows of that kind only, in log order, columns of ``QUEUE_DATA_SCHEMA``.

    Returns:
        Broker name → topic → its queues according to the last row; None if they were deleted. Broker names with the
        same topics and queues share one mapping.
    """
    names, topics = _texts(rows["broker_name"]), _texts(rows["topic"])
    queue_of, queues = _queues(rows)
    order = pc.array_sort_indices(names.indices)  # the sort is stable, so it keeps the log order within a name
    of_names = pc.run_end_encode(names.indices.take(order))
    name_of, topic_of = names.dictionary.to_pylist(), list(map(intern, _in_parts(topics.dictionary)))
    topics, queues = topics.indices.take(order), queues.take(order)
    found: dict[str, Mapping[str, QueueData | None]] = {}
    known: dict[tuple[bytes, bytes], Mapping[str, QueueData | None]] = {}
    begin = 0
    for name, end in zip(of_names.values.to_pylist(), of_names.run_ends.to_pylist(), strict=True):
        own_topics, own_queues = topics[begin:end], queues[begin:end]
        key = (_content(own_topics), _content(own_queues))
        if key not in known:
            pairs = (
                map(topic_of.__getitem__, own_topics.to_pylist()),
                map(queue_of.__getitem__, own_queues.to_pylist()),
            )
            known[key] = dict(zip(*pairs, strict=True))
        found[name_of[name]] = known[key]
        begin = end
    return found


def _texts(column: pa.ChunkedArray) -> pa.DictionaryArray:
    if column.null_count:
        column = pc.fill_null(column, "")
    return column.unify_dictionaries().combine_chunks()


def _queues(rows: pa.Table) -> tuple[list[QueueData | None], pa.Int32Array]:
    """Return the distinct queues of the rows (None for deleted ones), and for each row the index of its queues."""
    shapes: list[tuple[Any, ...]] = [()]
    which = pa.repeat(pa.scalar(0, pa.int32()), rows.num_rows)
    for name in _QUEUE_COLUMNS:
        column = rows[name].combine_chunks().dictionary_encode(null_encoding="encode")
        values = [value or 0 for value in column.dictionary.to_pylist()]
        if len(values) == 1:
            shapes = [(*shape, *values) for shape in shapes]
            continue
        # One number encodes the shape so far and the value of this column.
        both = pc.add(pc.multiply(which.cast(pa.int64()), len(values)), column.indices).dictionary_encode()
        shapes = [
            (*shapes[number // len(values)], values[number % len(values)]) for number in both.dictionary.to_pylist()
        ]
        which = both.indices
    return [None if gone else shared_queue_data(*figures) for *figures, gone in shapes], which


def _content(numbers: pa.Int32Array) -> bytes:
    """Return the numbers as bytes, which can be compared faster."""
    width = numbers.type.byte_width
    return memoryview(numbers.buffers()[1])[numbers.offset * width : (numbers.offset + len(numbers)) * width].tobytes()


def _in_parts(column: Any) -> Iterator[Any]:
    return chain.from_iterable(part.to_pylist() for part in _parts(column))


def _parts(rows: Any) -> Iterator[Any]:
    return (rows.slice(begin, _ROWS_AT_ONCE) for begin in range(0, len(rows), _ROWS_AT_ONCE))


def _values(column: Any) -> Iterable[Any]:
    if column.null_count == len(column):
        return repeat(None)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)  # without this, each value becomes a temporary object
    values: list[Any] = column.to_pylist()
    if pa.types.is_nested(column.type):
        return [None if value is None else tuple(value) for value in values]
    return values


def changes_to_ipc(changes: Sequence[RouteChange]) -> bytes:
    """Return the rows as an Arrow IPC stream, for the transfer from Spark's Python worker to its driver.

    Large batches are compressed to a tenth, because the driver's JVM keeps a whole batch in memory, parts of it twice.
    """
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4" if len(changes) >= _MANY_CHANGES else None)
    with pa.ipc.new_stream(sink, ROW_SCHEMA, options=options) as writer:
        writer.write_batch(encode_changes(changes))
    return bytes(sink.getvalue())


def changes_from_ipc(data: bytes) -> pa.Table:
    """Inverse of ``changes_to_ipc``, except that the result is a table with the columns of ``ROW_SCHEMA``."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()


def in_log_order(rows: pa.Table) -> pa.Table:
    """Return the rows sorted by (partition, offset, seq)."""
    # Usually they are sorted already, and copying all columns would be the most expensive step.
    return rows if _is_in_log_order(rows) else rows.take(pc.sort_indices(rows, sort_keys=_LOG_ORDER))


def _is_in_log_order(rows: pa.Table) -> bool:
    is_ordered: Any = pa.scalar(True)
    for name, _ in reversed(_LOG_ORDER):
        before, behind = rows[name][:-1], rows[name][1:]
        is_ordered = pc.or_(pc.less(before, behind), pc.and_(pc.equal(before, behind), is_ordered))
    return bool(pc.all(is_ordered).as_py())


def from_offsets(rows: pa.Table, offsets: Mapping[int, int]) -> pa.Table:
    """Return the rows at or above the offset of their partition; no rows of partitions without an offset."""
    is_wanted = pa.chunked_array([pa.repeat(pa.scalar(False), rows.num_rows)])
    for partition, offset in offsets.items():
        is_of_it = pc.and_(pc.equal(rows["partition"], partition), pc.greater_equal(rows["offset"], offset))
        is_wanted = pc.or_(is_wanted, is_of_it)
    return rows if pc.all(is_wanted).as_py() else rows.filter(is_wanted)
