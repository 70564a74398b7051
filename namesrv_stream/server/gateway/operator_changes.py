"""Operators' changes on their way into the log; each one's outcome is reported once.

A change first waits until Kafka takes records of all its partitions, which mostly takes no time, and then for the
acknowledgement of its records.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from namesrv_stream.errors import NamesrvStreamError, SystemBusy
from namesrv_stream.processor.name_server import Accepted

logger = logging.getLogger(__name__)

#: Called once: with None when all records are in the log, else with the reason, or that the outcome is unknown.
Outcome = Callable[[NamesrvStreamError | None], None]

NOT_TAKEN: Final = "Kafka does not take changes now; nothing was changed"
UNKNOWN: Final = "Kafka has not acknowledged the change; its outcome is unknown"


@dataclass(slots=True, eq=False)
class Change:
    """One change.

    Attributes:
        partitions: Of its events.
        due_ms: Monotonic time at which it is given up, or its outcome counts as unknown.
        unacked: Records that Kafka has not acknowledged; 0 while nothing of the change was done.
    """

    accepted: Sequence[Accepted]
    partitions: frozenset[int]
    outcome: Outcome
    due_ms: int
    unacked: int = 0


class OperatorChanges:
    """Belongs to one event loop.

    Args:
        timeout_ms: After so long a change is reported, whatever has become of it.
        takes_changes: Whether Kafka takes records of a partition, and soon.
        begin: Applies and logs a change, and counts its records in ``unacked``.
    """

    def __init__(self, timeout_ms: int, takes_changes: Callable[[int], bool], begin: Callable[[Change], None]) -> None:
        self._timeout_ms = timeout_ms
        self._takes_changes = takes_changes
        self._begin = begin
        self._waiting: list[Change] = []
        self._unreported: dict[Change, None] = {}  # by arrival, the waiting ones among them

    @property
    def waiting(self) -> int:
        """Changes of which nothing was done."""
        return len(self._waiting)

    def add(self, accepted: Sequence[Accepted], partitions: frozenset[int], outcome: Outcome, now_ms: int) -> None:
        """Begin a change: at once, or when its partitions are there."""
        change = Change(accepted, partitions, outcome, now_ms + self._timeout_ms)
        self._unreported[change] = None
        self._waiting.append(change)
        self.proceed()

    def proceed(self) -> None:
        """Begin the changes that need not wait any more; of one partition, in the order in which they came."""
        blocked: set[int] = set()
        waiting, self._waiting = self._waiting, []
        for change in waiting:
            if change.partitions & blocked or not all(map(self._takes_changes, change.partitions)):
                blocked |= change.partitions
                self._waiting.append(change)
            else:
                self._begin(change)

    def acked(self, change: Change) -> None:
        """One of its records is in the log."""
        change.unacked -= 1
        if not change.unacked:
            self._report(change, None)

    def fail(self, change: Change) -> None:
        """One of its records is lost, or Kafka will not take them."""
        is_waiting = change in self._waiting
        if is_waiting:
            self._waiting.remove(change)
        self._report(change, SystemBusy(NOT_TAKEN if is_waiting else UNKNOWN))

    def refuse(self, partition: int | None = None) -> None:
        """Give up what waits: Kafka is known to be away for a partition, or the server stops."""
        for change in list(self._waiting):
            if partition is None or partition in change.partitions:
                self.fail(change)

    def expire(self, now_ms: int) -> None:
        """Report what has taken too long; records that were published stay on their way."""
        while self._unreported and (change := next(iter(self._unreported))).due_ms <= now_ms:
            self.fail(change)

    def fail_all(self) -> None:
        """Nothing will be acknowledged any more."""
        for change in list(self._unreported):
            self.fail(change)

    def _report(self, change: Change, error: NamesrvStreamError | None) -> None:
        if change in self._unreported:
            del self._unreported[change]
            try:
                change.outcome(error)
            except Exception:
                # A fault of ours at one operator's connection must keep the outcome from nobody else, nor end the beat.
                logger.exception("the outcome of a change could not be told")
