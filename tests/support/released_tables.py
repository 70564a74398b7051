"""The columns of the tables as released, written out. A test compares the code with them.

A release appends its new columns of a history table here. Nothing else changes: tables with these columns exist.
"""

from typing import Final

import pyarrow as pa

from tests.support.ddl import TYPES

_ROUTE_ROW: Final = """
    partition INT NOT NULL, offset BIGINT NOT NULL, seq INT NOT NULL, at_ms BIGINT NOT NULL, kind STRING NOT NULL,
    gone BOOLEAN NOT NULL, cause STRING NOT NULL, detail STRING, cluster STRING, broker_name STRING, broker_addr STRING,
    broker_id BIGINT, topic STRING, server_id STRING, namespace STRING, key STRING, read_queue_nums INT,
    write_queue_nums INT, perm INT, topic_sys_flag INT, zone_name STRING, enable_acting_master BOOLEAN,
    broker_addrs MAP<BIGINT,STRING>, clusters ARRAY<STRING>, data_version_counter BIGINT, data_version_timestamp BIGINT,
    data_version_state BIGINT, timeout_ms BIGINT, ha_server_addr STRING, filter_servers ARRAY<STRING>,
    registration_hash STRING, server_epoch BIGINT, connection_id BIGINT, value STRING,
"""
#: Table → its columns in release 0.2.0.
_COLUMNS: Final = {
    "route_changes": f"{_ROUTE_ROW} batch_id BIGINT NOT NULL",
    "route_state": f"{_ROUTE_ROW} batch_id BIGINT NOT NULL, state BINARY",
    "route_archive": f"{_ROUTE_ROW} day DATE NOT NULL",
    "broker_events": """
        partition INT NOT NULL, offset BIGINT NOT NULL, at TIMESTAMP NOT NULL, kind STRING, cluster STRING,
        broker_name STRING, broker_id BIGINT, broker_addr STRING, server_id STRING, server_epoch BIGINT,
        connection_id BIGINT, timeout_ms BIGINT, items INT, value STRING, raw BINARY, event_day DATE NOT NULL
    """,
    "heartbeat_minutes": """
        cluster STRING NOT NULL, broker_name STRING NOT NULL, broker_addr STRING NOT NULL, server_id STRING NOT NULL,
        minute TIMESTAMP NOT NULL, heartbeats BIGINT NOT NULL, gap_p50_ms BIGINT, gap_p99_ms BIGINT, gap_max_ms BIGINT,
        first_at TIMESTAMP NOT NULL, last_at TIMESTAMP NOT NULL, partition INT NOT NULL, day DATE NOT NULL
    """,
}
_TYPE_OF: Final = {name.replace(", ", ","): arrow_type for arrow_type, name in TYPES.items()}


def released_schema(table: str) -> pa.Schema:
    """Return the columns of a table in the latest release, without comments."""
    columns = (column.split(maxsplit=2) for column in " ".join(_COLUMNS[table].split()).split(", "))
    return pa.schema(pa.field(name, _TYPE_OF[kind], nullable=not rest) for name, kind, *rest in columns)
