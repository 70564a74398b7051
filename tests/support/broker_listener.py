"""A broker's side of a name server's own requests: a real listener that records what it receives and never answers."""

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

from namesrv_stream.remoting.command import RemotingCommand
from namesrv_stream.remoting.frame import FrameBuffer, decode_frame


class BrokerListener:
    """Listens on 127.0.0.1; a context manager.

    Attributes:
        addr: ``host:port`` to advertise.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.addr = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._peers: list[socket.socket] = []
        self._requests: list[RemotingCommand] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def requests(self) -> list[RemotingCommand]:
        """All requests so far; those of one connection in their order."""
        return list(self._requests)

    def close(self) -> None:
        """Close the listener and all connections."""
        for each in (self._listener, *self._peers):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self._peers.append(peer)
            reader = threading.Thread(target=self._read, args=(peer,), daemon=True)
            self._threads.append(reader)
            reader.start()

    def _read(self, peer: socket.socket) -> None:
        frames = FrameBuffer()
        with suppress(OSError):
            while data := peer.recv(65_536):
                self._requests.extend(map(decode_frame, frames.feed(data)))

    def __enter__(self) -> Self:
        """Nothing: it listens already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it all."""
        self.close()
