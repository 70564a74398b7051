"""Requests that a server has received but not processed, and the ticks that wait for them.

A tick states that everything the server received before it is in the log. So a requested tick waits for every peer that
is waiting at that moment: until one of its requests is processed, or it disconnects. A peer with ever more requests
delays a tick no longer than that; while it waits, a tick counts as a heartbeat of its brokers. A peer that was read
again for a whole beat and sent no request does not delay a tick either: it has sent no complete request.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from namesrv_stream.route.events import BrokerHeartbeat


class WaitingPeer(Protocol):
    """A peer that waits for the server. The server reads nothing from it meanwhile."""

    def heartbeats(self) -> Iterable[BrokerHeartbeat]:
        """Return heartbeats for the brokers that use the peer's connection."""


class Backlog:
    """Decides when a tick is due. Only one event loop may use it.

    Attributes:
        waiting: The peers that wait for the server.
    """

    def __init__(self) -> None:
        self.waiting: dict[WaitingPeer, None] = {}
        # Peers that the requested tick waits for → whether the server was reading them at the previous beat.
        self._awaited: dict[WaitingPeer, bool] = {}
        self._on_due: Callable[[], None] = lambda: None

    def wait(self, peer: WaitingPeer) -> None:
        """Record that a peer waits from now on."""
        self.waiting[peer] = None

    def read_again(self, peer: WaitingPeer) -> None:
        """Record that a peer no longer waits."""
        self.waiting.pop(peer, None)

    def worked_on(self, peer: WaitingPeer) -> None:
        """Record that a request of a peer was processed, or that the peer disconnected."""
        if peer in self._awaited:
            del self._awaited[peer]
            if not self._awaited:
                self._on_due()

    def when_worked_off(self, on_due: Callable[[], None]) -> None:
        """Call ``on_due`` when a tick is due. Called every beat; it requests no second tick while one waits."""
        if self._awaited:
            for peer in [peer for peer, is_read in self._awaited.items() if is_read and peer not in self.waiting]:
                self.worked_on(peer)
            self._awaited = {peer: peer not in self.waiting for peer in self._awaited}
        elif self.waiting:
            self._awaited, self._on_due = dict.fromkeys(self.waiting, False), on_due
        else:
            on_due()
