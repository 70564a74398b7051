"""Keeps a server from writing to a log that is not the one from which the tables were made.

Where Kafka's topic was recreated, or has lost records that were folded, offsets mean other things than in the tables.
An acknowledged event would count as folded at once and be forgotten. So the server treats such a Kafka as one that is
away: it answers from memory, takes registrations into memory, refuses operators' changes, and says why (ADR 0049).
"""

import logging
from collections.abc import Callable

from namesrv_stream.errors import LogReplaced, LogTruncated
from namesrv_stream.kafka.log_check import check_log
from namesrv_stream.route.folded_log import FoldedLog
from namesrv_stream.settings import Settings

_LOG = logging.getLogger(__name__)


class LogGuard:
    """Asked before each session with Kafka, of the session's partition; from any thread.

    Attributes:
        has_refused: Whether Kafka's log was another one, of a partition at least, since the start.
    """

    def __init__(self, settings: Settings, folded: Callable[[], FoldedLog]) -> None:
        self._settings = settings
        self._folded = folded
        self._told: dict[int, str] = {}
        self.has_refused = False

    def check(self, partition: int) -> int:
        """Refuse a log that is not the tables'; blocks.

        Returns:
            The offset of the partition's next record.

        Raises:
            LogReplaced: It is another log, or another record is where the last folded one was.
            LogTruncated: It ends before what was folded.
            NamesrvStreamError: Kafka does not answer, or its topic cannot be used.
        """
        try:
            end = check_log(self._settings, self._folded(), [partition]).end[partition]
        except (LogReplaced, LogTruncated) as error:
            self.has_refused = True
            if str(error) != self._told.get(partition):
                self._told[partition] = str(error)
                _LOG.error("Kafka's log does not belong to the tables, nothing is written to it: %s", error)
            raise
        self._told.pop(partition, None)
        return end
