"""Many connections that send damaged frames, and one correct client next to them."""

import random
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from struct import pack
from typing import Final

from tests.vectors.captured import captured_frames

#: How many frames a connection sends; most of them are valid, so that they reach the processors.
_FRAMES_A_CONNECTION: Final = 20
_MAX_DRAINED_BYTES: Final = 1 << 20


@dataclass(slots=True)
class Waits:
    """Response times in seconds, in order of the requests."""

    seconds: list[float] = field(default_factory=list)

    def at(self, share: float) -> float:
        """Return the response time that ``share`` of the requests did not exceed."""
        return sorted(self.seconds)[min(int(len(self.seconds) * share), len(self.seconds) - 1)]


def damaged(raw: bytes, dice: random.Random) -> bytes:
    """Damage a frame: changed, removed or duplicated bytes, or a wrong length; one of three frames stays intact."""
    data = bytearray(raw)
    for _ in range(dice.choice((0, 1, 3))):
        start = dice.randrange(len(data)) if data else 0
        end = min(len(data), start + dice.randrange(1, 16))
        match dice.randrange(5):
            case 0:
                data[start:end] = dice.randbytes(end - start)
            case 1:
                del data[start:end]
            case 2:
                data[end:end] = data[start:end]
            case 3:
                data[0:4] = pack(">i", dice.choice((-1, 0, 3, 4, 2**31 - 1, 1 << 24, len(data))))
            case _:
                data[4:8] = dice.randbytes(4)
    return bytes(data)


class Flood:
    """Attackers, each in its own thread; a context manager that stops them."""

    def __init__(self, addr: str, attackers: int, seed: int) -> None:
        host, _, port = addr.rpartition(":")
        self._addr = (host, int(port))
        self._stop = threading.Event()
        self._frames = [c.raw for c in captured_frames() if c.from_peer and len(c.raw) < 32_768]
        self.connections = 0
        self.refused: list[OSError] = []
        self._threads = [
            threading.Thread(target=self._attack, args=(random.Random(seed * 1_000 + number),), daemon=True)
            for number in range(attackers)
        ]

    def __enter__(self) -> "Flood":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def _attack(self, dice: random.Random) -> None:
        while not self._stop.is_set():
            try:
                peer = socket.create_connection(self._addr, 10)
            except OSError as error:
                self.refused.append(error)
                return
            self.connections += 1
            with peer, suppress(OSError):
                peer.settimeout(0.05)
                stream = b"".join(damaged(dice.choice(self._frames), dice) for _ in range(_FRAMES_A_CONNECTION))
                while stream and not self._stop.is_set():
                    size = dice.choice((1, 7, 512, len(stream)))
                    peer.sendall(stream[:size])
                    stream = stream[size:]
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
