"""A server's identity in the log, and checks that prevent it from writing to a log that is not its own.

The identity is an id that survives restarts, and an epoch that grows with every start.

If Kafka's topic was recreated, or has lost folded records, offsets do not mean the same as in the tables. An
acknowledged event would then count as folded at once and be forgotten. So the server treats such a Kafka as unavailable
(ADR 0049): it answers from memory, keeps registrations in memory, refuses operators' changes, and logs why.

Of two servers with the same ``server_id``, the one that started later stops. The fold would treat both as one server: a
closed connection of one would remove a broker whose heartbeats the other receives. So a server searches for another
server with its id, a rival, before it writes anything. It repeats this once a minute, because both may have started
together, or one was without Kafka. Records of an earlier start of the same server can reach the log late, but all at
once. So a rival counts only if it writes records at different times during the search.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import orjson

from namesrv_stream.errors import ConfigError, EventDecodeError, KafkaUnreachable
from namesrv_stream.kafka import LogReader
from namesrv_stream.kafka.log_reader import check_log
from namesrv_stream.logs import safe
from namesrv_stream.route.event_json import decode_record
from namesrv_stream.route.events import ServerStopped
from namesrv_stream.route.fold.folded_log import FoldedLog
from namesrv_stream.route.fold.step import Record
from namesrv_stream.settings import Settings
from namesrv_stream.table_errors import DuplicateServerId, LogReplaced, LogTruncated, RecordsRemoved
from namesrv_stream.tables.storage.folder import Folder

logger = logging.getLogger(__name__)


class Identity(NamedTuple):
    """A server's identity: a stable, unique id, and an epoch that grows with every start (usually milliseconds)."""

    server_id: str
    server_epoch: int


class IdentityFile:
    """The file that stores the identity. The caller must hold the lock of its directory."""

    def __init__(self, server_dir: Path, configured_id: str) -> None:
        self._path = server_dir / "identity.json"
        self._stored = self._read()
        self.server_id = configured_id or str(self._stored.get("server_id", "")) or f"ns-{uuid.uuid4().hex[:12]}"

    def begin_epoch(self, now_ms: int, known_epoch: int) -> Identity:
        """Return the identity of this start. It is stored before use, so that no two starts share an epoch.

        Args:
            known_epoch: The latest epoch of this server that the tables or the log contain; 0 if there is none. It is
                later than the clock if the clock was set back, and than the file if the file was lost.

        Raises:
            ConfigError: The identity cannot be stored.
        """
        last_epoch = self._stored.get("server_epoch", 0)
        last_epochs = (known_epoch, last_epoch if isinstance(last_epoch, int) else 0)
        identity = Identity(self.server_id, max(now_ms, *(epoch + 1 for epoch in last_epochs)))
        try:
            # Synced: after a loss of power, an empty file would give the server a different id.
            Folder(self._path.parent).write(self._path.name, orjson.dumps(identity._asdict()))
        except OSError as error:
            raise ConfigError(str(self._path), "data.dir", f"cannot be written: {error.strerror}") from error
        return identity

    def _read(self) -> dict[str, object]:
        try:
            stored = orjson.loads(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except ValueError:  # not JSON, or not even text
            logger.warning("the server's identity cannot be read, it gets a new one path=%s", self._path)
            return {}
        return stored if isinstance(stored, dict) else {}


class LogGuard:
    """Checks the log of a partition before every session with Kafka. Any thread may call it.

    Args:
        settings: The settings.
        folded: Returns the log as far as the served routes cover it.
        on_refused: Called if the log is not that log, or has lost records of it.
    """

    def __init__(
        self, settings: Settings, folded: Callable[[], FoldedLog], on_refused: Callable[[], None] = lambda: None
    ) -> None:
        self._settings = settings
        self._folded = folded
        self._on_refused = on_refused
        self._reported: dict[int, str] = {}
        self.has_refused = False

    def check(self, partition: int) -> int:
        """Check that a partition's log is the tables' log, and return the offset of its next record; blocks.

        Raises:
            LogReplaced: The log is another one, or has another record at the offset of the last folded one.
            LogTruncated: The log ends before the last folded record.
            NamesrvStreamError: Kafka does not answer, or its topic cannot be used.
        """
        try:
            end = check_log(self._settings, self._folded(), [partition]).end[partition]
        except (LogReplaced, LogTruncated) as error:
            self.has_refused = True
            self._on_refused()
            if str(error) != self._reported.get(partition):
                self._reported[partition] = str(error)
                logger.error("Kafka's log does not belong to the tables, nothing is written to it: %s", error)
            raise
        self._reported.pop(partition, None)
        return end


#: Every server writes its ticks to every partition, so watching one partition suffices. While a server decodes large
#: registrations, it withholds ticks, so other records count as well.
_PARTITION: Final = 0
#: A server without a record for this number of tick intervals before the end of the log is not writing to it.
_RECENT_TICKS: Final = 10
#: Number of tick intervals for which the log is watched if a server with this id wrote to it recently.
_WATCHED_TICKS: Final = 4
_POLL_S: Final = 0.1
_SEARCH_EVERY_S: Final = 60.0


class RivalRecords:
    """Collects the records of other starts with the same server id.

    Attributes:
        times: Epoch of a start → LogAppendTimes of its first and its newest record; without starts that have logged
            their stop.
    """

    def __init__(self, server_id: str, own_epoch: int | None) -> None:
        self.times: dict[int, tuple[int, int]] = {}
        self._server_id, self._own_epoch = server_id, own_epoch
        self._needle = orjson.dumps(server_id)

    def take(self, record: Record) -> None:
        """Note which start wrote a record, if it has this server's id. Records must be given in log order."""
        if self._needle not in record.value:
            return
        try:
            events = decode_record(record.value)
        except EventDecodeError:
            return  # the job writes it to the dead-letter topic
        for event in events:
            if isinstance(event, EventDecodeError) or event.origin.server_id != self._server_id:
                continue
            epoch = event.origin.server_epoch
            if epoch == self._own_epoch:
                continue
            if isinstance(event, ServerStopped):
                self.times.pop(epoch, None)
            else:
                self.times[epoch] = (self.times.get(epoch, (record.at_ms, 0))[0], record.at_ms)


def find_rival(settings: Settings, server_id: str, own_epoch: int | None) -> int | None:
    """Return the epoch of another server that is writing to the log with this id; None if there is none.

    ``own_epoch`` is None while this server has written nothing.
    It blocks for two seconds if a server with this id wrote to the log within the last five seconds, otherwise briefly.

    Raises:
        KafkaUnreachable: No Kafka broker answers.
        RecordsRemoved: Kafka removed the records before they were read.
    """
    interval_ms = settings.liveness.tick_interval_ms
    with LogReader(settings) as reader:
        earlier, meanwhile = RivalRecords(server_id, own_epoch), RivalRecords(server_id, own_epoch)
        first, end = reader.extent(_PARTITION)
        last = next(_read(reader, max(first, end - 1), end), None)
        if last is not None:
            begin = reader.offset_at(_PARTITION, last.at_ms - _RECENT_TICKS * interval_ms)
            for record in _read(reader, end if begin is None else begin, end):
                earlier.take(record)
        if not earlier.times:
            return None
        until = time.monotonic() + _WATCHED_TICKS * interval_ms / 1000
        while time.monotonic() < until:
            time.sleep(_POLL_S)
            begin, end = end, reader.extent(_PARTITION)[1]
            for record in _read(reader, begin, end):
                meanwhile.take(record)
            for epoch, (first_ms, newest_ms) in meanwhile.times.items():
                if newest_ms - first_ms >= interval_ms // 2:
                    return epoch
    return None


def refuse_rival(settings: Settings, server_id: str) -> None:
    """Search for another server with this id before this one writes to the log; blocks.

    Raises:
        DuplicateServerId: There is another server with this id.
    """
    try:
        epoch = find_rival(settings, server_id, None)
    except (KafkaUnreachable, RecordsRemoved) as error:
        logger.warning("search for another server with this server_id failed reason=%s", safe(str(error)))
        return
    if epoch is not None:
        raise DuplicateServerId(server_id, epoch)


async def watch_for_rival(settings: Settings, identity: Identity) -> None:
    """Search for another server with this id once a minute.

    Raises:
        DuplicateServerId: There is another server with this id, and it is older than this one.
    """
    while True:
        await asyncio.sleep(_SEARCH_EVERY_S)
        try:
            epoch = await asyncio.to_thread(find_rival, settings, *identity)
        except (KafkaUnreachable, RecordsRemoved):
            continue
        if epoch is not None and epoch < identity.server_epoch:
            raise DuplicateServerId(identity.server_id, epoch)
        if epoch is not None:
            text = "another server with this server_id has started later, and should stop server_id=%s epoch=%d"
            logger.error(text, identity.server_id, epoch)


def _read(reader: LogReader, begin: int, end: int) -> Iterator[Record]:
    for batch in reader.batches(_PARTITION, begin, end):
        yield from batch
