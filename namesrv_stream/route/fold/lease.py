"""Leases of broker processes, and the clocks of the servers by which they age."""

from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from namesrv_stream.route.model import Hold, Holder, LeaseKey


@dataclass(slots=True)
class LeaseHolder:
    """One server's share in the lease of a broker.

    Attributes:
        holder: The connection over which the server receives the broker's heartbeats.
        seen_ms: The server's observed time at the broker's last heartbeat.
        partition_ms: The partition's observed time at that heartbeat.
        quiet: Whether the heartbeat is older than half of the timeout.
        queued_ms: The deadline under which the holder is in its server's queue; -1 if it is not queued. The actual
            deadline is never earlier.
    """

    holder: Holder
    seen_ms: int
    partition_ms: int
    quiet: bool = False
    queued_ms: int = -1


@dataclass(slots=True)
class Lease:
    """The lease of one broker process, which is live as long as a server holds its lease.

    Attributes:
        requested_timeout_ms: The timeout that the broker requested; None for the default.
        registration_hash: Hash of its last folded registration.
        is_up_to_date: Whether folding the same registration again would change nothing.
        holders: server_id → that server's share in the lease.
        ended_partition_ms: The partition's observed time of the last heartbeat at servers whose share has ended; None
            if no share has ended.
        hold: The hold of the mass-expiry guard; None if it does not hold the broker.
        released: Whether an operator confirmed that the broker is dead. The guard then ignores the broker, until a
            heartbeat arrives.
    """

    requested_timeout_ms: int | None
    registration_hash: str
    is_up_to_date: bool = False
    holders: dict[str, LeaseHolder] = field(default_factory=dict)
    ended_partition_ms: int | None = None
    hold: Hold | None = None
    released: bool = False


class RecentClose(NamedTuple):
    """A broker that was removed because its last connection was closed. The guard restores it if it was one of many.

    Attributes:
        closed_ms: Observed time of the server at the close.
        reason: The human-readable reason that the server logged.
        lease: The lease before the close.
        is_known: Whether the guard counts the broker.
    """

    key: LeaseKey
    closed_ms: int
    reason: str
    lease: Lease
    is_known: bool


@dataclass(slots=True)
class RecentCloses:
    """The recent closes of one server, oldest first, at most one of each broker. Each method but ``take`` is O(1).

    Attributes:
        known: Cluster → number of closes of its known brokers.
    """

    _closes: OrderedDict[LeaseKey, RecentClose] = field(default_factory=OrderedDict)
    _keys_of_cluster: dict[str, dict[LeaseKey, None]] = field(default_factory=dict)
    known: Counter[str] = field(default_factory=Counter)

    def __iter__(self) -> Iterator[RecentClose]:
        return iter(self._closes.values())

    def __len__(self) -> int:
        return len(self._closes)

    def add(self, close: RecentClose) -> None:
        self._closes[close.key] = close
        self._keys_of_cluster.setdefault(close.key.live_key.cluster, {})[close.key] = None
        self.known[close.key.live_key.cluster] += close.is_known

    def discard(self, key: LeaseKey) -> RecentClose | None:
        """Remove and return the close of a broker, if there is one."""
        close = self._closes.pop(key, None)
        if close is not None:
            keys = self._keys_of_cluster[key.live_key.cluster]
            del keys[key]
            self.known[key.live_key.cluster] -= close.is_known
            if not keys:
                del self._keys_of_cluster[key.live_key.cluster], self.known[key.live_key.cluster]
        return close

    def discard_older(self, since_ms: int) -> None:
        """Remove the closes before ``since_ms``, observed time of the server. The cost is O(1) for each of them."""
        while self._closes and (first := next(iter(self))).closed_ms < since_ms:
            self.discard(first.key)

    def take(self, cluster: str) -> list[RecentClose]:
        """Remove and return the closes of a cluster's brokers, oldest first."""
        found = (self.discard(key) for key in list(self._keys_of_cluster.get(cluster, ())))
        return [close for close in found if close is not None]


@dataclass(slots=True)
class ClusterLeases:
    """The leases of one cluster in a partition: those that the mass-expiry guard counts, without a look at each.

    Attributes:
        number: How many leases the cluster has.
        known: Those of known brokers.
        failing: Those that seem to fail: the guard holds them, or they are without a recent heartbeat.
        failing_known: Those of both.
        suspects: Those of ``failing`` that the guard can hold: it does not yet, and they were not released.
    """

    number: int = 0
    known: dict[LeaseKey, Lease] = field(default_factory=dict)
    failing: dict[LeaseKey, Lease] = field(default_factory=dict)
    failing_known: dict[LeaseKey, Lease] = field(default_factory=dict)
    suspects: dict[LeaseKey, Lease] = field(default_factory=dict)


@dataclass(slots=True)
class ServerClock:
    """The observed time of one server, by which its brokers age.

    Attributes:
        server_epoch: Epoch of its newest start.
        observed_ms: Sum of the steps between its records, each at most ``max_gap_ms``.
        previous_at_ms: LogAppendTime of its last record, even if an earlier record had a higher one.
        partition_ms: The partition's observed time at its last record.
        silent: Whether it wrote no record for ``server_silent_ms`` while others did.
        lost: Whether it wrote no record for ``server_lost_ms``; it then holds no lease.
        address: The address that its last tick advertised; "" for none, and while the server is silent, lost or
            stopped.
        closes: Brokers removed by closed connections in the last ``guard_close_window_ms`` of observed time, oldest
            first.
    """

    server_epoch: int
    observed_ms: int
    previous_at_ms: int
    partition_ms: int
    silent: bool = False
    lost: bool = False
    address: str = ""
    closes: RecentCloses = field(default_factory=RecentCloses)
