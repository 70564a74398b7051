"""Names, properties and transaction ids of the tables."""

from collections.abc import Mapping, Sequence
from typing import Final

import orjson
import pyarrow as pa

from namesrv_stream.errors import TableSchemaMismatch

ROUTE_CHANGES: Final = "route_changes"
ROUTE_STATE: Final = "route_state"

#: Kafka's id of the topic from which the table is made. Offsets are meaningless for another topic.
TOPIC_ID_PROPERTY: Final = "namesrv_stream.topic_id"
PARTITIONS_PROPERTY: Final = "namesrv_stream.partitions"
#: Set if the topic was given more partitions; JSON of partition → first offset written for this number of partitions.
BEGINS_PROPERTY: Final = "namesrv_stream.begins"

#: VACUUM keeps removed files for this time.
VACUUM_PROPERTY: Final = "delta.deletedFileRetentionDuration"

#: The highest (reader, writer) protocol that Spark, delta-rs, DuckDB and Polars support without table features.
PROTOCOL: Final = (1, 2)
#: The same with CHECK constraints, which readers do not need to know.
HISTORY_PROTOCOL: Final = (1, 3)


def table_properties(topic_id: str, partitions: int, begins: Mapping[int, int] | None = None) -> dict[str, str]:
    """Return the properties of the job's tables. They are explicit, so that no engine's defaults add features.

    Args:
        topic_id: Kafka's id of the events topic.
        partitions: Number of partitions of that topic.
        begins: Partition → first offset written for this number of partitions, if the topic was given more partitions.
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
    """Return the properties that change if the topic is given more partitions."""
    text = orjson.dumps({str(p): offset for p, offset in sorted(begins.items())}).decode()
    return {PARTITIONS_PROPERTY: str(partitions)} | ({BEGINS_PROPERTY: text} if begins else {})


def decode_begins(text: str | None) -> dict[int, int]:
    """Return the value of ``BEGINS_PROPERTY``. Raises ValueError if it is damaged."""
    return {int(partition): int(offset) for partition, offset in orjson.loads(text or "{}").items()}


def history_properties(
    topic_id: str, partitions: int, statistics: Sequence[str], vacuum_hours: int = 24
) -> dict[str, str]:
    """Return the properties of a history table, explicit for the same reason.

    Args:
        topic_id: Kafka's id of the events topic.
        partitions: Number of partitions of that topic.
        statistics: Columns with minimum and maximum per file.
        vacuum_hours: How long removed files are kept, hours.
    """
    properties = table_properties(topic_id, partitions)
    del properties["delta.dataSkippingNumIndexedCols"]
    own = {
        "delta.dataSkippingStatsColumns": ",".join(statistics),
        VACUUM_PROPERTY: f"interval {vacuum_hours} hours",
    }
    return dict(sorted({**properties, **own}.items()))


def app_id(topic_id: str, partition: int) -> str:
    """Return Delta's application id of one partition's progress. Its transaction version is the next offset."""
    return f"{topic_id}-{partition}"


def removed_app_id(topic_id: str, partition: int) -> str:
    """Return the application id by which ``route_changes`` records removed rows of a partition.

    Its transaction version is the first offset from which no rows were removed. ``partition_of_app_id`` ignores it.
    """
    return f"{topic_id}-{partition}:removed"


def partition_of_app_id(text: str) -> int | None:
    """Inverse of ``app_id``; None for other application ids."""
    _, dash, partition = text.rpartition("-")
    return int(partition) if dash and partition.isdecimal() else None


def check_table(
    path: str,
    protocol: tuple[int, int],
    features: Sequence[str],
    found: pa.Schema,
    expected: pa.Schema,
    newest: tuple[int, int] = PROTOCOL,
) -> None:
    """Refuse a table that this version of the code would misread.

    Args:
        path: Address of the table, for the error.
        protocol: (reader, writer) protocol of the table.
        features: Table features, of readers and writers.
        found: Columns of the table; comments are not compared.
        expected: The expected columns.
        newest: The highest supported protocol of this table.

    Raises:
        TableSchemaMismatch: Something differs; the text says what.
    """
    if protocol[0] > newest[0] or protocol[1] > newest[1] or features:
        text = f"protocol {protocol} with features {sorted(features)} is not {newest} without any"
        raise TableSchemaMismatch(path, text)
    for name in sorted(set(expected.names) ^ set(found.names)):
        raise TableSchemaMismatch(path, f"column {name} is {'missing' if name in expected.names else 'unknown'}")
    for field in expected:
        if not found.field(field.name).type.equals(field.type):
            text = f"column {field.name} is {found.field(field.name).type}, expected {field.type}"
            raise TableSchemaMismatch(path, text)
