"""Requests that a server has received and not worked on yet, and the ticks that wait for them.

A tick tells the fold that all that the server received before it is in the log. So a tick that is asked for is due when
of each peer that waits for the server at that moment one request has been worked on, or the peer has gone. A peer that
always has another request delays no tick for longer than that: as long as something of it waits, its brokers count as
heard. Nor does one that has been read again for a whole beat without a request: it has sent none that is complete.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from namesrv_stream.route.events import BrokerHeartbeat


class WaitingPeer(Protocol):
    """A peer that waits for the server, which does not even read what the peer sends meanwhile."""

    def heartbeats(self) -> Iterable[BrokerHeartbeat]:
        """The signs of life of the brokers that the server hears over the peer's connection."""


class Backlog:
    """Belongs to one event loop.

    Attributes:
        waiting: The peers that wait for the server.
    """

    def __init__(self) -> None:
        self.waiting: dict[WaitingPeer, None] = {}
        # By the tick that was asked for: whether they were read at the beat before.
        self._awaited: dict[WaitingPeer, bool] = {}
        self._on_due: Callable[[], None] = lambda: None

    def wait(self, peer: WaitingPeer) -> None:
        """A peer waits from now on."""
        self.waiting[peer] = None

    def read_again(self, peer: WaitingPeer) -> None:
        """A peer does not wait any more."""
        self.waiting.pop(peer, None)

    def worked_on(self, peer: WaitingPeer) -> None:
        """A request of a peer was worked on, or the peer has gone."""
        if peer in self._awaited:
            del self._awaited[peer]
            if not self._awaited:
                self._on_due()

    def when_worked_off(self, on_due: Callable[[], None]) -> None:
        """Have a tick logged when it is due; called each beat. No second one is asked for as long as one waits."""
        if self._awaited:
            for peer in [peer for peer, is_read in self._awaited.items() if is_read and peer not in self.waiting]:
                self.worked_on(peer)
            self._awaited = {peer: peer not in self.waiting for peer in self._awaited}
        elif self.waiting:
            self._awaited, self._on_due = dict.fromkeys(self.waiting, False), on_due
        else:
            on_due()
