"""Whether what a registration says fits one record of the log; asked before it is answered SUCCESS.

A body of millions of empty topics or mappings becomes a multiple of itself once each has its values. None that Java
writes in one frame comes near these limits.
"""

from collections.abc import Collection, Mapping
from typing import Final

import orjson

from namesrv_stream.route.model import QueueData, TopicQueueMappingInfo
from namesrv_stream.route.registration_json import mapping_fields

#: Most topics and static mappings together, and most queues of all static mappings; the largest frame has room for
#: 115,000 topics as Java writes them.
MAX_ENTRIES: Final = 300_000
#: Most bytes that these parts may have in an event. With a header beside them, each byte of which may become six, a
#: record of Kafka holds it (``frame.MAX_HEADER_BYTES``; ``kafka.max_message_bytes`` is 20 MiB at least).
MAX_EVENT_BYTES: Final = 16 << 20

# Most bytes of an entry without its texts, and of a character of them, in JSON.
_TOPIC_BYTES: Final = 60
_MAPPING_BYTES: Final = 160
_QUEUE_BYTES: Final = 27
_CHAR_BYTES: Final = 6


def require_loggable(
    topics: Mapping[str, QueueData], mappings: Mapping[str, TopicQueueMappingInfo], filter_servers: Collection[str]
) -> None:
    """Accept what fits.

    Raises:
        ValueError: There are too many entries, or they are too large.
    """
    entries = len(topics) + len(mappings) + len(filter_servers)
    queues = sum(len(mapping.curr_id_map) for mapping in mappings.values())
    if max(entries, queues) > MAX_ENTRIES:
        raise ValueError(f"{entries} topics with {queues} static queues exceed {MAX_ENTRIES}")
    chars = sum(map(len, topics)) + sum(map(len, filter_servers))
    chars += sum(len(key) + len(m.topic) + len(m.bname) + len(m.scope) for key, m in mappings.items())
    most = (len(topics) + len(filter_servers)) * _TOPIC_BYTES + len(mappings) * _MAPPING_BYTES
    most += queues * _QUEUE_BYTES + chars * _CHAR_BYTES
    size = most if most <= MAX_EVENT_BYTES else _written_bytes(topics, mappings, filter_servers)
    if size > MAX_EVENT_BYTES:
        raise ValueError(f"as an event it has {size} bytes, which exceeds {MAX_EVENT_BYTES}")


def _written_bytes(
    topics: Mapping[str, QueueData], mappings: Mapping[str, TopicQueueMappingInfo], filter_servers: Collection[str]
) -> int:
    fields = (
        {topic: list(queue_data) for topic, queue_data in topics.items()},
        {topic: mapping_fields(mapping) for topic, mapping in mappings.items()},
        list(filter_servers),
    )
    return sum(len(orjson.dumps(field)) for field in fields)
