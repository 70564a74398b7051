"""States as committed, beneath the accepted events that are not committed yet."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from namesrv_stream.route.events import AcceptedEvent

Key = TypeVar("Key")
State = TypeVar("State")


@dataclass(slots=True, eq=False)
class Pending:
    """The ticket of an accepted event on its way into one partition of the log.

    Attributes:
        position: (partition, offset) once it is in the log; None before.
    """

    event: AcceptedEvent
    position: tuple[int, int] | None = None

    def is_covered(self, next_offsets: Mapping[int, int]) -> bool:
        """Whether the committed rows include it."""
        return self.position is not None and self.position[1] < next_offsets.get(self.position[0], 0)


@dataclass(slots=True)
class Layer(Generic[State]):
    """One committed state, and what is pending on it in the order of acceptance."""

    committed: State
    pending: list[Pending]

    @property
    def events(self) -> Iterator[AcceptedEvent]:
        return (p.event for p in self.pending)


class Overlay(Generic[Key, State]):
    """The layers by key; what has nothing pending is committed as it is shown, and has none."""

    def __init__(self) -> None:
        self._layers: dict[Key, Layer[State]] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._layers

    def __iter__(self) -> Iterator[Key]:
        """The keys, as of now: they may be removed meanwhile."""
        return iter(list(self._layers))

    def __getitem__(self, key: Key) -> Layer[State]:
        return self._layers[key]

    def beneath(self, shown: Mapping[Key, State]) -> Mapping[Key, State]:
        """What is committed, of states of which those with layers are shown with what is pending."""
        return {**shown, **{key: layer.committed for key, layer in self._layers.items()}}

    def lay(self, key: Key, committed: State, pending: Iterable[Pending]) -> None:
        """Add events behind those that are pending on ``key``; ``committed`` counts where none is."""
        layer = self._layers.get(key)
        if layer is None:
            self._layers[key] = Layer(committed, list(pending))
        else:
            layer.pending.extend(pending)

    def remove(self, key: Key, pending: Pending) -> bool:
        """Forget one event; False if it is not pending on ``key``."""
        layer = self._layers.get(key)
        if layer is None or pending not in layer.pending:
            return False
        layer.pending.remove(pending)
        return True

    def settle(self, next_offsets: Mapping[int, int]) -> list[Key]:
        """Forget the events that the committed rows include; returns the keys on which they were pending."""
        return [key for key in self._layers if self.settle_key(key, next_offsets)]

    def settle_key(self, key: Key, next_offsets: Mapping[int, int]) -> bool:
        """Likewise with one key, which has a layer; False if none of them was pending on it."""
        layer = self._layers[key]
        rest = [p for p in layer.pending if not p.is_covered(next_offsets)]
        is_settled = len(rest) < len(layer.pending)
        layer.pending = rest
        return is_settled

    def take(self, key: Key) -> Layer[State]:
        """The layer of ``key``, to be shown anew; it ends here where nothing is pending any more."""
        layer = self._layers[key]
        if not layer.pending:
            del self._layers[key]
        return layer

    def tickets(self) -> Iterator[Pending]:
        """All that is pending; an event that is pending on many keys comes with each."""
        return (p for layer in self._layers.values() for p in layer.pending)


class Broadcasts:
    """What is pending in a whole partition; the groups that have a layer have it there as well."""

    def __init__(self) -> None:
        self._tickets: dict[int, list[Pending]] = {}

    def add(self, partition: int, pending: Pending) -> None:
        self._tickets.setdefault(partition, []).append(pending)

    def remove(self, pending: Pending) -> None:
        """Forget one event, in whichever partition it is pending."""
        self._keep(lambda p: p is not pending)

    def settle(self, next_offsets: Mapping[int, int]) -> None:
        """Forget the events that the committed rows include."""
        self._keep(lambda p: not p.is_covered(next_offsets))

    def of(self, partition: int) -> Sequence[Pending]:
        """In the order of acceptance."""
        return self._tickets.get(partition, ())

    def tickets(self) -> Iterator[Pending]:
        return (p for tickets in self._tickets.values() for p in tickets)

    def _keep(self, is_kept: Callable[[Pending], bool]) -> None:
        kept = {partition: [p for p in tickets if is_kept(p)] for partition, tickets in self._tickets.items()}
        self._tickets = {partition: tickets for partition, tickets in kept.items() if tickets}
