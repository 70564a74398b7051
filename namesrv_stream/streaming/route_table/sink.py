"""The sink of the job: dead letters go to Kafka, rows and progress to Delta, fold states to the compactor.

It also counts the figures that each commit carries.
"""

import logging
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from kafka import KafkaProducer
from pyspark.sql import DataFrame

from namesrv_stream.route.fold.folded_log import Place
from namesrv_stream.settings import Settings
from namesrv_stream.streaming.route_table.stateful import DeadLetterRecord, decode_dead_letters
from namesrv_stream.tables.change_rows import ROW_SCHEMA, changes_from_ipc, decode_changes
from namesrv_stream.tables.job_commits import BATCH_BOUNDS_MS, TOLD_KINDS, JobFigures, encode_job_figures, log_commit
from namesrv_stream.tables.route_writers import ChangesWriter
from namesrv_stream.tables.snapshot import FoldStateRow

_LOG = logging.getLogger(__name__)


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
        """Start the time of a batch."""
        self._began_s = time.monotonic()

    def folded(self, partition: int, next_offset: int, at_ms: int) -> None:
        """Record how far the batch covers a partition."""
        self._reached[partition] = max(next_offset, self._reached.get(partition, 0))
        self._at_ms[partition] = max(at_ms, self._at_ms.get(partition, 0))

    def end(self) -> None:
        """End the time of a committed batch."""
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
        has_direct: Partition → whether it has brokers of direct publishers.
    """

    states: Mapping[int, FoldStateRow]
    has_direct: Mapping[int, bool]


class BatchSink:
    """The function of ``foreachBatch``. Any failure ends the job, and its next start folds the records again.

    Args:
        settings: The settings.
        writer: The writer of ``route_changes``.
        producer: The producer of dead letters.
        figures: The counters, which each commit carries.
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
        on_batch: Callable[[FoldedBatch], None],
    ) -> None:
        self._topic = settings.kafka.dead_letter_topic
        self._timeout_s = settings.kafka.delivery_timeout_ms / 1000
        self._writer = writer
        self._producer = producer
        self._figures = figures
        self._on_batch = on_batch
        self.is_writing = threading.Lock()

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write one batch, of columns ``stateful.OUTPUT_SCHEMA``."""
        self._figures.begin()
        outputs = batch.toArrow().to_pylist()
        with self.is_writing:
            self._send_dead_letters(
                letter for o in outputs for letter in decode_dead_letters(o["dead_letters"] or b"[]")
            )
            changes = [changes_from_ipc(o["changes"]) for o in outputs if o["changes"] is not None]
            rows = pa.concat_tables(changes) if changes else ROW_SCHEMA.empty_table()
            last = [o for o in outputs if o["next_offset"] is not None]
            for o in last:
                self._figures.folded(o["partition"], o["next_offset"], o["at_ms"])
            reached = {o["partition"]: Place(o["next_offset"], o["fingerprint"]) for o in last}
            states = {
                o["partition"]: FoldStateRow(o["next_offset"], o["at_ms"], o["state"])
                for o in last
                if o["state"] is not None
            }
            # route_changes must cover the offsets of a fold state before route_state does.
            figures = encode_job_figures(self._figures.now())
            written = self._writer.write(rows, reached, batch_id, figures, is_due=bool(states))
            self._figures.end()
        log_commit(decode_changes(written.filter(pc.field("kind").isin(sorted(TOLD_KINDS)))))
        self._on_batch(FoldedBatch(states, {o["partition"]: o["has_direct"] for o in last}))

    def _send_dead_letters(self, letters: Iterable[DeadLetterRecord]) -> None:
        # Dead letters of a batch that is delivered twice may be sent twice. Their keys identify them.
        sent = []
        for letter in letters:
            if letter.offset >= self._writer.committed[letter.partition]:
                _LOG.warning("dead letter key=%s", letter.key.decode())
                self._figures.dead_letters += 1
                sent.append(self._producer.send(self._topic, key=letter.key, value=letter.value))
        for future in sent:
            future.get(timeout=self._timeout_s)
