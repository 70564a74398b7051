"""A slave copies its master's topics from the address that the answer to its registration contains, after a minute."""

import time
from pathlib import Path

from tests.e2e.conftest import Measured
from tests.support.processes import wait_until
from tests.support.remoting_client import RemotingClient
from tests.support.rocketmq import Broker
from tests.support.rocketmq_peers import Mqadmin
from tests.support.stack import Stack

_GET_TOPIC_CONFIG = 351
# BrokerController checks for the first time after a minute.
COPIED_WITHIN_S = 120.0


def test_slave_copies_topics_from_its_master(
    stack: Stack, periodic_broker: Broker, mqadmin: Mqadmin, measured: Measured, tmp_path: Path
) -> None:
    with (
        Broker(tmp_path / "master", stack.remoting, name="broker-copied") as master,
        Broker(tmp_path / "slave", stack.remoting, name="broker-copied", broker_id=1) as slave,
        RemotingClient(slave.addr) as client,
    ):
        began = time.monotonic()
        mqadmin.create_topic(stack.remoting, master.addr, "Copied")
        assert client.ask(_GET_TOPIC_CONFIG, {"topic": "Copied"}).code != 0
        wait_until(
            lambda: client.ask(_GET_TOPIC_CONFIG, {"topic": "Copied"}).code == 0,
            COPIED_WITHIN_S,
            "the slave has the topic",
        )
        measured(f"slave has its master's topics after {time.monotonic() - began:.0f} s")
