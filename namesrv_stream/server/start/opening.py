"""Opens what a starting server needs before it answers: the tables, then the log (topics, first settings, tail)."""

import asyncio
import logging
from typing import Final

from namesrv_stream.clock import Clock
from namesrv_stream.errors import KafkaUnreachable, NamesrvStreamError, StoreUnreachable
from namesrv_stream.kafka import ensure_topics
from namesrv_stream.kafka.event_topics import log_first_settings
from namesrv_stream.kafka.log_reader import check_log
from namesrv_stream.logs import progress
from namesrv_stream.route.fold.folded_log import FoldedLog
from namesrv_stream.route.route_view import RouteView
from namesrv_stream.route.table import RouteTable
from namesrv_stream.server.start.identity import Identity
from namesrv_stream.server.start.log_guard import refuse_rival
from namesrv_stream.server.start.log_tail import read_log_tail
from namesrv_stream.settings import Settings
from namesrv_stream.table_errors import LogReplaced, LogTruncated, TableDamaged
from namesrv_stream.tables.snapshot import Snapshot, load_snapshot
from namesrv_stream.tables.storage import Storage

_LOG = logging.getLogger(__name__)

_RETRY_S: Final = 1.0


async def first_snapshot(tables: Storage, stop: asyncio.Event) -> Snapshot | None:
    """Load the tables. If their object store is unreachable, wait for it, because no route is known without it.

    Returns:
        The snapshot; an empty one that names the damage if no version of a table can be read (the server then accepts
        registrations until the job has repaired the tables); None if the server was stopped meanwhile.

    Raises:
        TableSchemaMismatch: A table has a different schema from what this version expects.
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
    """Apply the log's tail to the view. Return whether Kafka answers.

    Args:
        settings: The settings.
        identity: The identity of this start.
        view: The view with the content of the tables; changed in place.
        folded: The log from which the tables were computed.
        clock: The clock that limits the reading time.

    Raises:
        KafkaUnreachable: Kafka does not answer, and there are no earlier tables to serve.
        DuplicateServerId: Another server with the same id writes to the log.
    """
    if any(view.next_offsets.values()):
        # In parallel, because all of them mostly wait for Kafka.
        has_kafka, *_ = await asyncio.gather(
            has_topics(settings, is_needed=not (view.table.groups or view.table.kv)),
            asyncio.to_thread(_read_tail, settings, view, folded, clock),
            asyncio.to_thread(refuse_rival, settings, identity),
        )
        return has_kafka
    # Nothing has been folded yet. If the log is empty, it must begin with the settings.
    await has_topics(settings, is_needed=True)
    await asyncio.to_thread(log_first_settings, settings)
    await asyncio.gather(
        asyncio.to_thread(read_log_tail, settings, view, clock), asyncio.to_thread(refuse_rival, settings, identity)
    )
    return True


def _read_tail(settings: Settings, view: RouteView, folded: FoldedLog, clock: Clock) -> None:
    """Apply the tail, unless it belongs to another log; ``LogGuard`` then refuses the sessions with Kafka."""
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
    """Create missing topics. Return whether Kafka answers.

    Raises:
        KafkaUnreachable: Kafka does not answer, and ``is_needed`` is set.
    """
    try:
        await asyncio.to_thread(ensure_topics, settings)
    except KafkaUnreachable:
        if is_needed:
            raise
        _LOG.warning("Kafka does not answer: serving the tables from before, registrations stay in memory")
        return False
    return True
