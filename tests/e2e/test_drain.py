"""`drain` with unmodified brokers under load: when it reports "safe", the broker can be killed and no send fails."""

import json
import urllib.request
from collections.abc import Iterator

import pytest

from namesrv_stream.tools.tool_options import current_operator
from tests.e2e.conftest import Measured
from tests.support.command_line import Finished, run_command
from tests.support.java_client import JavaClient
from tests.support.processes import wait_until
from tests.support.remoting_client import RemotingClient
from tests.support.rocketmq import Broker
from tests.support.rocketmq_peers import Mqadmin
from tests.support.second_server import SecondServer
from tests.support.stack import Stack

_TOPIC, _READ_ONLY = "Drained", "DrainedReadOnly"
_NAMES = ("drain-a", "drain-b", "drain-c")
_SETTLE_S = 60.0
_GET_BROKER_RUNTIME_INFO = 28
_FAST = ("--poll-interval", "1s", "--quiet", "2s", "--timeout", "60s")


@pytest.fixture(scope="module")
def servers(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Two servers that share the log."""
    stack.wait_job()
    with SecondServer(tmp_path_factory.mktemp("drain") / "data", stack, server_id="drain") as second:
        yield f"{stack.remoting};{second.remoting}"


@pytest.fixture(scope="module")
def brokers(servers: str, mqadmin: Mqadmin, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Broker]]:
    """Three brokers of two topics, one of which is read-only at the first broker."""
    started = [Broker(tmp_path_factory.mktemp(name), servers, name=name, cluster="drain") for name in _NAMES]
    first = servers.partition(";")[0]
    try:
        for broker in started:
            broker.process.start()
        for broker in started:
            broker.wait_registered()
            mqadmin.create_topic(first, broker.addr, _TOPIC)
        for broker, perm in zip(started, ("4", "6", "6"), strict=True):
            mqadmin.run("updateTopic", "-n", first, "-b", broker.addr, "-t", _READ_ONLY, "-p", perm)
        yield started
    finally:
        for broker in started:
            broker.close()


def _drain(servers: str, broker: Broker, *flags: str) -> Finished:
    return run_command("drain", broker.name, "-n", servers, *flags)


def _perms(servers: str, mqadmin: Mqadmin, topic: str) -> list[dict[str, int]]:
    """Return the permission of a topic by broker name, at every server."""
    routes = [mqadmin.topic_route(addr, topic) or {"queueDatas": []} for addr in servers.split(";")]
    return [{queues["brokerName"]: queues["perm"] for queues in route["queueDatas"]} for route in routes]


def _statistics(broker: Broker) -> dict[str, str] | None:
    """Return the runtime statistics of a broker; None if it answers with an error, as in its first second."""
    with RemotingClient(broker.addr) as client:
        answer = client.ask(_GET_BROKER_RUNTIME_INFO)
    return dict(json.loads(answer.body)["table"]) if answer.code == 0 else None


def _stored(broker: Broker) -> int:
    """Return the number of messages that a broker has stored since its start."""
    return int(wait_until(lambda: _statistics(broker), 10, f"{broker.name} has statistics")["putMessageTimesTotal"])  # type: ignore[index]


def _wait_stored(broker: Broker, more: int = 20) -> None:
    before = _stored(broker)
    wait_until(lambda: _stored(broker) >= before + more, _SETTLE_S, f"{broker.name} stores {more} more messages")


def _draining(stack: Stack) -> tuple[str, list[tuple[str, str, int]], bool]:
    """Return the metric, (broker, who drains it, topics that are writable again), and whether the console shows it."""
    pages = []
    for path in ("/metrics", "/?state=drained"):
        with urllib.request.urlopen(f"http://{stack.http}{path}", timeout=10) as answer:
            pages.append(answer.read().decode())
    drains = [(each["broker_name"], each["drained"]) for each in stack.get("/brokers") if each["drained"]]
    metric = pages[0].partition("\nrocketmq_namesrv_draining_brokers ")[2].partition("\n")[0]
    shown = [(name, drain["by"], drain["writable_topics"]) for name, drain in drains]
    return metric, shown, all(f"namesrv-stream drain {name} --undo" in pages[1] for name, _ in drains)


def test_undo_restores_each_permission_from_before(
    stack: Stack, servers: str, brokers: list[Broker], mqadmin: Mqadmin
) -> None:
    broker = brokers[0]
    everywhere = [dict.fromkeys(_NAMES, 6)] * 2
    wait_until(lambda: _perms(servers, mqadmin, _TOPIC) == everywhere, _SETTLE_S, "all brokers offer the topic")
    read_only = [dict.fromkeys(_NAMES, 6) | {broker.name: 4}] * 2
    wait_until(lambda: _perms(servers, mqadmin, _READ_ONLY) == read_only, _SETTLE_S, "one broker has it read-only")
    drained = _drain(servers, broker, *_FAST)
    assert drained.code == 0, drained
    assert _perms(servers, mqadmin, _TOPIC) == [dict.fromkeys(_NAMES, 6) | {broker.name: 4}] * 2
    assert _draining(stack) == ("1.0", [(broker.name, current_operator(), 0)], True)
    again = _drain(servers, broker, *_FAST)
    assert (again.code, "drain-a is already drained (since" in again.err) == (1, True)
    undone = _drain(servers, broker, "--undo")
    assert undone.code == 0, undone
    assert _draining(stack) == ("0.0", [], True)
    assert _perms(servers, mqadmin, _TOPIC) == everywhere
    assert _perms(servers, mqadmin, _READ_ONLY) == read_only


def test_a_registration_during_the_drain_is_wiped_again(
    stack: Stack, servers: str, brokers: list[Broker], mqadmin: Mqadmin
) -> None:
    broker = brokers[0]
    assert _drain(servers, broker, *_FAST).code == 0
    broker.register()  # with a new data version, which restores the permissions
    wait_until(lambda: _perms(servers, mqadmin, _TOPIC)[0][broker.name] == 6, _SETTLE_S, "the permission is restored")
    assert _draining(stack)[1][0][2] > 0
    resumed = _drain(servers, broker, "--resume", *_FAST, "--json")
    assert resumed.code == 0, resumed
    assert "a registration restored the write permission" in resumed.err
    assert json.loads(resumed.out)["wipes"] == 2
    assert _drain(servers, broker, "--undo").code == 0


def test_a_rolling_restart_of_three_brokers_fails_no_send(
    servers: str, brokers: list[Broker], java_client: JavaClient, measured: Measured
) -> None:
    """The producer does not repeat a send, so every send to a broker that is down fails.

    It refreshes its route less often than the command assumes, so the command must notice that it still sends.
    """
    flags = ("--poll-interval", "1s", "--quiet", "4s", "--timeout", "60s", "--json")
    with java_client.flow(servers, _TOPIC, interval_s=0.02, retries=False, poll_interval_s=4) as flow:
        for index, broker in enumerate(brokers):
            _wait_stored(broker)
            drained = _drain(servers, broker, *flags)
            assert drained.code == 0, drained
            verdict = json.loads(drained.out)
            assert verdict["safe"]
            assert verdict["messages_stored"] == _stored(broker)
            broker.kill()
            _wait_stored(brokers[index - 1])
            broker.start()
            undone = _drain(servers, broker, "--undo")
            assert undone.code == 0, undone
    measured(
        f"rolling restart with drain and kill -9 of 3 brokers: {flow.sent} messages, {len(flow.send_failures)} failed,"
        f" {flow.missing} missing"
    )
    assert flow.sent > 100
    assert flow.send_failures == []
    assert flow.missing == 0


def test_a_killed_broker_fails_sends_without_a_drain(
    servers: str, brokers: list[Broker], java_client: JavaClient
) -> None:
    """This shows that the test above can fail."""
    with java_client.flow(servers, _TOPIC, interval_s=0.02, retries=False) as flow:
        _wait_stored(brokers[0])
        brokers[0].kill()
        _wait_stored(brokers[1])
        brokers[0].start()
    assert flow.send_failures
