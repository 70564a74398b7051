"""Whether Kafka's topic is still the log from which the tables were made.

A topic that was deleted and recreated, and a log that lost records which were folded, grow again to any length. So the
offsets alone do not tell; the topic's id and the last folded record do (ADR 0049).
"""

from collections.abc import Collection, Mapping

from namesrv_stream.errors import LogReplaced, LogTruncated, RecordsRemoved
from namesrv_stream.kafka.extent import TopicExtent, read_extent
from namesrv_stream.kafka.log_reader import LogReader
from namesrv_stream.route.fold.folded_log import FoldedLog, Place, fingerprint
from namesrv_stream.settings import Settings


def check_log(settings: Settings, folded: FoldedLog, only: Collection[int] | None = None) -> TopicExtent:
    """Compare Kafka's log with the tables; blocks.

    Args:
        settings: Ours.
        folded: What the tables cover.
        only: Partitions to compare; all where None.

    Returns:
        What Kafka holds.

    Raises:
        LogReplaced: It is another log, or another record is where the last folded one was.
        LogTruncated: It ends before what was folded.
        KafkaUnreachable: No broker answers.
        ConfigError: There is no such topic, or it has other partitions than the configuration says.
    """
    extent = read_extent(settings, only)
    if folded.topic_id and folded.topic_id != extent.topic_id:
        topic = settings.kafka.broker_events_topic
        raise LogReplaced(
            f"Kafka's topic {topic} has the id {extent.topic_id}, the tables were made from one with the id"
            f" {folded.topic_id}"
        )
    partitions = settings.kafka.partitions
    if max(folded.progress, default=0) >= partitions:
        raise LogReplaced(
            f"the tables were made from {len(folded.progress)} partitions, Kafka's topic has {partitions}"
        )
    progress = {p: place for p, place in sorted(folded.progress.items()) if p in extent.end}
    for partition, place in progress.items():
        if place.next_offset > extent.end[partition]:
            raise LogTruncated(partition, place.next_offset, extent.earliest[partition], extent.end[partition])
    known = {p: place for p, place in progress.items() if place.fingerprint}
    present = {p: place for p, place in known.items() if place.next_offset > extent.earliest[p]}
    if present:
        _check_records(settings, present)
    return extent


def _check_records(settings: Settings, progress: Mapping[int, Place]) -> None:
    with LogReader(settings) as reader:
        for partition, place in sorted(progress.items()):
            offset = place.next_offset - 1
            try:
                found = [record for batch in reader.batches(partition, offset, offset + 1) for record in batch]
            except RecordsRemoved:
                continue  # by their retention, just now
            if [fingerprint(record.at_ms, record.value) for record in found] != [place.fingerprint]:
                raise LogReplaced(
                    f"partition {partition}: the record at offset {offset} is not the one that was folded:"
                    " Kafka has lost records since and has others in their place"
                )
