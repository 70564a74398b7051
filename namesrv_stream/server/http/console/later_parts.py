"""The parts that the script loads after the page: the comparison with other servers, and the timeout what-if.

The comparison says which servers serve the same routes as this one, and which lag behind. It sends requests only to
addresses from the configuration, never to one from a request, and follows no redirects. The what-if says how other
timeouts would have affected past heartbeats; the answers of the history are cached.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from namesrv_stream.client.server_states import BadAnswer, ServerState, ServerUnreachable, ask
from namesrv_stream.clock import Clock
from namesrv_stream.errors import StoreUnreachable
from namesrv_stream.instants import instant
from namesrv_stream.server.http.console.brokers import FleetSnapshot
from namesrv_stream.server.http.console.query import WINDOWS, Tone
from namesrv_stream.server.steps import Kept
from namesrv_stream.server.view.served_state import ServedState
from namesrv_stream.settings import Settings
from namesrv_stream.table_errors import NotInHistory, TableSchemaMismatch

if TYPE_CHECKING:
    from namesrv_stream.history.sessions import Silences


_TIMEOUT_S: Final = 2.0
_MOST_BYTES: Final = 1 << 20
_FRESH_MS: Final = 2_000
#: If there was no commit for this time, the time between two requests does not explain a difference.
_STALE_MS: Final = 10_000


class OtherServers:
    """Queries the other servers on its own threads. Only one event loop may use it."""

    def __init__(self, urls: Sequence[str], state: ServedState, clock: Clock) -> None:
        self._urls = urls
        self._state = state
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="console-servers")
        self._kept: Kept[None, list[ServerState | str]] = Kept(_FRESH_MS, clock)

    async def compared(self) -> list[dict[str, Any]]:
        """Return the rows of the template ``servers``: this server, then the others."""
        ours = await self._state.describe()
        answers = await self._kept.get(None, self._ask_all)
        lines = [{"url": "", "state": ours, "tone": "good", "label": "serves", "text": ""}]
        for url, answer in zip(self._urls, answers, strict=True):
            state = None if isinstance(answer, str) else answer
            tone, label, text = compare(ours, state) if state is not None else ("bad", "no answer", answer)
            lines.append({"url": url, "state": state, "tone": tone, "label": label, "text": text})
        return lines

    async def _ask_all(self) -> list[ServerState | str]:
        loop = asyncio.get_running_loop()
        return list(await asyncio.gather(*(loop.run_in_executor(self._threads, _ask, url) for url in self._urls)))


def compare(ours: ServerState, theirs: ServerState) -> tuple[Tone, str, str]:
    """Return how another server's state differs from this one's: tone, short label, and explanation."""
    partitions = sorted(ours.next_offsets.keys() | theirs.next_offsets.keys())
    lead = {p: theirs.next_offsets.get(p, 0) - ours.next_offsets.get(p, 0) for p in partitions}
    differing = [p for p in partitions if not lead[p] and ours.partitions.get(p) != theirs.partitions.get(p)]
    if differing:
        names = ", ".join(map(str, differing))
        return "bad", "differs", f"in partition {names} at the same offsets: `namesrv-stream skew` shows the rows"
    behind, ahead = -sum(n for n in lead.values() if n < 0), sum(n for n in lead.values() if n > 0)
    if not behind and not ahead:
        return "good", "the same", "same offsets, same digest"
    texts = [f"{count:,} records {label}" for count, label in ((behind, "behind"), (ahead, "ahead")) if count]
    is_stale = max(ours.age_ms, theirs.age_ms) > _STALE_MS
    text = " and ".join(texts) + ("" if is_stale else ", as is usual between two commits")
    return "warn" if is_stale else "calm", "behind" if behind else "ahead", text


def _ask(url: str) -> ServerState | str:
    try:
        return ask(url, "/state", ServerState, timeout_s=_TIMEOUT_S, most_bytes=_MOST_BYTES)
    except (ServerUnreachable, BadAnswer) as error:
        return error.reason


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
            window: The period, a key of ``WINDOWS``; "" skips the query.
            timeout_ms: The default timeout in force, milliseconds.
            fleet: The brokers, of which the live ones are counted.
        """
        live = [broker for _, broker in fleet.brokers if broker.ended is None]
        answer: Silences | str | None = None
        if window:
            ask = asyncio.get_running_loop().run_in_executor
            answer = await self._kept.get(
                (window, timeout_ms), lambda: ask(self._thread, self._ask, WINDOWS[window], timeout_ms)
            )
        # In the first minutes, missing tables are not a failure: figures of this server's brokers may not exist yet.
        is_new = self._settings.has_history and self._clock.now_ms() <= self._due_ms
        expected = "`namesrv-stream status` says whether the history process runs."
        if not self._settings.has_history:
            expected = "This installation writes no history tables (history.enabled)."
        elif is_new:
            expected = f"The history process writes the first ones by {instant(self._due_ms)}."
        return {
            "window": window,
            "windows": list(WINDOWS),
            "now_ms": timeout_ms,
            "live": len(live),
            "own": sum(broker.timeout_ms is not None for broker in live),
            "failure": answer if isinstance(answer, str) and not is_new else "",
            "expected": expected,
            "silences": None if isinstance(answer, str) else answer,
        }

    def _ask(self, window_ms: int, timeout_ms: int) -> "Silences | str":
        # Imported by the first query, so that servers without such queries do not load it.
        from namesrv_stream.history.sessions import silences

        timeouts_ms = sorted({timeout_ms, *(second * 1_000 for second in _TIMEOUTS_S)})
        until_ms = self._clock.now_ms()
        try:
            return silences(self._settings, until_ms - window_ms, until_ms, timeouts_ms)
        except (NotInHistory, TableSchemaMismatch, StoreUnreachable) as error:
            return str(error)
