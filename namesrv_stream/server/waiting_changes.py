"""Operators' changes that wait until Kafka takes records of all their partitions; most wait for no time at all."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from namesrv_stream.processor.name_server import Accepted
from namesrv_stream.server.receipts import NOT_TAKEN, Receipt, Receipts


class WaitingChange(NamedTuple):
    """A change of which nothing has been done.

    Attributes:
        partitions: Of its events.
        receipt: Of which nobody has been told.
    """

    accepted: Sequence[Accepted]
    partitions: frozenset[int]
    receipt: Receipt


class WaitingChanges:
    """Belongs to one event loop.

    Args:
        receipts: Those of the changes.
        takes_changes: Whether Kafka takes records of a partition, and soon.
        admit: Does a change.
    """

    def __init__(
        self, receipts: Receipts, takes_changes: Callable[[int], bool], admit: Callable[[WaitingChange], None]
    ) -> None:
        self._receipts = receipts
        self._takes_changes = takes_changes
        self._admit = admit
        self._waiting: list[WaitingChange] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, change: WaitingChange) -> None:
        """Have a change done: at once, or once its partitions are there."""
        self._waiting.append(change)
        self.proceed()

    def proceed(self) -> None:
        """Do the changes that need not wait any more; of one partition, in the order in which they came."""
        blocked: set[int] = set()
        waiting, self._waiting = self._waiting, []
        for change in waiting:
            if change.partitions & blocked or not all(map(self._takes_changes, change.partitions)):
                blocked |= change.partitions
                self._waiting.append(change)
            else:
                self._admit(change)

    def refuse(self, changes: Iterable[WaitingChange]) -> None:
        """Give changes up; nothing of them was done."""
        refused = list(changes)
        self._waiting = [change for change in self._waiting if change not in refused]
        for change in refused:
            self._receipts.fail(change.receipt, NOT_TAKEN)

    def refuse_partition(self, partition: int) -> None:
        """Kafka is known to be away for a partition."""
        self.refuse([change for change in self._waiting if partition in change.partitions])

    def expire(self, now_ms: int) -> None:
        """Give up what waits for too long."""
        self.refuse([change for change in self._waiting if change.receipt.due_ms <= now_ms])

    def refuse_all(self) -> None:
        self.refuse(self._waiting)
