"""Opens the log from Kafka, from the archive in the table ``broker_events``, or from both.

The order of rows in the files of the table is undefined: files are compacted and contain several partitions. Therefore
one range of offsets is read at a time, from the files that may contain a part of it, and its rows are sorted.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Final

import polars as pl

from namesrv_stream.errors import ConfigError, KafkaUnreachable
from namesrv_stream.history.database import open_history_table
from namesrv_stream.instants import utc
from namesrv_stream.kafka import LogReader, bootstrap_servers
from namesrv_stream.kafka.log_reader import read_extent
from namesrv_stream.route.fold.step import Record
from namesrv_stream.settings import Settings
from namesrv_stream.settings.installation import refuse_other_installation
from namesrv_stream.table_errors import NotInHistory, TableSchemaMismatch
from namesrv_stream.tables.delta.stored_table import StoredTable, reading
from namesrv_stream.tables.layout import BROKER_EVENTS, TOPIC_ID_PROPERTY
from namesrv_stream.tools.replay.log_source import LogSource, Piece, Span, Store, joined
from namesrv_stream.tools.tool_options import Source

_BATCH_RECORDS: Final = 5_000  # as Kafka returns them
_SPAN_RECORDS: Final = 4_000_000  # offsets alone: 32 MB
_SIZED_RECORDS: Final = 1_000_000
_READ_RECORDS: Final = 200_000
_READ_BYTES: Final = 64 << 20

_VALUE: Final = pl.coalesce(pl.col("value").cast(pl.Binary), pl.col("raw"))
#: Opens the log of an installation.
OpenLog = Callable[[Settings], AbstractContextManager[LogSource]]


class ArchivedEvents:
    """``broker_events`` at the version at which it was opened.

    Attributes:
        topic_id: Kafka's id of the topic that its rows come from.
    """

    def __init__(self, table: StoredTable) -> None:
        self._table = table
        self.topic_id = table.properties.get(TOPIC_ID_PROPERTY, "")

    @classmethod
    def open(cls, settings: Settings) -> "ArchivedEvents":
        """Open the newest version; blocks.

        Raises:
            NotInHistory: The table does not exist.
            TableSchemaMismatch: It is damaged, or has a different schema than this version expects.
        """
        return cls(open_history_table(settings, BROKER_EVENTS))

    def spans(self, partition: int) -> list[Span]:
        """Return the spans of offsets that it contains, ascending; blocks.

        Raises:
            TableSchemaMismatch: A file is missing or damaged.
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
        """Return the first offset of LogAppendTime ``at_ms`` (epoch milliseconds) or later, None without one; blocks.

        Raises:
            TableSchemaMismatch: A file is missing or damaged.
        """
        with reading(self._table.storage):
            later = self._table.scan(pl.col("partition") == partition, pl.col("at") >= utc(at_ms))
            offset = later.select(pl.col("offset").min()).collect(engine="streaming").item()
        return None if offset is None else int(offset)

    def batches(self, partition: int, begin: int, end: int) -> Iterator[list[Record]]:
        """Yield the records with ``begin <= offset < end``, some thousand at a time; blocks.

        Args:
            begin: First offset; the table must contain all records of the range.
            end: The offset after the last one.

        Raises:
            TableSchemaMismatch: A file is missing or damaged, or rows are duplicated.
        """
        for low in range(begin, end, _SIZED_RECORDS):
            for span in self._readable(partition, low, min(low + _SIZED_RECORDS, end)):
                yield from self._read(partition, span)

    def _readable(self, partition: int, begin: int, end: int) -> list[Span]:
        """Divide a range into spans that fit into memory, even though a record may have several megabytes."""
        size = pl.col("value").str.len_bytes().fill_null(0) + pl.col("raw").bin.size().fill_null(0)
        with reading(self._table.storage):
            rows = self._table.scan(_within(partition, begin, end)).select("offset", size.alias("size"))
            sizes = rows.collect(engine="streaming").sort("offset")
        offsets = sizes["offset"]
        if sizes.height != end - begin or offsets.n_unique() != sizes.height:
            reason = f"has {sizes.height} rows of the {end - begin} records {begin} to {end - 1}"
            raise TableSchemaMismatch(str(self._table.storage), f"{reason} of partition {partition}")
        share = sizes["size"].cast(pl.Int64).cum_sum() // _READ_BYTES + (offsets - begin) // _READ_RECORDS
        firsts = offsets.filter(share != share.shift(1)).to_list()  # without the first offset, whose comparison is null
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
    """Yield the spans without gaps that ascending offsets form."""
    if offsets.is_empty():
        return
    is_first = offsets.diff().fill_null(0) != 1
    firsts = offsets.filter(is_first).to_list()
    befores = offsets.shift(1).filter(is_first).to_list()[1:]
    yield from (Span(first, last + 1) for first, last in zip(firsts, [*befores, offsets[-1]], strict=True))


@contextmanager
def open_kafka_log(settings: Settings) -> Iterator[LogSource]:
    """Open the events topic in Kafka.

    Raises:
        KafkaUnreachable: No broker answers.
        ConfigError: There is no such topic, its number of partitions is not the configured one, or the embedded Kafka
            is that of another installation.
    """
    if settings.is_kafka_embedded:
        refuse_other_installation(settings, "embedded_kafka", bootstrap_servers(settings))
    with LogReader(settings) as reader:
        extent = read_extent(settings)
        pieces = {p: (Piece(Store.KAFKA, first, extent.end[p]),) for p, first in extent.earliest.items()}
        yield LogSource(extent.topic_id, pieces, {Store.KAFKA: reader})


def log_opener(
    source: Source = Source.AUTO, *, needs_kafka: bool = False, open_kafka: OpenLog = open_kafka_log
) -> OpenLog:
    """Return a function that opens the log.

    Args:
        source: The store to read from. With the archive, newer records than it contains come from Kafka.
        needs_kafka: Whether the end of the log is required; if not, the log may end with the archive.
        open_kafka: Opens the log in Kafka.

    Returns:
        A function whose context raises KafkaUnreachable if Kafka does not answer, and is needed or there is no archive
        either; NotInHistory if the archive is requested and there is none; ConfigError if the archive is requested and
        belongs to another topic than Kafka's.
    """

    @contextmanager
    def open_log(settings: Settings) -> Iterator[LogSource]:
        with ExitStack() as stack:
            try:
                kafka = stack.enter_context(open_kafka(settings))
            except KafkaUnreachable as error:
                if needs_kafka or source is Source.KAFKA:
                    raise
                yield _archive_alone(settings, source, error)
            else:
                yield _joined(settings, source, kafka)

    return open_log


def _archive_alone(settings: Settings, source: Source, error: KafkaUnreachable) -> LogSource:
    try:
        archive = ArchivedEvents.open(settings)
    except NotInHistory:
        if source is Source.ARCHIVE:
            raise
        raise error from None
    pieces = {p: joined(archive.spans(p), None, archive_first=True) for p in range(settings.kafka.partitions)}
    note = f"{error.name}: the log ends with broker_events"
    return LogSource(archive.topic_id, pieces, {Store.ARCHIVE: archive}, has_kafka=False, notes=(note,))


def _joined(settings: Settings, source: Source, kafka: LogSource) -> LogSource:
    """Return Kafka's log, completed by the archive according to ``source``."""
    if source is Source.KAFKA or (source is Source.AUTO and not any(kafka.begin(p) for p in kafka.pieces)):
        return kafka
    try:
        archive = ArchivedEvents.open(settings)
    except NotInHistory as error:
        if source is Source.ARCHIVE:
            raise
        return replace(kafka, notes=(str(error),))
    if archive.topic_id != kafka.topic_id:
        topic = settings.kafka.broker_events_topic
        reason = f"broker_events belongs to topic id {archive.topic_id}, Kafka's {topic} has id {kafka.topic_id}"
        if source is Source.ARCHIVE:
            raise ConfigError("settings", "kafka.broker_events_topic", reason)
        return replace(kafka, notes=(f"{reason}: it is not used",))
    is_first = source is Source.ARCHIVE
    pieces = {
        p: joined(archive.spans(p), Span(kafka.begin(p), kafka.end(p)), archive_first=is_first) for p in kafka.pieces
    }
    stores = {**kafka.stores, Store.ARCHIVE: archive}
    return LogSource(kafka.topic_id, pieces, stores, is_kafka_preferred=not is_first)
