"""The tables' names, properties and transactions, by which writer and readers understand each other."""

from collections.abc import Mapping, Sequence
from typing import Final

import orjson
import pyarrow as pa

from namesrv_stream.errors import TableSchemaMismatch

ROUTE_CHANGES: Final = "route_changes"
ROUTE_STATE: Final = "route_state"

#: Kafka's id of the topic that the table is made from: offsets of another topic mean nothing here.
TOPIC_ID_PROPERTY: Final = "namesrv_stream.topic_id"
PARTITIONS_PROPERTY: Final = "namesrv_stream.partitions"
#: JSON, of a topic that was given more partitions: partition → first offset of a record that was written for so many.
BEGINS_PROPERTY: Final = "namesrv_stream.begins"

#: What VACUUM goes by.
VACUUM_PROPERTY: Final = "delta.deletedFileRetentionDuration"

#: Highest (reader, writer) protocol that Spark, delta-rs, DuckDB and Polars all read and write without table features.
PROTOCOL: Final = (1, 2)
#: The same with CHECK constraints, which readers need not know.
HISTORY_PROTOCOL: Final = (1, 3)


def table_properties(topic_id: str, partitions: int, begins: Mapping[int, int] | None = None) -> dict[str, str]:
    """Properties of both tables, pinned so that no engine's defaults add a feature that another cannot read.

    Args:
        topic_id: Kafka's id of the events topic.
        partitions: Of that topic.
        begins: Where it was given more partitions, each to the first offset written for so many.
    """
    return partition_properties(partitions, begins or {}) | {
        "delta.appendOnly": "false",
        "delta.checkpointInterval": "100",
        "delta.columnMapping.mode": "none",
        "delta.dataSkippingNumIndexedCols": "4",  # partition, offset, seq, at_ms
        VACUUM_PROPERTY: "interval 1 days",
        "delta.enableChangeDataFeed": "false",
        "delta.enableDeletionVectors": "false",
        "delta.logRetentionDuration": "interval 1 days",
        TOPIC_ID_PROPERTY: topic_id,
    }


def partition_properties(partitions: int, begins: Mapping[int, int]) -> dict[str, str]:
    """The properties of them that change where the topic is given more partitions."""
    text = orjson.dumps({str(p): offset for p, offset in sorted(begins.items())}).decode()
    return {PARTITIONS_PROPERTY: str(partitions)} | ({BEGINS_PROPERTY: text} if begins else {})


def decode_begins(text: str | None) -> dict[int, int]:
    """What ``BEGINS_PROPERTY`` says; raises ValueError where it is damaged."""
    return {int(partition): int(offset) for partition, offset in orjson.loads(text or "{}").items()}


def history_properties(
    topic_id: str, partitions: int, statistics: Sequence[str], vacuum_hours: int = 24
) -> dict[str, str]:
    """Properties of a history table, pinned for the same reason.

    Args:
        topic_id: Kafka's id of the events topic.
        partitions: Of that topic.
        statistics: Columns whose extremes each file tells.
        vacuum_hours: How long a file that is no longer part of the table is kept.
    """
    properties = table_properties(topic_id, partitions)
    del properties["delta.dataSkippingNumIndexedCols"]
    own = {
        "delta.dataSkippingStatsColumns": ",".join(statistics),
        VACUUM_PROPERTY: f"interval {vacuum_hours} hours",
    }
    return dict(sorted({**properties, **own}.items()))


def app_id(topic_id: str, partition: int) -> str:
    """Delta's application id of one partition's progress; its transaction version is the next offset."""
    return f"{topic_id}-{partition}"


def removed_app_id(topic_id: str, partition: int) -> str:
    """Application id by which ``route_changes`` says which of a partition's rows were removed for their age.

    Its transaction version is the first offset from which on all rows are there. Readers of ``app_id`` do not know it.
    """
    return f"{topic_id}-{partition}:removed"


def partition_of_app_id(text: str) -> int | None:
    """Inverse of ``app_id``; None for a transaction that is not ours."""
    _, dash, partition = text.rpartition("-")
    return int(partition) if dash and partition.isdecimal() else None


def check_table(
    path: str,
    protocol: tuple[int, int],
    features: Sequence[str],
    found: pa.Schema,
    ours: pa.Schema,
    newest: tuple[int, int] = PROTOCOL,
) -> None:
    """Refuse a table that this version would misread.

    Args:
        path: For the error.
        protocol: Its (reader, writer) version.
        features: Its table features, of readers and writers.
        found: Its columns; comments are not compared.
        ours: What they must be.
        newest: Highest protocol that we know for this table.

    Raises:
        TableSchemaMismatch: Something differs; says what.
    """
    if protocol[0] > newest[0] or protocol[1] > newest[1] or features:
        text = f"protocol {protocol} with features {sorted(features)} is not {newest} without any"
        raise TableSchemaMismatch(path, text)
    for name in sorted(set(ours.names) ^ set(found.names)):
        raise TableSchemaMismatch(path, f"column {name} is {'missing' if name in ours.names else 'unknown'}")
    for field in ours:
        if not found.field(field.name).type.equals(field.type):
            text = f"column {field.name} is {found.field(field.name).type}, expected {field.type}"
            raise TableSchemaMismatch(path, text)
