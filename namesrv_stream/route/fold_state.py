"""What the fold remembers of one Kafka partition besides the broker groups: clocks, leases, settings.

It is read and written with every batch, so it is small: a lease is some hundred bytes, topics are not here.
"""

import heapq
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import orjson

from namesrv_stream.route.model import Holder, LiveKey
from namesrv_stream.route.settings import FoldSettings

STATE_VERSION = 1


class LeaseKey(NamedTuple):
    """One broker process: a broker name with its key in brokerLiveTable."""

    broker_name: str
    live_key: LiveKey


@dataclass(slots=True)
class ServerClock:
    """Observed time of one server, which is what its brokers age by.

    Attributes:
        server_epoch: Of its newest start.
        observed_ms: Sum of the steps between its records, each cut at ``max_gap_ms``.
        previous_at_ms: LogAppendTime of its last record, even where that was lower than one before.
        heard_ms: The partition's observed time at its last record.
        silent: Whether nothing came from it for ``server_silent_ms`` while others talked.
        lost: Whether nothing came for ``server_lost_ms``; it then holds nothing.
    """

    server_epoch: int
    observed_ms: int
    previous_at_ms: int
    heard_ms: int
    silent: bool = False
    lost: bool = False


@dataclass(slots=True)
class LeaseHolder:
    """One server's hold on a broker.

    Attributes:
        seen_ms: That server's observed time when it last heard the broker.
        heard_ms: The partition's observed time then.
        queued_ms: Deadline under which the holder stands in its server's queue; the true one is never earlier.
    """

    holder: Holder
    seen_ms: int
    heard_ms: int
    queued_ms: int = -1


@dataclass(slots=True)
class Lease:
    """Liveness of one broker process.

    Attributes:
        asked_timeout_ms: What the broker asked for; None for the default.
        settled: Whether folding its registration once more would change nothing.
        ended_heard_ms: Partition time at which the server that ended its hold last had heard the broker.
    """

    asked_timeout_ms: int | None
    registration_hash: str
    settled: bool = False
    holders: dict[str, LeaseHolder] = field(default_factory=dict)
    ended_heard_ms: int | None = None


@dataclass(slots=True)
class FoldState:
    """State of one partition.

    Attributes:
        partitions: Of the topic; decides which broker names belong here.
        next_offset: The first offset not folded yet.
        at_ms: Highest LogAppendTime so far, epoch milliseconds; 0 before the first record.
        observed_ms: Observed time of the partition: steps between records of any server.
        previous_at_ms: LogAppendTime of the last record of any server.
        gone: Broker processes that are gone with their registration retained, to ``at_ms`` then, oldest first.
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
    # Derived from the above, never stored.
    _queues: dict[str, list[tuple[int, LeaseKey]]] = field(default_factory=dict)
    _keys_of_name: dict[str, set[LeaseKey]] = field(default_factory=dict)

    def leases_of(self, broker_name: str) -> Iterator[Lease]:
        return (self.leases[k] for k in self._keys_of_name.get(broker_name, ()))

    def add_lease(self, key: LeaseKey, lease: Lease) -> None:
        self.leases[key] = lease
        self._keys_of_name.setdefault(key.broker_name, set()).add(key)

    def remove_lease(self, key: LeaseKey) -> None:
        if self.leases.pop(key, None) is not None:
            keys = self._keys_of_name[key.broker_name]
            keys.discard(key)
            if not keys:
                del self._keys_of_name[key.broker_name]

    def timeout_ms(self, lease: Lease) -> int:
        return self.settings.effective_timeout_ms(lease.asked_timeout_ms)

    def refresh(self, key: LeaseKey, lease: Lease, server_id: str) -> None:
        """The server heard the broker just now: its hold starts again from age zero."""
        held = lease.holders[server_id]
        held.seen_ms = self.servers[server_id].observed_ms
        held.heard_ms = self.observed_ms
        self._queue(key, lease, server_id)

    def set_timeout(self, key: LeaseKey, lease: Lease, asked_timeout_ms: int | None) -> None:
        """The broker asks for a timeout, by which its hold at every server ages."""
        if lease.asked_timeout_ms != asked_timeout_ms:
            lease.asked_timeout_ms = asked_timeout_ms
            for server_id in lease.holders:
                self._queue(key, lease, server_id)

    def take_expired(self, server_id: str) -> list[LeaseKey]:
        """The brokers whose hold at ``server_id`` ran out, by deadline and key; the caller must end those holds.

        A broker lives at exactly seen + timeout and is expired strictly after.
        Source: rocketmq 5.3.3, RouteInfoManager.scanNotActiveBroker.
        """
        expired: list[tuple[int, LeaseKey]] = []
        queue = self._queues.get(server_id)
        now_ms = self.servers[server_id].observed_ms
        while queue and queue[0][0] < now_ms:
            queued_ms, key = heapq.heappop(queue)
            lease = self.leases.get(key)
            held = lease.holders.get(server_id) if lease else None
            if lease is None or held is None or held.queued_ms != queued_ms:
                continue
            deadline_ms = held.seen_ms + self.timeout_ms(lease)
            if deadline_ms < now_ms:
                held.queued_ms = -1
                expired.append((deadline_ms, key))
            else:
                self._enqueue(key, held, server_id, deadline_ms)
        # The order of the queue depends on when it was built, which a restart changes; that of deadlines does not.
        return [key for _, key in sorted(expired)]

    def requeue(self) -> None:
        """Rebuild the queues: after loading, or when timeouts changed."""
        self._queues = {}
        for key, lease in self.leases.items():
            for server_id, held in lease.holders.items():
                self._enqueue(key, held, server_id, held.seen_ms + self.timeout_ms(lease))

    def _queue(self, key: LeaseKey, lease: Lease, server_id: str) -> None:
        """Queue a hold; lazily, for an entry moves only when it is popped or when its deadline came nearer."""
        held = lease.holders[server_id]
        deadline_ms = held.seen_ms + self.timeout_ms(lease)
        if held.queued_ms < 0 or deadline_ms < held.queued_ms:
            self._enqueue(key, held, server_id, deadline_ms)

    def _enqueue(self, key: LeaseKey, held: LeaseHolder, server_id: str, deadline_ms: int) -> None:
        held.queued_ms = deadline_ms
        heapq.heappush(self._queues.setdefault(server_id, []), (deadline_ms, key))


def encode_state(state: FoldState) -> bytes:
    """The state as JSON."""
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
            "servers": {s: asdict(c) for s, c in state.servers.items()},
            "leases": [_lease_fields(k, v) for k, v in state.leases.items()],
            "gone": [[k.broker_name, *k.live_key, at_ms] for k, at_ms in state.gone.items()],
        }
    )


def decode_state(data: bytes) -> FoldState:
    """Inverse of ``encode_state``.

    Raises:
        ValueError: The state was written by another version of the fold.
    """
    fields: dict[str, Any] = orjson.loads(data)
    if fields["state_version"] != STATE_VERSION:
        raise ValueError(f"fold state of version {fields['state_version']}, this code reads {STATE_VERSION}")
    state = FoldState(
        partition=fields["partition"],
        partitions=fields["partitions"],
        next_offset=fields["next_offset"],
        at_ms=fields["at_ms"],
        observed_ms=fields["observed_ms"],
        previous_at_ms=fields["previous_at_ms"],
        settings=FoldSettings(**fields["settings"]),
        servers={s: ServerClock(**c) for s, c in fields["servers"].items()},
        gone={LeaseKey(n, LiveKey(c, a)): at_ms for n, c, a, at_ms in fields["gone"]},
    )
    for name, cluster, addr, asked_ms, registration_hash, settled, ended_ms, holders in fields["leases"]:
        held = {s: LeaseHolder(Holder(e, c), seen, heard) for s, e, c, seen, heard in holders}
        state.add_lease(
            LeaseKey(name, LiveKey(cluster, addr)), Lease(asked_ms, registration_hash, settled, held, ended_ms)
        )
    state.requeue()
    return state


def _lease_fields(key: LeaseKey, lease: Lease) -> list[Any]:
    holders = [[s, *h.holder, h.seen_ms, h.heard_ms] for s, h in lease.holders.items()]
    return [
        key.broker_name,
        *key.live_key,
        lease.asked_timeout_ms,
        lease.registration_hash,
        lease.settled,
        lease.ended_heard_ms,
        holders,
    ]
