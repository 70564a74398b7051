"""``GET /routes/{topic}?as_of=``: reads the history on threads of its own, a few questions at a time."""

import asyncio
import logging
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from starlette.responses import JSONResponse, Response

from namesrv_stream.clock import Clock
from namesrv_stream.errors import ConfigError, NotInHistory, StoreUnreachable, TableSchemaMismatch
from namesrv_stream.logs import safe
from namesrv_stream.settings import Settings

_LOG = logging.getLogger(__name__)

#: Readers of the tables at once; what is more than these and those that wait is refused.
_THREADS: Final = 2
_WAITING: Final = 32
_RETRY_AFTER_S: Final = 1
#: ``2026-11-20T03:12:00+01:00`` as a query that was not quoted: its + has come as a space.
_UNQUOTED_ZONE: Final = re.compile(r"(.*\d:\d\d\S*) (\d\d:\d\d)")


class PastRoutes:
    """Answers for the HTTP port; of the event loop.

    Args:
        settings: Ours.
        clock: Which says what is the future.
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        # Not the loop's own threads: a start or a change must not wait for somebody's look at the past.
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="past-routes")
        self._asked = 0

    async def answer(self, topic: str, as_of: str) -> Response:
        """The route of a topic at an instant, as JSON; an error says why there is none."""
        if self._asked >= _THREADS + _WAITING:
            text = "too many questions for the past at once; ask again"
            return JSONResponse({"error": text}, 503, {"Retry-After": str(_RETRY_AFTER_S)})
        self._asked += 1
        as_of = _UNQUOTED_ZONE.sub(r"\1+\2", as_of)
        loop = asyncio.get_running_loop()
        try:
            return JSONResponse(await loop.run_in_executor(self._threads, self._ask, topic, as_of))
        except ConfigError as error:
            return _error(400, str(error))
        except NotInHistory as error:
            return _error(404, str(error))
        except (TableSchemaMismatch, StoreUnreachable) as error:
            _LOG.warning("the history cannot be read: %s", safe(str(error)))
            return _error(503, str(error))
        finally:
            self._asked -= 1

    def _ask(self, topic: str, as_of: str) -> dict[str, Any]:
        # Imported by the first who asks: a server that nobody asks for the past does without.
        from namesrv_stream.history.route_question import ask_route

        now_ms = self._clock.now_ms()
        return ask_route(self._settings, topic, as_of, now_ms, flag="as_of", source="query").as_json()


def _error(status: int, text: str) -> Response:
    return JSONResponse({"error": text}, status)
