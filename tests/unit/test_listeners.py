"""Which process listens on a port."""

import os
import socket
import subprocess
import sys

from namesrv_stream.listeners import listener_on
from namesrv_stream.ports import choose_port

_LISTENS = """
import socket, sys
listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
print(listener.getsockname()[1], flush=True)
sys.stdin.read()
"""


def test_our_own_process_is_named() -> None:
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


def test_nobody_is_named_where_nobody_listens() -> None:
    assert listener_on(choose_port("127.0.0.1")) is None
