"""An operator's changes on their way to the log: each is told once whether all its records are there."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from namesrv_stream.errors import NamesrvStreamError, SystemBusy

logger = logging.getLogger(__name__)

#: Told once: None when all is in the log, else why it is not, or that nobody knows.
Outcome = Callable[[NamesrvStreamError | None], None]

NOT_TAKEN: Final = "Kafka does not take changes now; nothing was changed"
UNKNOWN: Final = "Kafka has not acknowledged the change; its outcome is unknown"


@dataclass(slots=True, eq=False)
class Receipt:
    """One change on its way.

    Attributes:
        due_ms: Monotonic time at which its outcome counts as unknown.
        missing: Records that are not acknowledged.
    """

    outcome: Outcome
    due_ms: int
    missing: int = 0


class Receipts:
    """The changes whose outcome is not told yet, in the order in which they came."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._waiting: dict[Receipt, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def open(self, outcome: Outcome, now_ms: int) -> Receipt:
        """A receipt to hand along with each record of a change, counted in ``missing``."""
        receipt = Receipt(outcome, now_ms + self._timeout_ms)
        self._waiting[receipt] = None
        return receipt

    def acked(self, receipt: Receipt) -> None:
        """One of its records is in the log."""
        receipt.missing -= 1
        if not receipt.missing:
            self._tell(receipt, None)

    def fail(self, receipt: Receipt, remark: str) -> None:
        """One of its records is lost."""
        self._tell(receipt, SystemBusy(remark))

    def expire(self, now_ms: int) -> None:
        """Tell those that waited too long; their records stay on their way."""
        while self._waiting and next(iter(self._waiting)).due_ms <= now_ms:
            self.fail(next(iter(self._waiting)), UNKNOWN)

    def fail_all(self) -> None:
        """Nothing will be acknowledged any more."""
        for receipt in list(self._waiting):
            self.fail(receipt, UNKNOWN)

    def _tell(self, receipt: Receipt, error: NamesrvStreamError | None) -> None:
        if receipt in self._waiting:
            del self._waiting[receipt]
            try:
                receipt.outcome(error)
            except Exception:
                # A fault of ours at one operator's connection must keep the outcome from nobody else, nor end the beat.
                logger.exception("the outcome of a change could not be told")
