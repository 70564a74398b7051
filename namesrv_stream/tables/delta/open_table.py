"""Opens any Delta table with delta-rs, and checks that this version of the code can read it."""

from typing import Final

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from namesrv_stream.table_errors import TableSchemaMismatch
from namesrv_stream.tables.delta.commit import LOG
from namesrv_stream.tables.layout import PROTOCOL, check_table
from namesrv_stream.tables.storage import Storage

#: Errors of reading a table that is damaged or missing, in contrast to a store that does not answer.
UNREADABLE: Final = (TableSchemaMismatch, DeltaError, OSError, pa.ArrowException)
#: delta-rs and Polars raise an error of this name at a panic. It is not an ``Exception``.
PANIC: Final = "PanicException"


def open_delta(storage: Storage, version: int | None = None) -> DeltaTable:
    """Open any Delta table at its newest version, or at the given one.

    Raises:
        deltalake.exceptions.TableNotFoundError: There is no table.
        StoreUnreachable: The object store does not answer.
    """
    with storage.reaching():
        try:
            return DeltaTable(str(storage), version=version, storage_options=storage.delta_options)
        except TableNotFoundError:
            raise
        except DeltaError:
            # delta-rs raises this as well if the store does not answer. The following request then raises the right
            # error.
            storage.exists(LOG)
            raise
        except BaseException as error:
            if type(error).__name__ != PANIC:
                raise
            raise DeltaError(f"delta-rs panicked: {error}") from None


def check_delta_table(
    storage: Storage,
    table: DeltaTable,
    schema: pa.Schema,
    newest: tuple[int, int] = PROTOCOL,
    *,
    may_differ: bool = False,
) -> None:
    """Refuse a table that this version of the code would misread. Raises the errors of ``check_table``.

    Args:
        storage: Storage of the table, for the error.
        table: The opened table.
        schema: The expected columns.
        newest: The highest supported (reader, writer) protocol of this table.
        may_differ: Whether the table may have additional columns, and may lack nullable ones of ``schema``.
    """
    protocol, found = table.protocol(), pa.schema(table.schema())
    features = [*(protocol.reader_features or ()), *(protocol.writer_features or ())]
    versions = (protocol.min_reader_version, protocol.min_writer_version)
    if may_differ:
        schema = pa.schema([f for f in schema if f.name in found.names or not f.nullable])
        found = pa.schema([f for f in found if f.name in schema.names])
    check_table(str(storage), versions, features, found, schema, newest)
