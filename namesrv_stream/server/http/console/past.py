"""What other timeouts would have done: asks the history, on a thread, and keeps the answer for a while."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from namesrv_stream.clock import Clock
from namesrv_stream.errors import NotInHistory, StoreUnreachable, TableSchemaMismatch
from namesrv_stream.instants import duration
from namesrv_stream.route.settings import FoldSettings
from namesrv_stream.server.http.console.look import Look
from namesrv_stream.server.http.console.question import WINDOWS
from namesrv_stream.server.http.console.words import clock_time, cut, iso, timeout
from namesrv_stream.settings import Settings

if TYPE_CHECKING:
    from namesrv_stream.history.silences import Silences

_KEPT_MS: Final = 60_000
#: From the start of an installation to its first heartbeat figures, beside the history's interval: until Spark has
#: started, and the first minute with heartbeats has ended.
_FIRST_FIGURES_MS: Final = 120_000
#: Of the slider; the default that holds is put among them.
_TIMEOUTS_S: Final = (1, 2, 3, 5, 7, 10, 15, 20, 30, 40, 50, 60, 75, 90, 105, 120, 150, 180, 240, 300, 450, 600)


class Past:
    """Belongs to one event loop."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        history = settings.history
        wait_ms = _FIRST_FIGURES_MS + max(history.interval_ms, history.heartbeats_interval_ms)
        self._due_ms = clock.now_ms() + wait_ms
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="console-past")
        self._asking = asyncio.Lock()
        self._answers: dict[tuple[str, int], tuple[int, Silences | str]] = {}

    async def what_if(self, window: str, held: FoldSettings, look: Look) -> dict[str, Any]:
        """What the template ``what-if`` shows.

        Args:
            window: How far back, by ``WINDOWS``; "" for not at all.
            held: The timeouts that hold.
            look: At all brokers, of which some have timeouts of their own.
        """
        now_ms = held.default_timeout_ms
        live = [broker for _, broker in look.brokers if broker.ended is None]
        shown: dict[str, Any] = {
            "window": window,
            "windows": list(WINDOWS),
            "now_ms": now_ms,
            "now": timeout(now_ms),
            "live": len(live),
            "own": sum(broker.timeout_ms is not None for broker in live),
            "failure": "",
            "expected": self._expected(),
            "rows": [],
        }
        if not window:
            return shown
        answer = await self._silences(window, now_ms)
        if isinstance(answer, str):
            # In the first minutes that is no failure: the tables are yet to come.
            return shown | ({"until": None, "heard": 0} if self._is_new() else {"failure": answer})
        most = max((one.brokers for one in answer.timeouts), default=0)
        return shown | {
            "rows": [
                {
                    "timeout_ms": one.timeout_ms,
                    "timeout": timeout(one.timeout_ms),
                    "brokers": one.brokers,
                    "expiries": one.expiries,
                    "share": 100 * one.brokers / most if most else 0.0,
                    "is_now": one.timeout_ms == now_ms,
                }
                for one in answer.timeouts
            ],
            "heard": answer.brokers,
            "expired": answer.expired,
            "since": clock_time(answer.since_ms),
            "until": None if answer.until_ms is None else clock_time(answer.until_ms),
            "longest": [
                (
                    cut(s.broker_name),
                    cut(s.broker_addr),
                    cut(s.cluster),
                    duration(s.longest_ms),
                    clock_time(s.minute_ms),
                )
                for s in answer.longest
            ],
            "longest_iso": [iso(s.minute_ms) for s in answer.longest],
        }

    def _expected(self) -> str:
        """When the first figures come, for where there are none."""
        if not self._settings.has_history:
            return "This installation writes no history tables (history.enabled; they need a folder)."
        if self._is_new():
            return f"The history process writes the first ones by {clock_time(self._due_ms)}."
        return "`namesrv-stream status` says whether the history process runs."

    def _is_new(self) -> bool:
        """Whether this server has started so lately that figures of its brokers may be yet to come."""
        return self._settings.has_history and self._clock.now_ms() <= self._due_ms

    async def _silences(self, window: str, timeout_ms: int) -> "Silences | str":
        async with self._asking:
            kept = self._answers.get((window, timeout_ms))
            if kept is not None and self._clock.monotonic_ms() - kept[0] < _KEPT_MS:
                return kept[1]
            timeouts = sorted({timeout_ms, *(second * 1_000 for second in _TIMEOUTS_S)})
            loop = asyncio.get_running_loop()
            answer = await loop.run_in_executor(self._thread, self._ask, WINDOWS[window], timeouts)
            self._answers = {k: v for k, v in self._answers.items() if k[1] == timeout_ms}
            self._answers[window, timeout_ms] = (self._clock.monotonic_ms(), answer)
            return answer

    def _ask(self, window_ms: int, timeouts_ms: Sequence[int]) -> "Silences | str":
        # Imported by the first who asks: a server that nobody asks for the past does without.
        from namesrv_stream.history.silences import silences

        until_ms = self._clock.now_ms()
        try:
            return silences(self._settings, until_ms - window_ms, until_ms, timeouts_ms)
        except (NotInHistory, TableSchemaMismatch, StoreUnreachable) as error:
            return str(error)
