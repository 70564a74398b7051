"""TCP between simulated machines: connections with delay, cuts, half-open ends and flow control.

A connection delivers its bytes in order; bytes of different connections overtake each other. While two machines are
cut off from each other, bytes wait and connections stay open, as with the kernel's retransmissions. A process that
ends closes its connections; a machine that loses power does not, so the other end learns of it only when it sends.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from tests.simulation.runtime.process import MS, Process
from tests.simulation.runtime.scheduler import Scheduler

Address = tuple[str, int]

#: Bytes that a kernel keeps for a peer that does not read.
_WINDOW: Final = 256 * 1024
_CONNECT_TIMEOUT: Final = 5_000 * MS


class SimSocket:
    """A bound socket, as the server's start needs it."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)

    def getsockname(self) -> Address:
        return self._address


class Listener:
    """A listening port."""

    def __init__(self, network: "Network", process: Process, address: Address, factory: Callable[[], Any]) -> None:
        self.process, self.factory = process, factory
        self._network, self._address = network, address

    def close(self) -> None:
        if self._network.listeners.get(self._address) is self:
            del self._network.listeners[self._address]


class End(asyncio.Transport):
    """One end of a connection, which is the transport of its protocol."""

    def __init__(self, network: "Network", process: Process, host: str, peer: Address, number: int) -> None:
        super().__init__()
        self.process, self.host, self.number = process, host, number
        self.other: End
        self.protocol: Any = None
        self.is_closed = False  # the protocol knows, or will know at once
        self._peer = peer
        self._network = network
        self._is_closing = self._is_own_close = False
        self._is_reading = True
        self._unsent = bytearray()  # written, but the peer's window is full
        self._arrived: deque[bytes] = deque()  # received, but not read
        self._arrived_size = 0
        self._under_way = 0
        self._has_fin = False
        self._high, self._is_writing_paused = 64 * 1024, False
        self.sent_until = 0  # when everything that was sent has arrived; no byte arrives before an earlier one

    # ---- asyncio's interface ----

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._peer if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 64 * 1024 if high is None else high

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def is_closing(self) -> bool:
        return self._is_closing or self.is_closed

    def write(self, data: Any) -> None:
        if not self.process.is_alive or self.is_closing() or not data:
            return
        self._unsent += data
        self._send()
        if len(self._unsent) > self._high and not self._is_writing_paused:
            self._is_writing_paused = True
            self.protocol.pause_writing()

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        if self._arrived or self._has_fin:
            self._soon(self._read)

    def close(self) -> None:
        if not self.is_closing() and self.process.is_alive:
            self._is_closing = self._is_own_close = True
            self._send()

    def abort(self) -> None:
        if not self.is_closed and self.process.is_alive:
            self._is_own_close = True
            self.reset(is_told=True)

    def _soon(self, callback: Callable[..., None], *args: Any) -> None:
        if self.process.is_alive:
            self.process.loop.call_soon(callback, *args)

    # ---- the way of the bytes ----

    def _send(self) -> None:
        room = _WINDOW - self._under_way - self.other._arrived_size
        if self._unsent and room > 0:
            data = bytes(self._unsent[:room])
            del self._unsent[:room]
            self._under_way += len(data)
            self._network.deliver(self, lambda: self.other._receive(data))
        if self._is_writing_paused and len(self._unsent) <= self._high // 4:
            self._is_writing_paused = False
            self._soon(self._resume_writing)
        if self._is_closing and not self._unsent and not self.is_closed:
            self._end(None)
            self._network.deliver(self, self.other._receive_fin)

    def _resume_writing(self) -> None:
        if not self.is_closed:
            self.protocol.resume_writing()

    def _receive(self, data: bytes) -> None:
        self.other._under_way -= len(data)
        if self.is_closed:
            if not self.other.is_closed:  # a kernel answers data for a closed socket with a reset
                self._network.deliver(self, lambda: self.other._receive_reset())
            return
        self._arrived.append(data)
        self._arrived_size += len(data)
        if self._is_reading:
            self._soon(self._read)

    def _read(self) -> None:
        while self._arrived and self._is_reading and not self.is_closed:
            data = self._arrived.popleft()
            self._arrived_size -= len(data)
            self.protocol.data_received(data)
        if self.other._unsent and not self.other.is_closed:
            self.other._send()
        if self._has_fin and not self._arrived and self._is_reading and not self.is_closed:
            self._is_closing = True
            self._unsent.clear()
            self._end(None)
            self._network.deliver(self, self.other._receive_fin)

    def _receive_fin(self) -> None:
        if not self.is_closed:
            self._has_fin = True
            if self._is_reading:
                self._soon(self._read)

    def _receive_reset(self) -> None:
        if not self.is_closed:
            self._unsent.clear()
            self._arrived.clear()
            self._end(ConnectionResetError("connection reset by peer"))

    def reset(self, *, is_told: bool) -> None:
        """Close at once. The peer is notified, unless the machine of this end has lost its power."""
        self._unsent.clear()
        self._arrived.clear()
        self._end(None)
        if is_told:
            self._network.deliver(self, self.other._receive_reset)

    def _end(self, error: Exception | None) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._network.gone(self, is_evidence=not self._is_own_close)
            if self.protocol is not None:  # otherwise its process ends before it has accepted the connection
                self._soon(self.protocol.connection_lost, error)


class Network:
    """All listeners and connections.

    Attributes:
        cut: Pairs of hosts that cannot reach each other, in both orders.
        delays: Pair of hosts → additional delay.
        closed: Host → when its connections ended other than by the server at the other end.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.listeners: dict[Address, Listener] = {}
        self.ends: dict[End, None] = {}
        self.cut: set[tuple[str, str]] = set()
        self.delays: dict[tuple[str, str], int] = {}
        self.delay = 300
        self.closed: dict[str, list[int]] = {}
        self._waiting: dict[tuple[str, str], list[Callable[[], None]]] = {}
        self._count = 0

    def listen(self, process: Process, address: Address, factory: Callable[[], Any]) -> Listener:
        listener = self.listeners[address] = Listener(self, process, address, factory)
        process.on_exit.append(listener.close)
        return listener

    async def connect(
        self, loop: Any, process: Process, address: Address, factory: Callable[[], Any], host: str = ""
    ) -> tuple[End, Any]:
        """Open a connection from ``host``, by default the machine of the process.

        Raises:
            OSError: Nobody listens there, or the machine cannot be reached.
        """
        host = host or process.machine.host
        future = loop.create_future()
        self._send(host, address[0], lambda: self._accept(future, process, host, address, factory))
        try:
            end: End = await asyncio.wait_for(future, _CONNECT_TIMEOUT / 1e6)
        except TimeoutError:
            raise OSError(f"{address} does not answer") from None
        return end, end.protocol

    def _accept(self, future: Any, process: Process, host: str, address: Address, factory: Callable[[], Any]) -> None:
        listener = self.listeners.get(address)

        def answer() -> None:
            if future.done():
                return
            if listener is None or not listener.process.is_alive:
                future.set_exception(ConnectionRefusedError(f"{address} refuses the connection"))
                return
            self._count += 1
            number = self._count
            near = End(self, process, host, address, number)
            far = End(self, listener.process, address[0], (host, 10_000 + number % 50_000), number)
            near.other, far.other = far, near
            self.ends |= {near: None, far: None}
            near.protocol, far.protocol = factory(), None
            near.protocol.connection_made(near)
            future.set_result(near)
            far._soon(self._open, listener, far)

        self._send(address[0], host, lambda: process.loop.call_soon(answer) and None)

    def _open(self, listener: Listener, far: End) -> None:
        if far.is_closed:
            return
        far.protocol = listener.factory()
        far.protocol.connection_made(far)

    def deliver(self, sender: End, callback: Callable[[], None]) -> None:
        """Call a function when something that an end sends now arrives at the other end."""
        self._send(sender.host, sender.other.host, callback, sender)

    def _send(self, source: str, target: str, callback: Callable[[], None], sender: End | None = None) -> None:
        pair = (source, target)
        if pair in self.cut:
            self._waiting.setdefault(pair, []).append(lambda: self._send(source, target, callback, sender))
            return
        jitter = self.scheduler.random.randrange(self.delay)
        at = self.scheduler.now + self.delay + jitter + self.delays.get(pair, 0)
        if sender is not None:
            at = sender.sent_until = max(at, sender.sent_until)
        self.scheduler.at(at, None, callback)

    def gone(self, end: End, *, is_evidence: bool) -> None:
        self.ends.pop(end, None)
        if is_evidence:
            self.closed.setdefault(end.other.host, []).append(self.scheduler.now)

    def was_closed(self, host: str, begin: int, end: int) -> bool:
        """Return whether a host or the network ended one of the host's connections between two times."""
        return any(begin <= at <= end for at in self.closed.get(host, ()))

    # ---- faults ----

    def separate(self, one: str, other: str) -> None:
        self.cut |= {(one, other), (other, one)}

    def join(self, one: str, other: str) -> None:
        for pair in ((one, other), (other, one)):
            self.cut.discard(pair)
            for callback in self._waiting.pop(pair, []):
                callback()

    def process_ended(self, process: Process, *, is_told: bool) -> None:
        """Close the connections of a process that has ended."""
        for end in [end for end in self.ends if end.process is process]:
            end.reset(is_told=is_told)
