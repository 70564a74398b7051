"""Queries for past routes. They read the history on their own threads, a few queries at a time."""

import asyncio
import logging
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from namesrv_stream.clock import Clock
from namesrv_stream.errors import ConfigError, NamesrvStreamError, StoreUnreachable, SystemBusy
from namesrv_stream.logs import safe
from namesrv_stream.settings import Settings
from namesrv_stream.table_errors import NotInHistory, TableSchemaMismatch

if TYPE_CHECKING:
    from namesrv_stream.history.past_route import PastRoute

Told = TypeVar("Told")

_LOG = logging.getLogger(__name__)

#: Maximum number of queries that read the tables, and of queries that wait. Further ones are refused.
_THREADS: Final = 2
_WAITING: Final = 32
#: ``2026-11-20T03:12:00+01:00`` in a URL without percent-encoding: its + arrives as a space.
_UNQUOTED_ZONE: Final = re.compile(r"(.*\d:\d\d\S*) (\d\d:\d\d)")
#: Errors that ``ask`` raises → HTTP status.
STATUS_OF: Final[dict[type[NamesrvStreamError], int]] = {
    ConfigError: 400,
    NotInHistory: 404,
    TableSchemaMismatch: 503,
    StoreUnreachable: 503,
    SystemBusy: 503,
}
REFUSALS: Final = tuple(STATUS_OF)


class PastRoutes:
    """Answers queries for past routes for the HTTP port. Only one event loop may use it."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        # Not the loop's default threads: a start or a change must not wait for queries of the history.
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="past-routes")
        self._asked = 0

    async def ask(self, topic: str, as_of: str, tell: "Callable[[PastRoute], Told]") -> Told:
        """Return the result of ``tell``, which is called on the thread with a topic's route at an instant.

        Raises:
            ConfigError: ``as_of`` is not an instant, or lies in the future.
            NotInHistory: There was no route then, or the history does not cover it; the text says which.
            TableSchemaMismatch: A table is damaged, or has a different schema from what this version expects.
            StoreUnreachable: The tables' object store does not answer.
            SystemBusy: Too many queries are waiting.
        """
        if self._asked >= _THREADS + _WAITING:
            raise SystemBusy("too many questions for the past at once; ask again")
        self._asked += 1
        as_of = _UNQUOTED_ZONE.sub(r"\1+\2", as_of)
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._threads, lambda: tell(self._answer(topic, as_of))
            )
        except (TableSchemaMismatch, StoreUnreachable) as error:
            _LOG.warning("the history cannot be read: %s", safe(str(error)))
            raise
        finally:
            self._asked -= 1

    def _answer(self, topic: str, as_of: str) -> "PastRoute":
        # Imported by the first query, so that servers without such queries do not load it.
        from namesrv_stream.history.past_route import read_past_route

        return read_past_route(self._settings, topic, as_of, self._clock.now_ms(), flag="as_of", source="query")
