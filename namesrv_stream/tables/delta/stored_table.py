"""A Delta table opened for queries. A query reads only the files, columns and rows that it needs."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal
from urllib.parse import unquote

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from namesrv_stream.errors import NamesrvStreamError
from namesrv_stream.table_errors import TableSchemaMismatch
from namesrv_stream.tables.delta.commit import read_commit
from namesrv_stream.tables.delta.open_table import PANIC, UNREADABLE, check_delta_table, open_delta
from namesrv_stream.tables.layout import HISTORY_PROTOCOL
from namesrv_stream.tables.storage import Storage, one_line

#: Operations that do not add rows.
_UPKEEP: Final = ("OPTIMIZE", "VACUUM", "DELETE", "SET ", "CREATE", "ADD ")
_COMMITS_SEARCHED: Final = 50


@contextmanager
def reading(table: Storage) -> Iterator[None]:
    """Convert errors of reading a table to ``TableSchemaMismatch`` errors that name the table."""
    try:
        yield
    except NamesrvStreamError:
        raise
    except BaseException as error:
        # Polars panics at a truncated file, which is not an ``Exception``.
        if not isinstance(error, (*UNREADABLE, pl.exceptions.PolarsError)) and type(error).__name__ != PANIC:
            raise
        raise TableSchemaMismatch(str(table), f"cannot be read: {one_line(error)}") from error


class StoredTable:
    """A table at the version at which it was opened.

    Attributes:
        storage: Storage of the table.
        properties: The table's properties (TBLPROPERTIES).
    """

    def __init__(self, table: DeltaTable, storage: Storage, schema: pa.Schema) -> None:
        """Use a table that was opened and checked.

        Args:
            table: The table at any version.
            storage: Storage of the table.
            schema: The columns that this version of the code knows.
        """
        self._table = table
        self.storage = storage
        self.properties: dict[str, str] = dict(table.metadata().configuration)
        self._files = pl.DataFrame(pa.table(table.get_add_actions(flatten=True)))
        self._schema = schema.remove_metadata()

    @classmethod
    def open(cls, tables: Storage, name: str, schema: pa.Schema) -> "StoredTable | None":
        """Open the newest version; None if there is no such table.

        Unknown columns are ignored, and nullable columns may be missing, because new versions only add columns.

        Raises:
            TableSchemaMismatch: The table is damaged or has an unexpected schema.
            StoreUnreachable: The object store does not answer.
        """
        storage = tables / name
        with reading(storage):
            try:
                table = open_delta(storage)
            except TableNotFoundError:
                return None
            check_delta_table(storage, table, schema, HISTORY_PROTOCOL, may_differ=True)
            return cls(table, storage, schema)

    def rows(self, *conditions: pl.Expr, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """Return the rows that meet all conditions, in no particular order; blocks.

        Args:
            conditions: Predicates on columns. Delta's statistics and partition values decide which files are opened.
            columns: The columns to read; None for all.

        Raises:
            TableSchemaMismatch: A file is missing or damaged.
        """
        with reading(self.storage):
            return self.scan(*conditions).select(columns or self._schema.names).collect()

    def scan(self, *conditions: pl.Expr) -> pl.LazyFrame:
        """Like ``rows``, with all columns, for further operations. The caller must collect it within ``reading``."""
        scanned = pl.scan_delta(self._table, storage_options=self.storage.polars_options)
        existing = {field.name for field in self._table.schema().fields}
        types = pl.DataFrame(self._schema.empty_table()).schema
        columns = [pl.col(name) if name in existing else pl.lit(None, types[name]).alias(name) for name in types]
        return scanned.select(columns).filter(*conditions)

    def dataset(self, condition: pc.Expression | None = None) -> ds.Dataset:
        """Return all rows, or those that meet a condition, for another query engine. Columns as in ``rows``."""
        dataset = self._table.to_pyarrow_dataset()
        rows = ds.FileSystemDataset(list(dataset.get_fragments()), self._schema, dataset.format, dataset.filesystem)
        return rows if condition is None else rows.filter(condition)

    def extreme(self, end: Literal["min", "max"], column: str) -> Any:
        """Return the lowest or highest value of a column in the files' statistics; None if they do not contain it."""
        name = f"{end}.{column}"
        if name not in self._files.columns:
            return None
        return self._files[name].min() if end == "min" else self._files[name].max()

    def transaction_version(self, app_id: str) -> int:
        """Return the version of an application's last Delta transaction; 0 if it has none."""
        return self._table.transaction_version(app_id) or 0

    def committed_ms(self) -> int | None:
        """Return the time of the last commit that is not maintenance, by its writer's clock, epoch milliseconds.

        None if the newest commits are all maintenance.
        """
        newest = self._table.version()
        for version in range(newest, max(-1, newest - _COMMITS_SEARCHED), -1):
            commit = read_commit(self.storage, version)
            if commit is not None and not str(commit.info.get("operation", "")).startswith(_UPKEEP):
                return int(commit.info.get("timestamp", 0))
        return None

    @property
    def files(self) -> int:
        """The number of files of the table."""
        return self._files.height

    def is_named_in(self, text: str) -> bool:
        """Whether a text, such as that of an error, contains the name of one of the table's data files."""
        return any(unquote(path) in text for path in self._files["path"])
