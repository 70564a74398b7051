"""The fold of a whole Kafka topic without Spark: what the tables must say."""

from typing import Final

from kafka import KafkaConsumer, TopicPartition

from namesrv_stream.kafka import consumer_config
from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.fold import FoldOutput, GroupDict, Record, fold
from namesrv_stream.route.fold_state import FoldState
from namesrv_stream.settings import Settings

_POLL_MS: Final = 500


def read_records(settings: Settings, until: dict[int, int] | None = None) -> list[Record]:
    """All records of the events topic in order of (partition, offset), up to its end or to given next offsets."""
    consumer = KafkaConsumer(**consumer_config(settings))
    try:
        topic = settings.kafka.broker_events_topic
        partitions = [TopicPartition(topic, p) for p in range(settings.kafka.partitions)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions) if until is None else {p: until[p.partition] for p in partitions}
        consumer.seek_to_beginning(*partitions)
        records: list[Record] = []
        while any(consumer.position(p) < ends[p] for p in partitions):
            for fetched in consumer.poll(timeout_ms=_POLL_MS).values():
                records += [Record(r.partition, r.offset, r.timestamp, r.value) for r in fetched]
        return sorted(r for r in records if r.offset < ends[TopicPartition(topic, r.partition)])
    finally:
        consumer.close()


def fold_offline(settings: Settings, until: dict[int, int] | None = None) -> FoldOutput:
    """The changes and dead letters of the whole topic."""
    output = FoldOutput()
    states = {p: FoldState(p, settings.kafka.partitions) for p in range(settings.kafka.partitions)}
    groups = {p: GroupDict() for p in states}
    for record in read_records(settings, until):
        fold(states[record.partition], groups[record.partition], record, output)
    return output


def as_row(change: RouteChange) -> dict[str, object]:
    """A change as polars reads its row: lists and dicts for tuples."""
    fields = change._asdict()
    if change.broker_addrs is not None:
        fields["broker_addrs"] = dict(change.broker_addrs)
    for name in ("clusters", "filter_servers"):
        fields[name] = None if fields[name] is None else list(fields[name])
    return fields
