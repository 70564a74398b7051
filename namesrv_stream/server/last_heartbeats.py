"""When this server last heard each broker, in observed time: the source of its brokers' ages.

The log has every heartbeat and the tables have none (they hold what changes), so only the server that hears a broker
can tell its age at any moment. It counts as the fold does: on the server's observed time, which stands still while the
server cannot listen, and from zero again when Kafka takes its records after it did not.
"""

from collections.abc import Callable, Iterable
from typing import Final

from namesrv_stream.route.changes import ChangeKind, RouteChange, lease_key
from namesrv_stream.route.events import AcceptedEvent, BrokerHeartbeat, BrokerRegistered
from namesrv_stream.route.lease import LeaseKey
from namesrv_stream.route.partitioner import partition_of

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
