"""The Delta tables' names, columns and rows, without Delta: what writer and readers must agree on."""

from namesrv_stream.tables.columns import CHANGES_SCHEMA, STATE_SCHEMA
from namesrv_stream.tables.ddl import ddl
from namesrv_stream.tables.layout import (
    PARTITIONS_PROPERTY,
    ROUTE_CHANGES,
    ROUTE_STATE,
    TOPIC_ID_PROPERTY,
    app_id,
    check_table,
    partition_of_app_id,
    table_path,
    table_properties,
)
from namesrv_stream.tables.rows import (
    FOLD_STATE_KIND,
    changes_from_ipc,
    changes_to_ipc,
    decode_changes,
    encode_changes,
    from_offsets,
    in_log_order,
)

__all__ = [
    "CHANGES_SCHEMA",
    "FOLD_STATE_KIND",
    "PARTITIONS_PROPERTY",
    "ROUTE_CHANGES",
    "ROUTE_STATE",
    "STATE_SCHEMA",
    "TOPIC_ID_PROPERTY",
    "app_id",
    "changes_from_ipc",
    "changes_to_ipc",
    "check_table",
    "ddl",
    "decode_changes",
    "encode_changes",
    "from_offsets",
    "in_log_order",
    "partition_of_app_id",
    "table_path",
    "table_properties",
]
