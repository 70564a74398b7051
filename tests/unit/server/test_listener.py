"""Listening, and what clients are told of where to find the name servers."""

import socket

import pytest

from namesrv_stream.errors import ConfigError
from namesrv_stream.server.start.process import NameServerAddrs, address, bind


def test_a_taken_port_is_named_with_its_key() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError) as refusal:
        bind("127.0.0.1", taken.getsockname()[1], "remoting")
    assert (refusal.value.key, refusal.value.exit_code) == ("remoting.listen_port", 2)


@pytest.mark.parametrize(
    ("host", "shown"), [("0.0.0.0", "0.0.0.0"), ("127.0.0.1", "127.0.0.1"), ("::", "[::]"), ("::1", "[::1]")]
)
def test_an_address_is_the_one_that_is_really_listened_at(host: str, shown: str) -> None:
    with bind(host, 0, "x") as bound:
        assert address(bound) == f"{shown}:{bound.getsockname()[1]}"


def test_the_configured_list_is_told_as_it_is() -> None:
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
def test_without_a_list_a_client_is_told_the_address_it_reaches(
    listen_host: str, reached_host: str, expected: str
) -> None:
    assert NameServerAddrs((), listen_host, 9876).reached_by(reached_host) == [expected]
