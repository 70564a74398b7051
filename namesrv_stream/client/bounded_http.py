"""HTTP requests that end at a fixed time: no peer can hold the caller by taking or sending its bytes slowly."""

import http.client
import io
import math
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

#: Bytes of all lines before the body: those of interim answers and of a proxy's answer included.
_MOST_HEADER_BYTES: Final = 64 << 10


@contextmanager
def answer_to(
    request: urllib.request.Request,
    *handlers: urllib.request.BaseHandler,
    timeout_s: float,
    total_s: float,
    context: ssl.SSLContext | None = None,
) -> Iterator[http.client.HTTPResponse]:
    """Send a request and yield its answer, whatever its status; blocks. Redirects are not followed.

    Args:
        handlers: Take the place of urllib's own, for example of the one for proxies.
        timeout_s: Longest wait for one address to accept the connection and for the next bytes, in seconds.
        total_s: Seconds after which the connection is cut, also while the caller reads the body. The lookup of the
            host's name does not use the connection; the system's resolver limits it.
        context: For https; None for urllib's own.

    Raises:
        OSError: There is no connection, or the header is too long; TimeoutError after ``total_s``.
        http.client.HTTPException: The answer is not HTTP.
    """
    connection = _Connection(total_s, context)
    timer = threading.Timer(total_s, connection.cut)
    timer.daemon = True
    timer.start()
    try:
        opener = urllib.request.build_opener(connection, *handlers)
        with opener.open(request, timeout=timeout_s) as answer:
            yield answer
    except (OSError, http.client.HTTPException):
        if not connection.is_cut:
            raise
    finally:
        timer.cancel()
        timer.join()
        connection.release()
    if connection.is_cut:
        raise TimeoutError(f"no complete answer within {total_s:g} s")


class _Connection(urllib.request.HTTPHandler, urllib.request.HTTPSHandler, urllib.request.HTTPErrorProcessor):
    """Opens the connection of one request, which another thread can cut.

    Attributes:
        is_cut: Whether it was cut, so that what was read may be incomplete.
    """

    def __init__(self, total_s: float, context: ssl.SSLContext | None) -> None:
        super().__init__(context=context)
        self._until_s = time.monotonic() + total_s
        self._duplicate: socket.socket | None = None  # TLS takes over the descriptor of the socket itself
        self.is_cut = False

    def cut(self) -> None:
        self.is_cut = True
        if self._duplicate is not None:
            with suppress(OSError):  # the peer was faster
                self._duplicate.shutdown(socket.SHUT_RDWR)

    def release(self) -> None:
        if self._duplicate is not None:
            self._duplicate.close()

    def do_open(self, http_class: Any, req: urllib.request.Request, **arguments: Any) -> http.client.HTTPResponse:
        def connection(host: str, **more: Any) -> Any:
            made = http_class(host, **more)
            made.response_class = _Answer
            made._create_connection = self._connect  # noqa: SLF001  # no public way to the socket below TLS
            return made

        return super().do_open(connection, req, **arguments)

    def http_response(self, request: urllib.request.Request, response: Any) -> Any:
        return response

    https_response = http_response

    def _connect(self, address: tuple[str, int], timeout_s: float, _source: object) -> socket.socket:
        """Connect to the first of the host's addresses that accepts in time; all of them share the time."""
        failure = OSError("the host has no address")
        for *_, target in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
            left_s = max(0.001, self._until_s - time.monotonic())
            try:
                connected = socket.create_connection((str(target[0]), int(target[1])), min(timeout_s, left_s))
            except OSError as error:
                failure = error
                continue
            self._duplicate = connected.dup()
            if self.is_cut:
                self.cut()
            return connected
        raise failure


class _Lines(io.BufferedReader):
    """Reads ``left`` bytes of lines."""

    left: float = _MOST_HEADER_BYTES

    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(size)
        self.left -= len(line)
        if self.left < 0:
            raise OSError(f"the header of the answer has more than {_MOST_HEADER_BYTES} bytes")
        return line


class _Answer(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp: Any = _Lines(self.fp.detach())

    def begin(self) -> None:
        super().begin()
        self.fp.left = math.inf  # the lines between the chunks of a body
