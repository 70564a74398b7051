"""What one server sees: the committed table, and on top of it the events it accepted that are not committed yet.

So a broker reads its own writes at once, before Kafka, Spark and Delta have caught up. An accepted event is applied to
its broker group by the same rules as the fold's; with each commit the touched groups are rebuilt from the committed
rows plus the events still pending, in the order in which they were accepted. A view never expires anything: time is
the fold's.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from namesrv_stream.route import group as rules
from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.event_json import routing_key
from namesrv_stream.route.events import (
    BrokerDisconnected,
    BrokerEvent,
    BrokerHeartbeat,
    BrokerRegistered,
    BrokerUnregistered,
    TopicRegistered,
    WritePermChanged,
)
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.model import LiveKey
from namesrv_stream.route.reducer import GROUP_KINDS, apply, apply_to_group
from namesrv_stream.route.table import RouteTable


@dataclass(slots=True, eq=False)
class Pending:
    """An accepted event on its way into the table.

    Attributes:
        position: (partition, offset) once it is in the log; None before.
    """

    event: BrokerEvent
    position: tuple[int, int] | None = None

    def is_covered(self, next_offsets: Mapping[int, int]) -> bool:
        """Whether the committed rows include it."""
        return self.position is not None and self.position[1] < next_offsets.get(self.position[0], 0)


class RouteView:
    """The table that one server answers from; its owner alone changes it, between two answers.

    Attributes:
        table: Committed rows plus pending events.
        next_offsets: Kafka partition to the first offset that the committed rows do not cover.
    """

    def __init__(self, table: RouteTable | None = None, next_offsets: Mapping[int, int] | None = None) -> None:
        self.table = table or RouteTable()
        self.next_offsets = dict(next_offsets or {})
        self._pending: dict[str, list[Pending]] = {}
        # The committed self of each group that has pending events; all other groups of ``table`` are committed.
        self._committed: dict[str, BrokerGroup] = {}

    @property
    def pending_count(self) -> int:
        return sum(map(len, self._pending.values()))

    def accept(self, event: BrokerEvent) -> tuple[Pending, set[str]]:
        """Apply an event at once; returns its ticket and the topics whose route may have changed."""
        name = routing_key(event) or ""
        group = self.table.group(name)
        self._committed.setdefault(name, group)
        pending = Pending(event)
        self._pending.setdefault(name, []).append(pending)
        return pending, self.table.replace_group(self._applied(group, event))

    def drop(self, pending: Pending) -> set[str]:
        """Forget an accepted event that will never be in the log; returns the topics that may have changed."""
        name = routing_key(pending.event) or ""
        events = self._pending.get(name, [])
        if pending not in events:
            return set()
        events.remove(pending)
        return self._rebuild(name)

    def commit(self, changes: Iterable[RouteChange], next_offsets: Mapping[int, int]) -> set[str]:
        """Take over committed rows; returns the topics whose route may have changed."""
        direct: list[RouteChange] = []
        beneath: dict[str, list[RouteChange]] = {}
        for change in changes:
            under = change.kind in GROUP_KINDS and change.broker_name in self._pending
            (beneath.setdefault(change.broker_name or "", []) if under else direct).append(change)
        self.next_offsets.update(next_offsets)
        touched = apply(self.table, direct)
        for name, rows in beneath.items():
            self._committed[name] = apply_to_group(self._committed[name], rows)
        for name in list(self._pending):
            if name in beneath or any(p.is_covered(self.next_offsets) for p in self._pending[name]):
                touched |= self._rebuild(name)
        return touched

    def reload(self, table: RouteTable, next_offsets: Mapping[int, int]) -> None:
        """Replace all committed rows; pending events are applied anew."""
        self.table = table
        self.next_offsets = dict(next_offsets)
        self._committed = {name: table.group(name) for name in self._pending}
        for name in list(self._pending):
            self._rebuild(name)

    def _rebuild(self, name: str) -> set[str]:
        rest = [p for p in self._pending[name] if not p.is_covered(self.next_offsets)]
        group = self._committed[name]
        for pending in rest:
            group = self._applied(group, pending.event)
        if rest:
            self._pending[name] = rest
        else:
            del self._pending[name], self._committed[name]
        return self.table.replace_group(group)

    def _applied(self, group: BrokerGroup, event: BrokerEvent) -> BrokerGroup:
        origin = event.origin
        match event:
            case BrokerRegistered():
                drop_absent = self.table.settings.get(("effective", "delete_topic_with_broker_registration")) == "true"
                return rules.register(
                    group,
                    event.registration,
                    origin.server_id,
                    origin.holder,
                    delete_topic_with_broker_registration=drop_absent,
                ).group
            case BrokerUnregistered():
                held = _holder(group, event.live_key, origin.server_id)
                if held is None or origin.holder < held:
                    return group
                return _end(group, event.live_key, origin.server_id)
            case BrokerDisconnected():
                if _holder(group, event.live_key, origin.server_id) != origin.holder:
                    return group
                return _end(group, event.live_key, origin.server_id)
            case TopicRegistered():
                return rules.register_topic(group, event.topic, event.queue_data)
            case WritePermChanged():
                return rules.add_write_perm(group) if event.writable else rules.wipe_write_perm(group)
            case BrokerHeartbeat():
                return group


def _holder(group: BrokerGroup, key: LiveKey, server_id: str) -> tuple[int, int] | None:
    live = group.lives.get(key)
    return live.holders.get(server_id) if live else None


def _end(group: BrokerGroup, key: LiveKey, server_id: str) -> BrokerGroup:
    """End one server's hold; the broker stays while another server is known to hear it."""
    if len(group.lives[key].holders) > 1:
        return rules.end_holder(group, key, server_id)
    return rules.unregister(group, key)
