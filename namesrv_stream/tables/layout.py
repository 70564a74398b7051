"""Where the tables are, and the properties and transactions by which writer and readers understand each other."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from namesrv_stream.errors import TableSchemaMismatch

ROUTE_CHANGES: Final = "route_changes"
ROUTE_STATE: Final = "route_state"

#: Kafka's id of the topic that the table is made from: offsets of another topic mean nothing here.
TOPIC_ID_PROPERTY: Final = "namesrv_stream.topic_id"
PARTITIONS_PROPERTY: Final = "namesrv_stream.partitions"

#: Highest protocol that Spark, delta-rs, DuckDB and Polars all read and write without table features.
_PROTOCOL: Final = (1, 2)


def table_path(tables_dir: Path, name: str) -> Path:
    return tables_dir / name


def table_properties(topic_id: str, partitions: int) -> dict[str, str]:
    """Properties of both tables, pinned so that no engine's defaults add a feature that another cannot read."""
    return {
        "delta.appendOnly": "false",
        "delta.checkpointInterval": "100",
        "delta.columnMapping.mode": "none",
        "delta.dataSkippingNumIndexedCols": "4",  # partition, offset, seq, at_ms
        "delta.deletedFileRetentionDuration": "interval 1 days",
        "delta.enableChangeDataFeed": "false",
        "delta.enableDeletionVectors": "false",
        "delta.logRetentionDuration": "interval 1 days",
        TOPIC_ID_PROPERTY: topic_id,
        PARTITIONS_PROPERTY: str(partitions),
    }


def app_id(topic_id: str, partition: int) -> str:
    """Delta's application id of one partition's progress; its transaction version is the next offset."""
    return f"{topic_id}-{partition}"


def partition_of_app_id(text: str) -> int | None:
    """Inverse of ``app_id``; None for a transaction that is not ours."""
    _, dash, partition = text.rpartition("-")
    return int(partition) if dash and partition.isdecimal() else None


def check_table(
    path: str, protocol: tuple[int, int], features: Sequence[str], found: pa.Schema, ours: pa.Schema
) -> None:
    """Refuse a table that this version would misread.

    Args:
        path: For the error.
        protocol: Its (reader, writer) version.
        features: Its table features, of readers and writers.
        found: Its columns; comments are not compared.
        ours: What they must be.

    Raises:
        TableSchemaMismatch: Something differs; says what.
    """
    if protocol[0] > _PROTOCOL[0] or protocol[1] > _PROTOCOL[1] or features:
        text = f"protocol {protocol} with features {sorted(features)} is not {_PROTOCOL} without any"
        raise TableSchemaMismatch(path, text)
    for name in sorted(set(ours.names) ^ set(found.names)):
        raise TableSchemaMismatch(path, f"column {name} is {'missing' if name in ours.names else 'unknown'}")
    for field in ours:
        if not found.field(field.name).type.equals(field.type):
            text = f"column {field.name} is {found.field(field.name).type}, expected {field.type}"
            raise TableSchemaMismatch(path, text)
