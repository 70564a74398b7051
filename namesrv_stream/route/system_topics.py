"""Which topic names are RocketMQ's own rather than a user's.

Source: rocketmq 5.3.3, TopicValidator and MixAll (system topics, prefixes), TopicConfigManager.init (every broker
registers its own name and its cluster's name as topics).
"""

from collections.abc import Collection
from typing import Final

_SYSTEM_TOPICS: Final = frozenset(
    {
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
    }
)
#: The last two are a consumer group's topics for retries and for dead letters.
_SYSTEM_PREFIXES: Final = ("rmq_sys_", "%RETRY%", "%DLQ%")
#: What a broker registers for replies: its cluster's name and this.
_REPLY_SUFFIX: Final = "_REPLY_TOPIC"


def is_system_topic(topic: str, clusters: Collection[str], broker_names: Collection[str]) -> bool:
    """Whether brokers have a topic of themselves: RocketMQ's system topics, those of consumer groups, and the names of
    clusters and brokers."""
    return (
        topic in _SYSTEM_TOPICS
        or topic.startswith(_SYSTEM_PREFIXES)
        or topic in clusters
        or topic in broker_names
        or (topic.endswith(_REPLY_SUFFIX) and topic.removesuffix(_REPLY_SUFFIX) in clusters)
    )
