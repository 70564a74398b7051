"""One server's view: the committed table, and on top of it the accepted events that are not committed yet.

With such a view, brokers and operators read their own writes at once, before Kafka, Spark and Delta have caught up. An
accepted event is applied by the same rules as in the fold. With each commit, the affected groups, KV namespaces and
settings are rebuilt from the committed rows plus the pending events, in the order of acceptance. A view never removes a
broker that did not unregister itself: the fold decides about expiry and closed connections, and the view follows its
commits.

An event that goes to every partition of the log is pending in each of them separately. Within a partition, it is
pending on the groups that it changes, on groups with other pending events, and on groups that receive rows meanwhile,
because the log may contain events of such a group before and after it.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.events import (
    AcceptedEvent,
    BrokerRegistered,
    KvDeleted,
    KvPut,
    TopicDeleted,
    partition_of,
    routing_key,
)
from namesrv_stream.route.group import BrokerGroup, is_nothing
from namesrv_stream.route.model import LeaseKey, Registration
from namesrv_stream.route.reducer import CommitRows, apply
from namesrv_stream.route.steps import finish, result
from namesrv_stream.route.table import OnChanged, RouteTable
from namesrv_stream.route.view.view_layers import (
    Overlay,
    Pending,
    PendingBroadcasts,
    Settings,
    group_after,
    namespace_layers,
    setting_layers,
)

#: While the job is stopped, each registration that differs from the broker's last one is pending. A broker's first one
#: always has room; all others together may have so many bytes in the log. A topic has 60, and 6 for each character of
#: its name; it takes 40 to 120 in memory.
MAX_PENDING_BYTES: Final = 64 << 20
#: Rows about no group that are applied in one step.
_ROWS_AT_ONCE: Final = 500


class RouteView:
    """The table that one server answers from. Only its owner changes it, between two answers.

    Attributes:
        table: Committed rows plus pending events.
        next_offsets: Kafka partition → the first offset that the committed rows do not cover.
        on_group_changed: Called with a group before and after a change of its broker addresses, except by a reload.
    """

    def __init__(
        self, table: RouteTable | None = None, next_offsets: Mapping[int, int] | None = None, *, partitions: int = 1
    ) -> None:
        self.table = table or RouteTable()
        self.next_offsets = dict(next_offsets or {})
        self.on_group_changed: Callable[[BrokerGroup, BrokerGroup], None] | None = None
        self._commits = 0  # that are being applied
        self._partitions = partitions
        self._groups: Overlay[str, BrokerGroup] = Overlay()
        self._settings = setting_layers()
        self._namespaces = namespace_layers()
        self._broadcasts = PendingBroadcasts()

    @property
    def is_committing(self) -> bool:
        """Whether a commit is applied in part."""
        return self._commits > 0

    @property
    def pending_count(self) -> int:
        parts = (self._groups, self._namespaces, self._settings, self._broadcasts)
        return len({p for part in parts for p in part.all_pending()})

    def pending_registration(self, key: LeaseKey) -> Registration | None:
        """Return the last registration of a process that is pending; None if none is."""
        pending = self._groups.registrations.get(key)
        return pending.event.registration if pending and isinstance(pending.event, BrokerRegistered) else None

    @property
    def pending_bytes(self) -> int:
        """Bytes of pending registrations; those that were a process's only one when they came do not count."""
        return self._groups.size

    def watch(self, on_changed: OnChanged, later: Callable[[Iterator[None]], None] = finish) -> None:
        """Set the callbacks of the table (see ``RouteTable``), before the server answers requests."""
        self.table.on_changed, self.table.later = on_changed, later

    def committed_group(self, name: str) -> BrokerGroup:
        """Return a group without its pending events."""
        return self._groups[name].committed if name in self._groups else self.table.group(name)

    def committed_table(self) -> RouteTable:
        """Return a table of the committed rows only. It has no indexes, so it is for iteration only."""
        table, shown = RouteTable(), self.table
        table.groups = dict(shown.groups)
        for name in self._groups:
            table.groups[name] = self._groups[name].committed
            if is_nothing(table.groups[name]):
                del table.groups[name]
        for namespace in {**shown.kv, **dict.fromkeys(self._namespaces)}:
            entries = self._namespaces.committed(shown, namespace)
            if entries is not None:
                table.kv[namespace] = dict(entries)
        table.servers, table.held = dict(shown.servers), dict(shown.held)
        for partition in range(self._partitions):
            if settings := self._settings.committed(shown, partition):
                table.replace_settings(partition, settings)
        return table

    def has_room_for(self, event: BrokerRegistered) -> bool:
        """Whether a registration may be accepted (``MAX_PENDING_BYTES``)."""
        size = self._size_of(event)
        return size == 0 or self.pending_bytes + size <= MAX_PENDING_BYTES

    def accept(self, event: AcceptedEvent) -> list[Pending]:
        """Apply an event at once.

        Args:
            event: An event that the server has acknowledged to a peer; not a closed connection.

        Returns:
            One pending event for each partition that it goes to: a single one, or those of all partitions in order.
        """
        key = routing_key(event)
        if key is None:
            broadcast = [Pending(event) for _ in range(self._partitions)]
            self._add_broadcast(event, dict(enumerate(broadcast)))
            return broadcast
        pending = Pending(event)
        self._add(pending, key)
        return [pending]

    def accept_at(self, event: AcceptedEvent, partition: int, offset: int) -> None:
        """Apply an event that is in the log already, as if this server had accepted it.

        Args:
            event: An event of this partition. One that goes to every partition changes only the part of the table that
                belongs to this partition.
            offset: Offset of its record. It must be at or after the end of the committed rows, and after everything
                that was accepted for the partition before.
        """
        key, pending = routing_key(event), Pending(event, (partition, offset))
        if key is None:
            self._add_broadcast(event, {partition: pending})
        else:
            self._add(pending, key)

    def drop(self, pending: Pending) -> None:
        """Discard an accepted event that will never be in the log."""
        event = pending.event
        if (key := routing_key(event)) is None:
            self._drop_broadcast(pending)
        elif isinstance(event, KvPut | KvDeleted):
            self._namespaces.drop(self.table, pending)
        elif self._groups.remove(key, pending):
            self._rebuild_group(key)

    def commit(self, changes: Iterable[RouteChange], next_offsets: Mapping[int, int]) -> None:
        """Apply committed rows.

        Args:
            changes: In the order of the log.
            next_offsets: Kafka partition → the first offset that the rows do not cover.
        """
        finish(self.committing(CommitRows(changes), next_offsets))

    def committing(self, rows: CommitRows, next_offsets: Mapping[int, int]) -> Iterator[None]:
        """Apply committed rows in steps. Meanwhile, events may be accepted, but no other rows be committed.

        A group changes in one step, because routes must not show a part of a broker's topics.
        """
        self._commits += 1
        reached = {**self.next_offsets, **next_offsets}
        # First, because groups with pending events depend on them in every step.
        for partition, of_partition in rows.of_settings.items():
            if not self._settings.commit(partition, of_partition):
                apply(self.table, of_partition)
        for name in rows.names():
            yield from self._commit_group((yield from rows.group_after(self.committed_group(name))), reached)
        yield from self._commit_others(rows, next_offsets)
        self._commits -= 1

    def reload(self, table: RouteTable, next_offsets: Mapping[int, int]) -> None:
        """Replace all committed rows, and apply the pending events to the new ones."""
        on_changed, self.table.on_changed = self.table.on_changed, None
        old, self.table = self.table, table
        self.next_offsets = dict(next_offsets)
        self._broadcasts.settle(self.next_offsets)
        self._settings.reload(table, self.next_offsets)
        self._groups.settle(self.next_offsets)
        for name in self._groups:
            self._groups[name].committed = table.group(name)
        for topic in {p.event.topic for p in self._broadcasts.all_pending() if isinstance(p.event, TopicDeleted)}:
            for name in table.names_knowing(topic):
                self._add_broadcasts_to(name)
        for name in self._groups:
            table.replace_group(result(self._rebuilt_group(name)))
        self._namespaces.reload(table, self.next_offsets)
        table.on_changed, table.later = on_changed, old.later
        if on_changed is not None:
            on_changed(None, None)
        if old is not table:
            table.later(old.freed())

    # ---- accepted events ----

    def _add(self, pending: Pending, key: str) -> None:
        """Apply an event of one broker name or KV namespace."""
        if isinstance(pending.event, KvPut | KvDeleted):
            self._namespaces.add(self.table, pending, key)
            return
        group = self.table.group(key)
        pending.size = self._size_of(pending.event)
        self._add_broadcasts_to(key)
        self._groups.add(key, group, [pending])
        self._show_after(group, pending.event, self.table.settings_of(self._partition_of(key)))

    def _add_broadcast(self, event: AcceptedEvent, pending_in: Mapping[int, Pending]) -> None:
        """Apply an event in the partitions in which it is pending."""
        for name, layer in self._groups.items():
            if (pending := pending_in.get(partition_of(name, self._partitions))) is not None:
                layer.pending.append(pending)
        for partition, pending in pending_in.items():
            self._broadcasts.add(partition, pending)
        if isinstance(event, TopicDeleted):
            self.table.later(self._shown_with(event, pending_in, self.table.names_knowing(event.topic)))
        else:
            for partition, pending in pending_in.items():
                self._settings.add(self.table, pending, partition)

    def _size_of(self, event: AcceptedEvent) -> int:
        """Return the bytes by which an event counts: those of a process with another registration that is pending."""
        if not isinstance(event, BrokerRegistered):
            return 0
        last, registration = self.pending_registration(event.lease_key), event.registration
        return 0 if last is None or last is registration else registration.event_bytes

    # ---- events that go to every partition ----

    def _drop_broadcast(self, pending: Pending) -> None:
        self._broadcasts.remove(pending)
        self._settings.drop(self.table, pending)
        for name in self._groups:
            if self._groups.remove(name, pending):
                self._rebuild_group(name)

    def _shown_with(
        self, event: TopicDeleted, pending_in: Mapping[int, Pending], names: Iterable[str]
    ) -> Iterator[None]:
        """Show groups with a deletion that is pending in their partitions, a group in each step."""
        for name in names:
            pending = pending_in.get(self._partition_of(name))
            group = self.table.group(name)
            if pending is not None and (event.topic in group.topics or event.topic in group.topic_mappings):
                self._add_broadcasts_to(name)
                since = self._groups[name].since(pending) if name in self._groups else ()
                if since and all(isinstance(p.event, TopicDeleted) for p in since):
                    self._show_after(group, event, {})  # deletions have the same effect in any order
                elif since:
                    yield from self._rebuild_in_steps(name)
            yield

    def _add_broadcasts_to(self, name: str) -> None:
        """If a group has no pending events, add those that are pending in its whole partition."""
        if name not in self._groups and (pending := self._broadcasts.of(self._partition_of(name))):
            self._groups.add(name, self.table.group(name), pending)

    # ---- committed rows ----

    def _commit_group(self, group: BrokerGroup, next_offsets: Mapping[int, int]) -> Iterator[None]:
        """Show a committed group with the pending events that the commit does not include."""
        name = group.broker_name
        self._add_broadcasts_to(name)
        if name in self._groups:
            self._groups[name].committed = group
            self._groups.settle_key(name, next_offsets)
            yield from self._rebuild_in_steps(name)
        else:
            self._show_group(group)
            yield

    def _commit_others(self, rows: CommitRows, next_offsets: Mapping[int, int]) -> Iterator[None]:
        """Apply the rows that concern no group, and discard the events that the commit includes."""
        self.next_offsets.update(next_offsets)
        rest = iter(rows.others)
        while some := list(islice(rest, _ROWS_AT_ONCE)):
            apply(
                self.table,
                [
                    row
                    for row in some
                    if not (row.kind == ChangeKind.KV and self._namespaces.commit(row.namespace or "", [row]))
                ],
            )
            yield
        self._broadcasts.settle(self.next_offsets)
        self._settings.settle(self.table, self.next_offsets)
        for name in self._groups:
            if name in self._groups:  # it may have been settled since
                is_settled = self._groups.settle_key(name, self.next_offsets)
                if is_settled or self._partition_of(name) in rows.of_settings:
                    yield from self._rebuild_in_steps(name)
            yield
        self._namespaces.settle(self.table, self.next_offsets)

    # ---- shown groups ----

    def _show_group(self, group: BrokerGroup) -> None:
        before = self.table.group(group.broker_name)
        self.table.replace_group(group)
        if self.on_group_changed is not None and before.broker_addrs != group.broker_addrs:
            self.on_group_changed(before, group)

    def _show_after(self, group: BrokerGroup, event: AcceptedEvent, settings: Settings) -> None:
        self._show_group(result(group_after(group, [event], settings)))

    def _rebuild_group(self, name: str) -> None:
        self._show_group(result(self._rebuilt_group(name)))

    def _rebuild_in_steps(self, name: str) -> Iterator[None]:
        """Show a group with its pending events, of which thousands may wait: meanwhile, it is shown as before.

        Events that are accepted meanwhile are applied as well. After any other change, all are applied again at once.
        """
        layer = self._groups[name]
        committed, pending = layer.committed, layer.pending
        group = yield from self._rebuilt_group(name)
        if layer.committed is committed and layer.pending is pending:
            self._show_group(group)
        elif name in self._groups:
            self._rebuild_group(name)
        yield

    def _rebuilt_group(self, name: str) -> Generator[None, None, BrokerGroup]:
        layer = self._groups.pop_settled(name)
        settings = self._settings.committed(self.table, self._partition_of(name))
        return (yield from group_after(layer.committed, layer.events, settings))

    def _partition_of(self, name: str) -> int:
        return partition_of(name, self._partitions)
