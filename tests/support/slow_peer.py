"""A peer that answers one connection slowly, for much longer than its client should wait."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_PAUSE_S = 0.02
_LONGEST_S = 15.0


@contextmanager
def slow_peer(begin: bytes, rest: bytes) -> Iterator[int]:
    """Run the peer; yields its port.

    It sends ``begin``, and then ``rest`` again and again until the client closes the connection. After 15 s it ends the
    header instead, so that a client without a limit of its own accepts the answer.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                connection.recv(65_536)
                connection.sendall(begin)
                until_s = time.monotonic() + _LONGEST_S
                while time.monotonic() < until_s:
                    connection.sendall(rest)
                    time.sleep(_PAUSE_S)
                connection.sendall(b"\r\n\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()
