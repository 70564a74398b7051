"""What one server sees: the committed table, and on top of it the events it accepted that are not committed yet.

So a broker, or an operator, reads its own writes at once, before Kafka, Spark and Delta have caught up. An accepted
event is applied to what it touches by the same rules as the fold's; with each commit the touched groups, KV namespaces
and settings are rebuilt from the committed rows plus the events still pending, in the order in which they were
accepted. A view never ends a broker that did not say so itself: what expires, and whose connection was closed,
the fold decides, and the view shows it with the fold's commit.

An event that goes to every partition of the log is pending in each of them by itself. In a partition it is pending on
all groups that it changes, on those that have events pending already, and on those that get rows meanwhile: of these
the log may have a part before it and another behind.
"""

from collections.abc import Callable, Iterable, Mapping

from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.commit_rows import CommitRows
from namesrv_stream.route.event_json import routing_key
from namesrv_stream.route.events import AcceptedEvent, KvDeleted, KvPut, TopicDeleted
from namesrv_stream.route.group import BrokerGroup, is_nothing
from namesrv_stream.route.overlay import Broadcasts, Overlay, Pending
from namesrv_stream.route.partitioner import partition_of
from namesrv_stream.route.reducer import apply, apply_to_group
from namesrv_stream.route.table import OnChanged, RouteTable
from namesrv_stream.route.view_namespaces import NamespaceLayers
from namesrv_stream.route.view_rules import group_after
from namesrv_stream.route.view_settings import SettingLayers

__all__ = ["Pending", "RouteView"]


class RouteView:
    """The table that one server answers from; its owner alone changes it, between two answers.

    Attributes:
        table: Committed rows plus pending events.
        next_offsets: Kafka partition to the first offset that the committed rows do not cover.
        on_group_changed: Told of a group before and after it got other broker addresses, unless by a reload.
    """

    def __init__(
        self, table: RouteTable | None = None, next_offsets: Mapping[int, int] | None = None, *, partitions: int = 1
    ) -> None:
        self.table = table or RouteTable()
        self.next_offsets = dict(next_offsets or {})
        self.on_group_changed: Callable[[BrokerGroup, BrokerGroup], None] | None = None
        self._partitions = partitions
        self._groups: Overlay[str, BrokerGroup] = Overlay()
        self._settings = SettingLayers()
        self._namespaces = NamespaceLayers()
        self._broadcasts = Broadcasts()

    @property
    def pending_count(self) -> int:
        parts = (self._groups, self._namespaces, self._settings, self._broadcasts)
        return len({p for part in parts for p in part.tickets()})

    def watch(self, on_changed: OnChanged) -> None:
        """Have ``on_changed`` called with what changes, before anybody can ask; see ``RouteTable``."""
        self.table.on_changed = on_changed

    def committed_group(self, name: str) -> BrokerGroup:
        """A group as the committed rows have it."""
        return self._groups[name].committed if name in self._groups else self.table.group(name)

    def committed_table(self) -> RouteTable:
        """What the committed rows say, without what is pending; without indexes, so for reading it through only."""
        table, shown = RouteTable(), self.table
        table.groups = {k: group for k, group in self._groups.beneath(shown.groups).items() if not is_nothing(group)}
        table.kv = dict(self._namespaces.committed(shown))
        table.servers, table.held = dict(shown.servers), dict(shown.held)
        for partition in range(self._partitions):
            if settings := self._settings.committed(shown, partition):
                table.replace_settings(partition, settings)
        return table

    def accept(self, event: AcceptedEvent) -> list[Pending]:
        """Apply an event at once.

        Args:
            event: What the server told a peer that it accepted; no closed connection.

        Returns:
            Its tickets, one for each partition it goes to: a single one, or those of all partitions in their order.
        """
        key = routing_key(event)
        if key is None:
            tickets = [Pending(event) for _ in range(self._partitions)]
            self._take_in_broadcast(event, dict(enumerate(tickets)))
            return tickets
        pending = Pending(event)
        self._take_in(pending, key)
        return [pending]

    def accept_at(self, event: AcceptedEvent, partition: int, offset: int) -> None:
        """Apply an event that is in the log already, as if it had been accepted here at the start and got there.

        Args:
            event: One that the fold takes in that partition; an event that goes to every partition is in each of them,
                and touches the part of the table that hangs on this one.
            partition: Kafka partition.
            offset: Not covered by the committed rows, and behind all that was accepted for the partition before.
        """
        key, pending = routing_key(event), Pending(event, (partition, offset))
        if key is None:
            self._take_in_broadcast(event, {partition: pending})
        else:
            self._take_in(pending, key)

    def drop(self, pending: Pending) -> None:
        """Forget an accepted event that will never be in the log."""
        event = pending.event
        if (key := routing_key(event)) is None:
            self._drop_broadcast(pending)
        elif isinstance(event, KvPut | KvDeleted):
            self._namespaces.drop(self.table, pending, key)
        elif self._groups.remove(key, pending):
            self._rebuild_group(key)

    def commit(self, changes: Iterable[RouteChange], next_offsets: Mapping[int, int]) -> None:
        """Take over committed rows.

        Args:
            changes: In the order of the log.
            next_offsets: Kafka partition to the first offset that the rows do not cover.
        """
        rows = CommitRows(changes)
        reached = {**self.next_offsets, **next_offsets}
        for name, of_group in rows.of_group.items():
            self._commit_group(apply_to_group(self.committed_group(name), of_group), reached)
        self._commit_others(rows, next_offsets)

    def reload(self, table: RouteTable, next_offsets: Mapping[int, int]) -> None:
        """Replace all committed rows; pending events are applied anew."""
        on_changed, self.table.on_changed = self.table.on_changed, None
        self.table = table
        self.next_offsets = dict(next_offsets)
        self._broadcasts.settle(self.next_offsets)
        self._settings.reload(table, self.next_offsets)
        self._groups.settle(self.next_offsets)
        for name in self._groups:
            self._groups[name].committed = table.group(name)
        for topic in {p.event.topic for p in self._broadcasts.tickets() if isinstance(p.event, TopicDeleted)}:
            for group, _ in table.queue_data_of(topic):
                self._enter(group.broker_name)
        for name in self._groups:
            table.replace_group(self._rebuilt_group(name))
        self._namespaces.reload(table, self.next_offsets)
        table.on_changed = on_changed
        if on_changed is not None:
            on_changed(None, None)

    # ---- events in ----

    def _take_in(self, pending: Pending, key: str) -> None:
        """Apply an event of one broker name or KV namespace."""
        if isinstance(pending.event, KvPut | KvDeleted):
            self._namespaces.lay(self.table, pending, key)
            return
        group = self.table.group(key)
        self._enter(key)
        self._groups.lay(key, group, [pending])
        self._show_group(group_after(group, [pending.event], self.table.settings_of(self._partition_of(key))))

    def _take_in_broadcast(self, event: AcceptedEvent, tickets: Mapping[int, Pending]) -> None:
        """Apply an event in the partitions for which it has a ticket."""
        for name in self._groups:
            if (partition := self._partition_of(name)) in tickets:
                self._groups[name].pending.append(tickets[partition])
        for partition, pending in tickets.items():
            self._broadcasts.add(partition, pending)
        if isinstance(event, TopicDeleted):
            for group, _ in list(self.table.queue_data_of(event.topic)):
                if self._partition_of(group.broker_name) in tickets:
                    self._enter(group.broker_name)
                    self._show_group(group_after(group, [event], {}))
        else:
            for partition, pending in tickets.items():
                self._settings.lay(self.table, pending, partition)

    # ---- events that go to every partition ----

    def _drop_broadcast(self, pending: Pending) -> None:
        self._broadcasts.remove(pending)
        self._settings.drop(self.table, pending)
        for name in self._groups:
            if self._groups.remove(name, pending):
                self._rebuild_group(name)

    def _enter(self, name: str) -> None:
        """Lay what is pending in its whole partition over a group that has nothing pending yet."""
        if name not in self._groups and (tickets := self._broadcasts.of(self._partition_of(name))):
            self._groups.lay(name, self.table.group(name), tickets)

    # ---- rows ----

    def _commit_group(self, group: BrokerGroup, next_offsets: Mapping[int, int]) -> None:
        """Show a group as the rows below these offsets have it, with what is pending behind them."""
        name = group.broker_name
        self._enter(name)
        if name not in self._groups:
            self._show_group(group)
            return
        self._groups[name].committed = group
        self._groups.settle_key(name, next_offsets)
        self._rebuild_group(name)

    def _commit_others(self, rows: CommitRows, next_offsets: Mapping[int, int]) -> None:
        """Take over the rows of no group, and forget the events that the commit includes."""
        self.next_offsets.update(next_offsets)
        direct = [row for row in rows.others if not (row.kind == ChangeKind.KV and self._namespaces.take_over(row))]
        for partition, of_partition in rows.of_settings.items():
            if not self._settings.take_over(partition, of_partition):
                direct += of_partition
        apply(self.table, direct)
        self._broadcasts.settle(self.next_offsets)
        self._settings.settle(self.table, self.next_offsets)
        judged_anew = [name for name in self._groups if self._partition_of(name) in rows.of_settings]
        for name in dict.fromkeys([*judged_anew, *self._groups.settle(self.next_offsets)]):
            self._rebuild_group(name)
        self._namespaces.settle(self.table, self.next_offsets)

    # ---- what is shown ----

    def _show_group(self, group: BrokerGroup) -> None:
        before = self.table.group(group.broker_name)
        self.table.replace_group(group)
        if self.on_group_changed is not None and before.broker_addrs != group.broker_addrs:
            self.on_group_changed(before, group)

    def _rebuild_group(self, name: str) -> None:
        self._show_group(self._rebuilt_group(name))

    def _rebuilt_group(self, name: str) -> BrokerGroup:
        layer = self._groups.take(name)
        settings = self._settings.committed(self.table, self._partition_of(name))
        return group_after(layer.committed, layer.events, settings)

    def _partition_of(self, name: str) -> int:
        return partition_of(name, self._partitions)
