"""What a starting server does with the log before it answers: topics, first settings, the tail, and who else writes."""

import asyncio
import logging

from namesrv_stream.clock import Clock
from namesrv_stream.errors import KafkaUnreachable, LogReplaced, LogTruncated, NamesrvStreamError
from namesrv_stream.kafka import ensure_topics
from namesrv_stream.kafka.first_settings import log_first_settings
from namesrv_stream.kafka.log_check import check_log
from namesrv_stream.route.folded_log import FoldedLog
from namesrv_stream.route.view import RouteView
from namesrv_stream.server.identity import Identity
from namesrv_stream.server.log_tail import read_log_tail
from namesrv_stream.server.rival import refuse_rival
from namesrv_stream.settings import Settings

logger = logging.getLogger(__name__)


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
        logger.error("the tail of the log is not read: %s", error)
        return
    except NamesrvStreamError as error:
        logger.warning("the tail of the log is not read: %s", error)
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
        logger.warning("Kafka does not answer: serving the tables from before, registrations stay in memory")
        return False
    return True
