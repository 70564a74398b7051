"""Checks whether a registration fits one record of the log, before the broker receives SUCCESS.

A body with millions of empty topics or mappings becomes several times larger when defaults are filled in. No body that
Java writes in one frame comes near these limits.
"""

from collections.abc import Collection, Mapping
from typing import Final

import orjson

from namesrv_stream.route.model import QueueData, TopicQueueMappingInfo
from namesrv_stream.route.registration_json import mapping_fields

#: Maximum of topics and static mappings together, and of queues of all static mappings. The largest frame has room for
#: 115,000 topics as Java writes them.
MAX_ENTRIES: Final = 300_000
#: Maximum size of these parts in an event. With the header, whose bytes may become six each, they fit a record of Kafka
#: (``frame.MAX_HEADER_BYTES``; ``kafka.max_message_bytes`` is at least 20 MiB).
MAX_EVENT_BYTES: Final = 16 << 20

# Maximum sizes in JSON: of an entry without its texts, and of one character of the texts.
_TOPIC_BYTES: Final = 60
_MAPPING_BYTES: Final = 160
_QUEUE_BYTES: Final = 27
_CHAR_BYTES: Final = 6


def require_loggable(
    topics: Mapping[str, QueueData], mappings: Mapping[str, TopicQueueMappingInfo], filter_servers: Collection[str]
) -> None:
    """Check the limits of a registration.

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
