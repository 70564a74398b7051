"""Choosing ports and finding them taken."""

import socket

import pytest

from namesrv_stream.errors import ConfigError
from namesrv_stream.ports import choose_port, reachable_host, require_free


def test_a_chosen_port_can_be_listened_on() -> None:
    with socket.create_server(("127.0.0.1", choose_port("127.0.0.1"))):
        pass


def test_the_preferred_port_is_kept_while_it_is_free() -> None:
    port = choose_port("127.0.0.1")
    assert choose_port("127.0.0.1", preferred=port) == port
    assert choose_port("127.0.0.1", preferred=port, taken=[port]) != port
    with socket.create_server(("127.0.0.1", port)):
        assert choose_port("127.0.0.1", preferred=port) != port


def test_a_port_that_someone_listens_on_is_refused_with_its_key() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ConfigError) as refusal:
            require_free("127.0.0.1", port, "http")
    assert refusal.value.key == "http.listen_port"
    assert f"127.0.0.1:{port}: Address already in use" in refusal.value.reason


def test_an_address_of_another_machine_is_refused_as_the_host() -> None:
    with pytest.raises(ConfigError) as refusal:
        require_free("192.0.2.1", 9876, "remoting")
    assert refusal.value.key == "remoting.listen_host"


@pytest.mark.parametrize(
    ("listen_host", "reachable"), [("0.0.0.0", "127.0.0.1"), ("::", "127.0.0.1"), ("192.0.2.1", "192.0.2.1")]
)
def test_a_wildcard_is_reached_on_the_loopback_interface(listen_host: str, reachable: str) -> None:
    assert reachable_host(listen_host) == reachable
