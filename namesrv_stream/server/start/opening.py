"""What a starting server opens before it answers: the tables, then the log (topics, first settings, the tail)."""

import asyncio
import logging
from typing import Final

from namesrv_stream.clock import Clock
from namesrv_stream.errors import (
    KafkaUnreachable,
    LogReplaced,
    LogTruncated,
    NamesrvStreamError,
    StoreUnreachable,
    TableDamaged,
)
from namesrv_stream.kafka import ensure_topics
from namesrv_stream.kafka.first_settings import log_first_settings
from namesrv_stream.kafka.log_check import check_log
from namesrv_stream.logs import progress
from namesrv_stream.route.fold.folded_log import FoldedLog
from namesrv_stream.route.server_view.route_view import RouteView
from namesrv_stream.route.table import RouteTable
from namesrv_stream.server.start.identity import Identity
from namesrv_stream.server.start.log_guard import refuse_rival
from namesrv_stream.server.start.log_tail import read_log_tail
from namesrv_stream.settings import Settings
from namesrv_stream.tables.snapshot import Snapshot, load_snapshot
from namesrv_stream.tables.storage import Storage

_LOG = logging.getLogger(__name__)

_RETRY_S: Final = 1.0


async def first_snapshot(tables: Storage, stop: asyncio.Event) -> Snapshot | None:
    """What the tables hold; waits for an object store that is away, for without it no route is known.

    Returns:
        An empty snapshot that names the damage where no version of a table can be read: the server takes registrations
        until the job has repaired the tables. None where the server was stopped meanwhile.

    Raises:
        TableSchemaMismatch: A table is not as this version of the code expects.
    """
    told = ""
    while not stop.is_set():
        try:
            snapshot = await asyncio.to_thread(load_snapshot, tables)
        except TableDamaged as error:
            snapshot = Snapshot(RouteTable(), {}, -1, damage=str(error))
        except StoreUnreachable as error:
            if str(error) != told:
                told = str(error)
                _LOG.error("waiting for the tables: %s", told)
                progress(f"waiting for the tables: {error.place} cannot be reached")
            await asyncio.sleep(_RETRY_S)
            continue
        if snapshot.damage:
            _LOG.error("tables damaged, serving version=%d: %s", snapshot.version, snapshot.damage)
            progress(f"tables damaged: {snapshot.damage}")
        return snapshot
    return None


async def open_log(settings: Settings, identity: Identity, view: RouteView, folded: FoldedLog, clock: Clock) -> bool:
    """Take in what the log has beyond the tables; returns whether Kafka answers.

    Args:
        settings: Ours.
        identity: Of this start.
        view: As the tables have it; changed in place.
        folded: The log from which the tables were made.
        clock: For the time that it may take.

    Raises:
        KafkaUnreachable: No Kafka, and no tables from before to answer from.
        DuplicateServerId: Another server with the same id writes to the log.
    """
    if any(view.next_offsets.values()):
        # All of them mostly wait for Kafka.
        has_kafka, *_ = await asyncio.gather(
            has_topics(settings, is_needed=not (view.table.groups or view.table.kv)),
            asyncio.to_thread(_read_tail, settings, view, folded, clock),
            asyncio.to_thread(refuse_rival, settings, identity),
        )
        return has_kafka
    # Nothing has been folded yet: the log may be empty, and then it begins with the settings.
    await has_topics(settings, is_needed=True)
    await asyncio.to_thread(log_first_settings, settings)
    await asyncio.gather(
        asyncio.to_thread(read_log_tail, settings, view, clock), asyncio.to_thread(refuse_rival, settings, identity)
    )
    return True


def _read_tail(settings: Settings, view: RouteView, folded: FoldedLog, clock: Clock) -> None:
    """Take in the tail, unless it is that of another log; the sessions with Kafka say so then (``LogGuard``)."""
    try:
        check_log(settings, folded)
    except (LogReplaced, LogTruncated) as error:
        _LOG.error("the tail of the log is not read: %s", error)
        return
    except NamesrvStreamError as error:
        _LOG.warning("the tail of the log is not read: %s", error)
        return
    read_log_tail(settings, view, clock)


async def has_topics(settings: Settings, *, is_needed: bool = False) -> bool:
    """Whether Kafka answers; the topics are there then.

    Raises:
        KafkaUnreachable: It does not, and the server cannot do without.
    """
    try:
        await asyncio.to_thread(ensure_topics, settings)
    except KafkaUnreachable:
        if is_needed:
            raise
        _LOG.warning("Kafka does not answer: serving the tables from before, registrations stay in memory")
        return False
    return True
