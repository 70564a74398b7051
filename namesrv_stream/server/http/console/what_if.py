"""What other timeouts would have done: asks the history, on a thread, and keeps the answer for a while."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from namesrv_stream.clock import Clock
from namesrv_stream.errors import NotInHistory, StoreUnreachable, TableSchemaMismatch
from namesrv_stream.instants import instant
from namesrv_stream.server.http.console.brokers import FleetSnapshot
from namesrv_stream.server.http.console.question import WINDOWS
from namesrv_stream.server.steps import Kept
from namesrv_stream.settings import Settings

if TYPE_CHECKING:
    from namesrv_stream.history.heartbeat_silences import Silences

_KEPT_MS: Final = 60_000
#: From the start of an installation to its first heartbeat figures, beside the history's interval: until Spark has
#: started, and the first minute with heartbeats has ended.
_FIRST_FIGURES_MS: Final = 120_000
#: Of the slider; the default in force is put among them.
_TIMEOUTS_S: Final = (1, 2, 3, 5, 7, 10, 15, 20, 30, 40, 50, 60, 75, 90, 105, 120, 150, 180, 240, 300, 450, 600)


class WhatIf:
    """Belongs to one event loop."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        history = settings.history
        wait_ms = _FIRST_FIGURES_MS + max(history.interval_ms, history.heartbeats_interval_ms)
        self._due_ms = clock.now_ms() + wait_ms
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="console-what-if")
        self._kept: Kept[tuple[str, int], Silences | str] = Kept(_KEPT_MS, clock)

    async def shown(self, window: str, timeout_ms: int, fleet: FleetSnapshot) -> dict[str, Any]:
        """What the template ``what-if`` shows.

        Args:
            window: How far back, by ``WINDOWS``; "" for not at all.
            timeout_ms: The default timeout in force.
            fleet: All brokers, of which some have timeouts of their own.
        """
        live = [broker for _, broker in fleet.brokers if broker.ended is None]
        answer: Silences | str | None = None
        if window:
            loop = asyncio.get_running_loop()
            ask = loop.run_in_executor
            answer = await self._kept.get(
                (window, timeout_ms), lambda: ask(self._thread, self._ask, WINDOWS[window], timeout_ms)
            )
        # In the first minutes it is no failure that there are no tables: they are yet to come.
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
        """When the first figures come, for where there are none."""
        if not self._settings.has_history:
            return "This installation writes no history tables (history.enabled)."
        if self._is_new():
            return f"The history process writes the first ones by {instant(self._due_ms)}."
        return "`namesrv-stream status` says whether the history process runs."

    def _is_new(self) -> bool:
        """Whether this server has started so lately that figures of its brokers may be yet to come."""
        return self._settings.has_history and self._clock.now_ms() <= self._due_ms

    def _ask(self, window_ms: int, timeout_ms: int) -> "Silences | str":
        # Imported by the first who asks: a server that nobody asks for the past does without.
        from namesrv_stream.history.heartbeat_silences import silences

        timeouts_ms = sorted({timeout_ms, *(second * 1_000 for second in _TIMEOUTS_S)})
        until_ms = self._clock.now_ms()
        try:
            return silences(self._settings, until_ms - window_ms, until_ms, timeouts_ms)
        except (NotInHistory, TableSchemaMismatch, StoreUnreachable) as error:
            return str(error)
