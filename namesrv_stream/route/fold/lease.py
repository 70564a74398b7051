"""Leases of broker processes, and the clocks of the servers by which they age."""

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
        queued_ms: The deadline under which the holder is in its server's queue; -1 if it is not queued. The actual
            deadline is never earlier.
    """

    holder: Holder
    seen_ms: int
    partition_ms: int
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
    """

    key: LeaseKey
    closed_ms: int
    reason: str
    lease: Lease


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
    closes: list[RecentClose] = field(default_factory=list)
