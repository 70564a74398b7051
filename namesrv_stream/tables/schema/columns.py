"""Columns of ``route_changes`` and ``route_state``: those of ``RouteChange`` in its order, then the table's own."""

from typing import Final

import pyarrow as pa

from namesrv_stream.route.changes import RouteChange

_COLUMNS: Final[dict[str, tuple[pa.DataType, str]]] = {
    "partition": (pa.int32(), "Kafka partition of the record that caused the row"),
    "offset": (pa.int64(), "Offset of that record"),
    "seq": (pa.int32(), "0, 1, ... among the rows of one record; rows are ordered by (partition, offset, seq)"),
    "at_ms": (pa.int64(), "Highest LogAppendTime so far in the partition, epoch milliseconds"),
    "kind": (pa.string(), "What the row is about: broker_data, broker_live, holder, queue_data, ..."),
    "gone": (pa.bool_(), "Whether the key is no more; else the row says what it now is"),
    "cause": (pa.string(), "Why: registered, expired, disconnected, unregistered, topic_deleted, ..."),
    "detail": (pa.string(), "Figures behind the cause, for people"),
    "cluster": (pa.string(), "Cluster name"),
    "broker_name": (pa.string(), "Broker name; all rows of one are in one partition"),
    "broker_addr": (pa.string(), "Address of one broker process, host:port"),
    "broker_id": (pa.int64(), "0 is the master"),
    "topic": (pa.string(), "Topic name"),
    "server_id": (pa.string(), "Name server that holds a broker's connection"),
    "namespace": (pa.string(), "KV namespace; of a setting: effective or config"),
    "key": (pa.string(), "KV key or the setting's name; null in a KV row that only says the namespace exists"),
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
    "timeout_ms": (pa.int64(), "broker_live: heartbeat timeout that the broker asked for, milliseconds"),
    "ha_server_addr": (pa.string(), "broker_live: haServerAddr"),
    "filter_servers": (pa.list_(pa.string()), "broker_live: filter servers"),
    "registration_hash": (pa.string(), "Hash of the broker's last accepted registration"),
    "server_epoch": (pa.int64(), "holder, server: start of that server"),
    "connection_id": (pa.int64(), "holder: connection at that server"),
    "value": (pa.string(), "KV value, setting, standing of a server, or JSON of a registration, mapping or hold"),
}

#: Columns that every row has.
_REQUIRED: Final = frozenset({"partition", "offset", "seq", "at_ms", "kind", "gone", "cause", "batch_id"})

_BATCH_ID: Final = (pa.int64(), "Micro-batch that wrote the row, for people; starts again at 0 with a new checkpoint")
_STATE: Final = (pa.binary(), "kind fold_state only: the fold's state of the partition before `offset`, JSON")


def _schema(extra: dict[str, tuple[pa.DataType, str]]) -> pa.Schema:
    return pa.schema(
        [
            pa.field(name, arrow_type, nullable=name not in _REQUIRED, metadata={"comment": comment})
            for name, (arrow_type, comment) in (_COLUMNS | extra).items()
        ]
    )


assert tuple(_COLUMNS) == RouteChange._fields

#: One row a change.
CHANGES_SCHEMA: Final = _schema({"batch_id": _BATCH_ID})
#: One row a live key, and per partition one of kind ``fold_state``.
STATE_SCHEMA: Final = _schema({"batch_id": _BATCH_ID, "state": _STATE})
#: What the rows of one batch have before they are written.
ROW_SCHEMA: Final = _schema({})

#: Columns of few values, which are read as dictionaries: in a fraction of the time and of the memory.
_OF_FEW_VALUES: Final = ("kind", "cause", "cluster", "broker_name", "topic")


def as_read(schema: pa.Schema) -> pa.Schema:
    """The columns of a table as readers get them, who have millions of rows at once."""
    for name in _OF_FEW_VALUES:
        field = schema.field(name)
        schema = schema.set(schema.names.index(name), field.with_type(pa.dictionary(pa.int32(), field.type)))
    return schema
