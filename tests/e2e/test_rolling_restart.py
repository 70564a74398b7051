"""A rolling restart of servers, as at an upgrade, does not affect clients."""

from pathlib import Path

import pytest

from tests.e2e.conftest import Measured
from tests.support.java_client import JavaClient
from tests.support.processes import wait_until
from tests.support.rocketmq import Broker
from tests.support.rocketmq_peers import Mqadmin
from tests.support.second_server import SecondServer
from tests.support.stack import Stack

_SETTLE_S = 60.0
_ROUNDS = 3


@pytest.fixture
def third_server(stack: Stack, tmp_path: Path) -> SecondServer:
    """A third server, so that both restarted servers are stopped with SIGTERM, as by a service manager."""
    return SecondServer(tmp_path / "third", stack, server__server_id="third")


def test_no_query_fails_while_both_servers_are_restarted_in_turn(
    stack: Stack,
    second_server: SecondServer,
    third_server: SecondServer,
    periodic_broker: Broker,
    mqadmin: Mqadmin,
    java_client: JavaClient,
    measured: Measured,
) -> None:
    topic = "RollingRestart"
    stack.wait_job()
    with third_server:
        servers = [second_server, third_server]
        mqadmin.create_topic(stack.remoting, periodic_broker.addr, topic)
        for server in servers:
            wait_until(lambda s=server: mqadmin.topic_route(s.remoting, topic), _SETTLE_S, f"{server.remoting} has it")  # type: ignore[misc]
        with java_client.flow(";".join(server.remoting for server in servers), topic) as flow:
            for _ in range(_ROUNDS):
                for server in servers:
                    assert server.process.terminate() == 0
                    server.start()
    measured(
        f"{2 * _ROUNDS} clean restarts: {flow.queries} queries, {len(flow.query_failures)} failed, slowest"
        f" {flow.slowest_query_s * 1000:.0f} ms"
    )
    assert flow.queries > 10 * _ROUNDS
    assert flow.query_failures == []
    assert flow.send_failures == []
    assert flow.missing == 0
