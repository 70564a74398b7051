"""Comparison of this name server with the configured other ones: which serve the same, and which lag.

It sends requests only to addresses from the configuration, never to one from a request, and follows no redirects.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from namesrv_stream.client.server_states import BadAnswer, ServerState, ServerUnreachable, ask
from namesrv_stream.clock import Clock
from namesrv_stream.server.http.console.question import Tone
from namesrv_stream.server.steps import Kept
from namesrv_stream.server.view.served_state import ServedState

_TIMEOUT_S: Final = 2.0
_MOST_BYTES: Final = 1 << 20
_FRESH_MS: Final = 2_000
#: Without a commit for so long, a difference is more than the time between two requests.
_STALE_MS: Final = 10_000


class OtherServers:
    """Queries the other servers on its own threads. Only one event loop may use it."""

    def __init__(self, urls: Sequence[str], state: ServedState, clock: Clock) -> None:
        self._urls = urls
        self._state = state
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="console-servers")
        self._kept: Kept[None, list[ServerState | str]] = Kept(_FRESH_MS, clock)

    async def compared(self) -> list[dict[str, Any]]:
        """Return the variables of the template ``servers``: this server, then the others."""
        ours = await self._state.describe()
        answers = await self._kept.get(None, self._ask_all)
        lines = [{"url": "", "state": ours, "tone": "good", "word": "serves", "text": ""}]
        for url, answer in zip(self._urls, answers, strict=True):
            if isinstance(answer, str):
                lines.append({"url": url, "state": None, "tone": "bad", "word": "no answer", "text": answer})
            else:
                tone, word, text = compare(ours, answer)
                lines.append({"url": url, "state": answer, "tone": tone, "word": word, "text": text})
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
    words = [f"{count:,} records {word}" for count, word in ((behind, "behind"), (ahead, "ahead")) if count]
    is_stale = max(ours.age_ms, theirs.age_ms) > _STALE_MS
    word = "behind" if behind else "ahead"
    return "warn" if is_stale else "calm", word, " and ".join(words) + ("" if is_stale else ", as is usual in between")


def _ask(url: str) -> ServerState | str:
    try:
        return ask(url, "/state", ServerState, timeout_s=_TIMEOUT_S, most_bytes=_MOST_BYTES)
    except (ServerUnreachable, BadAnswer) as error:
        return error.reason
