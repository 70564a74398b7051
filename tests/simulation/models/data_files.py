"""Data files of the simulated tables: Arrow's own format instead of Parquet, which takes ten times as long.

The product names its files after their content and verifies each one that it reads, so a file that was read once is
not decoded again.
"""

from types import SimpleNamespace, TracebackType
from typing import Any, Final, Self

import pyarrow as pa

_KEPT: Final = 2_000
_tables: dict[bytes, pa.Table] = {}


def _write(rows: pa.Table, target: Any, **_: object) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows.combine_chunks())
    target.write(sink.getvalue().to_pybytes())


class _File:
    def __init__(self, source: pa.BufferReader, read_dictionary: list[str] | None = None) -> None:
        self._content, self._dictionaries = source.read(), read_dictionary or []

    def read(self) -> pa.Table:
        table = _tables.get(self._content)
        if table is None:
            with pa.ipc.open_stream(self._content) as reader:
                table = reader.read_all()
            if len(_tables) >= _KEPT:
                _tables.clear()
            _tables[self._content] = table
        for name in self._dictionaries:
            place = table.schema.get_field_index(name)
            column = table.column(place).dictionary_encode()
            table = table.set_column(place, name, column)
        return table

    def iter_batches(self) -> list[pa.RecordBatch]:
        batches: list[pa.RecordBatch] = self.read().to_batches()
        return batches


class _Writer:
    def __init__(self, target: Any, schema: pa.Schema, **_: object) -> None:
        self._target, self._schema = target, schema
        self._parts: list[pa.Table] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None:
            _write(pa.concat_tables([self._schema.empty_table(), *self._parts]), self._target)

    def write_table(self, part: pa.Table) -> None:
        self._parts.append(part)


def parquet_of() -> Any:
    """Return what replaces ``pyarrow.parquet`` in the modules that write and read data files."""
    return SimpleNamespace(ParquetFile=_File, ParquetWriter=_Writer, write_table=_write)
