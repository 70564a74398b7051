"""moto's server as an S3-compatible store, behind a proxy that can block requests or drop answers and conditions.

It stores all objects in memory. To simulate an outage, block the proxy instead of killing the server.
"""

import socket
import sys
import threading
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.support.processes import Process, free_port, wait_until

#: Python of a separate environment, which `make test-extra` creates.
_PYTHON: Final = Path(sys.prefix) / "moto" / "bin" / "python"
#: The server handles one request at a time, because moto does not check and write a key atomically.
_SERVER: Final = """
import sys, threading
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

app, one = DomainDispatcherApplication(create_backend_app), threading.Lock()

def one_at_a_time(environ, start_response):
    with one:
        return list(app(environ, start_response))

run_simple("127.0.0.1", int(sys.argv[1]), one_at_a_time, threaded=True)
"""
_START_S: Final = 120.0
_REGION: Final = "us-east-1"


class ObjectStore:
    """A store with an empty bucket ``tables``; a context manager.

    Args:
        folder: Folder for its log.

    Attributes:
        url: URL of its gate.
    """

    def __init__(self, folder: Path) -> None:
        self._port = free_port()
        command: list[str | Path] = [_PYTHON, "-c", _SERVER, str(self._port)]
        self._process = Process("moto", command, folder / "moto.log")
        self._gate = _Gate(free_port(), self._port)
        self.url = f"http://127.0.0.1:{self._gate.port}"

    @property
    def options(self) -> dict[str, str]:
        """The value of ``data.extra``."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": _REGION,
            "AWS_ACCESS_KEY_ID": "an-access-key",
            "AWS_SECRET_ACCESS_KEY": "Tr0ub4dor-s3",
        }

    @property
    def environ(self) -> dict[str, str]:
        """The same options as environment variables of a process."""
        return {f"NAMESRV_STREAM__DATA__EXTRA__{name}": value for name, value in self.options.items()}

    def become_unavailable(self) -> None:
        """Refuse new connections and break the open ones."""
        self._gate.close()

    def become_available(self) -> None:
        """Accept connections again."""
        self._gate.open()

    def lose_answers(self, to: bytes, times: int = 1) -> threading.Event:
        """Forward the next matching requests, but break their connections before the answer; then the event is set.

        Args:
            to: Part of their first line.
            times: Number of requests; a client tries four times.
        """
        return self._gate.lose_answers(to, times)

    def forget_conditions(self, is_forgetful: bool) -> None:
        """Behave as a store that ignores If-None-Match."""
        self._gate.drops_conditions = is_forgetful

    def requests(self) -> list[str]:
        """Return the first lines of all requests so far, as moto logged them."""
        return [line.split('"')[1] for line in self._process.log_text().splitlines() if line.count('"') >= 2]

    def _is_there(self) -> bool:
        request = urllib.request.Request(f"http://127.0.0.1:{self._port}/tables", method="PUT")
        try:
            with urllib.request.urlopen(request, timeout=5):
                return True
        except urllib.error.URLError:
            assert self._process.is_alive, self._process.log_text()
            return False

    def __enter__(self) -> Self:
        assert _PYTHON.exists(), f"no moto in {_PYTHON}: run `make test-extra`, which installs it"
        self._process.start()
        try:
            wait_until(self._is_there, _START_S, "moto creates a bucket", ignoring=(OSError,))
            self._gate.open()
        except BaseException:
            self._process.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._gate.close()
        self._process.close()


class _Gate:
    """Forwards connections to another port."""

    def __init__(self, port: int, behind: int) -> None:
        self.port = port
        self._behind = behind
        self._listener: socket.socket | None = None
        self._guard = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._lost: tuple[bytes, list[threading.Event]] = (b"", [])
        self.drops_conditions = False

    def open(self) -> None:
        if self._listener is not None:
            return
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self._listener,), name="gate", daemon=True).start()

    def close(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            # A close alone does not wake the thread that accepts connections.
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self._guard:
            for one in self._sockets:
                _break(one)

    def lose_answers(self, to: bytes, times: int) -> threading.Event:
        events = [threading.Event() for _ in range(times)]
        with self._guard:
            self._lost = (to, events)
        return events[0]

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
                server = socket.create_connection(("127.0.0.1", self._behind))
            except OSError:
                return
            with self._guard:
                self._sockets |= {client, server}
            lost: list[threading.Event] = []
            for source, sink, is_question in ((client, server, True), (server, client, False)):
                arguments = (source, sink, is_question, lost)
                threading.Thread(target=self._pass_on, args=arguments, name="gate", daemon=True).start()

    def _pass_on(
        self, source: socket.socket, sink: socket.socket, is_question: bool, lost: list[threading.Event]
    ) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if is_question:
                    self._look_at(data, lost)
                    if self.drops_conditions:
                        data = data.replace(b"if-none-match: *\r\n", b"")
                elif lost:
                    lost.pop().set()
                    break
                sink.sendall(data)
        for one in (source, sink):
            _break(one)
        with self._guard:
            self._sockets -= {source, sink}
        source.close()

    def _look_at(self, data: bytes, lost: list[threading.Event]) -> None:
        with self._guard:
            to, events = self._lost
            if events and to in data.partition(b"\r\n")[0]:
                lost.append(events.pop())


def _break(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
