"""Operators' changes that wait for the log. The outcome of every change is reported exactly once.

A change first waits until Kafka accepts records of all its partitions, which usually takes no time. Then it waits for
the acknowledgement of its records.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from namesrv_stream.errors import NamesrvStreamError, SystemBusy
from namesrv_stream.processor.name_server import Accepted

logger = logging.getLogger(__name__)

#: Called once: with None when all records are in the log, otherwise with an error; it may say "outcome unknown".
Outcome = Callable[[NamesrvStreamError | None], None]

NOT_TAKEN: Final = "Kafka does not accept changes now; nothing was changed"
UNKNOWN: Final = "Kafka has not acknowledged the change; its outcome is unknown"


@dataclass(slots=True, eq=False)
class Change:
    """One change of an operator.

    Attributes:
        due_ms: Monotonic time limit: then a waiting change fails, and a published one has an unknown outcome.
        unacked: Number of records that Kafka has not acknowledged; 0 before the change begins.
    """

    accepted: Sequence[Accepted]
    partitions: frozenset[int]
    outcome: Outcome
    due_ms: int
    unacked: int = 0


class OperatorChanges:
    """Starts operators' changes and reports their outcomes within ``timeout_ms``. Only one event loop may use it.

    Args:
        takes_changes: Returns whether Kafka accepts records of a partition without delay.
        begin: Applies and logs a change, and counts its records in ``unacked``.
    """

    def __init__(self, timeout_ms: int, takes_changes: Callable[[int], bool], begin: Callable[[Change], None]) -> None:
        self._timeout_ms = timeout_ms
        self._takes_changes = takes_changes
        self._begin = begin
        self._waiting: list[Change] = []
        self._unreported: dict[Change, None] = {}  # in order of arrival; includes the waiting ones

    @property
    def waiting(self) -> int:
        """Number of changes that have not begun."""
        return len(self._waiting)

    def add(self, accepted: Sequence[Accepted], partitions: frozenset[int], outcome: Outcome, now_ms: int) -> None:
        """Begin a change immediately, or as soon as Kafka accepts records of its partitions."""
        change = Change(accepted, partitions, outcome, now_ms + self._timeout_ms)
        self._unreported[change] = None
        self._waiting.append(change)
        self.proceed()

    def proceed(self) -> None:
        """Begin the changes that no longer have to wait. Changes of the same partition begin in order of arrival."""
        blocked: set[int] = set()
        waiting, self._waiting = self._waiting, []
        for change in waiting:
            if change.partitions & blocked or not all(map(self._takes_changes, change.partitions)):
                blocked |= change.partitions
                self._waiting.append(change)
            else:
                self._begin(change)

    def acked(self, change: Change) -> None:
        change.unacked -= 1
        if not change.unacked:
            self._report(change, None)

    def fail(self, change: Change) -> None:
        """Report a change as failed: one of its records is lost, or Kafka does not accept them."""
        is_waiting = change in self._waiting
        if is_waiting:
            self._waiting.remove(change)
        self._report(change, SystemBusy(NOT_TAKEN if is_waiting else UNKNOWN))

    def refuse(self, partition: int | None = None) -> None:
        """Fail the waiting changes of a partition for which Kafka is unavailable, or all when the server stops."""
        for change in list(self._waiting):
            if partition is None or partition in change.partitions:
                self.fail(change)

    def expire(self, now_ms: int) -> None:
        """Report the changes that took too long. Their records stay in the publish queue if they are there already."""
        while self._unreported and (change := next(iter(self._unreported))).due_ms <= now_ms:
            self.fail(change)

    def fail_all(self) -> None:
        """Fail all changes, because no more acknowledgements will arrive."""
        for change in list(self._unreported):
            self.fail(change)

    def _report(self, change: Change, error: NamesrvStreamError | None) -> None:
        if change in self._unreported:
            del self._unreported[change]
            try:
                change.outcome(error)
            except Exception:
                # A bug in one operator's callback must not stop the other reports or the beat.
                logger.exception("callback of an operator's change failed")
