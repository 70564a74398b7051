"""Makes the history tables where they are absent, adds the columns of a newer version, holds them against the topic."""

import logging
from collections.abc import Mapping
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable, Field
from deltalake.exceptions import TableNotFoundError

from namesrv_stream.errors import ConfigError, TableSchemaMismatch
from namesrv_stream.settings import Settings
from namesrv_stream.tables.delta.table_version import open_delta
from namesrv_stream.tables.former_history import take_over_former_history
from namesrv_stream.tables.schema.history_columns import DAY_COLUMNS, DESCRIPTIONS, HISTORY_SCHEMAS, STATISTICS_COLUMNS
from namesrv_stream.tables.schema.layout import (
    HISTORY_PROTOCOL,
    PARTITIONS_PROPERTY,
    TOPIC_ID_PROPERTY,
    VACUUM_PROPERTY,
    check_table,
    history_properties,
)
from namesrv_stream.tables.storage import Storage, tables_of

_LOG = logging.getLogger(__name__)

_HOUR_MS: Final = 3_600_000


def ensure_history_tables(settings: Settings, topic_id: str) -> None:
    """Create what is absent, in steps of which each may be the last before a kill; verify what is there; blocks.

    Tables of an older release are taken over.

    Raises:
        TableSchemaMismatch: A table is not as this version of the code expects, nor as an older one left it.
        ConfigError: A table was made from another topic.
        StoreUnreachable: The object store does not answer.
    """
    tables = tables_of(settings)
    hours = -(-settings.history.vacuum_retention_ms // _HOUR_MS)
    for name, schema in HISTORY_SCHEMAS.items():
        storage = tables / name
        properties = history_properties(topic_id, settings.kafka.partitions, STATISTICS_COLUMNS[name], hours)
        found = _opened_or_made(storage, name, schema, properties)
        has = found.metadata().configuration
        _check_topic(storage, has, properties)
        _add_columns(storage, found, schema)
        changed = {n: properties[n] for n in (PARTITIONS_PROPERTY, VACUUM_PROPERTY) if has.get(n) != properties[n]}
        if changed:
            found.alter.set_table_properties(changed, raise_if_not_exists=False)
        _check(storage, schema)
    take_over_former_history(tables, topic_id)


def _opened_or_made(storage: Storage, name: str, schema: pa.Schema, properties: Mapping[str, str]) -> DeltaTable:
    try:
        return open_delta(storage)
    except TableNotFoundError:
        storage.make()
        with storage.reaching():
            return DeltaTable.create(
                str(storage),
                schema,
                partition_by=[DAY_COLUMNS[name]],
                description=DESCRIPTIONS[name],
                configuration=properties,
                storage_options=storage.delta_options,
                raise_if_key_not_exists=False,
            )


def _add_columns(storage: Storage, table: DeltaTable, schema: pa.Schema) -> None:
    columns = pa.schema(table.schema()).names
    missing = [field for field in schema if field.name not in columns]
    for field in missing:
        if not field.nullable:
            raise TableSchemaMismatch(str(storage), f"column {field.name} is missing")
        _LOG.info("%s gets the column %s", storage, field.name)
    if missing:
        table.alter.add_columns([Field.from_arrow(field) for field in missing])


def _check_topic(storage: Storage, found: Mapping[str, str | None], properties: Mapping[str, str]) -> None:
    name = TOPIC_ID_PROPERTY
    if found.get(name) != properties[name]:
        reason = f"is {found.get(name)}, but route_changes has {properties[name]}: the log is another one"
        raise ConfigError(str(storage), name, f"{reason}; move this table away, a new one is made")


def _check(storage: Storage, schema: pa.Schema) -> None:
    table = open_delta(storage)
    protocol = table.protocol()
    features = [*(protocol.reader_features or ()), *(protocol.writer_features or ())]
    versions = (protocol.min_reader_version, protocol.min_writer_version)
    check_table(str(storage), versions, features, pa.schema(table.schema()), schema, HISTORY_PROTOCOL)
