"""The streaming query of the job, from the log through the fold to the sink, and the offsets where it starts.

The fold always starts from ``route_state`` and the log. ``route_state`` contains the exact state of the fold, so the
changes are the same wherever it starts, and rows that ``route_changes`` has already are dropped. Spark's checkpoint is
recreated at each start and has no influence. So a job needs only the tables and Kafka, on any machine (ADR 0050).

The sink writes dead letters to Kafka, rows and progress to Delta, and gives fold states to the compactor. It also
counts the figures that are part of each commit.
"""

import logging
import threading
import time
import uuid
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from kafka import KafkaProducer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from namesrv_stream.kafka.clients import kafka_errors
from namesrv_stream.kafka.log_reader import TopicExtent
from namesrv_stream.route.digest import encode_group
from namesrv_stream.route.fold.folded_log import Place
from namesrv_stream.route.fold.state import decode_state
from namesrv_stream.settings import Settings
from namesrv_stream.streaming.route_table.stateful import (
    INITIAL_STATE_SCHEMA,
    OUTPUT_SCHEMA,
    DeadLetterRecord,
    RouteStatefulProcessor,
    decode_dead_letters,
)
from namesrv_stream.streaming.spark_session import read_log, scratch_dir
from namesrv_stream.table_errors import LogTruncated, StateMissing
from namesrv_stream.tables.change_rows import ROW_SCHEMA, changes_from_ipc, decode_changes
from namesrv_stream.tables.job_commits import BATCH_BOUNDS_MS, LOGGED_KINDS, JobFigures, encode_job_figures, log_commit
from namesrv_stream.tables.route_writers import ChangesWriter
from namesrv_stream.tables.snapshot import FoldStateRow, route_table
from namesrv_stream.tables.stored_changes import KeptState, KeptStates

logger = logging.getLogger(__name__)

#: Rows of the output in one commit. Each has some 20,000 changes if there are several of a partition.
_OUTPUTS_A_COMMIT: Final = 10
#: Most batches have no rows, and creating this table takes longer than the rest of such a batch.
_NO_ROWS: Final = ROW_SCHEMA.empty_table()


class BatchFigures:
    """The job's counters since its start, for the thread that writes batches.

    Args:
        started_ms: Start of the job, epoch milliseconds.
        next_offsets: Partition → first offset to fold.
    """

    def __init__(self, started_ms: int, next_offsets: Mapping[int, int]) -> None:
        self.dead_letters = 0
        self._started_ms = started_ms
        self._begin = dict(next_offsets)
        self._reached = dict(next_offsets)
        self._at_ms: dict[int, int] = {}
        self._counts = [0] * (len(BATCH_BOUNDS_MS) + 1)
        self._batch_s = 0.0
        self._began_s = 0.0

    def begin(self) -> None:
        """Start to measure the duration of a batch."""
        self._began_s = time.monotonic()

    def folded(self, partition: int, next_offset: int, at_ms: int) -> None:
        """Record how far the batch covers a partition."""
        self._reached[partition] = max(next_offset, self._reached.get(partition, 0))
        self._at_ms[partition] = max(at_ms, self._at_ms.get(partition, 0))

    def end(self) -> None:
        """Count a committed batch and its duration."""
        took_s = time.monotonic() - self._began_s
        self._batch_s += took_s
        self._counts[bisect_left(BATCH_BOUNDS_MS, took_s * 1000)] += 1

    def now(self) -> JobFigures:
        """Return the figures so far."""
        return JobFigures(
            started_ms=self._started_ms,
            at_ms=min(self._at_ms.values(), default=0),
            records=sum(offset - self._begin.get(p, 0) for p, offset in self._reached.items()),
            dead_letters=self.dead_letters,
            batch_counts=tuple(self._counts),
            batch_ms=round(self._batch_s * 1000),
        )


@dataclass(frozen=True, slots=True)
class FoldedBatch:
    """The output of a batch other than rows.

    Attributes:
        states: Partition → fold state for ``route_state``, for the partitions for which one is due.
        has_direct: Partition → whether it has brokers of direct publishers, for the partitions with records.
    """

    states: Mapping[int, FoldStateRow]
    has_direct: Mapping[int, bool]


class BatchSink:
    """The function of ``foreachBatch``. Any failure ends the job, and its next start folds the records again.

    Args:
        writer: The writer of ``route_changes``.
        producer: The producer of dead letters.
        figures: The counters, which are part of each commit.
        before_write: Called before each batch is written, with the partitions whose log was interrupted before the
            batch. Raises an error if the batch must not be written.
        on_batch: Called after each batch.

    Attributes:
        is_writing: Lock that is held while a batch is written; a clean stop waits for it.
    """

    def __init__(
        self,
        settings: Settings,
        writer: ChangesWriter,
        producer: KafkaProducer,
        figures: BatchFigures,
        before_write: Callable[[list[int]], None],
        on_batch: Callable[[FoldedBatch], None],
    ) -> None:
        self._settings = settings
        self._writer = writer
        self._producer = producer
        self._figures = figures
        self._before_write = before_write
        self._on_batch = on_batch
        self._last_ms: dict[int, int] = {}  # partition → LogAppendTime of its last folded record
        self.is_writing = threading.Lock()

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write one batch, which has the columns of ``stateful.OUTPUT_SCHEMA``."""
        self._figures.begin()
        outputs = batch.toArrow().to_pylist()
        last = [o for o in outputs if o["first_ms"] is not None]
        states = {
            o["partition"]: FoldStateRow(o["next_offset"], o["at_ms"], o["state"])
            for o in last
            if o["state"] is not None
        }
        with self.is_writing:
            self._before_write(self._interrupted(last))
            self._send_dead_letters(letter for o in last for letter in decode_dead_letters(o["dead_letters"] or b"[]"))
            # route_changes must cover the offsets of a fold state before route_state does.
            for at in range(0, len(outputs), _OUTPUTS_A_COMMIT):
                self._commit(outputs[at : at + _OUTPUTS_A_COMMIT], batch_id, is_due=bool(states))
            self._figures.end()
        self._on_batch(FoldedBatch(states, {o["partition"]: o["has_direct"] for o in last}))

    def _commit(self, outputs: list[Mapping[str, Any]], batch_id: int, *, is_due: bool) -> None:
        """Commit rows of the output, and the offsets that they reach."""
        changes = [changes_from_ipc(o["changes"]) for o in outputs if o["changes"] is not None]
        rows = pa.concat_tables(changes) if changes else _NO_ROWS
        for o in outputs:
            self._figures.folded(o["partition"], o["next_offset"], o["at_ms"])
        reached = {o["partition"]: Place(o["next_offset"], o["fingerprint"]) for o in outputs}
        figures = encode_job_figures(self._figures.now())
        written = self._writer.write(rows, reached, batch_id, figures, is_due=is_due)
        if written.num_rows:
            log_commit(decode_changes(written.filter(pc.is_in(written["kind"], pa.array(sorted(LOGGED_KINDS))))))

    def _interrupted(self, last: Iterable[Mapping[str, Any]]) -> list[int]:
        """Return the partitions with a gap of LogAppendTime before the batch, or with Kafka's clock set back.

        These include the partitions without an earlier batch.
        """
        max_gap_ms = self._settings.liveness.max_gap_ms
        gaps_ms = {o["partition"]: o["first_ms"] - self._last_ms.get(o["partition"], 0) for o in last}
        self._last_ms |= {o["partition"]: o["last_ms"] for o in last}
        return [partition for partition, gap_ms in gaps_ms.items() if not 0 <= gap_ms <= max_gap_ms]

    def _send_dead_letters(self, letters: Iterable[DeadLetterRecord]) -> None:
        # Dead letters of a batch that is delivered twice may be sent twice. Their keys identify them.
        kafka, sent = self._settings.kafka, []
        for letter in letters:
            if letter.offset >= self._writer.committed[letter.partition]:
                logger.warning("dead letter key=%s", letter.key.decode())
                self._figures.dead_letters += 1
                sent.append(self._producer.send(kafka.dead_letter_topic, key=letter.key, value=letter.value))
        with kafka_errors(self._settings):
            for future in sent:
                future.get(timeout=kafka.delivery_timeout_ms / 1000)


#: (partition, broker name; None for the hot state, content) tuples.
InitialState = list[tuple[int, str | None, bytes]]


@dataclass(frozen=True, slots=True)
class StartPoint:
    """Where the fold starts.

    Attributes:
        offsets: Partition → first offset to fold.
        initial_state: The fold's state at these offsets; none for partitions that are folded from the start of the log.
    """

    offsets: Mapping[int, int]
    initial_state: InitialState = field(default_factory=list)


def find_start_point(
    states: KeptStates, committed: Mapping[int, int], removed_below: Mapping[int, int], extent: TopicExtent
) -> StartPoint:
    """Find, for each partition, the newest state in ``route_state`` that ``route_changes`` covers; blocks.

    After a restore or repair of ``route_changes``, there may be a newer state. It must not be used, because the changes
    before it would then be missing in ``route_changes`` permanently.

    Args:
        states: The versions of ``route_state``.
        committed: Partition → first offset that ``route_changes`` does not cover.
        removed_below: Partition → first offset from which ``route_changes`` still has all rows.
        extent: The available offsets of the log.

    Raises:
        LogTruncated: Kafka does not have the next record.
        StateMissing: No state is recent enough for the log, and neither log nor rows reach back to the beginning.
        StateFromNewerVersion: A newer version of the program has written the state.
    """
    offsets: dict[int, int] = {}
    initial: InitialState = []
    for partition, covered in sorted(committed.items()):
        earliest, end = extent.earliest[partition], extent.end[partition]
        kept = states.newest(partition, at_most=covered)
        if kept is not None:
            offsets[partition] = kept.fold_state.next_offset
            initial += _initial_state(partition, kept)
        elif not earliest and not removed_below.get(partition):
            offsets[partition] = 0  # folding the complete log gives exactly the same changes again
        elif not covered and states.newest(partition) is None:
            offsets[partition] = earliest  # nothing was ever folded
        else:
            raise StateMissing(partition, covered, earliest)
        if offsets[partition] < earliest <= covered:
            raise StateMissing(partition, covered, earliest)  # the rows up to there exist, so nothing is lost
        if not earliest <= offsets[partition] <= end:
            raise LogTruncated(partition, covered, earliest, end)
    return StartPoint(offsets, initial)


def _initial_state(partition: int, kept: KeptState) -> InitialState:
    content = kept.fold_state.content
    decode_state(content)  # raises for a state of a newer program, before Spark's workers read it
    groups = route_table(kept.live).groups
    return [(partition, None, content), *((partition, name, encode_group(group)) for name, group in groups.items())]


def start_query(
    spark: SparkSession,
    settings: Settings,
    start: StartPoint,
    sink: Callable[[DataFrame, int], None],
    backlog_records: int | None = None,
) -> StreamingQuery:
    """Start the query and return at once. Batches run on Spark's threads, ``sink`` on a Python thread.

    Args:
        sink: The function of ``foreachBatch``.
        backlog_records: None for a query without end. Otherwise, the query ends when it has folded the records that the
            log has now, so many of them at once.
    """
    checkpoint = scratch_dir(settings) / f"checkpoint-{uuid.uuid4()}"
    records = backlog_records or settings.streaming.max_offsets_per_trigger
    query = (
        _folded(spark, settings, start, records)
        .writeStream.foreachBatch(sink)
        .queryName("route_table")
        .option("checkpointLocation", str(checkpoint.absolute()))
        .outputMode("append")
    )
    return (query.trigger(availableNow=True) if backlog_records else query).start()


def _folded(spark: SparkSession, settings: Settings, start: StartPoint, records: int) -> DataFrame:
    """Return the fold's output, columns of ``stateful.OUTPUT_SCHEMA``; ``records`` are folded at once."""
    events = _events(spark, settings, start.offsets, records)
    processor = RouteStatefulProcessor(settings.kafka.partitions, settings.streaming.compaction_interval_ms)
    initial = None
    if start.initial_state:
        # Spark converts an Arrow table in a fraction of the time that rows take.
        columns = [list(values) for values in zip(*start.initial_state, strict=True)]
        initial = spark.createDataFrame(pa.table(columns, schema=INITIAL_STATE_SCHEMA)).groupBy("partition")
    if settings.kafka.partitions == 1:
        # One task that reads and folds, instead of two with a shuffle, saves a fifth of a batch's time.
        events = events.coalesce(1)
    return events.groupBy("partition").transformWithState(
        statefulProcessor=processor,
        outputStructType=OUTPUT_SCHEMA,
        outputMode="Append",
        timeMode="None",
        initialState=initial,
    )


def _events(spark: SparkSession, settings: Settings, starting_offsets: Mapping[int, int], records: int) -> DataFrame:
    """Return all records of the events topic.

    Args:
        settings: ``kafka``, and options ``kafka.…`` of ``streaming.extra``, are used.
        starting_offsets: Partition → first offset.
        records: The most records of a batch.

    Returns:
        Columns partition (int), offset (bigint), at_ms (bigint, LogAppendTime), value (binary).
    """
    options = {
        # After each read, the consumer sends the next fetch request, which waits up to 500 ms for a record. A Kafka
        # broker answers the requests of a connection in order, so this delayed the first request of the next batch by
        # 300 ms.
        "kafka.fetch.max.wait.ms": "1",
    }
    log = read_log(spark, settings, starting_offsets, records, options)
    return log.select("partition", "offset", f.unix_millis("timestamp").alias("at_ms"), "value")
