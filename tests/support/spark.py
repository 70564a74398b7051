"""Runs the fold in a real Spark inside the test process, with a topic and a data directory for each test."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from deltalake import DeltaTable
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from pyspark.sql import SparkSession

from namesrv_stream.kafka import consumer_config, ensure_topics, producer_config
from namesrv_stream.kafka.log_reader import TopicExtent, read_extent
from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.event_json import encode_event
from namesrv_stream.route.events import Event, partition_of, routing_key
from namesrv_stream.settings import Settings
from namesrv_stream.streaming.route_table.fold_query import (
    BatchFigures,
    BatchSink,
    FoldedBatch,
    StartPoint,
    find_start_point,
    start_query,
)
from namesrv_stream.tables.change_rows import decode_changes, in_log_order
from namesrv_stream.tables.layout import ROUTE_CHANGES, app_id
from namesrv_stream.tables.repair import prepare_tables
from namesrv_stream.tables.route_writers import ChangesWriter, StateWriter
from namesrv_stream.tables.storage import tables_of
from namesrv_stream.tables.stored_changes import KeptStates
from tests.support.processes import wait_until

_SENT_S = 30.0  # time limit until Kafka accepts a record


def own_settings(kafka_settings: Settings, data_dir: Path, partitions: int = 1, **streaming: Any) -> Settings:
    """Create new topics in the shared Kafka; returns settings that use them."""
    topic = f"test-{uuid4()}"
    names = {"broker_events_topic": topic, "dead_letter_topic": f"{topic}.dead-letters", "partitions": partitions}
    servers = f"127.0.0.1:{kafka_settings.embedded_kafka.listen_port}"
    kafka = kafka_settings.kafka.model_copy(update={**names, "bootstrap_servers": servers})
    data = kafka_settings.data.model_copy(update={"dir": data_dir})
    update = {"kafka": kafka, "data": data, "streaming": kafka_settings.streaming.model_copy(update=streaming)}
    settings = kafka_settings.model_copy(update=update)
    ensure_topics(settings)
    return settings


class EventProducer:
    """Publishes events as a server does."""

    def __init__(self, settings: Settings) -> None:
        self._kafka = settings.kafka
        self._producer = KafkaProducer(**producer_config(settings))

    def send(self, *events: Event) -> int:
        """Send events, each to its partition or to all; returns the last LogAppendTime when Kafka has stored them."""
        sent = []
        for event in events:
            key = routing_key(event)
            for partition in range(self._kafka.partitions):
                if key is None or partition == partition_of(key, self._kafka.partitions):
                    sent.append(self._send(encode_event(event), partition))
        return max(int(future.get(timeout=_SENT_S).timestamp) for future in sent)

    def send_value(self, value: bytes, partition: int = 0) -> None:
        """Send a record with any content."""
        self._send(value, partition).get(timeout=_SENT_S)

    def send_for(self, duration_ms: int, event: Event, interval_ms: int = 100) -> None:
        """Send an event repeatedly until ``duration_ms`` have passed by Kafka's clock."""
        until_ms = self.send(event) + duration_ms
        while self.send(event) < until_ms:
            time.sleep(interval_ms / 1000)

    def _send(self, value: bytes, partition: int) -> Any:
        return self._producer.send(self._kafka.broker_events_topic, value=value, partition=partition)

    def close(self) -> None:
        self._producer.close()


@contextmanager
def event_producer(settings: Settings) -> Iterator[EventProducer]:
    producer = EventProducer(settings)
    try:
        yield producer
    finally:
        producer.close()


def fold_available(spark: SparkSession, settings: Settings, backlog_records: int | None = None) -> StartPoint:
    """Run the job's query until it has folded the whole topic; returns where it began. See also ``start_query``."""
    extent = read_extent(settings)
    prepare_tables(settings, extent.topic_id)
    tables = tables_of(settings)
    writer, state_writer = ChangesWriter(tables, 0), StateWriter(tables)
    start = find_start_point(KeptStates(tables), writer.committed, writer.table.removed_below, extent)
    producer = KafkaProducer(**producer_config(settings))
    figures = BatchFigures(0, writer.committed)

    def keep_states(batch: FoldedBatch) -> None:
        if batch.states:
            state_writer.cover(batch.states)

    sink = BatchSink(settings, writer, producer, figures, lambda interrupted: None, keep_states)
    query = start_query(spark, settings, start, sink, backlog_records)
    try:
        if backlog_records is None:
            query.processAllAvailable()
        else:
            query.awaitTermination()
    finally:
        query.stop()
        producer.close()
    return start


def written_changes(settings: Settings) -> list[RouteChange]:
    """Return all rows of ``route_changes``, in log order."""
    table = DeltaTable(settings.data.tables_dir / ROUTE_CHANGES)
    return decode_changes(in_log_order(table.to_pyarrow_table()))


def committed_offsets(settings: Settings, topic_id: str) -> dict[int, int]:
    """Return partition → next offset, from the table."""
    table = DeltaTable(settings.data.tables_dir / ROUTE_CHANGES)
    return {p: table.transaction_version(app_id(topic_id, p)) or 0 for p in range(settings.kafka.partitions)}


def has_folded(settings: Settings, extent: TopicExtent) -> bool:
    """Whether the job has committed all records of an extent of the topic."""
    committed = committed_offsets(settings, extent.topic_id)
    return all(committed[p] >= end for p, end in extent.end.items())


def wait_folded(settings: Settings, timeout_s: float) -> None:
    """Wait until the job has committed all records that the topic has now."""
    extent = read_extent(settings)
    wait_until(lambda: has_folded(settings, extent), timeout_s, "the job has folded the whole topic")


def dead_letters(settings: Settings) -> list[tuple[str, bytes]]:
    """Return (key, value) of all records in the dead-letter topic."""
    consumer = KafkaConsumer(**consumer_config(settings))
    try:
        partition = TopicPartition(settings.kafka.dead_letter_topic, 0)
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        consumer.seek_to_beginning(partition)
        found: list[tuple[str, bytes]] = []
        while len(found) < end:
            for records in consumer.poll(timeout_ms=500).values():
                found += [(r.key.decode(), r.value) for r in records]
        return found
    finally:
        consumer.close()


def sql_name(path: Path) -> str:
    """Return the name of a table in Spark's SQL, from its folder."""
    return f"delta.`{str(path.absolute()).replace('`', '``')}`"
