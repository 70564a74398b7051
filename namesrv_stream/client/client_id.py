"""Who a client says it is: ``ip@pid``, as RocketMQ's clients call themselves."""

import os
import socket

# An address reserved for documents: nothing is sent, the system only says which of its own addresses it would use.
_ELSEWHERE = ("192.0.2.1", 9)


def default_client_id() -> str:
    """This machine's address towards others and this process.

    Differs from RocketMQ: 5.x adds the time to the pid, so that each of its clients in a process is another one.
    """
    return f"{_local_ip()}@{os.getpid()}"


def _local_ip() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
