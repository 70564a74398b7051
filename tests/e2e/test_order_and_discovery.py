"""The configuration of ordered topics, and name-server addresses over HTTP, with a Java client."""

import pytest

from tests.support.java_client import JavaClient
from tests.support.rocketmq import Broker
from tests.support.rocketmq_peers import Mqadmin
from tests.support.second_server import SecondServer
from tests.support.stack import Stack

TOPIC = "OrderedForClients"


def test_client_follows_the_order_configuration_while_it_exists(
    stack: Stack, periodic_broker: Broker, mqadmin: Mqadmin, java_client: JavaClient
) -> None:
    mqadmin.create_topic(stack.remoting, periodic_broker.addr, TOPIC, queues=4)
    name = periodic_broker.name
    assert _queues(java_client, stack) == [(name, queue) for queue in range(4)]
    conf = f"{name}:2"
    mqadmin.run("updateOrderConf", "-n", stack.remoting, "-t", TOPIC, "-m", "put", "-v", conf)
    assert _queues(java_client, stack) == [(name, queue) for queue in range(2)]
    mqadmin.run("updateOrderConf", "-n", stack.remoting, "-t", TOPIC, "-m", "delete")
    assert _queues(java_client, stack) == [(name, queue) for queue in range(4)]


@pytest.mark.parametrize(("subgroup", "unit_name"), [("nsaddr", ""), ("", ""), ("nsaddr4client-internet", "hz")])
def test_client_finds_the_server_by_http(
    stack: Stack, periodic_broker: Broker, java_client: JavaClient, subgroup: str, unit_name: str
) -> None:
    where = {"namesrv_domain": stack.http, "subgroup": subgroup, "unit_name": unit_name}
    queues = java_client.publish_queues(periodic_broker.name, **where)
    assert queues == [(periodic_broker.name, 0)]


def test_address_server_names_itself(stack: Stack, second_server: SecondServer) -> None:
    assert second_server.get_text("/rocketmq/nsaddr").strip() == second_server.remoting


def _queues(java_client: JavaClient, stack: Stack) -> list[tuple[str, int]]:
    return sorted(java_client.publish_queues(TOPIC, namesrv_addr=stack.remoting))
