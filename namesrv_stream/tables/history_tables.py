"""Makes the history tables where they are absent, adds the columns of a newer version, holds them against the topic."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable, Field

from namesrv_stream.errors import ConfigError, TableSchemaMismatch
from namesrv_stream.settings import Settings
from namesrv_stream.tables.delta.commit import LOG
from namesrv_stream.tables.schema.ddl import COMMENTS
from namesrv_stream.tables.schema.history_columns import CONSTRAINTS, DAY_COLUMNS, HISTORY_SCHEMAS, STATISTICS_COLUMNS
from namesrv_stream.tables.schema.layout import (
    HISTORY_PROTOCOL,
    PARTITIONS_PROPERTY,
    TOPIC_ID_PROPERTY,
    VACUUM_PROPERTY,
    check_table,
    history_properties,
)
from namesrv_stream.tables.storage import Storage

_LOG = logging.getLogger(__name__)

_HOUR_MS: Final = 3_600_000


def ensure_history_tables(settings: Settings, topic_id: str) -> None:
    """Create what is absent, in steps of which each may be the last before a kill; verify what is there.

    Without Spark, whose statements to the same end take ten seconds of a processor.

    Raises:
        TableSchemaMismatch: A table is not as this version of the code expects, nor as an older one left it.
        ConfigError: A table was made from another topic.
    """
    for table, schema in HISTORY_SCHEMAS.items():
        path = settings.data.tables_dir / table
        hours = -(-settings.history.vacuum_retention_ms // _HOUR_MS)
        properties = history_properties(topic_id, settings.kafka.partitions, STATISTICS_COLUMNS[table], hours)
        if not DeltaTable.is_deltatable(str(path)):
            path.mkdir(parents=True, exist_ok=True)
            DeltaTable.create(
                path,
                schema,
                partition_by=[DAY_COLUMNS[table]],
                description=COMMENTS[table],
                configuration=properties,
                raise_if_key_not_exists=False,
            )
        found = DeltaTable(path)
        has = found.metadata().configuration
        _check_topic(path, has, properties)
        _add_columns(path, found, schema)
        changed = {n: properties[n] for n in (PARTITIONS_PROPERTY, VACUUM_PROPERTY) if has.get(n) != properties[n]}
        if changed:
            found.alter.set_table_properties(changed, raise_if_not_exists=False)
        constraints = CONSTRAINTS.get(table, {})
        missing = {name: constraints[name] for name in constraints if f"delta.constraints.{name}" not in has}
        if missing:
            found.alter.add_constraint(missing)
        _check(path)


def _add_columns(path: Path, table: DeltaTable, schema: pa.Schema) -> None:
    columns = pa.schema(table.schema()).names
    missing = [field for field in schema if field.name not in columns]
    for field in missing:
        if not field.nullable:
            raise TableSchemaMismatch(str(path), f"column {field.name} is missing")
        _LOG.info("%s gets the column %s", path, field.name)
    if missing:
        table.alter.add_columns([Field.from_arrow(field) for field in missing])


def has_history_tables(tables: Storage) -> bool:
    """Whether each has a log: Spark would make one that is absent by the first rows, without its properties."""
    return all((tables / table).has(LOG) for table in HISTORY_SCHEMAS)


def _check_topic(path: Path, found: Mapping[str, str | None], properties: Mapping[str, str]) -> None:
    name = TOPIC_ID_PROPERTY
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
