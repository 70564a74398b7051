"""Measures observed time, records every broker's last heartbeat, and decides when a tick is due.

The log contains every heartbeat, but the tables contain only changes. So only a server that receives a broker's
heartbeats knows the age of the last one at any moment. It computes ages as the fold does, in observed time, which stops
while the server cannot receive heartbeats.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

from namesrv_stream.clock import Clock
from namesrv_stream.route.changes import ChangeKind, RouteChange, lease_key
from namesrv_stream.route.events import AcceptedEvent, BrokerHeartbeat, BrokerRegistered
from namesrv_stream.route.model import LeaseKey

logger = logging.getLogger(__name__)


class LoopWatch:
    """Measures observed time and detects stalls of the event loop. ``beat`` must be called every tick interval."""

    def __init__(self, clock: Clock, max_gap_ms: int) -> None:
        self.observed_ms = 0
        self._clock = clock
        self._max_gap_ms = max_gap_ms
        self._alive_ms = clock.monotonic_ms()
        self._alive_wall_ms = clock.now_ms()
        self._stalled_ms = self._alive_ms - max_gap_ms

    @property
    def was_stalled(self) -> bool:
        """Whether the loop is stalled, or was stalled less than ``max_gap_ms`` ago."""
        now_ms = self._clock.monotonic_ms()
        return self._pause_ms() > self._max_gap_ms or now_ms - self._stalled_ms < self._max_gap_ms

    def beat(self) -> None:
        pause_ms = self._pause_ms()
        now_ms = self._clock.monotonic_ms()
        if pause_ms > self._max_gap_ms:
            self._stalled_ms = now_ms
            logger.warning("event loop stalled ms=%d", pause_ms)
        self.observed_ms += min(now_ms - self._alive_ms, self._max_gap_ms)
        self._alive_ms = now_ms
        self._alive_wall_ms = self._clock.now_ms()

    def _pause_ms(self) -> int:
        # The monotonic clock stops while the machine is suspended; only the wall clock shows the pause. If somebody
        # only set the wall clock, the server counts as blind for a moment, which does no harm.
        wall_ms = self._clock.now_ms() - self._alive_wall_ms
        return max(self._clock.monotonic_ms() - self._alive_ms, wall_ms)


_BROKER_LIVE: Final = ChangeKind.BROKER_LIVE
#: Brokers that every piece of a commit checks, whether they are live.
_CHECKED_AT_ONCE: Final = 200


class LastHeartbeats:
    """Records when this server received every broker's last heartbeat. Only one event loop may use it."""

    def __init__(self) -> None:
        # When the last one arrived, and the longest time between two of them since the last full registration.
        self._received: OrderedDict[LeaseKey, tuple[int, int]] = OrderedDict()

    def received(self, event: AcceptedEvent, observed_ms: int) -> None:
        """Record an event that this server accepted. Only heartbeats and registrations count as signs of life."""
        if isinstance(event, BrokerRegistered):
            self._received[event.lease_key] = (observed_ms, 0)
        elif isinstance(event, BrokerHeartbeat):
            received_ms, longest_ms = self._received.get(event.lease_key, (observed_ms, 0))
            self._received[event.lease_key] = (observed_ms, max(longest_ms, observed_ms - received_ms))

    def committed(self, changes: Iterable[RouteChange], is_live: Callable[[LeaseKey], bool]) -> None:
        """Forget the brokers that were removed and have not registered again since.

        No row reports a broker whose registration was ignored. So every call also checks some of all brokers in turn.
        """
        for change in changes:
            if change.kind == _BROKER_LIVE and change.gone:
                key = lease_key(change)
                if key in self._received and not is_live(key):
                    del self._received[key]
        for _ in range(min(_CHECKED_AT_ONCE, len(self._received))):
            key = next(iter(self._received))
            if is_live(key):
                self._received.move_to_end(key)
            else:
                del self._received[key]

    def age_ms(self, key: LeaseKey, observed_ms: int) -> int | None:
        """Return the observed time since the last heartbeat; None if this server has received none since its start."""
        return observed_ms - self._received[key][0] if key in self._received else None

    def longest_gap_ms(self, key: LeaseKey, observed_ms: int) -> int | None:
        """Return the longest time without a heartbeat since the last full registration; None like ``age_ms``."""
        if key not in self._received:
            return None
        received_ms, longest_ms = self._received[key]
        return max(longest_ms, observed_ms - received_ms)


class WaitingPeer(Protocol):
    """A peer that waits for the server. The server reads nothing from it meanwhile."""

    def heartbeats(self) -> Iterable[BrokerHeartbeat]:
        """Return a heartbeat for every broker that is registered over the connection or whose registration waits."""


class Backlog:
    """Requests that a server has received but not processed, and the ticks that wait for them.

    A tick states that the log contains every sign of life that the server received before the tick. There are two kinds
    of waiting peers::

        is_unread   Their requests wait for a turn, so the server does not know yet who is alive. A requested tick waits
                    until one of them is processed, or the peer disconnects. Each peer soon has a turn.
        otherwise   They wait for another process, for room in the publish queue, or for the rest of a large request.
                    That may take long, so no tick waits: the peer names the brokers that are alive (``heartbeats``).

    Before every tick, the gateway logs the heartbeats of all peers that wait then, so further requests of a peer delay
    no tick. A peer from which the server reads again also stops delaying a tick if it completes no request between two
    calls of ``when_worked_off``.

    Only one event loop may use it.
    """

    def __init__(self) -> None:
        self.waiting: dict[WaitingPeer, bool] = {}  # → ``is_unread``
        # Peers that the requested tick waits for → whether the server was reading them at the previous call.
        self._awaited: dict[WaitingPeer, bool] = {}
        self._on_due: Callable[[], None] = lambda: None

    def wait(self, peer: WaitingPeer, *, is_unread: bool = True) -> None:
        self.waiting[peer] = is_unread
        if not is_unread:
            self.worked_on(peer)

    def read_again(self, peer: WaitingPeer) -> None:
        self.waiting.pop(peer, None)

    def heartbeats(self) -> Iterator[BrokerHeartbeat]:
        """Yield the heartbeats of all waiting peers, also of those that begin to wait during the iteration."""
        heard: set[WaitingPeer] = set()
        while peers := [peer for peer in self.waiting if peer not in heard]:
            heard.update(peers)
            for peer in peers:
                yield from peer.heartbeats()

    def worked_on(self, peer: WaitingPeer) -> None:
        """Record that no tick need wait for a peer: a request was processed, or the peer disconnected or is known."""
        if peer in self._awaited:
            del self._awaited[peer]
            if not self._awaited:
                self._on_due()

    def when_worked_off(self, on_due: Callable[[], None]) -> None:
        """Call ``on_due`` when a tick is due. Called every tick interval. Only one tick waits at a time."""
        if self._awaited:
            for peer in [peer for peer, is_read in self._awaited.items() if is_read and peer not in self.waiting]:
                self.worked_on(peer)
            self._awaited = {peer: peer not in self.waiting for peer in self._awaited}
        elif awaited := [peer for peer, is_unread in self.waiting.items() if is_unread]:
            self._awaited, self._on_due = dict.fromkeys(awaited, False), on_due
        else:
            on_due()
