"""Many connections at full speed, and one correct client next to them."""

import itertools
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from tests.fuzz.floods import Kind

_MAX_DRAINED_BYTES: Final = 1 << 20


@dataclass(slots=True)
class Waits:
    """Response times in seconds, in order of the requests."""

    seconds: list[float] = field(default_factory=list)

    def at(self, share: float) -> float:
        """Return the response time that ``share`` of the requests did not exceed."""
        return sorted(self.seconds)[min(int(len(self.seconds) * share), len(self.seconds) - 1)]


class Flood:
    """Attackers, each in its own thread with one connection after the other; a context manager that stops them."""

    def __init__(self, addr: str, kind: Kind, attackers: int = 8) -> None:
        host, _, port = addr.rpartition(":")
        self._addr = (host, int(port))
        self._kind = kind
        next(iter(kind.pieces(0)))  # some take seconds to build
        self._stop = threading.Event()
        self._numbers = itertools.count()
        self.connections = 0
        self.refused: list[OSError] = []
        self._threads = [threading.Thread(target=self._attack, daemon=True) for _ in range(attackers)]

    def __enter__(self) -> "Flood":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def _attack(self) -> None:
        while not self._stop.is_set():
            try:
                peer = socket.create_connection(self._addr, 10)
            except OSError as error:
                self.refused.append(error)
                return
            self.connections += 1
            with peer, suppress(OSError):
                peer.setblocking(False)
                for piece in self._kind.pieces(next(self._numbers)):
                    self._send(peer, memoryview(piece))
                    if self._stop.is_set():
                        return
                if self._kind.stays:
                    self._await_close(peer)
                elif self._kind.reads:
                    self._drain(peer)

    def _send(self, peer: socket.socket, rest: memoryview) -> None:
        poller = select.poll()
        poller.register(peer, select.POLLOUT | (select.POLLIN if self._kind.reads else 0))
        while rest and not self._stop.is_set():
            for _, event in poller.poll(100):
                if event & select.POLLIN and not peer.recv(1 << 20):
                    raise ConnectionError
                if event & ~select.POLLIN:
                    rest = rest[peer.send(rest) :]

    def _await_close(self, peer: socket.socket) -> None:
        poller = select.poll()
        poller.register(peer, select.POLLRDHUP)
        while not self._stop.is_set() and not poller.poll(100):
            pass

    def _drain(self, peer: socket.socket) -> None:
        """Read until there is nothing for a while; only so much that an attacker is not busy with one connection."""
        peer.settimeout(0.05)
        drained = 0
        while drained < _MAX_DRAINED_BYTES and (part := peer.recv(65_536)):
            drained += len(part)


def waits_while(ask: Callable[[], object], is_over: Callable[[], bool]) -> Waits:
    """Send requests until a condition is true; returns their response times."""
    waits = Waits()
    while not is_over():
        began = time.monotonic()
        ask()
        waits.seconds.append(time.monotonic() - began)
    return waits
