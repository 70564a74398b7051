"""The archived log: rows of ``broker_events`` as records, in log order, in bounded memory.

Rows lie in the table's files in no order that could be relied on: files are joined, and hold several partitions. So a
stretch of offsets is read at a time, from the files that may have some of it, and sorted.
"""

from collections.abc import Iterator
from typing import Final

import polars as pl

from namesrv_stream.errors import TableSchemaMismatch
from namesrv_stream.event_log.pieces import Span
from namesrv_stream.history.past import open_history_table
from namesrv_stream.instants import utc
from namesrv_stream.route.fold.step import Record
from namesrv_stream.settings import Settings
from namesrv_stream.tables.delta.stored_table import StoredTable, reading
from namesrv_stream.tables.schema.history_columns import BROKER_EVENTS
from namesrv_stream.tables.schema.layout import TOPIC_ID_PROPERTY

_BATCH_RECORDS: Final = 5_000  # as Kafka gives them
_SPAN_RECORDS: Final = 4_000_000  # offsets alone: 32 MB
_SIZED_RECORDS: Final = 1_000_000
_READ_RECORDS: Final = 200_000
_READ_BYTES: Final = 64 << 20

_VALUE: Final = pl.coalesce(pl.col("value").cast(pl.Binary), pl.col("raw"))


class ArchivedEvents:
    """``broker_events`` at the version at which it was opened.

    Attributes:
        topic_id: Kafka's id of the topic that it was made from.
    """

    def __init__(self, table: StoredTable) -> None:
        self._table = table
        self.topic_id = table.properties.get(TOPIC_ID_PROPERTY, "")

    @classmethod
    def open(cls, settings: Settings) -> "ArchivedEvents":
        """The newest version; blocks.

        Raises:
            NotInHistory: There is none.
            TableSchemaMismatch: It is damaged, or not as this version of the code expects.
        """
        return cls(open_history_table(settings, BROKER_EVENTS))

    def spans(self, partition: int) -> list[Span]:
        """The records that it has, ascending; blocks.

        Raises:
            TableSchemaMismatch: A file is gone or damaged.
        """
        found: list[Span] = []
        begin, last = self._table.extreme("min", "offset"), self._table.extreme("max", "offset")
        while begin is not None and begin <= last:
            offsets = self._offsets(partition, begin, begin + _SPAN_RECORDS)
            begin += _SPAN_RECORDS
            for span in _spans_of(offsets):
                if found and found[-1].end == span.begin:
                    span = Span(found.pop().begin, span.end)
                found.append(span)
        return found

    def offset_at(self, partition: int, at_ms: int) -> int | None:
        """The first offset whose LogAppendTime is ``at_ms`` (epoch milliseconds) or later; None where none is; blocks.

        Raises:
            TableSchemaMismatch: A file is gone or damaged.
        """
        with reading(self._table.storage):
            later = self._table.scan(pl.col("partition") == partition, pl.col("at") >= utc(at_ms))
            offset = later.select(pl.col("offset").min()).collect(engine="streaming").item()
        return None if offset is None else int(offset)

    def batches(self, partition: int, begin: int, end: int) -> Iterator[list[Record]]:
        """Records with ``begin <= offset < end``, some thousand at a time; blocks.

        Args:
            partition: Kafka partition.
            begin: It has all records from here on.
            end: It has all records before.

        Raises:
            TableSchemaMismatch: A file is gone or damaged, or rows are there twice.
        """
        for low in range(begin, end, _SIZED_RECORDS):
            for span in self._readable(partition, low, min(low + _SIZED_RECORDS, end)):
                yield from self._read(partition, span)

    def _readable(self, partition: int, begin: int, end: int) -> list[Span]:
        """The range in spans that fit into memory, whatever their records are: a registration may have megabytes."""
        size = pl.col("value").str.len_bytes().fill_null(0) + pl.col("raw").bin.size().fill_null(0)
        with reading(self._table.storage):
            rows = self._table.scan(_within(partition, begin, end)).select("offset", size.alias("size"))
            sizes = rows.collect(engine="streaming").sort("offset")
        offsets = sizes["offset"]
        if sizes.height != end - begin or offsets.n_unique() != sizes.height:
            reason = f"has {sizes.height} rows of the {end - begin} records {begin} to {end - 1}"
            raise TableSchemaMismatch(str(self._table.storage), f"{reason} of partition {partition}")
        share = sizes["size"].cast(pl.Int64).cum_sum() // _READ_BYTES + (offsets - begin) // _READ_RECORDS
        firsts = offsets.filter(share != share.shift(1)).to_list()  # nor null, as the first is
        return [Span(first, after) for first, after in zip([begin, *firsts], [*firsts, end], strict=True)]

    def _read(self, partition: int, span: Span) -> Iterator[list[Record]]:
        with reading(self._table.storage):
            scanned = self._table.scan(_within(partition, span.begin, span.end))
            columns = ("offset", pl.col("at").dt.epoch("ms"), _VALUE.alias("bytes"))
            rows = scanned.select(*columns).collect().sort("offset")
        for part in rows.iter_slices(_BATCH_RECORDS):
            lists = zip(part["offset"].to_list(), part["at"].to_list(), part["bytes"].to_list(), strict=True)
            yield [Record(partition, offset, at_ms, value or b"") for offset, at_ms, value in lists]

    def _offsets(self, partition: int, begin: int, end: int) -> pl.Series:
        with reading(self._table.storage):
            rows = self._table.scan(_within(partition, begin, end)).select("offset").collect()
        return rows["offset"].unique().sort()


def _within(partition: int, begin: int, end: int) -> pl.Expr:
    return (pl.col("partition") == partition) & (pl.col("offset") >= begin) & (pl.col("offset") < end)


def _spans_of(offsets: pl.Series) -> Iterator[Span]:
    """Runs of offsets, of ascending ones."""
    if offsets.is_empty():
        return
    is_first = offsets.diff().fill_null(0) != 1
    firsts = offsets.filter(is_first).to_list()
    befores = offsets.shift(1).filter(is_first).to_list()[1:]
    yield from (Span(first, last + 1) for first, last in zip(firsts, [*befores, offsets[-1]], strict=True))
