"""The fold's state of one Kafka partition except the broker groups: clocks, leases, settings.

Every batch reads and writes it, so it is small: a lease takes a few hundred bytes, and topics are in the groups.
"""

import heapq
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from namesrv_stream.route.events import DIRECT
from namesrv_stream.route.fold.lease import ClusterLeases, Lease, LeaseHolder, RecentClose, ServerClock
from namesrv_stream.route.liveness_settings import FoldSettings, SettingValue
from namesrv_stream.route.model import Hold, Holder, LeaseKey, LiveKey
from namesrv_stream.table_errors import StateFromNewerVersion

STATE_VERSION = 2


@dataclass(slots=True)
class FoldState:
    """State of one partition.

    Attributes:
        partition: Kafka partition.
        partitions: Number of partitions of the topic, which decides which broker names belong here.
        next_offset: The first offset not folded yet.
        at_ms: Highest LogAppendTime so far, epoch milliseconds; 0 before the first record.
        observed_ms: Observed time of the partition: the sum of the steps between records of any server.
        previous_at_ms: LogAppendTime of the last record of any server.
        servers: server_id → clock.
        leases: Broker process → lease. Only ``add_lease`` and ``remove_lease`` change it.
        gone: Removed broker process with a retained registration → ``at_ms`` of its removal, oldest first.
        new: Broker process that the guard does not know yet, live or in ``gone`` → ``at_ms`` at which it came.
    """

    partition: int
    partitions: int
    next_offset: int = 0
    at_ms: int = 0
    observed_ms: int = 0
    previous_at_ms: int = 0
    settings: FoldSettings = field(default_factory=FoldSettings)
    servers: dict[str, ServerClock] = field(default_factory=dict)
    leases: dict[LeaseKey, Lease] = field(default_factory=dict)
    gone: dict[LeaseKey, int] = field(default_factory=dict)
    new: dict[LeaseKey, int] = field(default_factory=dict)
    # Derived from the attributes above, and never stored. ``_due`` has the shares whose deadline has passed.
    _queues: dict[str, list[tuple[int, LeaseKey]]] = field(default_factory=dict)
    _due: dict[str, set[LeaseKey]] = field(default_factory=dict)
    _oldest_new: list[tuple[int, LeaseKey]] = field(default_factory=list)
    _keys_of_name: dict[str, set[LeaseKey]] = field(default_factory=dict)
    _of_cluster: dict[str, ClusterLeases] = field(default_factory=dict)

    @property
    def has_direct(self) -> bool:
        """Whether anything here ages by the job's ticks: a direct publisher's broker, or a close that it reported."""
        clock = self.servers.get(DIRECT)
        return clock is not None and (bool(clock.closes) or any(DIRECT in v.holders for v in self.leases.values()))

    def leases_of(self, broker_name: str) -> Iterator[Lease]:
        return (self.leases[k] for k in self._keys_of_name.get(broker_name, ()))

    def of_cluster(self, cluster: str) -> ClusterLeases:
        return self._of_cluster.get(cluster) or ClusterLeases()

    def add_lease(self, key: LeaseKey, lease: Lease) -> None:
        self.leases[key] = lease
        self._keys_of_name.setdefault(key.broker_name, set()).add(key)
        self._of_cluster.setdefault(key.live_key.cluster, ClusterLeases()).number += 1
        if key in self.new:
            heapq.heappush(self._oldest_new, (self.new[key], key))
        self.requeue_lease(key, lease)

    def remove_lease(self, key: LeaseKey) -> None:
        if self.leases.pop(key, None) is not None:
            keys, of_cluster = self._keys_of_name[key.broker_name], self._of_cluster[key.live_key.cluster]
            keys.discard(key)
            if not keys:
                del self._keys_of_name[key.broker_name]
            of_cluster.number -= 1
            for index in (of_cluster.known, of_cluster.failing, of_cluster.failing_known, of_cluster.suspects):
                index.pop(key, None)
            if not of_cluster.number:
                del self._of_cluster[key.live_key.cluster]

    def review(self, key: LeaseKey, lease: Lease) -> None:
        """Update what the guard counts, after a change of a lease's shares, hold or release, or of a silent server."""
        of_cluster, is_suspect, is_known = (
            self._of_cluster[key.live_key.cluster],
            self._is_suspect(lease),
            key not in self.new,
        )
        is_failing = is_suspect or lease.hold is not None
        _keep(of_cluster.known, key, lease, is_known)
        _keep(of_cluster.failing, key, lease, is_failing)
        _keep(of_cluster.failing_known, key, lease, is_failing and is_known)
        _keep(of_cluster.suspects, key, lease, is_suspect and lease.hold is None and not lease.released)

    def _is_suspect(self, lease: Lease) -> bool:
        """Whether a broker has been without heartbeat for more than half of its timeout.

        A heartbeat at a silent server counts only if it came later than those at all other servers.
        """
        partition_ms = lease.ended_partition_ms
        of_silent = []
        for server_id, held in lease.holders.items():
            if self.servers[server_id].silent:
                of_silent.append(held)
            elif not held.quiet:
                return False
            else:
                partition_ms = max(held.partition_ms, partition_ms or 0)
        return partition_ms is not None and all(held.partition_ms <= partition_ms for held in of_silent)

    def timeout_ms(self, lease: Lease) -> int:
        return self.settings.effective_timeout_ms(lease.requested_timeout_ms)

    def deadline_ms(self, lease: Lease, held: LeaseHolder) -> int:
        """Return when a server's share in a lease ends, in its observed time. A hold of the guard extends it."""
        timeout_ms = self.settings.effective_timeout_ms(lease.requested_timeout_ms)
        if lease.hold is not None:
            timeout_ms *= 1 + self.settings.guard_hold_timeouts
        return held.seen_ms + timeout_ms

    def drop_recent_closes(self, key: LeaseKey) -> None:
        """Forget closed connections of a broker that is back or has unregistered."""
        for clock in self.servers.values():
            clock.closes.discard(key)

    def renew(self, key: LeaseKey, lease: Lease, server_id: str) -> None:
        """Renew a server's share in a lease: its age starts again from zero."""
        held, clock = lease.holders[server_id], self.servers[server_id]
        was_quiet, held.quiet = held.quiet, False
        held.seen_ms = clock.observed_ms
        held.partition_ms = self.observed_ms
        if server_id == DIRECT and clock.previous_at_ms:
            # Records of direct publishers do not advance the clock. The time from the job's last tick to this record is
            # observed with the next tick only, although it lies before this heartbeat. Add it here, or the broker would
            # expire too early by that time.
            held.seen_ms += max(0, min(self.at_ms - clock.previous_at_ms, self.settings.max_gap_ms))
        # Otherwise the share is queued already, and a renewal only moves its deadline back.
        if held.queued_ms < 0 or was_quiet or server_id == DIRECT:
            self._queue(key, lease, server_id)
            self.review(key, lease)

    def set_timeout(self, key: LeaseKey, lease: Lease, requested_timeout_ms: int | None) -> None:
        """Set the timeout that the broker requests. It applies to all servers' shares in the lease."""
        if lease.requested_timeout_ms != requested_timeout_ms:
            lease.requested_timeout_ms = requested_timeout_ms
            self.requeue_lease(key, lease)

    def settle_new(self) -> None:
        """Let the guard count the brokers that have been live for long enough. The cost is O(log n) for each."""
        since_ms = self.at_ms - self.settings.guard_known_ms
        while self._oldest_new and self._oldest_new[0][0] <= since_ms:
            came_ms, key = heapq.heappop(self._oldest_new)
            if key in self.leases and self.new.get(key) == came_ms:
                del self.new[key]
                self.review(key, self.leases[key])

    def advance(self, server_id: str) -> None:
        """Note which shares of a server are now quiet or due, after its clock has advanced."""
        queue, now_ms = self._queues.get(server_id), self.servers[server_id].observed_ms
        while queue and queue[0][0] < now_ms:
            queued_ms, key = heapq.heappop(queue)
            lease = self.leases.get(key)
            held = lease.holders.get(server_id) if lease else None
            if lease is None or held is None or held.queued_ms != queued_ms:
                continue
            held.queued_ms = -1
            if not held.quiet and self._quiet_ms(lease, held) < now_ms:
                held.quiet = True
                self.review(key, lease)
            if self._next_ms(lease, held) < now_ms:
                self._due.setdefault(server_id, set()).add(key)
            else:
                self._queue(key, lease, server_id)

    def pop_expired(self, server_id: str) -> list[LeaseKey]:
        """Return the brokers in whose leases the share of ``server_id`` has expired, sorted by deadline and key.

        The caller must end these shares. At exactly ``seen_ms`` + timeout a share has not expired yet.
        Source: rocketmq 5.3.3, RouteInfoManager.scanNotActiveBroker.
        """
        self.advance(server_id)
        expired: list[tuple[int, LeaseKey]] = []
        for key in self._due.pop(server_id, ()):
            lease = self.leases.get(key)
            held = lease.holders.get(server_id) if lease else None
            if lease is None or held is None or held.queued_ms >= 0:
                continue  # It has ended, or was queued again by a heartbeat or a hold.
            expired.append((self.deadline_ms(lease, held), key))
        # The order of the queue depends on when it was built, so a restart changes it. The order of deadlines does not.
        return [key for _, key in sorted(expired)]

    def requeue(self) -> None:
        """Rebuild all queues after a change of timeouts."""
        self._queues, self._due = {}, {}
        for key, lease in self.leases.items():
            for held in lease.holders.values():
                held.queued_ms = -1
            self.requeue_lease(key, lease)

    def requeue_lease(self, key: LeaseKey, lease: Lease) -> None:
        """Update queues and index after a change that may have made the deadlines of a lease earlier."""
        for server_id, held in lease.holders.items():
            held.quiet = self._quiet_ms(lease, held) < self.servers[server_id].observed_ms
            self._queue(key, lease, server_id)
        self.review(key, lease)

    def _quiet_ms(self, lease: Lease, held: LeaseHolder) -> int:
        """Return the last moment at which a share is not quiet, in its server's observed time."""
        return held.seen_ms + self.timeout_ms(lease) // 2

    def _next_ms(self, lease: Lease, held: LeaseHolder) -> int:
        """Return the last moment before a share changes: before it is quiet, and then before it expires."""
        return self.deadline_ms(lease, held) if held.quiet else self._quiet_ms(lease, held)

    def _queue(self, key: LeaseKey, lease: Lease, server_id: str) -> None:
        """Queue a share by its next deadline.

        An earlier deadline adds a new entry. A later one does not: ``advance`` queues the share again when it pops the
        old entry.
        """
        held = lease.holders[server_id]
        next_ms = self._next_ms(lease, held)
        if held.queued_ms < 0 or next_ms < held.queued_ms:
            held.queued_ms = next_ms
            heapq.heappush(self._queues.setdefault(server_id, []), (next_ms, key))


def _keep(index: dict[LeaseKey, Lease], key: LeaseKey, lease: Lease, belongs: bool) -> None:
    if belongs:
        index[key] = lease
    else:
        index.pop(key, None)


def encode_state(state: FoldState) -> bytes:
    """Return the state as JSON."""
    return orjson.dumps(
        {
            "state_version": STATE_VERSION,
            "partition": state.partition,
            "partitions": state.partitions,
            "next_offset": state.next_offset,
            "at_ms": state.at_ms,
            "observed_ms": state.observed_ms,
            "previous_at_ms": state.previous_at_ms,
            "settings": asdict(state.settings),
            "servers": {s: _clock_fields(c) for s, c in state.servers.items()},
            "addresses": {s: c.address for s, c in state.servers.items() if c.address},  # earlier versions ignore it
            "leases": [_lease_fields(k, v) for k, v in state.leases.items()],
            "gone": [[k.broker_name, *k.live_key, at_ms] for k, at_ms in state.gone.items()],
            "new": [[k.broker_name, *k.live_key, at_ms] for k, at_ms in state.new.items()],  # likewise
        }
    )


def decode_state(data: bytes) -> FoldState:
    """Inverse of ``encode_state``.

    Raises:
        StateFromNewerVersion: The state was written by a newer version of the fold.
    """
    fields: dict[str, Any] = orjson.loads(data)
    if fields["state_version"] > STATE_VERSION:
        raise StateFromNewerVersion(fields["state_version"], STATE_VERSION)
    state = FoldState(
        partition=fields["partition"],
        partitions=fields["partitions"],
        next_offset=fields["next_offset"],
        at_ms=fields["at_ms"],
        observed_ms=fields["observed_ms"],
        previous_at_ms=fields["previous_at_ms"],
        settings=FoldSettings().with_values({n: _frozen(v) for n, v in fields["settings"].items()}),
        gone={LeaseKey(n, LiveKey(c, a)): at_ms for n, c, a, at_ms in fields["gone"]},
        new={LeaseKey(n, LiveKey(c, a)): at_ms for n, c, a, at_ms in fields.get("new", ())},
    )
    state.servers = {s: _read_clock(c, state.new) for s, c in fields["servers"].items()}
    for server_id, address in fields.get("addresses", {}).items():
        state.servers[server_id].address = address
    for lease in fields["leases"]:
        state.add_lease(*_read_lease(lease))
    return state


def _clock_fields(clock: ServerClock) -> list[Any]:
    closes = [[c.closed_ms, c.reason, _lease_fields(c.key, c.lease)] for c in clock.closes]
    return [
        clock.server_epoch,
        clock.observed_ms,
        clock.previous_at_ms,
        clock.partition_ms,
        clock.silent,
        clock.lost,
        closes,
    ]


def _read_clock(fields: list[Any], new: Collection[LeaseKey]) -> ServerClock:
    *values, stored = fields
    clock = ServerClock(*values)
    for closed_ms, reason, lease_fields in stored:
        key, lease = _read_lease(lease_fields)
        clock.closes.add(RecentClose(key, closed_ms, reason, lease, key not in new))
    return clock


def _lease_fields(key: LeaseKey, lease: Lease) -> list[Any]:
    return [
        key.broker_name,
        *key.live_key,
        lease.requested_timeout_ms,
        lease.registration_hash,
        lease.is_up_to_date,
        [[s, *h.holder, h.seen_ms, h.partition_ms] for s, h in lease.holders.items()],
        lease.ended_partition_ms,
        lease.hold and list(lease.hold),
        lease.released,
    ]


def _read_lease(fields: list[Any]) -> tuple[LeaseKey, Lease]:
    name, cluster, addr, requested_ms, registration_hash, is_up_to_date, holders, ended_ms, hold, released = fields
    held = {s: LeaseHolder(Holder(e, c), seen, heard) for s, e, c, seen, heard in holders}
    lease = Lease(
        requested_ms, registration_hash, is_up_to_date, held, ended_ms, Hold(*hold) if hold else None, released
    )
    return LeaseKey(name, LiveKey(cluster, addr)), lease


def _frozen(value: Any) -> SettingValue:
    return tuple(value) if isinstance(value, list) else value
