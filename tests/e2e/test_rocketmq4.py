"""An unmodified RocketMQ 4.9.7 broker, whose registrations have none of the fields that 5.x added."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Measured
from tests.support.java_client import JavaClient
from tests.support.jvm import JARS_4, JAVA_SOURCES, rocketmq_jvm
from tests.support.processes import Process, wait_until
from tests.support.rocketmq import BROKER_MAIN, Broker
from tests.support.rocketmq_peers import Mqadmin
from tests.support.stack import Stack

NAME = "broker-4"
LISTED_WITHIN_S = 20.0
SETTLE_S = 60.0
# The broker closes its own servers, which takes some seconds, before it unregisters.
STOPPED_WITHIN_S = 30.0


# RocketMQ 4.9 was written for Java 8: it unmaps files with internals of java.base, and would fail at its stop.
_OPENED = ("java.nio", "jdk.internal.ref", "sun.nio.ch")


class Rocketmq4Broker(Broker):
    """A 4.9.7 broker, the newest 4.9 that is complete on Maven Central.

    It registers without acting master, zone and static topics, and sends 322 only if it is configured to do so.
    """

    # BrokerOuterAPI.registerBrokerAll.
    _registered = "to name server"

    def _jvm(self, name: str, properties: Path, work_dir: Path) -> Process:
        # BrokerStartup reads this file, and takes no property that names another.
        logback = work_dir / "conf" / "logback_broker.xml"
        logback.parent.mkdir(parents=True, exist_ok=True)
        logback.write_text((JAVA_SOURCES / "logback.xml").read_text().replace("org.apache.rocketmq.logging.ch.", "ch."))
        return rocketmq_jvm(
            name,
            BROKER_MAIN,
            ["-c", str(properties)],
            work_dir,
            heap_mb=384,
            log_level="INFO",
            jars_dir=JARS_4,
            jvm_flags=[f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED],
        )


@pytest.fixture
def broker(stack: Stack, periodic_broker: Broker, tmp_path: Path) -> Iterator[Rocketmq4Broker]:
    with Rocketmq4Broker(tmp_path, stack.remoting, name=NAME) as running:
        yield running


def _gone_after_s(stack: Stack, mqadmin: Mqadmin, timeout_s: float) -> float:
    began = time.monotonic()
    wait_until(lambda: mqadmin.topic_route(stack.remoting, NAME) is None, timeout_s, "the route is removed")
    return time.monotonic() - began


def test_old_broker_is_routed_serves_clients_and_unregisters(
    stack: Stack, broker: Rocketmq4Broker, mqadmin: Mqadmin, java_client: JavaClient, measured: Measured
) -> None:
    mqadmin.create_topic(stack.remoting, broker.addr, "OldExchanged")
    # A push consumer: a 4.x broker does not know the request of the 5.x client's lite pull consumer.
    with java_client.flow(stack.remoting, "OldExchanged") as flow:
        wait_until(
            lambda: (broker.addr, "V4_9_7") in {(r.addr, r.version) for r in mqadmin.cluster_list(stack.remoting)},
            LISTED_WITHIN_S,
            "mqadmin lists the broker with its version",
        )
    assert flow.sent > 0
    assert (flow.missing, flow.send_failures, flow.query_failures) == (0, [], [])
    broker.begin_stop()
    measured(f"4.9.7 stopped: route gone after {_gone_after_s(stack, mqadmin, STOPPED_WITHIN_S):.2f} s")
    stack.wait_job()
    stack.wait_change(kind="broker_live", broker_addr=broker.addr, cause="unregistered", gone=True)


def test_killed_old_broker_is_removed_when_its_connection_closes(
    stack: Stack, broker: Rocketmq4Broker, mqadmin: Mqadmin, measured: Measured
) -> None:
    stack.wait_job()  # Only the fold removes a broker.
    broker.kill()
    measured(f"4.9.7 killed: route gone after {_gone_after_s(stack, mqadmin, SETTLE_S):.2f} s")
    stack.wait_change(kind="broker_live", broker_addr=broker.addr, cause="disconnected", gone=True)
