"""Unmodified Java clients reach a broker from outside its network by the addresses of an address view."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import run_command
from tests.support.java_client import JavaClient
from tests.support.outside import Outside, addrs, outside_network
from tests.support.remoting_client import RemotingClient
from tests.support.rocketmq_peers import Mqadmin, PeerError
from tests.support.stack import Stack

TOPIC = "SeenFromOutside"
GET_BROKER_MEMBER_GROUP = 901


@pytest.fixture(scope="module")
def outside(stack: Stack, mqadmin: Mqadmin, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outside]:
    with outside_network(stack, mqadmin, Path(tmp_path_factory.mktemp("outside")), TOPIC) as running:
        yield running


def test_clients_outside_receive_other_addresses_than_clients_inside(
    stack: Stack, outside: Outside, mqadmin: Mqadmin
) -> None:
    inner, outer = outside.broker.addr, outside.forwarder.addr
    for inner_name_server in (stack.remoting, outside.inner_name_server):
        assert addrs(mqadmin, inner_name_server, TOPIC) == [inner]
    assert addrs(mqadmin, outside.name_server, TOPIC) == [outer]
    rows = {row.broker_name: row.addr for row in mqadmin.cluster_list(outside.name_server)}
    assert rows == {outside.broker.name: outer}  # other brokers have no mapping, so the view omits them
    with RemotingClient(outside.name_server) as client:
        fields = {"clusterName": outside.broker.cluster, "brokerName": outside.broker.name}
        members = client.ask(GET_BROKER_MEMBER_GROUP, fields).body
    assert outer.encode() in members


def test_command_line_shows_the_route_in_the_view(stack: Stack, outside: Outside) -> None:
    code, out, err = run_command("route", TOPIC, "--view", "outside", "--data-dir", str(stack.data_dir))
    assert (code, err) == (0, "")
    assert f"0={outside.forwarder.addr}" in out
    _, views, _ = run_command("view", "list", "--data-dir", str(stack.data_dir))
    # The view ``lan`` comes from the configuration of the second server.
    assert [line.split()[:3] for line in views.splitlines()[1:]] == [
        ["lan", "-", "192.0.2.0/24"],
        ["outside", "outside", "-"],
    ]


def test_why_names_the_brokers_that_a_clients_view_does_not_map(stack: Stack, outside: Outside, tmp_path: Path) -> None:
    document = tmp_path / "far.json"
    document.write_text('{"networks": ["198.51.100.0/24"], "unmapped": "omit"}')
    at = ("--data-dir", str(stack.data_dir))
    assert run_command("view", "set", "far", str(document), *at).code == 0
    try:
        far = run_command("why", TOPIC, "--client", "198.51.100.7", *at)
        near = run_command("why", TOPIC, "--client", "192.0.2.7", *at)
    finally:
        assert run_command("view", "remove", "far", *at).code == 0
    assert far.code == 1
    assert f"{outside.broker.addr} (left out in view far)" in far.out
    assert "address_not_mapped" not in near.out


def test_java_clients_outside_send_and_receive_through_the_view(
    stack: Stack, outside: Outside, java_client: JavaClient
) -> None:
    before = outside.forwarder.connections
    assert java_client.exchange(stack.remoting, TOPIC, count=10) == {outside.broker.name}
    assert outside.forwarder.connections == before  # clients inside use the inner address
    assert java_client.exchange(outside.name_server, TOPIC, count=20) == {outside.broker.name}
    assert outside.forwarder.connections > before
    outside.forwarder.stop()
    with pytest.raises(PeerError, match=r"connect to 127\.0\.0\.2"):
        java_client.produce(outside.name_server, TOPIC, ["lost"])
    assert java_client.exchange(stack.remoting, TOPIC, count=5) == {outside.broker.name}
