"""Another server with the same ``server_id`` that writes to the log: of the two, the younger one ends.

The fold would take the two for one server: a connection that closes at one of them would end a broker that the other
hears. So a server looks for the other one before it writes anything, and once a minute, for the two may have started at
the same moment, or one of them may not have reached Kafka.

An earlier start of this very server may have left records that reach the log late, all of them at once. So the other
one counts only if it ticks again while this server looks.
"""

import asyncio
import logging
import time
from collections.abc import Iterator
from typing import Final

import orjson

from namesrv_stream.errors import DuplicateServerId, EventDecodeError, KafkaUnreachable, RecordsRemoved
from namesrv_stream.kafka import LogReader
from namesrv_stream.logs import safe
from namesrv_stream.route.event_json import decode_record
from namesrv_stream.route.events import ServerStopped, Tick
from namesrv_stream.route.fold import Record
from namesrv_stream.server.identity import Identity
from namesrv_stream.settings import Settings

logger = logging.getLogger(__name__)

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
        logger.warning("not looked for another server with this server_id: %s", safe(str(error)))
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
            logger.error(text, identity.server_id, epoch)


def _recent(reader: LogReader, first: int, end: int) -> Iterator[Record]:
    """The records of the last seconds of the log, by its own time."""
    last = next(_read(reader, max(first, end - 1), end), None)
    if last is not None:
        begin = reader.offset_at(_PARTITION, last.at_ms - _RECENT_MS)
        yield from _read(reader, end if begin is None else begin, end)


def _read(reader: LogReader, begin: int, end: int) -> Iterator[Record]:
    for batch in reader.batches(_PARTITION, begin, end):
        yield from batch
