"""Two servers share one log and one set of tables; each of them may be lost."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Measured
from tests.support.java_client import Flow, JavaClient
from tests.support.processes import wait_until
from tests.support.rocketmq import Broker
from tests.support.rocketmq_peers import Mqadmin
from tests.support.second_server import SecondServer
from tests.support.stack import Stack

SETTLE_S = 60.0
# A query that a dying server has not answered fails, and others may fail while the client connects to the other server.
FAILOVER_S = 10.0
_QUERIES_BEFORE_S = 0.5


@pytest.fixture
def broker(
    stack: Stack, second_server: SecondServer, periodic_broker: Broker, mqadmin: Mqadmin, tmp_path: Path
) -> Iterator[Broker]:
    stack.wait_job()  # servers learn each other's brokers from the tables
    with Broker(tmp_path, f"{stack.remoting};{second_server.remoting}", name="broker-shared") as running:
        for addr in (stack.remoting, second_server.remoting):
            _wait_routed(mqadmin, addr, running.name)
        yield running


def test_clients_continue_while_either_server_is_killed(
    stack: Stack,
    second_server: SecondServer,
    broker: Broker,
    mqadmin: Mqadmin,
    java_client: JavaClient,
    measured: Measured,
) -> None:
    topic, made_meanwhile = "SharedRoute", "MadeMeanwhile"
    both = f"{stack.remoting};{second_server.remoting}"
    mqadmin.create_topic(stack.remoting, broker.addr, topic)
    _wait_routed(mqadmin, second_server.remoting, topic)
    with java_client.flow(both, topic) as flow:
        # The client is connected to one of the two killed servers.
        kills = [_kill(second_server.kill)]
        assert mqadmin.topic_route(stack.remoting, broker.name)
        mqadmin.create_topic(stack.remoting, broker.addr, made_meanwhile)
        began = time.monotonic()
        second_server.start()
        _wait_same(mqadmin, stack, second_server, (broker.name, topic, made_meanwhile))
        measured(f"second server killed and back with the same routes {time.monotonic() - began:.1f} s after its start")
        kills.append(_kill(lambda: stack.kill("serve")))
        _wait_same(mqadmin, stack, second_server, (broker.name, topic, made_meanwhile))
    # The new servers know the broker's connections again, so closing them removes the route before the next test.
    broker.register()
    assert flow.sent > 0
    assert flow.missing == 0
    assert flow.send_failures == []
    _assert_only_failovers(flow, kills, measured)


def test_broker_that_unregisters_leaves_both_servers(
    stack: Stack, second_server: SecondServer, broker: Broker, mqadmin: Mqadmin
) -> None:
    broker.begin_stop()
    wait_until(
        lambda: not any(mqadmin.topic_route(addr, broker.name) for addr in (stack.remoting, second_server.remoting)),
        SETTLE_S,
        "both servers have removed the broker",
    )


def _kill(kill: Callable[[], None]) -> float:
    killed_s = time.monotonic()
    kill()
    return killed_s


def _wait_routed(mqadmin: Mqadmin, addr: str, topic: str) -> None:
    wait_until(lambda: mqadmin.topic_route(addr, topic), SETTLE_S, f"{addr} routes {topic}")


def _wait_same(mqadmin: Mqadmin, stack: Stack, second_server: SecondServer, topics: Sequence[str]) -> None:
    def routes(addr: str) -> list[Any]:
        return [mqadmin.topic_route(addr, topic) for topic in topics]

    wait_until(
        lambda: None not in routes(stack.remoting) and routes(stack.remoting) == routes(second_server.remoting),
        SETTLE_S,
        "both servers have the same routes",
    )


def _assert_only_failovers(flow: Flow, kills: Sequence[float], measured: Measured) -> None:
    measured(
        f"{flow.queries} queries, {len(flow.query_failures)} failed, slowest {flow.slowest_query_s:.2f} s;"
        f" {flow.sent} messages sent"
    )
    outside = [
        failure
        for failure in flow.query_failures
        if not any(-_QUERIES_BEFORE_S < failure.begun_s - killed_s < FAILOVER_S for killed_s in kills)
    ]
    assert outside == [], kills
