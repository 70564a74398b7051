"""Committed states, and on top of them the accepted events that are not committed yet."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from namesrv_stream.route.events import AcceptedEvent

Key = TypeVar("Key")
State = TypeVar("State")


@dataclass(slots=True, eq=False)
class Pending:
    """An accepted event on its way into one partition of the log.

    Attributes:
        position: (partition, offset) once the event is in the log; None before.
    """

    event: AcceptedEvent
    position: tuple[int, int] | None = None

    def is_covered(self, next_offsets: Mapping[int, int]) -> bool:
        """Whether the committed rows include the event."""
        return self.position is not None and self.position[1] < next_offsets.get(self.position[0], 0)


@dataclass(slots=True)
class Layer(Generic[State]):
    """One committed state, and its pending events in the order of acceptance."""

    committed: State
    pending: list[Pending]

    @property
    def events(self) -> Iterator[AcceptedEvent]:
        return (p.event for p in self.pending)


class Overlay(Generic[Key, State]):
    """The layers by key. A key without pending events has no layer, because its shown state is the committed one."""

    def __init__(self) -> None:
        self._layers: dict[Key, Layer[State]] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._layers

    def __iter__(self) -> Iterator[Key]:
        """Iterate over a copy of the keys, so that the caller may remove layers meanwhile."""
        return iter(list(self._layers))

    def __getitem__(self, key: Key) -> Layer[State]:
        return self._layers[key]

    def with_committed(self, shown: Mapping[Key, State]) -> Mapping[Key, State]:
        """Return the states of ``shown``, but for keys with pending events the committed states."""
        return {**shown, **{key: layer.committed for key, layer in self._layers.items()}}

    def add(self, key: Key, committed: State, pending: Iterable[Pending]) -> None:
        """Add pending events to a key. ``committed`` is used only if the key has no layer yet."""
        layer = self._layers.get(key)
        if layer is None:
            self._layers[key] = Layer(committed, list(pending))
        else:
            layer.pending.extend(pending)

    def remove(self, key: Key, pending: Pending) -> bool:
        """Discard one event; False if it is not pending on ``key``."""
        layer = self._layers.get(key)
        if layer is None or pending not in layer.pending:
            return False
        layer.pending.remove(pending)
        return True

    def settle(self, next_offsets: Mapping[int, int]) -> list[Key]:
        """Discard the events that the committed rows include, and return their keys."""
        return [key for key in self._layers if self.settle_key(key, next_offsets)]

    def settle_key(self, key: Key, next_offsets: Mapping[int, int]) -> bool:
        """Do the same for one key, which must have a layer; False if nothing was discarded."""
        layer = self._layers[key]
        rest = [p for p in layer.pending if not p.is_covered(next_offsets)]
        is_settled = len(rest) < len(layer.pending)
        layer.pending = rest
        return is_settled

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
