"""Keeps a server from writing to a log that is not the tables' log, and beside another server with its id.

Where Kafka's topic was recreated, or has lost records that were folded, offsets mean other things than in the tables.
An acknowledged event would count as folded at once and be forgotten. So the server treats such a Kafka as one that is
away: it answers from memory, takes registrations into memory, refuses operators' changes, and says why (ADR 0049).

Of two servers with one ``server_id``, the younger one ends. The fold would take the two for one server: a connection
that closes at one of them would end a broker that the other hears. So a server looks for the other one before it writes
anything, and once a minute, for the two may have started at the same moment, or one of them may not have reached Kafka.
An earlier start of this very server may have left records that reach the log late, all of them at once. So the other
one counts only if it ticks again while this server looks.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from typing import Final

import orjson

from namesrv_stream.errors import (
    DuplicateServerId,
    EventDecodeError,
    KafkaUnreachable,
    LogReplaced,
    LogTruncated,
    RecordsRemoved,
)
from namesrv_stream.kafka import LogReader
from namesrv_stream.kafka.log_check import check_log
from namesrv_stream.logs import safe
from namesrv_stream.route.event_json import decode_record
from namesrv_stream.route.events import ServerStopped, Tick
from namesrv_stream.route.fold.folded_log import FoldedLog
from namesrv_stream.route.fold.step import Record
from namesrv_stream.server.start.identity import Identity
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


#: Every server writes its ticks into every partition; one suffices.
_PARTITION: Final = 0
#: A server that has not ticked for so long before the end of the log does not write to it.
_RECENT_MS: Final = 5_000
#: How many tick intervals the log is watched for, where a server with this id wrote to it recently.
_WATCHED_TICKS: Final = 4
_POLL_S: Final = 0.1
_LOOK_EVERY_S: Final = 60.0


class Sightings:
    """What records tell of other starts of a server.

    Attributes:
        ticks: Start (``server_epoch``) → LogAppendTime of its ticks, of those that have not stopped.
    """

    def __init__(self, identity: Identity) -> None:
        self.ticks: dict[int, list[int]] = {}
        self._identity = identity
        self._needle = orjson.dumps(identity.server_id)

    def take(self, record: Record) -> None:
        """Take in a record; those behind it come later."""
        if self._needle not in record.value:
            return
        try:
            events = decode_record(record.value)
        except EventDecodeError:
            return  # the job makes it a dead letter
        for event in events:
            if isinstance(event, Tick | ServerStopped) and event.origin.server_id == self._identity.server_id:
                epoch = event.origin.server_epoch
                if epoch == self._identity.server_epoch:
                    continue
                if isinstance(event, Tick):
                    self.ticks.setdefault(epoch, []).append(record.at_ms)
                else:
                    self.ticks.pop(epoch, None)


def find_rival(settings: Settings, identity: Identity) -> int | None:
    """The start of another server with this id that is writing to the log; None where there is none.

    Blocks: for two seconds where a server with this id wrote to the log within the last five, else for a moment.

    Raises:
        KafkaUnreachable: No broker answers.
        RecordsRemoved: Kafka removed the records that were to be read.
    """
    interval_ms = settings.liveness.tick_interval_ms
    with LogReader(settings) as reader:
        earlier, meanwhile = Sightings(identity), Sightings(identity)
        first, end = reader.extent(_PARTITION)
        for record in _recent(reader, first, end):
            earlier.take(record)
        if not earlier.ticks:
            return None
        until = time.monotonic() + _WATCHED_TICKS * interval_ms / 1000
        while time.monotonic() < until:
            time.sleep(_POLL_S)
            begin, end = end, reader.extent(_PARTITION)[1]
            for record in _read(reader, begin, end):
                meanwhile.take(record)
            for epoch, ticks in meanwhile.ticks.items():
                if ticks[-1] - ticks[0] >= interval_ms // 2:
                    return epoch
    return None


def refuse_rival(settings: Settings, identity: Identity) -> None:
    """Look for another server with this id before this one writes to the log; blocks.

    Raises:
        DuplicateServerId: There is one.
    """
    try:
        epoch = find_rival(settings, identity)
    except (KafkaUnreachable, RecordsRemoved) as error:
        _LOG.warning("not looked for another server with this server_id: %s", safe(str(error)))
        return
    if epoch is not None:
        raise DuplicateServerId(identity.server_id, epoch)


async def watch_for_rival(settings: Settings, identity: Identity) -> None:
    """Look for another server with this id once a minute.

    Raises:
        DuplicateServerId: There is one, and it is older than this one.
    """
    while True:
        await asyncio.sleep(_LOOK_EVERY_S)
        try:
            epoch = await asyncio.to_thread(find_rival, settings, identity)
        except (KafkaUnreachable, RecordsRemoved):
            continue
        if epoch is not None and epoch < identity.server_epoch:
            raise DuplicateServerId(identity.server_id, epoch)
        if epoch is not None:
            text = "another server with this server_id has started later, and should end server_id=%s epoch=%d"
            _LOG.error(text, identity.server_id, epoch)


def _recent(reader: LogReader, first: int, end: int) -> Iterator[Record]:
    """The records of the last seconds of the log, by its own time."""
    last = next(_read(reader, max(first, end - 1), end), None)
    if last is not None:
        begin = reader.offset_at(_PARTITION, last.at_ms - _RECENT_MS)
        yield from _read(reader, end if begin is None else begin, end)


def _read(reader: LogReader, begin: int, end: int) -> Iterator[Record]:
    for batch in reader.batches(_PARTITION, begin, end):
        yield from batch
