"""What the driver does with each batch: dead letters to Kafka, rows and progress to Delta, states to compaction."""

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from kafka import KafkaProducer
from pyspark.sql import DataFrame

from namesrv_stream.route.folded_log import Place
from namesrv_stream.settings import Settings
from namesrv_stream.streaming.batch_figures import BatchFigures
from namesrv_stream.streaming.dead_letters import DeadLetterRecord, decode_dead_letters
from namesrv_stream.tables.change_log import TOLD_KINDS, log_commit
from namesrv_stream.tables.changes_writer import ChangesWriter
from namesrv_stream.tables.job_figures import encode_job_figures
from namesrv_stream.tables.route_tables import FoldStateRow
from namesrv_stream.tables.schema.columns import ROW_SCHEMA
from namesrv_stream.tables.schema.rows import changes_from_ipc, decode_changes

_LOG = logging.getLogger(__name__)


class BatchSink:
    """The function of ``foreachBatch``; any failure ends the job, and its next start folds the records again.

    Args:
        settings: Ours.
        writer: Of ``route_changes``.
        producer: For dead letters.
        on_states: Told partition → fold state whenever a batch carries some.
        on_batch: Told after each batch, with the writer.
        figures: Told of all, and told to servers with each commit.
        on_folded: Told, behind each batch, each partition of it and whether direct publishers have brokers there.
    """

    def __init__(
        self,
        settings: Settings,
        writer: ChangesWriter,
        producer: KafkaProducer,
        on_states: Callable[[dict[int, FoldStateRow]], None],
        on_batch: Callable[[ChangesWriter], None],
        figures: BatchFigures,
        on_folded: Callable[[int, bool], None],
    ) -> None:
        self._topic = settings.kafka.dead_letter_topic
        self._timeout_s = settings.kafka.delivery_timeout_ms / 1000
        self._writer = writer
        self._producer = producer
        self._on_states = on_states
        self._on_batch = on_batch
        self._figures = figures
        self._on_folded = on_folded
        # Held while a batch is written: a clean stop waits for it.
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
            states = {o["partition"]: _fold_state(o) for o in last if o["state"] is not None}
            # What route_state covers, route_changes covers before.
            figures = encode_job_figures(self._figures.now())
            written = self._writer.write(rows, reached, batch_id, figures, is_due=bool(states))
            self._figures.end()
        for o in last:
            self._on_folded(o["partition"], o["has_direct"])
        log_commit(decode_changes(written.filter(pc.field("kind").isin(sorted(TOLD_KINDS)))))
        if states:
            self._on_states(states)
        self._on_batch(self._writer)

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


def _fold_state(output: dict[str, Any]) -> FoldStateRow:
    return FoldStateRow(output["next_offset"], output["at_ms"], output["state"])
