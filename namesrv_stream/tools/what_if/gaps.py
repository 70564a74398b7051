"""How long live brokers were silent, in observed time, and the timeout that this suggests."""

import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from namesrv_stream.route.liveness_settings import FoldSettings
from namesrv_stream.route.model import LeaseKey
from namesrv_stream.text_table import counted, plural
from namesrv_stream.tools.what_if.silences import ReceivedHeartbeat, Verdict

#: Resolution of the counts of gaps.
STEP_MS = 100
_LONGEST = 5
#: Two heartbeats in a row may be lost, and the third may be late.
_HEARTBEATS: Final = 3
#: A silence longer than all so far will occur: a margin of one half.
_MARGIN: Final = 1.5
_ROUND_MS: Final = 5_000
#: Rounding of the usual interval of heartbeats, which are always some milliseconds late.
_INTERVAL_ROUNDING_MS: Final = 500
#: Fewer gaps are not significant.
_ENOUGH_GAPS: Final = 100


class Gap(NamedTuple):
    """The time between two heartbeats of a live broker at one server.

    Attributes:
        ms: Length in observed time of the server.
        at_ms: LogAppendTime of its end, in epoch milliseconds.
    """

    ms: int
    at_ms: int
    key: LeaseKey
    server_id: str


@dataclass(slots=True)
class GapTally:
    """The gaps of one cluster.

    Attributes:
        counts: Length in steps of ``STEP_MS``, rounded up → number of gaps.
        longest: The longest gaps, longest first.
    """

    counts: Counter[int] = field(default_factory=Counter)
    longest: list[Gap] = field(default_factory=list)

    def add(self, gap: Gap) -> None:
        self.counts[-(-gap.ms // STEP_MS)] += 1
        if len(self.longest) < _LONGEST or gap.ms > self.longest[-1].ms:
            self.longest = heapq.nlargest(_LONGEST, [*self.longest, gap])

    def merge(self, others: Iterable["GapTally"]) -> "GapTally":
        """Return all gaps of this tally and the others."""
        tallies = [self, *others]
        counts: Counter[int] = sum((t.counts for t in tallies), Counter())
        return GapTally(counts, heapq.nlargest(_LONGEST, [gap for t in tallies for gap in t.longest]))

    @property
    def total(self) -> int:
        return self.counts.total()

    @property
    def longest_ms(self) -> int:
        return self.longest[0].ms if self.longest else 0

    def quantile_ms(self, share: float) -> int:
        """Return a quantile of the gaps, rounded up to ``STEP_MS``; 0 without gaps.

        Args:
            share: Between 0 and 1; 0.5 for the median.
        """
        left = share * self.total
        for steps, count in sorted(self.counts.items()):
            left -= count
            if left <= 0:
                return steps * STEP_MS
        return 0


class GapWatch:
    """Counts the gaps of one partition, by cluster.

    Attributes:
        tallies: Cluster → gaps of live brokers.
        unclear_ms: Cluster → the longest silence of a broker that may have been alive, and that did not expire in the
            recorded log.
        ended_ms: The same for brokers that expired.
    """

    def __init__(self) -> None:
        self.tallies: dict[str, GapTally] = {}
        self.unclear_ms: Counter[str] = Counter()
        self.ended_ms: Counter[str] = Counter()
        self._last_ms: dict[tuple[LeaseKey, str], int] = {}

    def seen(
        self, key: LeaseKey, server_id: str, clock_ms: int, at_ms: int, heartbeat: ReceivedHeartbeat | None
    ) -> None:
        """Count the gap that ends with a heartbeat; if the verdict is UNCLEAR, record the silence instead.

        Args:
            key: The broker process.
            server_id: The server that received the heartbeat.
            clock_ms: Observed time of that server at the heartbeat.
            at_ms: LogAppendTime of the heartbeat, in epoch milliseconds.
            heartbeat: What is known of the silence before the heartbeat; None for the first heartbeat.
        """
        place, cluster = (key, server_id), key.live_key.cluster
        last_ms = self._last_ms.get(place)
        self._last_ms[place] = clock_ms
        if heartbeat is None:
            return
        if heartbeat.verdict is Verdict.UNCLEAR:
            longest = self.ended_ms if heartbeat.is_over else self.unclear_ms
            longest[cluster] = max(longest[cluster], heartbeat.silent_ms)
        elif heartbeat.verdict is Verdict.ALIVE and last_ms is not None:
            tally = self.tallies.setdefault(cluster, GapTally())
            tally.add(Gap(clock_ms - last_ms, at_ms, key, server_id))


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A suggested timeout, and its reason.

    Attributes:
        timeout_ms: None if the log has too few heartbeats.
        reason: As text.
    """

    timeout_ms: int | None
    reason: str


def suggest(gaps: GapTally, unclear_ms: int, ended_ms: int, limits: FoldSettings) -> Suggestion:
    """Return the shortest timeout with a margin over every silence of a live broker so far.

    A silence of a broker that may have been alive counts if the broker did not expire in the recorded log. If it did
    expire, the reason only mentions the silence, since a machine that was off for an hour looks the same.

    Args:
        gaps: Gaps of live brokers.
        unclear_ms: The longest silence of a broker that may have been alive and did not expire in the recorded log.
        ended_ms: The same for brokers that expired.
        limits: Settings with the lower and the upper limit of timeouts.
    """
    if gaps.total < _ENOUGH_GAPS:
        found = f"{plural(gaps.total, 'is', 'are')} only {counted(gaps.total, 'heartbeat')}"
        return Suggestion(None, f"there {found} in this period; at least {_ENOUGH_GAPS} are needed")
    usual_ms = max(1, round(gaps.quantile_ms(0.5) / _INTERVAL_ROUNDING_MS)) * _INTERVAL_ROUNDING_MS
    longest_ms = max(gaps.longest_ms, unclear_ms)
    by_silence, by_interval = round(longest_ms * _MARGIN), usual_ms * _HEARTBEATS
    if by_silence > by_interval:
        what = "a broker that may have been alive" if unclear_ms > gaps.longest_ms else "a live broker"
        reason = f"the longest silence of {what}, {_seconds(longest_ms)}, and a margin of one half"
    else:
        reason = f"{_HEARTBEATS} heartbeats of {_seconds(usual_ms)}; no live broker was silent for longer than "
        reason += _seconds(longest_ms)
    wanted_ms = -(-max(by_silence, by_interval) // _ROUND_MS) * _ROUND_MS
    timeout_ms = max(limits.min_timeout_ms, min(wanted_ms, limits.max_timeout_ms))
    if timeout_ms != wanted_ms:
        reason += f"; {_seconds(wanted_ms)} is outside the limits of timeouts"
    if ended_ms > timeout_ms:
        reason += f"; a broker that may have been alive was silent for {_seconds(ended_ms)} and expired"
    return Suggestion(timeout_ms, reason)


def _seconds(ms: int) -> str:
    return f"{ms / 1000:g} s"
