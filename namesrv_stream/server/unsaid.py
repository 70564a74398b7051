"""What a partition of the log is to be told once Kafka is back: last facts of brokers, and changes it may lack."""

from collections.abc import Iterable, Iterator

from namesrv_stream.route.view import Pending
from namesrv_stream.server.facts import Fact, Facts
from namesrv_stream.server.records import Item


class Unsaid:
    """Bounded by the brokers, and by the changes that were on their way when the partition was lost.

    A change that goes to every partition is logged again where it was not acknowledged: otherwise the partitions, which
    are parts of one table, would differ for good.
    """

    def __init__(self) -> None:
        self._facts = Facts()
        self._said: list[Fact] = []
        self._changes: dict[int, Item] = {}  # by number

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

    def keep(self, item: Item) -> None:
        """Take in a change that goes to every partition, and that this one may lack."""
        self._changes[item.number] = item

    def say(self) -> list[Item]:
        """What to log now, in the order in which it was accepted; ``was_said`` once all of it is there."""
        self._said = self._facts.all()
        return sorted([*_items(self._said), *self._changes.values()], key=lambda item: item.number)

    def was_said(self) -> None:
        """All that ``say`` returned is in the log, or on its way again: what came since is kept."""
        self._facts.forget(self._said)
        self._said = []

    def acked(self, items: Iterable[Item]) -> None:
        """Items are in the log."""
        if self._changes:
            for item in items:
                self._changes.pop(item.number, None)


def _items(facts: Iterable[Fact]) -> Iterator[Item]:
    return (item for fact in facts for item in fact.items())
