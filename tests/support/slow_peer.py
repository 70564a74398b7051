"""A peer that answers one connection slowly, for much longer than its client should wait."""

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress


@contextmanager
def slow_peer(begin: bytes, rest: bytes, times: int = 750) -> Iterator[int]:
    """Run the peer; yields its port. It sends ``begin``, then ``rest`` every 20 ms (750 times: 15 s), and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as threads:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                connection.recv(65_536)
                connection.sendall(begin)
                for _ in range(times):
                    connection.sendall(rest)
                    time.sleep(0.02)

        threads.submit(answer)
        yield listener.getsockname()[1]
