"""A server that answers frames as a test tells it to, for what puts load on servers."""

import json
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Asked:
    """A request.

    Attributes:
        connection: Number of the connection that it came over, from 0 on in the order of opening.
        number: Of the request, from 0 on over all connections.
        header: The JSON header.
        body: The body.
    """

    connection: int
    number: int
    header: dict[str, Any]
    body: bytes


#: What to write for a request; None closes the connection instead.
Script = Callable[[Asked], bytes | None]


def answered(asked: Asked, *, code: int = 0, body: bytes = b'{"queueDatas":[]}', **header: object) -> bytes:
    """An answer's frame as the Java server writes it."""
    fields = {
        "code": code,
        "flag": 1,
        "language": "JAVA",
        "opaque": asked.header["opaque"],
        "serializeTypeCurrentRPC": "JSON",
        "version": 479,
        **header,
    }
    text = json.dumps(fields, separators=(",", ":")).encode()
    return struct.pack(">II", 4 + len(text) + len(body), len(text)) + text + body


class ScriptedPeer:
    """Listens on a port of 127.0.0.1 and answers by a script, a thread for each connection."""

    def __init__(self, script: Script, delay_s: float = 0) -> None:
        self._script = script
        self._delay_s = delay_s
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self.asked: list[Asked] = []

    @property
    def addr(self) -> str:
        """``host:port``."""
        return "{}:{}".format(*self._listener.getsockname())

    def __enter__(self) -> Self:
        """Listen from now on."""
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close everything."""
        for one in (self._listener, *self._sockets):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join()

    def _start(self, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                accepted, _ = self._listener.accept()
                number = len(self._sockets)
                self._sockets.append(accepted)
                self._start(lambda accepted=accepted, number=number: self._serve(accepted, number))  # type: ignore[misc]

    def _serve(self, accepted: socket.socket, connection: int) -> None:
        with suppress(OSError), accepted.makefile("rb") as stream:
            while prefix := stream.read(4):
                payload = stream.read(int.from_bytes(prefix, "big"))
                header_bytes = int.from_bytes(payload[1:4], "big")
                header = json.loads(payload[4 : 4 + header_bytes])
                with self._lock:
                    asked = Asked(connection, len(self.asked), header, payload[4 + header_bytes :])
                    self.asked.append(asked)
                time.sleep(self._delay_s)
                answer = self._script(asked)
                if answer is None:
                    accepted.shutdown(socket.SHUT_RDWR)
                    return
                accepted.sendall(answer)
