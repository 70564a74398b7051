"""The layers of a view: committed states, the accepted events that are not committed yet, and the effect of the latter.

Pending events apply in the order in which the server accepted them.
"""

from collections.abc import Callable, Generator, ItemsView, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.events import (
    AcceptedEvent,
    BrokerEvent,
    BrokerRegistered,
    KvDeleted,
    KvPut,
    SettingsChanged,
    TopicDeleted,
)
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.interpretation import apply_event, kv_differences, setting_differences
from namesrv_stream.route.liveness_settings import settings_of_registrations
from namesrv_stream.route.model import LeaseKey
from namesrv_stream.route.reducer import apply_to_namespace, apply_to_settings
from namesrv_stream.route.table import RouteTable

Key = TypeVar("Key")
State = TypeVar("State")


@dataclass(slots=True, eq=False)
class Pending:
    """An accepted event on its way into one partition of the log.

    Attributes:
        position: (partition, offset) once the event is in the log; None before.
        size: Bytes by which it counts (``MAX_PENDING_BYTES``).
    """

    event: AcceptedEvent
    position: tuple[int, int] | None = None
    size: int = 0

    def is_covered(self, next_offsets: Mapping[int, int]) -> bool:
        """Whether the committed rows include the event."""
        return self.position is not None and self.position[1] < next_offsets.get(self.position[0], 0)


@dataclass(slots=True)
class Layer(Generic[State]):
    """One committed state, and its pending events in the order of acceptance.

    Attributes:
        pending: Events are appended to the list; without some of them, it is another list.
    """

    committed: State
    pending: list[Pending]

    @property
    def events(self) -> Iterator[AcceptedEvent]:
        return (p.event for p in self.pending)

    def since(self, pending: Pending) -> Sequence[Pending]:
        """Return the events from a given one on; none if that is not pending any more."""
        return self.pending[self.pending.index(pending) :] if pending in self.pending else ()


class Overlay(Generic[Key, State]):
    """The layers by key. A key without pending events has no layer, because its shown state is the committed one.

    Attributes:
        size: Bytes by which all pending events count.
        registrations: Broker process → its last registration that is pending.
    """

    def __init__(self) -> None:
        self._layers: dict[Key, Layer[State]] = {}
        self.size = 0
        self.registrations: dict[LeaseKey, Pending] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._layers

    def __iter__(self) -> Iterator[Key]:
        """Iterate over a copy of the keys, so that the caller may remove layers meanwhile."""
        return iter(list(self._layers))

    def __getitem__(self, key: Key) -> Layer[State]:
        return self._layers[key]

    def items(self) -> ItemsView[Key, Layer[State]]:
        return self._layers.items()

    def add(self, key: Key, committed: State, pending: Iterable[Pending]) -> None:
        """Add pending events to a key. ``committed`` is used only if the key has no layer yet."""
        layer = self._layers.setdefault(key, Layer(committed, []))
        for one in pending:
            layer.pending.append(one)
            self.size += one.size
            if isinstance(one.event, BrokerRegistered):
                self.registrations[one.event.lease_key] = one

    def remove(self, key: Key, pending: Pending) -> bool:
        """Discard one event; False if it is not pending on ``key``."""
        layer = self._layers.get(key)
        if layer is None or pending not in layer.pending:
            return False
        layer.pending = [p for p in layer.pending if p is not pending]
        self._removed(pending)
        return True

    def settle(self, next_offsets: Mapping[int, int]) -> list[Key]:
        """Discard the events that the committed rows include, and return their keys."""
        return [key for key in self._layers if self.settle_key(key, next_offsets)]

    def settle_key(self, key: Key, next_offsets: Mapping[int, int]) -> bool:
        """Discard the events of one key that the committed rows include; False if none. The key must have a layer."""
        layer = self._layers[key]
        covered: list[Pending] = []
        rest: list[Pending] = []
        for pending in layer.pending:
            (covered if pending.is_covered(next_offsets) else rest).append(pending)
        if not covered:
            return False
        layer.pending = rest
        for pending in covered:
            self._removed(pending)
        return True

    def _removed(self, pending: Pending) -> None:
        self.size -= pending.size
        if isinstance(pending.event, BrokerRegistered):
            key = pending.event.lease_key
            if self.registrations.get(key) is pending:
                del self.registrations[key]

    def pop_settled(self, key: Key) -> Layer[State]:
        """Return the layer of ``key``, and remove it if it has no pending events any more."""
        layer = self._layers[key]
        if not layer.pending:
            del self._layers[key]
        return layer

    def all_pending(self) -> Iterator[Pending]:
        """Yield all pending events; an event that is pending on several keys appears once for each."""
        return (p for layer in self._layers.values() for p in layer.pending)


class PendingBroadcasts:
    """Events that are pending in whole partitions. Groups that have a layer have these events in it as well."""

    def __init__(self) -> None:
        self._by_partition: dict[int, list[Pending]] = {}

    def add(self, partition: int, pending: Pending) -> None:
        self._by_partition.setdefault(partition, []).append(pending)

    def remove(self, pending: Pending) -> None:
        """Discard one event, in whichever partition it is pending."""
        self._keep(lambda p: p is not pending)

    def settle(self, next_offsets: Mapping[int, int]) -> None:
        """Discard the events that the committed rows include."""
        self._keep(lambda p: not p.is_covered(next_offsets))

    def of(self, partition: int) -> Sequence[Pending]:
        """Return a partition's pending events in the order of acceptance."""
        return self._by_partition.get(partition, ())

    def all_pending(self) -> Iterator[Pending]:
        return (p for pending in self._by_partition.values() for p in pending)

    def _keep(self, is_kept: Callable[[Pending], bool]) -> None:
        kept = {partition: [p for p in pending if is_kept(p)] for partition, pending in self._by_partition.items()}
        self._by_partition = {partition: pending for partition, pending in kept.items() if pending}


#: (namespace "effective" or "config", name) → JSON text.
Settings = Mapping[tuple[str, str], str]
#: Key → value; None for a namespace that was never written.
Entries = dict[str, str] | None


def group_after(
    group: BrokerGroup, events: Iterable[AcceptedEvent], settings: Settings
) -> Generator[None, None, BrokerGroup]:
    """Return a group after events, one in each step.

    Args:
        group: The group before.
        events: Events in order; those that concern no group change nothing.
        settings: The settings of the group's partition before the first event.
    """
    of_registrations = settings_of_registrations(settings)
    for event in events:
        if isinstance(event, SettingsChanged):
            settings = settings_after(settings, [event])
            of_registrations = settings_of_registrations(settings)
        elif isinstance(event, BrokerEvent | TopicDeleted):
            group = apply_event(group, event, settings=of_registrations).group
        yield
    return group


def namespace_after(entries: Entries, events: Iterable[AcceptedEvent]) -> Entries:
    """Return a copy of a KV namespace after events."""
    after = None if entries is None else dict(entries)
    for event in events:
        if isinstance(event, KvPut | KvDeleted):
            for _, gone, columns in kv_differences(event):
                after = apply_to_namespace(after, gone, columns.get("key"), columns.get("value"))
    return after


def settings_after(settings: Settings, events: Iterable[AcceptedEvent]) -> Settings:
    """Return a partition's settings after events."""
    after = dict(settings)
    for event in events:
        if isinstance(event, SettingsChanged):
            after |= {(c["namespace"], c["key"]): c["value"] for _, _, c in setting_differences(event)}
    return after


class ViewLayers(Generic[Key, State]):
    """The states of one kind in a table (KV namespaces, or partitions' settings), with pending events on top.

    Changes are visible in the table at once.

    Args:
        read: Returns the state of a key in a table.
        show: Writes the state of a key into a table.
        after_events: Returns a state after accepted events.
        after_rows: Returns a state after committed rows.
    """

    def __init__(
        self,
        read: Callable[[RouteTable, Key], State],
        show: Callable[[RouteTable, Key, State], None],
        after_events: Callable[[State, Iterable[AcceptedEvent]], State],
        after_rows: Callable[[State, Iterable[RouteChange]], State],
    ) -> None:
        self._read = read
        self._show = show
        self._after_events = after_events
        self._after_rows = after_rows
        self._layers: Overlay[Key, State] = Overlay()

    def __iter__(self) -> Iterator[Key]:
        """Iterate over the keys with pending events."""
        return iter(self._layers)

    def all_pending(self) -> Iterator[Pending]:
        return self._layers.all_pending()

    def committed(self, table: RouteTable, key: Key) -> State:
        """Return the state of a key without its pending events."""
        return self._layers[key].committed if key in self._layers else self._read(table, key)

    def add(self, table: RouteTable, pending: Pending, key: Key) -> None:
        """Apply an accepted event."""
        state = self._read(table, key)
        self._layers.add(key, state, [pending])
        self._show(table, key, self._after_events(state, [pending.event]))

    def drop(self, table: RouteTable, pending: Pending) -> None:
        """Discard an event that will never be in the log."""
        for key in self._layers:
            if self._layers.remove(key, pending):
                self._rebuild(table, key)

    def commit(self, key: Key, rows: Iterable[RouteChange]) -> bool:
        """Apply committed rows below the pending events of a key; ``settle`` then shows the result.

        Returns:
            False if the key has no pending events; the caller then applies the rows to the table.
        """
        if key not in self._layers:
            return False
        layer = self._layers[key]
        layer.committed = self._after_rows(layer.committed, rows)
        return True

    def settle(self, table: RouteTable, next_offsets: Mapping[int, int]) -> None:
        """Discard the events that the committed rows include, and show the rest."""
        self._layers.settle(next_offsets)
        for key in self._layers:
            self._rebuild(table, key)

    def reload(self, table: RouteTable, next_offsets: Mapping[int, int]) -> None:
        """Apply the pending events to another table."""
        for key in self._layers:
            self._layers[key].committed = self._read(table, key)
        self.settle(table, next_offsets)

    def _rebuild(self, table: RouteTable, key: Key) -> None:
        layer = self._layers.pop_settled(key)
        self._show(table, key, self._after_events(layer.committed, layer.events))


def namespace_layers() -> ViewLayers[str, Entries]:
    """Return layers of KV namespaces, by name."""
    return ViewLayers(lambda table, namespace: table.kv.get(namespace), _show_namespace, namespace_after, _with_rows)


def setting_layers() -> ViewLayers[int, Settings]:
    """Return layers of settings, by partition."""
    return ViewLayers(RouteTable.settings_of, RouteTable.replace_settings, settings_after, apply_to_settings)


def _show_namespace(table: RouteTable, namespace: str, entries: Entries) -> None:
    table.kv_version += 1
    if entries is None:
        table.kv.pop(namespace, None)
    else:
        table.kv[namespace] = entries


def _with_rows(entries: Entries, rows: Iterable[RouteChange]) -> Entries:
    for row in rows:
        entries = apply_to_namespace(entries, row.gone, row.key, row.value)
    return entries
