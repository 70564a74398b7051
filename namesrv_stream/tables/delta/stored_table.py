"""One Delta table opened for questions: no more files, columns and rows are read than a question needs."""

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

from namesrv_stream.errors import NamesrvStreamError, TableSchemaMismatch
from namesrv_stream.tables.delta.commit import read_commit
from namesrv_stream.tables.delta.table_version import PANIC, UNREADABLE, check_delta_table, open_delta
from namesrv_stream.tables.schema.layout import HISTORY_PROTOCOL
from namesrv_stream.tables.storage import Storage, one_line

#: Commits that rearrange or remove files and say nothing new.
_UPKEEP: Final = ("OPTIMIZE", "VACUUM", "DELETE", "SET ", "CREATE", "ADD ")
_COMMITS_LOOKED_AT: Final = 50


@contextmanager
def reading(table: Storage) -> Iterator[None]:
    """Whatever reading a table raises, as an error that names it."""
    try:
        yield
    except NamesrvStreamError:
        raise
    except BaseException as error:
        # Of a file that was cut short, Polars panics: that is no ``Exception``.
        if not isinstance(error, (*UNREADABLE, pl.exceptions.PolarsError)) and type(error).__name__ != PANIC:
            raise
        raise TableSchemaMismatch(str(table), f"cannot be read: {one_line(error)}") from error


class StoredTable:
    """A table at the version at which it was opened.

    Attributes:
        storage: Where it is.
        properties: Its TBLPROPERTIES.
    """

    def __init__(self, table: DeltaTable, storage: Storage, schema: pa.Schema) -> None:
        """Take over a table that was opened and checked.

        Args:
            table: At any version.
            storage: Where it is.
            schema: The columns that this version of the code knows.
        """
        self._table = table
        self.storage = storage
        self.properties: dict[str, str] = dict(table.metadata().configuration)
        self._files = pl.DataFrame(pa.table(table.get_add_actions(flatten=True)))
        self._schema = schema.remove_metadata()

    @classmethod
    def open(cls, tables: Storage, name: str, schema: pa.Schema) -> "StoredTable | None":
        """The newest version; None where there is no such table.

        Columns that we do not know are passed over, and those that may be null may be absent: tables change by added
        columns only.

        Raises:
            TableSchemaMismatch: It is damaged, or not as this version of the code expects.
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
        """The rows that meet all conditions, in no particular order; blocks.

        Args:
            conditions: On columns of the table. Delta's statistics and partition values decide which files are opened.
            columns: Those wanted; all where None.

        Raises:
            TableSchemaMismatch: A file is missing or damaged.
        """
        with reading(self.storage):
            return self.scan(*conditions).select(columns or self._schema.names).collect()

    def scan(self, *conditions: pl.Expr) -> pl.LazyFrame:
        """The same, all columns, for further questions of the caller; collect it within ``reading``."""
        scanned = pl.scan_delta(self._table, storage_options=self.storage.polars_options)
        existing = {field.name for field in self._table.schema().fields}
        types = pl.DataFrame(self._schema.empty_table()).schema
        columns = [pl.col(name) if name in existing else pl.lit(None, types[name]).alias(name) for name in types]
        return scanned.select(columns).filter(*conditions)

    def dataset(self, condition: pc.Expression | None = None) -> ds.Dataset:
        """Its rows, or those that meet a condition, for another engine; columns as those of ``rows``."""
        dataset = self._table.to_pyarrow_dataset()
        whole = ds.FileSystemDataset(list(dataset.get_fragments()), self._schema, dataset.format, dataset.filesystem)
        return whole if condition is None else whole.filter(condition)

    def extreme(self, end: Literal["min", "max"], column: str) -> Any:
        """The lowest or highest value of a column by the files' statistics; None where they do not say."""
        name = f"{end}.{column}"
        if name not in self._files.columns:
            return None
        return self._files[name].min() if end == "min" else self._files[name].max()

    def transaction_version(self, app_id: str) -> int:
        """The version of Delta's transaction of an application; 0 where it has none."""
        return self._table.transaction_version(app_id) or 0

    def committed_ms(self) -> int | None:
        """When the writer last said how far it is, epoch milliseconds by its clock; None where the log has lost it."""
        newest = self._table.version()
        for version in range(newest, max(-1, newest - _COMMITS_LOOKED_AT), -1):
            commit = read_commit(self.storage, version)
            if commit is not None and not str(commit.info.get("operation", "")).startswith(_UPKEEP):
                return int(commit.info.get("timestamp", 0))
        return None

    @property
    def files(self) -> int:
        """How many files the table has."""
        return self._files.height

    def is_named_in(self, text: str) -> bool:
        """Whether a text, of an error, has the name of a file of the table."""
        return any(unquote(path) in text for path in self._files["path"])
