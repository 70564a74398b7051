"""The other name servers, as this one is asked to compare itself with: who serves the same, and who lags.

Only addresses of the configuration are asked, never one that somebody sends; a redirect is not followed.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

from namesrv_stream.client.server_states import BadAnswer, ServerState, ServerUnreachable, ask
from namesrv_stream.clock import Clock
from namesrv_stream.instants import duration
from namesrv_stream.server.http.console.question import Tone
from namesrv_stream.server.http.console.words import cut
from namesrv_stream.server.served_state import ServedState

_TIMEOUT_S: Final = 2.0
_MOST_BYTES: Final = 1 << 20
_FRESH_MS: Final = 2_000
#: A server without a commit for so long is not merely asked a moment before or after.
_STALE_MS: Final = 10_000


class Server(NamedTuple):
    """One server's line."""

    name: str
    url: str
    tone: Tone
    word: str
    text: str
    version: str
    age: str
    pending: str
    digest: str
    software: str


class OtherServers:
    """Asks them, on threads of its own; belongs to one event loop.

    Args:
        urls: Of the servers' HTTP ports.
        state: What this one serves.
        clock: For how fresh an answer is.
    """

    def __init__(self, urls: Sequence[str], state: ServedState, clock: Clock) -> None:
        self.urls = urls
        self._state = state
        self._clock = clock
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="console-servers")
        self._asking = asyncio.Lock()
        self._asked_ms = 0
        self._answers: list[ServerState | str] | None = None

    async def compared(self) -> dict[str, Any]:
        """What the template ``servers`` shows."""
        ours = await self._state.describe()
        answers = await self._ask_all()
        lines = [_line("this server", "", ours, "good", "serves", "")]
        for url, answer in zip(self.urls, answers, strict=True):
            if isinstance(answer, str):
                lines.append(Server("?", url, "bad", "no answer", cut(answer), "", "", "", "", ""))
            else:
                lines.append(_line(answer.server_id, url, answer, *compare(ours, answer)))
        return {"servers": lines, "has_others": bool(self.urls)}

    async def _ask_all(self) -> list[ServerState | str]:
        async with self._asking:
            now_ms = self._clock.monotonic_ms()
            if self._answers is None or now_ms - self._asked_ms > _FRESH_MS:
                loop = asyncio.get_running_loop()
                asked = (loop.run_in_executor(self._threads, _ask, url) for url in self.urls)
                self._answers = list(await asyncio.gather(*asked))
                self._asked_ms = self._clock.monotonic_ms()
            return self._answers


def compare(ours: ServerState, theirs: ServerState) -> tuple[Tone, str, str]:
    """How another server stands to this one: tone, word, and the rest in words."""
    partitions = sorted(ours.next_offsets.keys() | theirs.next_offsets.keys())
    lead = {p: theirs.next_offsets.get(p, 0) - ours.next_offsets.get(p, 0) for p in partitions}
    differing = [p for p in partitions if not lead[p] and ours.partitions.get(p) != theirs.partitions.get(p)]
    if differing:
        text = (
            f"in partition {', '.join(map(str, differing))} at the same offsets: `namesrv-stream skew` shows the rows"
        )
        return "bad", "differs", text
    behind, ahead = -sum(n for n in lead.values() if n < 0), sum(n for n in lead.values() if n > 0)
    if not behind and not ahead:
        return "good", "the same", "same offsets, same digest"
    words = [f"{count:,} records {word}" for count, word in ((behind, "behind"), (ahead, "ahead")) if count]
    is_stale = max(ours.age_ms, theirs.age_ms) > _STALE_MS
    word = "behind" if behind else "ahead"
    return "warn" if is_stale else "calm", word, " and ".join(words) + ("" if is_stale else ", as is usual in between")


def _line(name: str, url: str, state: ServerState, tone: Tone, word: str, text: str) -> Server:
    return Server(
        cut(f"{name} ({state.server_id})" if name != state.server_id else name),
        url,
        tone,
        word,
        text,
        f"{state.version:,}",
        duration(state.age_ms),
        f"{state.pending_events:,}",
        cut(state.digest[:12]),
        cut(state.software),
    )


def _ask(url: str) -> ServerState | str:
    try:
        return ask(url, "/state", ServerState, timeout_s=_TIMEOUT_S, most_bytes=_MOST_BYTES)
    except (ServerUnreachable, BadAnswer) as error:
        return error.reason
