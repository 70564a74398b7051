"""Tables that this version would misread are refused with their name."""

import pyarrow as pa
import pytest

from namesrv_stream.table_errors import TableSchemaMismatch
from namesrv_stream.tables.change_rows import CHANGES_SCHEMA
from namesrv_stream.tables.layout import (
    DAY_COLUMNS,
    HISTORY_PROTOCOL,
    HISTORY_SCHEMAS,
    app_id,
    check_table,
    partition_of_app_id,
)
from tests.support.ddl import SCHEMAS
from tests.support.released_tables import released_schema

_PATH = "tables/route_changes"


def test_own_schema_is_accepted() -> None:
    check_table(_PATH, (1, 2), [], CHANGES_SCHEMA, CHANGES_SCHEMA)


def test_the_history_tables_may_have_check_constraints() -> None:
    ours = HISTORY_SCHEMAS["route_archive"]
    check_table(_PATH, (1, 3), [], ours, ours, HISTORY_PROTOCOL)
    with pytest.raises(TableSchemaMismatch):
        check_table(_PATH, (1, 4), [], ours, ours, HISTORY_PROTOCOL)


def test_each_history_table_has_exactly_one_date_column() -> None:
    for table, schema in HISTORY_SCHEMAS.items():
        assert [field.name for field in schema if field.type == pa.date32()] == [DAY_COLUMNS[table]]


@pytest.mark.parametrize("table", SCHEMAS)
def test_released_columns_stay_and_history_tables_get_nullable_ones_at_the_end(table: str) -> None:
    released, schema = released_schema(table), SCHEMAS[table].remove_metadata()
    columns, later = list(schema)[: len(released)], list(schema)[len(released) :]
    assert columns == list(released), "such tables exist: append new columns, see schemas/README.md"
    assert [field.name for field in later if not field.nullable] == [], "older tables lack them: not in _REQUIRED"
    assert not later or table in HISTORY_SCHEMAS, f"{table} cannot get columns: put new content into `value`"


@pytest.mark.parametrize(("protocol", "features"), [((3, 7), []), ((1, 4), []), ((1, 2), ["deletionVectors"])])
def test_a_protocol_that_not_every_engine_reads_is_refused(protocol: tuple[int, int], features: list[str]) -> None:
    with pytest.raises(TableSchemaMismatch, match=f"table {_PATH}: "):
        check_table(_PATH, protocol, features, CHANGES_SCHEMA, CHANGES_SCHEMA)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (CHANGES_SCHEMA.remove(CHANGES_SCHEMA.get_field_index("topic")), "column topic is missing"),
        (CHANGES_SCHEMA.append(pa.field("colour", pa.string())), "column colour is unknown"),
        (
            CHANGES_SCHEMA.set(CHANGES_SCHEMA.get_field_index("perm"), pa.field("perm", pa.string())),
            "column perm is string, expected int32",
        ),
    ],
)
def test_other_columns_are_refused_by_name(found: pa.Schema, reason: str) -> None:
    with pytest.raises(TableSchemaMismatch, match=f"table {_PATH}: {reason}$"):
        check_table(_PATH, (1, 2), [], found, CHANGES_SCHEMA)


def test_the_partition_is_read_back_from_an_application_id() -> None:
    assert partition_of_app_id(app_id("4c6f-11", 12)) == 12
    assert partition_of_app_id("someone else's") is None
