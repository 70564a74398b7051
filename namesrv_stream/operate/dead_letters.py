"""Records and items that the job refused, as the dead-letter topic keeps them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from namesrv_stream.errors import NamesrvStreamError
from namesrv_stream.kafka import LogReader, bootstrap_servers
from namesrv_stream.settings import Settings


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """A record of the events topic, or one item of it, that the job could not read or fold.

    Attributes:
        at_ms: When the job refused it, epoch milliseconds.
        partition: Of the events topic.
        offset: Of the record there.
        item: Number of the refused item in the record; None where the whole record was refused.
        reason: Why.
        content: ``value`` (JSON), ``value_text`` or ``value_base64``, and ``value_bytes`` where it was cut or left out.
    """

    at_ms: int
    partition: int
    offset: int
    item: int | None
    reason: str
    content: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RefusedRecords:
    """The newest refused records.

    Attributes:
        records: The oldest first.
        older: How many more the topic holds in the time asked for.
    """

    records: list[RefusedRecord]
    older: int


def read_dead_letters(settings: Settings, since_ms: int | None, limit: int) -> RefusedRecords:
    """Read the newest dead letters; blocks.

    Args:
        settings: Where Kafka is, and the name of the topic.
        since_ms: Only those refused since then; None for all that Kafka keeps.
        limit: How many at most; 0 for all.

    Raises:
        KafkaUnreachable: No broker answers.
        NamesrvStreamError: There is no such topic.
    """
    topic = settings.kafka.dead_letter_topic
    found: dict[tuple[int, int, int], RefusedRecord] = {}
    older = 0
    with LogReader(settings, topic) as log:
        partitions = log.partitions()
        if not partitions:
            raise NamesrvStreamError(
                f"Kafka at {bootstrap_servers(settings)} has no topic {topic}: the first part that starts creates it;"
                " or name another installation with --conf or --data-dir"
            )
        for partition in partitions:
            first, end = log.extent(partition)
            if since_ms is not None:
                offset = log.offset_at(partition, since_ms)
                first = end if offset is None else offset
            begin = max(first, end - limit) if limit else first
            older += begin - first
            for batch in log.batches(partition, begin, end):
                for record in batch:
                    fields = orjson.loads(record.value)
                    place = (fields.pop("partition"), fields.pop("offset"), fields.pop("item"))
                    # A job that is started again may refuse the records of its last batch a second time.
                    found.setdefault(place, _refused(record.at_ms, place, fields))
    newest = sorted(found.values(), key=lambda record: record.at_ms)
    shown = newest[-limit:] if limit else newest
    return RefusedRecords(shown, older + len(newest) - len(shown))


def _refused(at_ms: int, place: tuple[int, int, int], fields: dict[str, Any]) -> RefusedRecord:
    partition, offset, item = place
    return RefusedRecord(at_ms, partition, offset, item if item >= 0 else None, fields.pop("reason"), fields)
