"""Listening sockets, and the addresses of name servers that clients receive."""

import socket

import pytest

from namesrv_stream.errors import ConfigError
from namesrv_stream.server.start.process import NameServerAddrs, address, bind


def test_a_port_that_is_in_use_is_reported_with_its_setting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError) as refusal:
        bind("127.0.0.1", taken.getsockname()[1], "remoting")
    assert (refusal.value.key, refusal.value.exit_code) == ("remoting.listen_port", 2)


@pytest.mark.parametrize(
    ("host", "shown"), [("0.0.0.0", "0.0.0.0"), ("127.0.0.1", "127.0.0.1"), ("::", "[::]"), ("::1", "[::1]")]
)
def test_the_address_of_a_socket_contains_its_actual_port(host: str, shown: str) -> None:
    with bind(host, 0, "x") as bound:
        assert address(bound) == f"{shown}:{bound.getsockname()[1]}"


def test_clients_receive_the_configured_list_unchanged() -> None:
    addrs = NameServerAddrs(("10.0.0.1:9876", "10.0.0.2:9876"), "0.0.0.0", 1)
    assert addrs.reached_by("10.0.0.9") == ["10.0.0.1:9876", "10.0.0.2:9876"]


@pytest.mark.parametrize(
    ("listen_host", "reached_host", "expected"),
    [
        pytest.param("10.0.0.5", "127.0.0.1", "10.0.0.5:9876", id="one address"),
        pytest.param("0.0.0.0", "10.0.0.5", "10.0.0.5:9876", id="every IPv4 address"),
        pytest.param("0.0.0.0", "fd00::5", "127.0.0.1:9876", id="asked over IPv6, served on IPv4"),
        pytest.param("::", "fd00::5", "[fd00::5]:9876", id="every address, asked over IPv6"),
        pytest.param("::", "::ffff:10.0.0.5", "10.0.0.5:9876", id="every address, asked over IPv4"),
        pytest.param("::1", "10.0.0.5", "[::1]:9876", id="one IPv6 address"),
    ],
)
def test_without_a_configured_list_a_client_receives_the_address_that_it_reached(
    listen_host: str, reached_host: str, expected: str
) -> None:
    assert NameServerAddrs((), listen_host, 9876).reached_by(reached_host) == [expected]
