"""The timeout what-if: the effect of other timeouts on past heartbeats. The answers of the history are cached."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from namesrv_stream.clock import Clock
from namesrv_stream.errors import StoreUnreachable
from namesrv_stream.instants import instant
from namesrv_stream.server.http.console.brokers import FleetSnapshot
from namesrv_stream.server.http.console.question import WINDOWS
from namesrv_stream.server.steps import Kept
from namesrv_stream.settings import Settings
from namesrv_stream.table_errors import NotInHistory, TableSchemaMismatch

if TYPE_CHECKING:
    from namesrv_stream.history.sessions import Silences

_KEPT_MS: Final = 60_000
#: Time from the start of an installation to its first heartbeat figures, in addition to the history's interval: Spark
#: must start, and the first minute with heartbeats must end.
_FIRST_FIGURES_MS: Final = 120_000
#: Values of the slider; the default in force is added to them.
_TIMEOUTS_S: Final = (1, 2, 3, 5, 7, 10, 15, 20, 30, 40, 50, 60, 75, 90, 105, 120, 150, 180, 240, 300, 450, 600)


class WhatIf:
    """Queries the history on its own thread. Only one event loop may use it."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        history = settings.history
        wait_ms = _FIRST_FIGURES_MS + max(history.interval_ms, history.heartbeats_interval_ms)
        self._due_ms = clock.now_ms() + wait_ms
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="console-what-if")
        self._kept: Kept[tuple[str, int], Silences | str] = Kept(_KEPT_MS, clock)

    async def shown(self, window: str, timeout_ms: int, fleet: FleetSnapshot) -> dict[str, Any]:
        """Return the variables of the template ``what-if``.

        Args:
            window: Key of ``WINDOWS`` that says how far back to go; "" to skip the query.
            timeout_ms: The default timeout in force.
            fleet: All brokers; some have their own timeouts.
        """
        live = [broker for _, broker in fleet.brokers if broker.ended is None]
        answer: Silences | str | None = None
        if window:
            loop = asyncio.get_running_loop()
            ask = loop.run_in_executor
            answer = await self._kept.get(
                (window, timeout_ms), lambda: ask(self._thread, self._ask, WINDOWS[window], timeout_ms)
            )
        # In the first minutes, missing tables are not a failure, because they do not exist yet.
        failure = answer if isinstance(answer, str) and not self._is_new() else ""
        return {
            "window": window,
            "windows": list(WINDOWS),
            "now_ms": timeout_ms,
            "live": len(live),
            "own": sum(broker.timeout_ms is not None for broker in live),
            "failure": failure,
            "expected": self._expected(),
            "silences": None if isinstance(answer, str) else answer,
        }

    def _expected(self) -> str:
        """Return the text that says when the first figures will exist; shown if there are none."""
        if not self._settings.has_history:
            return "This installation writes no history tables (history.enabled)."
        if self._is_new():
            return f"The history process writes the first ones by {instant(self._due_ms)}."
        return "`namesrv-stream status` says whether the history process runs."

    def _is_new(self) -> bool:
        """Return whether this server started so recently that heartbeat figures of its brokers may not exist yet."""
        return self._settings.has_history and self._clock.now_ms() <= self._due_ms

    def _ask(self, window_ms: int, timeout_ms: int) -> "Silences | str":
        # Imported by the first query, so that servers without such queries do not load it.
        from namesrv_stream.history.sessions import silences

        timeouts_ms = sorted({timeout_ms, *(second * 1_000 for second in _TIMEOUTS_S)})
        until_ms = self._clock.now_ms()
        try:
            return silences(self._settings, until_ms - window_ms, until_ms, timeouts_ms)
        except (NotInHistory, TableSchemaMismatch, StoreUnreachable) as error:
            return str(error)
