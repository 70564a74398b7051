"""What the driver does with each batch: dead letters to Kafka, rows and progress to Delta, states to compaction."""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from kafka import KafkaProducer
from pyspark.sql import DataFrame

from namesrv_stream.route.fold.folded_log import Place
from namesrv_stream.settings import Settings
from namesrv_stream.streaming.batch_figures import BatchFigures
from namesrv_stream.streaming.dead_letters import DeadLetterRecord, decode_dead_letters
from namesrv_stream.tables.change_log import TOLD_KINDS, log_commit
from namesrv_stream.tables.job_commits import encode_job_figures
from namesrv_stream.tables.route_writers import ChangesWriter
from namesrv_stream.tables.schema.change_rows import ROW_SCHEMA, changes_from_ipc, decode_changes
from namesrv_stream.tables.snapshot import FoldStateRow

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FoldedBatch:
    """What a batch brought beside rows.

    Attributes:
        states: partition → fold state, of those that are to be kept in ``route_state``.
        has_direct: partition → whether direct publishers have brokers there.
    """

    states: Mapping[int, FoldStateRow]
    has_direct: Mapping[int, bool]


class BatchSink:
    """The function of ``foreachBatch``; any failure ends the job, and its next start folds the records again.

    Args:
        settings: Ours.
        writer: Of ``route_changes``.
        producer: For dead letters.
        figures: What it counts, which each commit carries.
        on_batch: Called after each batch.

    Attributes:
        is_writing: Held while a batch is written: a clean stop waits for it.
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
            # What route_state covers, route_changes covers before.
            figures = encode_job_figures(self._figures.now())
            written = self._writer.write(rows, reached, batch_id, figures, is_due=bool(states))
            self._figures.end()
        log_commit(decode_changes(written.filter(pc.field("kind").isin(sorted(TOLD_KINDS)))))
        self._on_batch(FoldedBatch(states, {o["partition"]: o["has_direct"] for o in last}))

    def _send_dead_letters(self, letters: Iterable[DeadLetterRecord]) -> None:
        # Those of a batch delivered twice may be sent twice; their key says which they are.
        sent = []
        for letter in letters:
            if letter.offset >= self._writer.committed[letter.partition]:
                _LOG.warning("dead letter %s", letter.key.decode())
                self._figures.dead_letters += 1
                sent.append(self._producer.send(self._topic, key=letter.key, value=letter.value))
        for future in sent:
            future.get(timeout=self._timeout_s)
