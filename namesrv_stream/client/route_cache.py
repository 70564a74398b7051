"""The routes of requested topics, refreshed in the background.

As in Java's client, a route is kept when its refresh fails, because brokers keep working without name servers.
``TopicRoute.last_error`` then contains the error.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from namesrv_stream.client.client_errors import ClientClosed, NameServersUnreachable
from namesrv_stream.client.queues import MessageQueue, readable_queues, writable_queues
from namesrv_stream.client.route import TopicRouteData
from namesrv_stream.errors import NamesrvStreamError
from namesrv_stream.logs import safe

logger = logging.getLogger(__name__)

_REFRESHES_AT_ONCE: Final = 32


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """A route in the cache at the time of the request.

    Attributes:
        data: The answer of a name server.
        age_ms: Milliseconds since that answer; more than the poll interval if refreshes fail.
        last_error: Error of the newest refresh, TopicNotExist if no broker serves the topic any more; None after a
            success.
        writable_queues: For producers.
        readable_queues: For consumers.
    """

    data: TopicRouteData
    age_ms: int
    last_error: NamesrvStreamError | None
    writable_queues: tuple[MessageQueue, ...]
    readable_queues: tuple[MessageQueue, ...]

    @property
    def topic(self) -> str:
        return self.data.topic


@dataclass(frozen=True, slots=True)
class _Known:
    data: TopicRouteData
    writable_queues: tuple[MessageQueue, ...]
    readable_queues: tuple[MessageQueue, ...]
    at_s: float


@dataclass(slots=True, eq=False)
class _Entry:
    """One topic; times are on the event loop's clock."""

    topic: str
    used_at_s: float
    known: _Known | None = None
    error: NamesrvStreamError | None = None
    answered_at_s: float | None = None  # or failed; None before the first answer
    refreshing: asyncio.Task[None] | None = None


class RouteCache:
    """Fetches a route once for all concurrent callers, and refreshes it for as long as it is requested."""

    def __init__(
        self, fetch: Callable[[str], Awaitable[TopicRouteData]], missing_interval_ms: int, unused_ms: int
    ) -> None:
        """Create an empty cache.

        Args:
            fetch: Queries a name server; raises a NamesrvStreamError.
            missing_interval_ms: Shortest interval of queries for a topic without a usable route, in milliseconds.
            unused_ms: Milliseconds after which an unused topic is removed.
        """
        self._fetch = fetch
        self._missing_interval_s = missing_interval_ms / 1000
        self._unused_s = unused_ms / 1000
        self._entries: dict[str, _Entry] = {}
        self._is_closed = False

    @property
    def topics(self) -> frozenset[str]:
        """The topics that are refreshed."""
        return frozenset(self._entries)

    async def get(self, topic: str) -> TopicRoute:
        """Return the route from memory if it is there, otherwise from a name server.

        If a query for it failed less than ``missing_interval_ms`` ago, raise that error again instead of querying.

        Raises:
            TopicNotExist: No broker serves the topic.
            UnexpectedAnswer: The name server refused, or its answer cannot be read.
            NameServersUnreachable: No name server answered.
            ClientClosed: ``close`` was called.
        """
        entry = self._entry(topic)
        if entry.known is None:
            await self._refresh_if_due(entry)
        return self._known_route(entry)

    async def renew(self, topic: str) -> TopicRoute:
        """Return the route after querying a name server again; for callers that cannot use the route in memory.

        If the last query for it ended less than ``missing_interval_ms`` ago, do not query again.

        Raises:
            NamesrvStreamError: As ``get``.
        """
        entry = self._entry(topic)
        await self._refresh_if_due(entry)
        return self._known_route(entry)

    async def refresh(self) -> None:
        """Refresh every topic, and remove unused ones; never fails."""
        now_s = _now_s()
        for entry in [entry for entry in self._entries.values() if now_s - entry.used_at_s >= self._unused_s]:
            if entry.refreshing is None:
                del self._entries[entry.topic]
        waiting = iter(list(self._entries.values()))
        unreachable: NameServersUnreachable | None = None

        async def work() -> None:
            nonlocal unreachable
            for entry in waiting:
                if unreachable is None:
                    await self._refresh(entry)
                    if isinstance(entry.error, NameServersUnreachable):
                        unreachable = entry.error
                else:
                    # Every further query would wait for all name servers in vain; the next round tries again.
                    self._failed(entry, unreachable)

        await asyncio.gather(*(work() for _ in range(min(_REFRESHES_AT_ONCE, len(self._entries)))))

    async def close(self) -> None:
        """Cancel the queries under way; their callers get ClientClosed."""
        self._is_closed = True
        tasks = [entry.refreshing for entry in self._entries.values() if entry.refreshing is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _entry(self, topic: str) -> _Entry:
        if self._is_closed:
            raise ClientClosed
        entry = self._entries.get(topic)
        if entry is None:
            entry = self._entries[topic] = _Entry(topic, 0.0)
        entry.used_at_s = _now_s()
        return entry

    def _known_route(self, entry: _Entry) -> TopicRoute:
        known = entry.known
        if known is None:
            assert entry.error is not None
            raise entry.error.with_traceback(None)
        age_ms = int((_now_s() - known.at_s) * 1000)
        return TopicRoute(known.data, age_ms, entry.error, known.writable_queues, known.readable_queues)

    async def _refresh_if_due(self, entry: _Entry) -> None:
        if entry.answered_at_s is None or _now_s() - entry.answered_at_s >= self._missing_interval_s:
            await self._refresh(entry)

    async def _refresh(self, entry: _Entry) -> None:
        """Query a name server for this topic, or wait for the query of another caller."""
        if entry.refreshing is None:
            name = f"route of {safe(entry.topic)}"
            entry.refreshing = asyncio.get_running_loop().create_task(self._ask(entry), name=name)
        refreshing = entry.refreshing
        await asyncio.wait([refreshing])  # not cancelled with this caller, since others may wait for it
        if refreshing.cancelled():
            raise ClientClosed
        refreshing.result()  # raises an unexpected error

    async def _ask(self, entry: _Entry) -> None:
        try:
            data = await self._fetch(entry.topic)
            known = _Known(data, writable_queues(data), readable_queues(data), _now_s())
            if entry.known is not None and entry.error is not None:
                logger.info("route refreshed again topic=%s", safe(entry.topic))
            entry.known, entry.error, entry.answered_at_s = known, None, known.at_s
        except NamesrvStreamError as error:
            self._failed(entry, error)
            entry.answered_at_s = _now_s()
        finally:
            entry.refreshing = None

    def _failed(self, entry: _Entry, error: NamesrvStreamError) -> None:
        if entry.known is not None and entry.error is None:
            logger.warning("cannot refresh route, keeping the old one topic=%s reason=%s", safe(entry.topic), error)
        entry.error = error


def _now_s() -> float:
    return asyncio.get_running_loop().time()
