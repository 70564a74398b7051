"""Keeps a server from writing to a log that is not the one from which the tables were made.

Where Kafka's topic was made anew, or has lost records that were folded, offsets mean other things than in the tables.
An acknowledged event would count as folded at once and be forgotten. So the server treats such a Kafka as one that is
away: it answers from memory, takes registrations into memory, refuses operators' changes, and says why (ADR 0049).
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from namesrv_stream.errors import LogReplaced, LogTruncated
from namesrv_stream.kafka.log_check import check_log
from namesrv_stream.route.folded_log import FoldedLog
from namesrv_stream.settings import Settings

_LOG = logging.getLogger(__name__)

#: All partitions begin their sessions at about the same moment; one look at Kafka serves them all.
_VALID_S: Final = 5.0


class LogGuard:
    """Asked before each session with Kafka; from any thread.

    Args:
        settings: Ours.
        folded: What the tables cover at the moment.
    """

    def __init__(self, settings: Settings, folded: Callable[[], FoldedLog]) -> None:
        self._settings = settings
        self._folded = folded
        self._lock = threading.Lock()
        self._checked_s = -_VALID_S
        self._ends: Mapping[int, int] = {}
        self._mismatch: LogReplaced | LogTruncated | None = None

    def check(self, partition: int, newest_offset: int) -> int:
        """Refuse a log that is not the tables'; blocks.

        Args:
            partition: Kafka partition.
            newest_offset: Of the records there that Kafka has acknowledged; -1 for none.

        Returns:
            The offset of the partition's next record, as of some seconds ago at most; not above ``newest_offset`` only
            where Kafka has just said so.

        Raises:
            LogReplaced: It is another log, or another record is where the last folded one was.
            LogTruncated: It ends before what was folded.
            NamesrvStreamError: Kafka does not answer, or its topic cannot be used.
        """
        with self._lock:
            is_valid = time.monotonic() - self._checked_s < _VALID_S
            if not is_valid or (self._mismatch is None and self._ends.get(partition, 0) <= newest_offset):
                self._look()
            if self._mismatch is not None:
                raise self._mismatch
            return self._ends.get(partition, 0)

    def forget(self) -> None:
        """Look again before the next session, for something has shown that the log may be another one."""
        self._checked_s = -_VALID_S

    def _look(self) -> None:
        told, self._mismatch = str(self._mismatch), None
        try:
            self._ends = check_log(self._settings, self._folded()).end
        except (LogReplaced, LogTruncated) as error:
            self._mismatch = error
            if str(error) != told:
                _LOG.error("Kafka's log does not belong to the tables, nothing is written to it: %s", error)
        self._checked_s = time.monotonic()
