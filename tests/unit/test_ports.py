"""Free, chosen and used ports, and the process that listens on a port."""

import os
import socket
import subprocess
import sys

import pytest

from namesrv_stream.errors import ConfigError
from namesrv_stream.ports import choose_port, listener_on, reachable_host, require_free

_LISTENS = """
import socket, sys
listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
print(listener.getsockname()[1], flush=True)
sys.stdin.read()
"""


def test_own_process_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        found = listener_on(listener.getsockname()[1])
    assert found is not None
    assert found.startswith(f"process {os.getpid()} (")


def test_another_process_is_named_with_its_program_but_without_its_code() -> None:
    command = [sys.executable, "-u", "-c", _LISTENS, "word", "--option"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = listener_on(int(process.stdout.readline()))
        process.communicate()
    program = sys.executable.rpartition("/")[2]
    assert found == f"process {process.pid} ({program} word)"


def test_no_process_is_named_if_none_listens() -> None:
    assert listener_on(choose_port("127.0.0.1")) is None


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
