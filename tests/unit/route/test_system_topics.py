"""RocketMQ's own topics, by their names."""

import pytest

from namesrv_stream.route.system_topics import is_system_topic


@pytest.mark.parametrize(
    "topic",
    [
        *("TBW102", "rmq_sys_SYNC_BROKER_MEMBER_b", "%RETRY%group", "%DLQ%group"),
        *("east", "broker-a", "east_REPLY_TOPIC"),
    ],
)
def test_what_brokers_register_of_themselves_is_not_a_users(topic: str) -> None:
    assert is_system_topic(topic, {"east"}, {"broker-a"})


@pytest.mark.parametrize("topic", ["Orders", "rmq", "broker-b", "other_REPLY_TOPIC", "tbw102"])
def test_all_others_are(topic: str) -> None:
    assert not is_system_topic(topic, {"east"}, {"broker-a"})
