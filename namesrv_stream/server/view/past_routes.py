"""Routes as they were: reads the history on threads of its own, a few questions at a time."""

import asyncio
import logging
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from namesrv_stream.clock import Clock
from namesrv_stream.errors import (
    ConfigError,
    NamesrvStreamError,
    NotInHistory,
    StoreUnreachable,
    SystemBusy,
    TableSchemaMismatch,
)
from namesrv_stream.logs import safe
from namesrv_stream.settings import Settings

if TYPE_CHECKING:
    from namesrv_stream.history.past_route import PastRoute

Told = TypeVar("Told")

_LOG = logging.getLogger(__name__)

#: Readers of the tables at once; what is more than these and those that wait is refused.
_THREADS: Final = 2
_WAITING: Final = 32
#: ``2026-11-20T03:12:00+01:00`` as a query that was not quoted: its + has come as a space.
_UNQUOTED_ZONE: Final = re.compile(r"(.*\d:\d\d\S*) (\d\d:\d\d)")
#: What ``ask`` raises, with the status of HTTP that says so.
STATUS_OF: Final[dict[type[NamesrvStreamError], int]] = {
    ConfigError: 400,
    NotInHistory: 404,
    TableSchemaMismatch: 503,
    StoreUnreachable: 503,
    SystemBusy: 503,
}
REFUSALS: Final = tuple(STATUS_OF)


class PastRoutes:
    """Answers for the HTTP port; of the event loop."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        # Not the loop's own threads: a start or a change must not wait for somebody's look at the past.
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="past-routes")
        self._asked = 0

    async def ask(self, topic: str, as_of: str, tell: "Callable[[PastRoute], Told]") -> Told:
        """What ``tell`` makes, on the thread, of the route of a topic at an instant.

        Raises:
            ConfigError: ``as_of`` is no instant, or lies in the future.
            NotInHistory: There was no route then, or the history does not say; tells which.
            TableSchemaMismatch: A table is damaged, or not as this version of the code expects.
            StoreUnreachable: The tables' object store does not answer.
            SystemBusy: Too many ask.
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
        # Imported by the first who asks: a server that nobody asks for the past does without.
        from namesrv_stream.history.past_route import ask_route

        return ask_route(self._settings, topic, as_of, self._clock.now_ms(), flag="as_of", source="query")
