"""Makes the history tables where they are absent, adds the columns of a newer version, holds them against the topic."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from namesrv_stream.errors import ConfigError, TableSchemaMismatch
from namesrv_stream.settings import Settings
from namesrv_stream.tables import (
    HISTORY_PROTOCOL,
    HISTORY_SCHEMAS,
    PARTITIONS_PROPERTY,
    TOPIC_ID_PROPERTY,
    check_table,
    history_properties,
    table_path,
)
from namesrv_stream.tables.ddl import column_definition, constraint_statement, create_statement
from namesrv_stream.tables.history_columns import CONSTRAINTS, STATISTICS_COLUMNS
from namesrv_stream.tables.layout import VACUUM_PROPERTY

_LOG = logging.getLogger(__name__)

_HOUR_MS: Final = 3_600_000


def ensure_history_tables(spark: SparkSession, settings: Settings, topic_id: str) -> None:
    """Create what is absent, in steps of which each may be the last before a kill; verify what is there.

    Raises:
        TableSchemaMismatch: A table is not as this version of the code expects, nor as an older one left it.
        ConfigError: A table was made from another topic.
    """
    # What Spark remembers of a folder may be of a table that is no longer there.
    spark.sparkContext._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]  # noqa: SLF001
    for table, schema in HISTORY_SCHEMAS.items():
        path = table_path(settings.data.tables_dir, table)
        hours = -(-settings.history.vacuum_retention_ms // _HOUR_MS)
        properties = history_properties(topic_id, settings.kafka.partitions, STATISTICS_COLUMNS[table], hours)
        if not DeltaTable.is_deltatable(str(path)):
            path.mkdir(parents=True, exist_ok=True)
            spark.sql(create_statement(table, sql_name(path), properties))
        found = DeltaTable(path)
        _check_topic(path, found.metadata().configuration, properties)
        columns = pa.schema(found.schema()).names
        missing = [field for field in schema if field.name not in columns]
        for field in missing:
            if not field.nullable:
                raise TableSchemaMismatch(str(path), f"column {field.name} is missing")
            _LOG.info("%s gets the column %s", path, field.name)
            spark.sql(f"ALTER TABLE {sql_name(path)} ADD COLUMNS ({column_definition(field)})")
        has = found.metadata().configuration
        if has.get(VACUUM_PROPERTY) != properties[VACUUM_PROPERTY]:
            pair = f"'{VACUUM_PROPERTY}' = '{properties[VACUUM_PROPERTY]}'"
            spark.sql(f"ALTER TABLE {sql_name(path)} SET TBLPROPERTIES ({pair})")
        for name, expression in CONSTRAINTS.get(table, {}).items():
            if f"delta.constraints.{name}" not in has:
                spark.sql(constraint_statement(sql_name(path), name, expression))
        _check(path)


def has_history_tables(tables_dir: Path) -> bool:
    """Whether each has a log: Spark would make one that is absent by the first rows, without its properties."""
    return all((table_path(tables_dir, table) / "_delta_log").is_dir() for table in HISTORY_SCHEMAS)


def sql_name(path: Path) -> str:
    """A table by its folder, as Spark's SQL names it."""
    return f"delta.`{str(path.absolute()).replace('`', '``')}`"


def _check_topic(path: Path, found: Mapping[str, str | None], properties: Mapping[str, str]) -> None:
    for name in (TOPIC_ID_PROPERTY, PARTITIONS_PROPERTY):
        if found.get(name) != properties[name]:
            reason = f"is {found.get(name)}, but route_changes has {properties[name]}: the log is another one"
            raise ConfigError(str(path), name, f"{reason}; move this table away, a new one is made")


def _check(path: Path) -> None:
    table = DeltaTable(path)
    protocol = table.protocol()
    features = [*(protocol.reader_features or ()), *(protocol.writer_features or ())]
    versions = (protocol.min_reader_version, protocol.min_writer_version)
    schema = HISTORY_SCHEMAS[path.name]
    check_table(str(path), versions, features, pa.schema(table.schema()), schema, HISTORY_PROTOCOL)
