"""An unmodified RocketMQ 5.3.3 broker, its tools and clients against the whole product."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.java_client import JavaClient
from tests.support.processes import wait_until
from tests.support.rocketmq import Broker
from tests.support.rocketmq_peers import Mqadmin
from tests.support.stack import Stack

#: Every broker registers a topic with its own name.
OWN_TOPIC = "broker-life"
GONE_WITHIN_S = 10.0
SETTLE_S = 60.0


@pytest.fixture
def broker(stack: Stack, periodic_broker: Broker, tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path, stack.remoting, name=OWN_TOPIC) as running:
        yield running


def _wait_gone(mqadmin: Mqadmin, stack: Stack, timeout_s: float) -> None:
    wait_until(
        lambda: mqadmin.topic_route(stack.remoting, OWN_TOPIC) is None, timeout_s, "the broker's route is removed"
    )


def test_mqadmin_shows_the_broker_and_its_topics(stack: Stack, broker: Broker, mqadmin: Mqadmin) -> None:
    rows = {row.broker_name: row for row in mqadmin.cluster_list(stack.remoting)}
    assert rows[OWN_TOPIC].addr == broker.addr
    assert rows[OWN_TOPIC].broker_id == 0
    route = mqadmin.topic_route(stack.remoting, OWN_TOPIC)
    assert route is not None
    assert [b["brokerAddrs"] for b in route["brokerDatas"]] == [{"0": broker.addr}]
    assert OWN_TOPIC in mqadmin.topic_list(stack.remoting)


def test_producer_and_consumer_exchange_messages(
    stack: Stack, broker: Broker, mqadmin: Mqadmin, java_client: JavaClient
) -> None:
    mqadmin.create_topic(stack.remoting, broker.addr, "Exchanged")
    used = java_client.exchange(stack.remoting, "Exchanged", count=20)
    assert used == {OWN_TOPIC}


def test_killed_broker_is_removed_when_its_connection_closes(stack: Stack, broker: Broker, mqadmin: Mqadmin) -> None:
    stack.wait_job()  # Only the fold removes a broker.
    broker.kill()
    _wait_gone(mqadmin, stack, SETTLE_S)
    rows = stack.wait_change(kind="broker_live", broker_addr=broker.addr, cause="disconnected", gone=True)
    assert len(rows) == 1
    assert "connection" in rows[0]["detail"]


def test_stopped_broker_unregisters_at_once(stack: Stack, broker: Broker, mqadmin: Mqadmin) -> None:
    broker.begin_stop()
    _wait_gone(mqadmin, stack, GONE_WITHIN_S)
    stack.wait_job()
    stack.wait_change(kind="broker_live", broker_addr=broker.addr, cause="unregistered", gone=True)


def test_frozen_broker_expires_after_its_timeout_and_returns_with_its_next_registration(
    stack: Stack, periodic_broker: Broker, mqadmin: Mqadmin, tmp_path: Path
) -> None:
    # Brokers send their timeout only in acting-master mode.
    timeout_s = 6.0
    properties = {
        "enableSlaveActingMaster": "true",
        "brokerNotActiveTimeoutMillis": str(int(timeout_s * 1000)),
        "brokerHeartbeatInterval": "1000",
    }
    stack.wait_job()
    with Broker(tmp_path, stack.remoting, name=OWN_TOPIC, properties=properties) as broker:
        stack.wait_change(kind="broker_live", broker_addr=broker.addr, gone=False)
        broker.freeze()
        frozen_at = time.monotonic()
        _wait_gone(mqadmin, stack, 30)
        gone_after_s = time.monotonic() - frozen_at
        rows = stack.wait_change(kind="broker_live", broker_addr=broker.addr, cause="expired", gone=True)
        assert f"timeout {int(timeout_s * 1000)} ms" in rows[0]["detail"]
        # Its last heartbeat came up to one interval before the freeze.
        assert gone_after_s > timeout_s - 1.5
        broker.thaw()
        wait_until(lambda: mqadmin.topic_route(stack.remoting, OWN_TOPIC), 40, "the broker is back")
        wait_until(
            lambda: not stack.changes(kind="broker_live", broker_addr=broker.addr)[-1]["gone"], 10, "the broker returns"
        )
