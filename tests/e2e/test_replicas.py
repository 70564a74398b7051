"""Master and slave of one broker name: the slave finds its master and acts as master if permitted."""

import re
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.conftest import Measured
from tests.support.java_client import JavaClient
from tests.support.processes import wait_until
from tests.support.rocketmq import Broker
from tests.support.rocketmq_peers import Mqadmin
from tests.support.stack import Stack

TOPIC = "Replicated"
MESSAGES = 10
# A pre-online master and its slave wait for each other in steps of seconds.
SETTLE_S = 60.0


class Pair:
    """A master and its slave, and their state at the name server and at the brokers."""

    def __init__(
        self, work_dir: Path, stack: Stack, mqadmin: Mqadmin, name: str, properties: Mapping[str, str]
    ) -> None:
        self._namesrv, self._mqadmin = stack.remoting, mqadmin
        properties = {**properties, "slaveReadEnable": "true"}
        self.master = Broker(work_dir / "master", stack.remoting, name=name, properties=properties)
        self.slave = Broker(work_dir / "slave", stack.remoting, name=name, broker_id=1, properties=properties)

    def start(self) -> None:
        """Start both and create the topic on both, since a slave copies its master's topics only after a minute."""
        for broker in (self.master, self.slave):
            broker.start()
            self._mqadmin.create_topic(self._namesrv, broker.addr, TOPIC, queues=2)

    def close(self) -> None:
        self.master.close()
        self.slave.close()

    def route(self) -> tuple[dict[int, str], int] | None:
        """Return the addresses by broker id and the permission of the topic."""
        route = self._mqadmin.topic_route(self._namesrv, TOPIC)
        if route is None:
            return None
        (broker,), (queues,) = route["brokerDatas"], route["queueDatas"]
        return {int(broker_id): addr for broker_id, addr in broker["brokerAddrs"].items()}, queues["perm"]

    def wait_route(self, addrs: Mapping[int, Broker], perm: int) -> float:
        """Wait for a route; returns the seconds that it took."""
        began = time.monotonic()
        wanted = {broker_id: broker.addr for broker_id, broker in addrs.items()}, perm
        wait_until(lambda: self.route() == wanted, SETTLE_S, f"the route is {wanted}")
        return time.monotonic() - began

    def wait_replicated(self) -> None:
        """Wait until the master counts its slave as in sync and with all messages."""
        wait_until(self._has_all_messages, SETTLE_S, "the slave has all messages")

    def _has_all_messages(self) -> bool:
        status = self._mqadmin.outcome("haStatus", "-n", self._namesrv, "-b", self.master.addr)
        written = re.search(r"#MasterCommitLogMaxOffset\t(\d+)", status)
        # A row per slave: address, acknowledged offset, difference, …
        acked = re.search(r"^127\.0\.0\.1:\d+\s+(\d+)\s+0\s", status, re.MULTILINE)
        return bool(written and acked and written[1] == acked[1] and "#InSyncSlaveNum\t1" in status)


@contextmanager
def _pair(work_dir: Path, stack: Stack, mqadmin: Mqadmin, name: str, properties: Mapping[str, str]) -> Iterator[Pair]:
    stack.wait_job()  # Only the fold removes a broker.
    pair = Pair(work_dir, stack, mqadmin, name, properties)
    try:
        pair.start()
        yield pair
    finally:
        pair.close()


def _bodies() -> list[str]:
    return [str(uuid.uuid4()) for _ in range(MESSAGES)]


def test_slave_replicates_from_its_master_and_serves_reads_when_the_master_is_down(
    stack: Stack, periodic_broker: Broker, mqadmin: Mqadmin, java_client: JavaClient, measured: Measured, tmp_path: Path
) -> None:
    with _pair(tmp_path, stack, mqadmin, "broker-replicated", {}) as pair:
        pair.wait_route({0: pair.master, 1: pair.slave}, 6)
        bodies = _bodies()
        java_client.produce(stack.remoting, TOPIC, bodies)
        pair.wait_replicated()
        pair.master.kill()
        gone_after_s = pair.wait_route({1: pair.slave}, 6)
        received = java_client.consume(stack.remoting, TOPIC, bodies)
        assert set(bodies) <= received.keys()
        measured(f"master killed: route without it after {gone_after_s:.2f} s")


# The slave sends heartbeats with 322 (as to 4.x name servers) and reads its group by 105, or it uses 904 and 901.
@pytest.mark.parametrize("compatible", ["true", "false"], ids=["codes-322-105", "codes-904-901"])
def test_slave_acts_as_master_until_the_killed_master_returns(
    stack: Stack,
    periodic_broker: Broker,
    mqadmin: Mqadmin,
    java_client: JavaClient,
    measured: Measured,
    tmp_path: Path,
    compatible: str,
) -> None:
    properties = {
        "enableSlaveActingMaster": "true",
        "compatibleWithOldNameSrv": compatible,
        # The timeout is shorter than the registration interval, so only the heartbeats in between keep a broker.
        "brokerNotActiveTimeoutMillis": "9000",
        "brokerHeartbeatInterval": "1000",
    }
    with _pair(tmp_path, stack, mqadmin, f"broker-acting-{compatible}", properties) as pair:
        pair.wait_route({0: pair.master, 1: pair.slave}, 6)
        bodies = _bodies()
        java_client.produce(stack.remoting, TOPIC, bodies)
        pair.wait_replicated()
        pair.master.kill()
        acts_after_s = pair.wait_route({0: pair.slave}, 4)
        received = java_client.consume(stack.remoting, TOPIC, bodies)
        assert set(bodies) <= received.keys()
        began = time.monotonic()
        pair.master.start()
        pair.wait_route({0: pair.master, 1: pair.slave}, 6)
        back_after_s = time.monotonic() - began
        java_client.exchange(stack.remoting, TOPIC)
        for broker in (pair.master, pair.slave):
            assert stack.wait_change(kind="broker_live", broker_addr=broker.addr)
            assert not stack.changes(kind="broker_live", broker_addr=broker.addr, cause="expired")
        measured(
            f"master killed: slave acts after {acts_after_s:.2f} s; master back {back_after_s:.1f} s after its start"
        )
