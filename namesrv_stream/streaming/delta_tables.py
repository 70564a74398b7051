"""Makes both tables where they are absent, and holds them against the topic they are made from."""

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from namesrv_stream.errors import ConfigError
from namesrv_stream.location import Location
from namesrv_stream.settings import Settings
from namesrv_stream.snapshot import open_table
from namesrv_stream.snapshot.table_files import reaching, storage_options
from namesrv_stream.tables import (
    CHANGES_SCHEMA,
    PARTITIONS_PROPERTY,
    ROUTE_CHANGES,
    ROUTE_STATE,
    STATE_SCHEMA,
    TOPIC_ID_PROPERTY,
    table_path,
    table_properties,
)


def ensure_tables(settings: Settings, topic_id: str) -> None:
    """Create ``route_changes`` and ``route_state`` where absent; verify their protocol, columns and topic.

    Raises:
        TableSchemaMismatch: A table is not as this version of the code expects.
        ConfigError: A table was made from another topic.
    """
    properties = table_properties(topic_id, settings.kafka.partitions)
    _ensure(table_path(settings.data.tables_location, ROUTE_CHANGES), CHANGES_SCHEMA, properties, settings)
    _ensure(table_path(settings.data.tables_location, ROUTE_STATE), STATE_SCHEMA, properties, settings)


def _ensure(path: Location, schema: pa.Schema, properties: dict[str, str], settings: Settings) -> None:
    table = open_table(path, schema)
    if table is None:
        if isinstance(path, Path):
            path.mkdir(parents=True, exist_ok=True)
        with reaching(path):
            DeltaTable.create(
                str(path),
                schema,
                configuration=properties,
                raise_if_key_not_exists=False,
                storage_options=storage_options(path),
            )
        return
    found = table.metadata().configuration
    for name in (TOPIC_ID_PROPERTY, PARTITIONS_PROPERTY):
        if found.get(name) != properties[name]:
            topic = settings.kafka.broker_events_topic
            reason = f"is {found.get(name)}, but Kafka's topic {topic} has {properties[name]}: the log is another one"
            cause = "Kafka's data was deleted or replaced, or kafka.bootstrap_servers names another Kafka"
            remedy = 'bring that log back, or begin with new tables (docs/backup.md, "Kafka\'s log is lost")'
            raise ConfigError(str(path), name, f"{reason}. {cause}: {remedy}")
