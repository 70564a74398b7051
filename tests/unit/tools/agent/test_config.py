"""Names, addresses and topics of simulated brokers, and impossible values."""

from typing import Any

import pytest

from namesrv_stream.errors import ConfigError
from namesrv_stream.tools.agent import AgentConfig
from tests.support.command_line import run_command


def config(**changes: Any) -> AgentConfig:
    return AgentConfig(**{"name_servers": "127.0.0.1:9876", **changes})


def test_a_single_broker_has_the_given_name_and_address() -> None:
    (broker,) = config(broker_name="b", broker_addr="10.0.0.1:10911").identities()
    assert (broker.broker_name, broker.broker_addr, broker.ha_server_addr) == ("b", "10.0.0.1:10911", "10.0.0.1:10912")


def test_several_brokers_are_numbered_and_their_ports_keep_a_distance() -> None:
    brokers = list(config(brokers=11, broker_addr="h:10911").identities())
    assert [broker.broker_name for broker in brokers[:2]] == ["broker-a-00", "broker-a-01"]
    assert [broker.broker_addr for broker in brokers[:2]] == ["h:10911", "h:10921"]


def test_more_brokers_than_ports_use_the_next_host_addresses() -> None:
    brokers = list(config(brokers=3, broker_addr="127.0.0.1:65520").identities())
    assert [broker.broker_addr for broker in brokers] == ["127.0.0.1:65520", "127.0.0.1:65530", "127.0.0.2:65520"]


@pytest.mark.parametrize("given", ["[fe80::1%eth0]:65520", "fe80:0:0:0:0:0:0:1%eth0:65520"])
def test_brokers_with_ipv6_addresses_register_them_in_brackets(given: str) -> None:
    brokers = list(config(brokers=3, broker_addr=given).identities())
    expected = ["[fe80::1%eth0]:65520", "[fe80::1%eth0]:65530", "[fe80::2%eth0]:65520"]
    assert [broker.broker_addr for broker in brokers] == expected


def test_ten_thousand_brokers_have_as_many_addresses() -> None:
    assert len({broker.broker_addr for broker in config(brokers=10_000).identities()}) == 10_000


def test_host_names_cannot_be_numbered() -> None:
    with pytest.raises(ConfigError) as caught:
        list(config(brokers=2, broker_addr="h:65530").identities())
    assert caught.value.key == "--addr"


def test_all_brokers_have_the_same_topics_by_default() -> None:
    assert config(topics=2).topics_of(0) == config(topics=2).topics_of(7) == ("Topic0", "Topic1")


def test_topics_are_assigned_to_brokers_in_rotation() -> None:
    dealt = config(topics=2, total_topics=3)
    assert [dealt.topics_of(index) for index in range(3)] == [
        ("Topic0", "Topic1"),
        ("Topic2", "Topic0"),
        ("Topic1", "Topic2"),
    ]


def test_a_fleet_of_a_thousand_puts_each_topic_on_four_brokers() -> None:
    fleet = config(brokers=1_000, topics=80, total_topics=20_000)
    holders: dict[str, int] = {}
    for index in range(1_000):
        for topic in fleet.topics_of(index):
            holders[topic] = holders.get(topic, 0) + 1
    assert len(holders) == 20_000
    assert set(holders.values()) == {4}


def test_named_topics_are_added() -> None:
    assert config(topics=0, topic_names=("orders",)).topics_of(0) == ("orders",)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"brokers": 0}, "--brokers"),
        ({"topics": -1}, "--topics"),
        ({"jitter": 1.0}, "--jitter"),
        ({"heartbeat_interval_ms": 0}, "--heartbeat-interval"),
        ({"timeout_ms": 0}, "--timeout"),
        ({"topics": 5, "total_topics": 4}, "--total-topics"),
        ({"broker_addr": "h"}, "--addr"),
        ({"broker_addr": "h:70000"}, "--addr"),
        ({"name_servers": "h"}, "h"),
    ],
)
def test_impossible_values_are_refused_by_name(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config(**changes)
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--log-level", "loud"), "'loud' is not one of"),
        (("--heartbeat-interval", "2"), "2 has no unit: write 2s"),
    ],
)
def test_mistakes_in_flags_are_explained(flags: tuple[str, str], reason: str) -> None:
    done = run_command("agent", *flags)
    assert done.code == 2
    assert reason in done.err
