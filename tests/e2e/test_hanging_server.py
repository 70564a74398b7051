"""One of two name servers hangs: a broker that creates a topic does not wait for long, and the server comes back."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Measured
from tests.support.hanging_server import VARIABLE, request_hang
from tests.support.processes import suspend, wait_until
from tests.support.remoting_client import RemotingClient
from tests.support.rocketmq import Broker
from tests.support.rocketmq_peers import Mqadmin, MqadminError
from tests.support.second_server import SecondServer
from tests.support.stack import Stack

_SETTLE_S = 60.0
#: With a server that hangs for good, a broker waits for 24 s (registerBrokerTimeoutMills).
_BROKER_TIMEOUT_S = 24.0
_UPDATE_AND_CREATE_TOPIC = 17
_TOPIC = {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "perm": "6", "topicSysFlag": "0", "order": "false"}

Hang = Callable[[], None]


@pytest.fixture(scope="module")
def trigger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hanging") / "hang"


@pytest.fixture(scope="module")
def hanging(stack: Stack, trigger: Path) -> Iterator[SecondServer]:
    environ, module = {VARIABLE: str(trigger)}, "tests.support.hanging_server"
    with SecondServer(trigger.parent / "data", stack, "hanging", environ=environ, module=module) as running:
        yield running


@pytest.fixture(scope="module")
def broker(stack: Stack, hanging: SecondServer, mqadmin: Mqadmin, trigger: Path) -> Iterator[Broker]:
    stack.wait_job()
    with Broker(trigger.parent / "broker", f"{stack.remoting};{hanging.remoting}", name="broker-hanging") as running:
        yield running


@pytest.mark.parametrize("how", ["stop", "loop", "lock"])
def test_broker_creates_a_topic_while_one_of_its_name_servers_hangs(
    stack: Stack,
    hanging: SecondServer,
    broker: Broker,
    mqadmin: Mqadmin,
    trigger: Path,
    measured: Measured,
    how: str,
) -> None:
    topic = f"Hang-{how}"

    def has_route(topic: str) -> bool:
        try:
            return mqadmin.topic_route(hanging.remoting, topic) is not None
        except MqadminError:  # the server is starting
            return False

    wait_until(lambda: has_route(broker.name), _SETTLE_S, "both servers know the broker")
    if how == "stop":
        suspend(hanging.process.server_pid)
    else:
        request_hang(trigger, how)
        wait_until(lambda: not trigger.exists(), _SETTLE_S, "the server hangs")
    began_s = time.monotonic()
    with RemotingClient(broker.addr, timeout_s=2 * _BROKER_TIMEOUT_S) as operator:
        fields = {**_TOPIC, "topic": topic, "readQueueNums": "4", "writeQueueNums": "4"}
        assert operator.ask(_UPDATE_AND_CREATE_TOPIC, fields).code == 0
    took_s = time.monotonic() - began_s
    measured(f"a topic is created in {took_s:.1f} s while a name server hangs ({how})")
    assert took_s < _BROKER_TIMEOUT_S / 2
    wait_until(lambda: hanging.process.log_text().count("the server hung and was killed"), _SETTLE_S, "the kill")
    wait_until(lambda: has_route(topic), _SETTLE_S, "the restarted server has the new topic")
    assert stack.changes(kind="broker_live", broker_name=broker.name, gone=True) == []
