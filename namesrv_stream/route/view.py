"""What one server sees: the committed table, and on top of it the events it accepted that are not committed yet.

So a broker, or an operator, reads its own writes at once, before Kafka, Spark and Delta have caught up. An accepted
event is applied to what it touches by the same rules as the fold's; with each commit the touched groups, KV namespaces
and settings are rebuilt from the committed rows plus the events still pending, in the order in which they were
accepted. A view never expires anything: time is the fold's.

An event that goes to every partition of the log is pending in each of them by itself. In a partition it is pending on
all groups that it changes, on those that have events pending already, and on those that get rows meanwhile: of these
the log may have a part before it and another behind.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.event_json import routing_key
from namesrv_stream.route.events import AcceptedEvent, KvDeleted, KvPut, TopicDeleted
from namesrv_stream.route.group import BrokerGroup, is_nothing
from namesrv_stream.route.overlay import Overlay, Pending
from namesrv_stream.route.partitioner import partition_of
from namesrv_stream.route.reducer import GROUP_KINDS, apply, apply_to_group, apply_to_namespace, apply_to_settings
from namesrv_stream.route.table import RouteTable
from namesrv_stream.route.view_rules import Settings, group_after, namespace_after, settings_after

__all__ = ["Pending", "RouteView"]


class _Stale(NamedTuple):
    """What is to be rebuilt after a commit."""

    partitions: list[int]
    names: list[str]
    namespaces: list[str]


class RouteView:
    """The table that one server answers from; its owner alone changes it, between two answers.

    Attributes:
        table: Committed rows plus pending events.
        next_offsets: Kafka partition to the first offset that the committed rows do not cover.
        on_group_changed: Told of a group before and after it got other broker addresses, unless by a reload.
    """

    def __init__(
        self,
        table: RouteTable | None = None,
        next_offsets: Mapping[int, int] | None = None,
        *,
        partitions: int = 1,
    ) -> None:
        self.table = table or RouteTable()
        self.next_offsets = dict(next_offsets or {})
        self.on_group_changed: Callable[[BrokerGroup, BrokerGroup], None] | None = None
        self._partitions = partitions
        self._groups: Overlay[str, BrokerGroup] = Overlay()
        self._namespaces: Overlay[str, dict[str, str] | None] = Overlay()
        self._settings: Overlay[int, Settings] = Overlay()
        # What is pending in a whole partition; the groups on which it is pending have it as well.
        self._broadcasts: dict[int, list[Pending]] = {}

    @property
    def pending_count(self) -> int:
        overlays = (self._groups, self._namespaces, self._settings)
        tickets = {p for overlay in overlays for p in overlay.tickets()}
        return len(tickets.union(*self._broadcasts.values()))

    def committed_group(self, name: str) -> BrokerGroup:
        """A group as the committed rows have it."""
        return self._groups[name].committed if name in self._groups else self.table.group(name)

    def committed_table(self) -> RouteTable:
        """What the committed rows say, without what is pending; without indexes, so for reading it through only."""
        table = RouteTable()
        table.groups = {**self.table.groups, **{name: self._groups[name].committed for name in self._groups}}
        table.groups = {name: group for name, group in table.groups.items() if not is_nothing(group)}
        namespaces = {**self.table.kv, **{name: self._namespaces[name].committed for name in self._namespaces}}
        table.kv = {name: dict(entries) for name, entries in namespaces.items() if entries is not None}
        table.servers, table.held = dict(self.table.servers), dict(self.table.held)
        for partition in range(self._partitions):
            is_changing = partition in self._settings
            values = self._settings[partition].committed if is_changing else self.table.settings_of(partition)
            if values:
                table.replace_settings(partition, values)
        return table

    def accept(self, event: AcceptedEvent) -> tuple[list[Pending], set[str]]:
        """Apply an event at once.

        Returns:
            Its tickets, one for each partition it goes to: a single one, or those of all partitions in their order; and
            the topics whose route may have changed.
        """
        key = routing_key(event)
        if key is None:
            tickets = [Pending(event) for _ in range(self._partitions)]
            return tickets, self._take_in_broadcast(event, dict(enumerate(tickets)))
        pending = Pending(event)
        return [pending], self._take_in(pending, key)

    def accept_at(self, event: AcceptedEvent, partition: int, offset: int) -> set[str]:
        """Apply an event that is in the log already, as if it had been accepted here and got there.

        Args:
            event: One that the fold takes in that partition; an event that goes to every partition is in each of them,
                and touches the part of the table that hangs on this one.
            partition: Kafka partition.
            offset: Not covered by the committed rows, and behind all that was accepted for the partition before.

        Returns:
            The topics whose route may have changed.
        """
        key, pending = routing_key(event), Pending(event, (partition, offset))
        return self._take_in_broadcast(event, {partition: pending}) if key is None else self._take_in(pending, key)

    def drop(self, pending: Pending) -> set[str]:
        """Forget an accepted event that will never be in the log; returns the topics that may have changed."""
        key = routing_key(pending.event)
        if key is None:
            return self._drop_broadcast(pending)
        if isinstance(pending.event, KvPut | KvDeleted):
            return self._rebuild_namespace(key) if self._namespaces.remove(key, pending) else set()
        return self._rebuild_group(key) if self._groups.remove(key, pending) else set()

    def commit(self, changes: Iterable[RouteChange], next_offsets: Mapping[int, int]) -> set[str]:
        """Take over committed rows; returns the topics whose route may have changed."""
        self.next_offsets.update(next_offsets)
        touched, stale = self._take_over(changes)
        self._settle_broadcasts()
        for partition in dict.fromkeys([*stale.partitions, *self._settings.settle(self.next_offsets)]):
            self._rebuild_settings(partition)
        for name in dict.fromkeys([*stale.names, *self._groups.settle(self.next_offsets)]):
            touched |= self._rebuild_group(name)
        for namespace in dict.fromkeys([*stale.namespaces, *self._namespaces.settle(self.next_offsets)]):
            touched |= self._rebuild_namespace(namespace)
        return touched

    def reload(self, table: RouteTable, next_offsets: Mapping[int, int]) -> None:
        """Replace all committed rows; pending events are applied anew."""
        self.table = table
        self.next_offsets = dict(next_offsets)
        self._settle_broadcasts()
        for overlay in (self._settings, self._groups, self._namespaces):
            overlay.settle(self.next_offsets)
        for partition in self._settings:
            self._settings[partition].committed = table.settings_of(partition)
            self._rebuild_settings(partition)
        for name in self._groups:
            self._groups[name].committed = table.group(name)
        for topic in {
            p.event.topic for ps in self._broadcasts.values() for p in ps if isinstance(p.event, TopicDeleted)
        }:
            for group, _ in table.queue_data_of(topic):
                self._enter(group.broker_name)
        for name in self._groups:
            table.replace_group(self._rebuilt_group(name))
        for namespace in self._namespaces:
            self._namespaces[namespace].committed = table.kv.get(namespace)
            self._rebuild_namespace(namespace)

    # ---- events in ----

    def _take_in(self, pending: Pending, key: str) -> set[str]:
        """Apply an event of one broker name or KV namespace; returns the topics that may have changed."""
        event = pending.event
        if isinstance(event, KvPut | KvDeleted):
            entries = self.table.kv.get(key)
            self._namespaces.lay(key, entries, [pending])
            return self._show_namespace(key, namespace_after(entries, [event]))
        group = self.table.group(key)
        after = group_after(group, [event], self.table.settings_of(self._partition_of(key)))
        self._enter(key)
        self._groups.lay(key, group, [pending])
        return self._show_group(after)

    def _take_in_broadcast(self, event: AcceptedEvent, tickets: Mapping[int, Pending]) -> set[str]:
        """Apply an event in the partitions for which it has a ticket; returns the topics that may have changed."""
        for name in self._groups:
            if (partition := self._partition_of(name)) in tickets:
                self._groups[name].pending.append(tickets[partition])
        for partition, pending in tickets.items():
            self._broadcasts.setdefault(partition, []).append(pending)
        touched: set[str] = set()
        if isinstance(event, TopicDeleted):
            for group, _ in list(self.table.queue_data_of(event.topic)):
                if self._partition_of(group.broker_name) in tickets:
                    self._enter(group.broker_name)
                    touched |= self._show_group(group_after(group, [event], {}))
        else:
            for partition, pending in tickets.items():
                settings = self.table.settings_of(partition)
                self._settings.lay(partition, settings, [pending])
                self.table.replace_settings(partition, settings_after(settings, [event]))
        return touched

    # ---- events that go to every partition ----

    def _drop_broadcast(self, pending: Pending) -> set[str]:
        for tickets in self._broadcasts.values():
            if pending in tickets:
                tickets.remove(pending)
        self._settle_broadcasts()
        for partition in self._settings:
            if self._settings.remove(partition, pending):
                self._rebuild_settings(partition)
        touched: set[str] = set()
        for name in self._groups:
            if self._groups.remove(name, pending):
                touched |= self._rebuild_group(name)
        return touched

    def _settle_broadcasts(self) -> None:
        for partition, tickets in list(self._broadcasts.items()):
            rest = [p for p in tickets if not p.is_covered(self.next_offsets)]
            if rest:
                self._broadcasts[partition] = rest
            else:
                del self._broadcasts[partition]

    def _enter(self, name: str) -> None:
        """Lay what is pending in its whole partition over a group that has nothing pending yet."""
        if self._broadcasts and name not in self._groups:
            tickets = self._broadcasts.get(self._partition_of(name))
            if tickets:
                self._groups.lay(name, self.table.group(name), tickets)

    # ---- rows ----

    def _take_over(self, changes: Iterable[RouteChange]) -> tuple[set[str], "_Stale"]:
        """Put rows into the table, or beneath what is pending; returns touched topics and what is to be rebuilt."""
        rows_of_name: dict[str, list[RouteChange]] = {}
        direct: list[RouteChange] = []
        stale = _Stale([], [], [])
        changed_settings: set[int] = set()
        for row in changes:
            if row.kind in GROUP_KINDS:
                rows_of_name.setdefault(row.broker_name or "", []).append(row)
            elif row.kind == ChangeKind.KV and (row.namespace or "") in self._namespaces:
                namespace = self._namespaces[row.namespace or ""]
                namespace.committed = apply_to_namespace(namespace.committed, row)
                stale.namespaces.append(row.namespace or "")
            elif row.kind == ChangeKind.SETTING and row.partition in self._settings:
                settings = self._settings[row.partition]
                settings.committed = apply_to_settings(settings.committed, [row])
                stale.partitions.append(row.partition)
            else:
                direct.append(row)
            if row.kind == ChangeKind.SETTING:
                changed_settings.add(row.partition)
        touched = apply(self.table, direct)
        for name, rows in rows_of_name.items():
            self._enter(name)
            if name in self._groups:
                group = self._groups[name]
                group.committed = apply_to_group(group.committed, rows)
                stale.names.append(name)
            else:
                touched |= self._show_group(apply_to_group(self.table.group(name), rows))
        if changed_settings:
            stale.names.extend(n for n in self._groups if self._partition_of(n) in changed_settings)
        return touched, stale

    # ---- what is shown ----

    def _show_group(self, group: BrokerGroup) -> set[str]:
        before = self.table.group(group.broker_name)
        touched = self.table.replace_group(group)
        if self.on_group_changed is not None and before.broker_addrs != group.broker_addrs:
            self.on_group_changed(before, group)
        return touched

    def _show_namespace(self, namespace: str, entries: dict[str, str] | None) -> set[str]:
        before = self.table.kv.get(namespace, {})
        if entries is None:
            self.table.kv.pop(namespace, None)
        else:
            self.table.kv[namespace] = entries
        return {key for key, _ in before.items() ^ (entries or {}).items()}

    def _rebuild_group(self, name: str) -> set[str]:
        return self._show_group(self._rebuilt_group(name))

    def _rebuilt_group(self, name: str) -> BrokerGroup:
        layer = self._groups.take(name)
        partition = self._partition_of(name)
        is_changing = partition in self._settings
        settings = self._settings[partition].committed if is_changing else self.table.settings_of(partition)
        return group_after(layer.committed, layer.events, settings)

    def _rebuild_namespace(self, namespace: str) -> set[str]:
        layer = self._namespaces.take(namespace)
        return self._show_namespace(namespace, namespace_after(layer.committed, layer.events))

    def _rebuild_settings(self, partition: int) -> None:
        layer = self._settings.take(partition)
        self.table.replace_settings(partition, settings_after(layer.committed, layer.events))

    def _partition_of(self, name: str) -> int:
        return partition_of(name, self._partitions)
