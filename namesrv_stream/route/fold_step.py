"""One record on its way through the fold: what it reads, changes and puts out."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from namesrv_stream.route.changes import Cause, ChangeKind, RouteChange, diff
from namesrv_stream.route.events import Origin
from namesrv_stream.route.fold_state import FoldState, LeaseKey
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.group_store import GroupStore


class Record(NamedTuple):
    """One Kafka record; ``at_ms`` is its LogAppendTime, epoch milliseconds."""

    partition: int
    offset: int
    at_ms: int
    value: bytes


class DeadLetter(NamedTuple):
    """A record, or item ``item`` of one (-1: all of it), that could not be folded."""

    partition: int
    offset: int
    item: int
    reason: str


@dataclass(slots=True)
class FoldOutput:
    """What came of some records, in order."""

    changes: list[RouteChange] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)


class FoldStep:
    """The folding of one record; groups that an item changes reach the store only when the item is done.

    Attributes:
        is_reading: Whether the store is being asked: a failure then is the store's and no item's.
    """

    def __init__(self, state: FoldState, groups: GroupStore, record: Record, output: FoldOutput) -> None:
        self.state = state
        self.record = record
        self.is_reading = False
        self._groups = groups
        self._output = output
        self._changed: dict[str, BrokerGroup] = {}
        self._seq = 0
        self._mark = len(output.changes)

    def commit(self) -> None:
        """Keep what was done since the last commit."""
        if self._changed:
            for group in self._changed.values():
                self._groups.put(group)
            self._changed.clear()
        self._mark = len(self._output.changes)

    def reject(self, item: int, reason: str) -> None:
        """Take back rows and groups since the last commit; the item becomes a dead letter."""
        self._seq -= len(self._output.changes) - self._mark
        del self._output.changes[self._mark :]
        self._changed.clear()
        self._output.dead_letters.append(DeadLetter(self.record.partition, self.record.offset, item, reason))

    def group(self, broker_name: str) -> BrokerGroup:
        """The group of a name; an empty one where nothing is known."""
        group = self._changed.get(broker_name)
        if group is None:
            self.is_reading = True
            group = self._groups.get(broker_name) or BrokerGroup(broker_name)
            self.is_reading = False
        return group

    def names(self) -> list[str]:
        """All broker names with a group, sorted, so that rows have one order whatever the store."""
        self.is_reading = True
        names = sorted(self._groups.names())
        self.is_reading = False
        return names

    def change(self, old: BrokerGroup, new: BrokerGroup, cause: Cause, detail: str | None = None) -> bool:
        """Make ``new`` the group and write the rows that lead to it; False where nothing changed."""
        if new is old:
            return False
        for kind, gone, columns in diff(old, new):
            self.row(kind, gone, cause, detail, **columns)
        self._changed[new.broker_name] = new
        for lease in self.state.leases_of(new.broker_name):
            lease.settled = False
        return True

    def row(self, kind: ChangeKind, gone: bool, cause: Cause, detail: str | None = None, **columns: Any) -> None:
        record, at_ms = self.record, self.state.at_ms
        row = RouteChange(record.partition, record.offset, self._seq, at_ms, kind, gone, cause, detail, **columns)
        self._output.changes.append(row)
        self._seq += 1

    def ignored(self, key: LeaseKey, origin: Origin, cause: Cause, reason: str) -> None:
        """Write that an event of a broker changed nothing, and why."""
        columns: dict[str, Any] = {"broker_name": key.broker_name, **key.live_key._asdict(), **origin._asdict()}
        self.row(ChangeKind.IGNORED, False, cause, reason, **columns)

    def server_row(self, server_id: str, cause: Cause, standing: str) -> None:
        epoch = self.state.servers[server_id].server_epoch
        self.row(ChangeKind.SERVER, False, cause, None, server_id=server_id, server_epoch=epoch, value=standing)
