"""When this server last heard each broker, by the time for which it could listen: what its brokers' age is made of.

The log has every heartbeat, the tables have none (they hold what changes), so only the server that hears a broker can
tell its age at any moment. It counts as the fold does: on the server's observed time, which stands still while the
server cannot listen, and from zero again when Kafka takes its records after it did not.
"""

from collections.abc import Callable, Iterable
from typing import Final

from namesrv_stream.route.changes import ChangeKind, RouteChange, lease_key
from namesrv_stream.route.events import AcceptedEvent, BrokerHeartbeat, BrokerRegistered
from namesrv_stream.route.lease import LeaseKey
from namesrv_stream.route.partitioner import partition_of


class Hearings:
    """Belongs to one event loop.

    Args:
        partitions: Of the topic.
    """

    def __init__(self, partitions: int) -> None:
        # Observed time at which Kafka last began to take a partition's records; its brokers age from there.
        self._began_ms = [0] * partitions
        self._heard_ms: dict[LeaseKey, int] = {}

    def take_in(self, event: AcceptedEvent, observed_ms: int) -> None:
        """Any event that this server accepted, at its observed time."""
        if isinstance(event, BrokerHeartbeat):
            self.heard(event, observed_ms)
        elif isinstance(event, BrokerRegistered):
            self._heard_ms[event.lease_key] = observed_ms

    def heard(self, event: BrokerHeartbeat, observed_ms: int) -> None:
        """A sign of life."""
        self._heard_ms[event.lease_key] = observed_ms

    def begin(self, partition: int, observed_ms: int) -> None:
        """Kafka takes a partition's records: its brokers age from here, whatever was before."""
        self._began_ms[partition] = observed_ms

    def committed(self, changes: Iterable[RouteChange], is_live: Callable[[LeaseKey], bool]) -> None:
        """Forget brokers that went, and have not come again meanwhile."""
        for change in changes:
            if change.kind == _BROKER_LIVE and change.gone:
                key = lease_key(change)
                if key in self._heard_ms and not is_live(key):
                    del self._heard_ms[key]

    def age_ms(self, key: LeaseKey, observed_ms: int) -> int | None:
        """For how long the broker was not heard here; None where this server has not heard it since its start."""
        heard_ms = self._heard_ms.get(key)
        if heard_ms is None:
            return None
        began_ms = self._began_ms[partition_of(key.broker_name, len(self._began_ms))]
        return observed_ms - max(heard_ms, began_ms)


_BROKER_LIVE: Final = ChangeKind.BROKER_LIVE
