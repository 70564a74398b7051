"""One step of the fold: its record, the groups that it reads and changes, its output, and the holders of a lease."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from namesrv_stream.route import group as rules
from namesrv_stream.route.changes import Cause, ChangeKind, RouteChange, diff
from namesrv_stream.route.events import Origin
from namesrv_stream.route.fold.lease import Lease, LeaseHolder
from namesrv_stream.route.fold.state import FoldState
from namesrv_stream.route.group import BrokerGroup, is_nothing
from namesrv_stream.route.model import LeaseKey

#: The most items of a record that have dead letters of their own. One more stands for all others.
MAX_DEAD_LETTERS: Final = 10


class Record(NamedTuple):
    """One Kafka record. ``at_ms`` is its LogAppendTime, epoch milliseconds."""

    partition: int
    offset: int
    at_ms: int
    value: bytes


class DeadLetter(NamedTuple):
    """A record, or its item ``item`` (-1: the whole record), that could not be folded."""

    partition: int
    offset: int
    item: int
    reason: str


@dataclass(slots=True)
class FoldOutput:
    """The changes and dead letters of one or more records, in order."""

    changes: list[RouteChange] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)


class GroupStore(Protocol):
    """The fold's storage of broker groups by name: a dict, or Spark's state.

    If a store fails, it raises an exception. The fold does not catch it, because the record is not the cause.
    """

    def get(self, broker_name: str) -> BrokerGroup | None: ...

    def put(self, group: BrokerGroup) -> None: ...

    def names(self) -> Iterable[str]: ...


class GroupDict:
    """A ``GroupStore`` in memory."""

    def __init__(self, groups: dict[str, BrokerGroup] | None = None) -> None:
        self.groups = groups if groups is not None else {}

    def get(self, broker_name: str) -> BrokerGroup | None:
        return self.groups.get(broker_name)

    def put(self, group: BrokerGroup) -> None:
        if is_nothing(group):
            self.groups.pop(group.broker_name, None)
        else:
            self.groups[group.broker_name] = group

    def names(self) -> Iterable[str]:
        return sorted(self.groups)


class FoldStep:
    """The step of one record. Groups that an item changes reach the store only when the item is complete.

    Attributes:
        is_reading: Whether the store is being read; a failure is then a failure of the store, not of an item.
    """

    def __init__(self, state: FoldState, groups: GroupStore, record: Record, output: FoldOutput) -> None:
        self.state = state
        self.record = record
        self.is_reading = False
        self._groups = groups
        self._output = output
        self._changed: dict[str, BrokerGroup] = {}
        self._seq = 0
        self._committed_rows = len(output.changes)
        self._rejected = 0

    def commit(self) -> None:
        """Make the rows and groups since the last commit final: ``reject`` no longer discards them."""
        if self._changed:
            for group in self._changed.values():
                self._groups.put(group)
            self._changed.clear()
        self._committed_rows = len(self._output.changes)

    def reject(self, item: int, reason: str) -> None:
        """Discard the rows and groups since the last commit, and make the item a dead letter."""
        self._seq -= len(self._output.changes) - self._committed_rows
        del self._output.changes[self._committed_rows :]
        self._changed.clear()
        self._rejected += 1
        if self._rejected <= MAX_DEAD_LETTERS:
            self._dead_letter(item, reason)

    def end(self) -> None:
        """End the record: one dead letter, of the whole record, stands for the rejected items beyond the limit."""
        if (others := self._rejected - MAX_DEAD_LETTERS) > 0:
            self._dead_letter(-1, f"{others:,} more of its items were rejected")

    def _dead_letter(self, item: int, reason: str) -> None:
        self._output.dead_letters.append(DeadLetter(self.record.partition, self.record.offset, item, reason))

    def group(self, broker_name: str) -> BrokerGroup:
        """Return the group of a name; an empty group if nothing is known."""
        group = self._changed.get(broker_name)
        if group is None:
            self.is_reading = True
            group = self._groups.get(broker_name) or BrokerGroup(broker_name)
            self.is_reading = False
        return group

    def names(self) -> list[str]:
        """Return all broker names with a group, sorted, so that the order of rows does not depend on the store."""
        self.is_reading = True
        names = sorted(self._groups.names())
        self.is_reading = False
        return names

    def change(self, old: BrokerGroup, new: BrokerGroup, cause: Cause, detail: str | None = None) -> bool:
        """Replace a group and write the rows of the difference; False if nothing changed."""
        if new is old:
            return False
        for kind, gone, columns in diff(old, new):
            self.row(kind, gone, cause, detail, **columns)
        self._changed[new.broker_name] = new
        for lease in self.state.leases_of(new.broker_name):
            lease.is_up_to_date = False
        return True

    def row(self, kind: ChangeKind, gone: bool, cause: Cause, detail: str | None = None, **columns: Any) -> None:
        """Write one row."""
        record, at_ms = self.record, self.state.at_ms
        row = RouteChange(record.partition, record.offset, self._seq, at_ms, kind, gone, cause, detail, **columns)
        self._output.changes.append(row)
        self._seq += 1

    def ignored(self, key: LeaseKey, origin: Origin, cause: Cause, reason: str) -> None:
        """Write a row that an event of a broker was ignored, and why."""
        columns: dict[str, Any] = {"broker_name": key.broker_name, **key.live_key._asdict(), **origin._asdict()}
        self.row(ChangeKind.IGNORED, False, cause, reason, **columns)

    def server_row(self, server_id: str, cause: Cause, status: str) -> None:
        """Write a server's new status: "talking" (with the address that it advertises), "silent", "lost" or "stopped".

        A server that has just started, or has another status than "talking", is not on the list of name servers: a
        later tick adds it.
        """
        clock = self.state.servers[server_id]
        if status != "talking" or cause == Cause.SERVER_STARTED:
            clock.address = ""
        value = f"{status} {clock.address}" if clock.address else status
        epoch = clock.server_epoch
        self.row(ChangeKind.SERVER, False, cause, None, server_id=server_id, server_epoch=epoch, value=value)


def is_vouched_for(state: FoldState, holders: Mapping[str, LeaseHolder], ended_partition_ms: int | None) -> bool:
    """Whether one of ``holders`` keeps a broker after other servers' shares in its lease have ended.

    A silent server keeps it only if it received a later heartbeat of the broker than those other servers.

    Args:
        state: The state, which knows the silent servers.
        holders: server_id → share in the lease.
        ended_partition_ms: The partition's observed time of the last heartbeat at servers whose share ended by expiry,
            unregistration or a closed connection; None if there are none.
    """
    if ended_partition_ms is None:
        return bool(holders)
    return any(not state.servers[s].silent or h.partition_ms > ended_partition_ms for s, h in holders.items())


def is_vouched_for_without(state: FoldState, lease: Lease, server_id: str) -> bool:
    """Whether another server keeps a broker when the share of ``server_id`` in its lease ends."""
    ended_partition_ms = max(lease.holders[server_id].partition_ms, lease.ended_partition_ms or 0)
    return is_vouched_for(state, other_holders(lease, server_id), ended_partition_ms)


def other_holders(lease: Lease, server_id: str) -> dict[str, LeaseHolder]:
    """Return the shares in a lease, by server_id, except that of ``server_id``."""
    return {s: h for s, h in lease.holders.items() if s != server_id}


def leases_held_by(state: FoldState, server_id: str) -> list[tuple[LeaseKey, Lease]]:
    """Return the leases that a server holds, sorted by key."""
    return sorted(((k, v) for k, v in state.leases.items() if server_id in v.holders), key=lambda kv: kv[0])


def drop_holder(step: FoldStep, key: LeaseKey, lease: Lease, server_id: str, cause: Cause, detail: str | None) -> None:
    """End one server's share in a lease that other servers keep."""
    old = step.group(key.broker_name)
    step.change(old, rules.remove_holder(old, key.live_key, server_id), cause, detail)
    lease.holders = other_holders(lease, server_id)
    step.state.review(key, lease)


def silence_detail(state: FoldState, lease: Lease, server_id: str) -> str:
    """Return a text that says for how long a server has received no heartbeat of a broker."""
    silent_ms = state.servers[server_id].observed_ms - lease.holders[server_id].seen_ms
    timeout_ms = state.timeout_ms(lease)
    return f"not heard for {silent_ms} ms of observed time at {server_id}, timeout {timeout_ms} ms"


def silent_holder_detail(server_id: str) -> str:
    """Return a text that says that the only server which still holds a broker is silent."""
    return f"still heard only by {server_id}, which is silent"
