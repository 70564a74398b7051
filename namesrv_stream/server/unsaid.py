"""What is to be said once the log is back: the last facts of brokers, and changes that some partitions may lack."""

from collections.abc import Iterable

from namesrv_stream.route.event_json import routing_key
from namesrv_stream.route.partitioner import partition_of
from namesrv_stream.route.view import Pending
from namesrv_stream.server.facts import Fact, Facts
from namesrv_stream.server.records import Item


class Unsaid:
    """Bounded by the brokers, and by the changes that were on their way when the log was lost.

    A change that goes to every partition is said again where it was not acknowledged: else the partitions, which are
    parts of one table, would differ for good.
    """

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._facts = Facts()
        self._said: list[Fact] = []
        self._changes: dict[int, tuple[int, Item]] = {}  # by number, with the partition

    @property
    def brokers(self) -> int:
        """Brokers of which something is to be said."""
        return len(self._facts)

    @property
    def changes(self) -> int:
        """Records of changes that are to be said again."""
        return len(self._changes)

    def remember(self, item: Item) -> list[Pending]:
        """Take in a newer event; returns the tickets of events that will never be in the log."""
        return self._facts.remember(item)

    def keep(self, partition: int, item: Item) -> None:
        """Take in a change that goes to every partition, and that this one may lack."""
        self._changes[item.number] = (partition, item)

    def say(self) -> dict[int, list[Item]]:
        """What to log now by partition, in the order in which it was accepted; ``was_said`` once all of it is there."""
        self._said = self._facts.all()
        placed = [(partition_of(_name(item), self._partitions), item) for item in _items(self._said)]
        placed += self._changes.values()
        by_partition: dict[int, list[Item]] = {}
        for partition, item in sorted(placed, key=lambda p: p[1].number):
            by_partition.setdefault(partition, []).append(item)
        return by_partition

    def was_said(self) -> None:
        """All that ``say`` returned is in the log, or on its way again: what came since is kept."""
        self._facts.forget(self._said)
        self._said = []

    def acked(self, items: Iterable[Item]) -> None:
        """Items are in the log."""
        if self._changes:
            for item in items:
                self._changes.pop(item.number, None)


def _items(facts: Iterable[Fact]) -> Iterable[Item]:
    return (item for fact in facts for item in fact.items())


def _name(item: Item) -> str:
    return routing_key(item.event) or ""
