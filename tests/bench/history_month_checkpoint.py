"""How many files the job's checkpoint has after many batches: Spark's logs of batches and RocksDB's state.

Kafka, the query and its state of a whole fleet are real; each batch begins as soon as the previous one has ended.
"""

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from kafka import KafkaProducer

from namesrv_stream.kafka import producer_config
from namesrv_stream.kafka.log_reader import read_extent
from namesrv_stream.settings import Settings
from namesrv_stream.streaming.route_table.fold_query import (
    BatchFigures,
    BatchSink,
    FoldedBatch,
    find_start_point,
    start_query,
)
from namesrv_stream.streaming.spark_session import build_session, scratch_dir
from namesrv_stream.tables.repair import prepare_tables
from namesrv_stream.tables.route_writers import ChangesWriter, StateWriter
from namesrv_stream.tables.storage import tables_of
from namesrv_stream.tables.stored_changes import KeptStates
from tests.bench.history_month_fleet import FleetLog
from tests.support.kafka import REPOSITORY, KafkaProcess, settings_for
from tests.support.processes import wait_until
from tests.support.spark import EventProducer, event_producer

_RESULTS = REPOSITORY / "build" / "bench" / "history-month-checkpoint.json"
_DEADLINE_S = 600.0
_EACH = 50


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=1_000)
    parser.add_argument("--brokers", type=int, default=1_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="history-month-") as folder:
        kafka = KafkaProcess(settings_for(Path(folder)))
        try:
            kafka.wait_ready()
            found = measure(kafka.settings, arguments.batches, arguments.brokers)
        finally:
            kafka.stop()
    _RESULTS.parent.mkdir(parents=True, exist_ok=True)
    _RESULTS.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(f"written to {_RESULTS.relative_to(REPOSITORY)}")
    return 0


def measure(settings: Settings, batches: int, brokers: int) -> list[dict[str, Any]]:
    """Return files and bytes of the checkpoint after every fifty batches."""
    extent = read_extent(settings)
    tables = tables_of(settings)
    prepare_tables(settings, extent.topic_id)
    spark = build_session(settings)
    log = FleetLog(brokers)
    log.begin(0)
    found: list[dict[str, Any]] = []
    producer = KafkaProducer(**producer_config(settings))
    with event_producer(settings) as sender:
        for record in log.take()[0]:
            producer.send(settings.kafka.broker_events_topic, value=record.value, partition=0)
        producer.flush()
        writer, state_writer = ChangesWriter(tables, 0), StateWriter(tables)
        figures = BatchFigures(0, writer.committed)

        def keep_states(batch: FoldedBatch) -> None:
            if batch.states:
                state_writer.cover(batch.states)

        sink = BatchSink(settings, writer, producer, figures, lambda interrupted: None, keep_states)
        query = start_query(spark, settings, find_start_point(KeptStates(tables), writer.committed, {}, extent), sink)
        try:
            while not found or found[-1]["batch"] < batches:
                reached = found[-1]["batch"] + _EACH if found else 1
                wait_until(lambda: _batch(query, sender, reached) >= reached, _DEADLINE_S, f"batch {reached}")  # noqa: B023
                found.append({"batch": _last(query), **_files(next(scratch_dir(settings).glob("checkpoint-*")))})
                print(json.dumps(found[-1]), flush=True)
        finally:
            query.stop()
            producer.close()
            spark.stop()
    return found


def _batch(query: Any, sender: EventProducer, wanted: int) -> int:
    """Return the last batch; sends one record for the next one if more are wanted."""
    last = _last(query)
    if last < wanted:
        sender.send_value(_TICK)
    return last


def _last(query: Any) -> int:
    assert query.exception() is None, query.exception()
    progress = query.lastProgress
    return int(progress["batchId"]) if progress else -1


_TICK = b'{"schema_version":1,"kind":"tick","server_id":"s1","server_epoch":1}'


def _files(folder: Path) -> dict[str, Any]:
    """Return the files of the checkpoint by part, without Hadoop's checksums."""
    files = [f for f in folder.rglob("*") if f.is_file()]
    parts = Counter(
        "check sums" if f.name.endswith(".crc") else f.relative_to(folder).parts[0] + f.suffix.lower() for f in files
    )
    return {"files": len(files), "bytes": sum(f.stat().st_size for f in files), "parts": dict(sorted(parts.items()))}


if __name__ == "__main__":
    sys.exit(main())
