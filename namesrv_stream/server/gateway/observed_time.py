"""Observed time: for how long this process ran and could listen, and when it last heard each broker by that time.

The log has every heartbeat and the tables have none (they hold what changes), so only the server that hears a broker
can tell its age at any moment. It counts as the fold does: on the server's observed time, which stands still while the
server cannot listen, and from zero again when Kafka takes its records after it did not.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final

from namesrv_stream.clock import Clock
from namesrv_stream.route.changes import ChangeKind, RouteChange, lease_key
from namesrv_stream.route.events import AcceptedEvent, BrokerHeartbeat, BrokerRegistered
from namesrv_stream.route.model import LeaseKey
from namesrv_stream.route.partitioner import partition_of

logger = logging.getLogger(__name__)


class LoopWatch:
    """Fed by one beat each tick interval.

    Attributes:
        observed_ms: Time for which the event loop ran; a beat adds ``max_gap_ms`` at most.
    """

    def __init__(self, clock: Clock, max_gap_ms: int) -> None:
        self.observed_ms = 0
        self._clock = clock
        self._max_gap_ms = max_gap_ms
        self._alive_ms = clock.monotonic_ms()
        self._alive_wall_ms = clock.now_ms()
        self._stalled_ms = self._alive_ms - max_gap_ms

    @property
    def stood_still(self) -> bool:
        """Whether the loop stands still, or did less than ``max_gap_ms`` ago."""
        now_ms = self._clock.monotonic_ms()
        return self._pause_ms() > self._max_gap_ms or now_ms - self._stalled_ms < self._max_gap_ms

    def beat(self) -> None:
        pause_ms = self._pause_ms()
        now_ms = self._clock.monotonic_ms()
        if pause_ms > self._max_gap_ms:
            self._stalled_ms = now_ms
            logger.warning("event loop stood still for %d ms", pause_ms)
        self.observed_ms += min(now_ms - self._alive_ms, self._max_gap_ms)
        self._alive_ms = now_ms
        self._alive_wall_ms = self._clock.now_ms()

    def _pause_ms(self) -> int:
        # The monotonic clock stands still while the machine is suspended; only the wall clock tells of that. Where
        # that one was merely set, the server counts as blind for a moment, which does no harm.
        wall_ms = self._clock.now_ms() - self._alive_wall_ms
        return max(self._clock.monotonic_ms() - self._alive_ms, wall_ms)


_BROKER_LIVE: Final = ChangeKind.BROKER_LIVE


class LastHeartbeats:
    """Belongs to one event loop."""

    def __init__(self, partitions: int) -> None:
        # Observed time at which Kafka last began to take a partition's records; its brokers age from there.
        self._began_ms = [0] * partitions
        self._received_ms: dict[LeaseKey, int] = {}

    def received(self, event: AcceptedEvent, observed_ms: int) -> None:
        """Any event that this server accepted; heartbeats and registrations are signs of life."""
        if isinstance(event, BrokerHeartbeat | BrokerRegistered):
            self._received_ms[event.lease_key] = observed_ms

    def begin(self, partition: int, observed_ms: int) -> None:
        """Kafka takes a partition's records: its brokers age from here, whatever was before."""
        self._began_ms[partition] = observed_ms

    def committed(self, changes: Iterable[RouteChange], is_live: Callable[[LeaseKey], bool]) -> None:
        """Forget brokers that ended, and have not come again meanwhile."""
        for change in changes:
            if change.kind == _BROKER_LIVE and change.gone:
                key = lease_key(change)
                if key in self._received_ms and not is_live(key):
                    del self._received_ms[key]

    def age_ms(self, key: LeaseKey, observed_ms: int) -> int | None:
        """Observed time since the last heartbeat; None where this server has received none since its start."""
        received_ms = self._received_ms.get(key)
        if received_ms is None:
            return None
        began_ms = self._began_ms[partition_of(key.broker_name, len(self._began_ms))]
        return observed_ms - max(received_ms, began_ms)
