"""How long brokers that were alive all the time were silent, by the clock that ages them."""

import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from namesrv_stream.route.model import LeaseKey
from namesrv_stream.what_if.silences import Hearing, Verdict

#: Gaps are counted in steps of this.
STEP_MS = 100
_LONGEST = 5


class Gap(NamedTuple):
    """Time between two hearings of a broker at one server, in which it was alive.

    Attributes:
        ms: Observed time of the server.
        at_ms: LogAppendTime of its end, epoch milliseconds.
    """

    ms: int
    at_ms: int
    key: LeaseKey
    server_id: str


@dataclass(slots=True)
class GapTally:
    """Gaps of one cluster.

    Attributes:
        counts: Gap in steps of ``STEP_MS``, rounded up, to how many there were.
        longest: The longest few, longest first.
    """

    counts: Counter[int] = field(default_factory=Counter)
    longest: list[Gap] = field(default_factory=list)

    def add(self, gap: Gap) -> None:
        self.counts[-(-gap.ms // STEP_MS)] += 1
        if len(self.longest) < _LONGEST or gap.ms > self.longest[-1].ms:
            self.longest = heapq.nlargest(_LONGEST, [*self.longest, gap])

    def merge(self, others: Iterable["GapTally"]) -> "GapTally":
        """All gaps of this one and the others."""
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
        """A gap that such a share of all does not exceed, to ``STEP_MS``; 0 without gaps.

        Args:
            share: 0.5 for the median.
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
        tallies: Cluster → gaps of brokers that were alive.
        unclear_ms: Cluster → the longest silence of a broker of which nobody knows whether it was alive, and which the
            log as it was did not end.
        ended_ms: The same of those that it did end.
    """

    def __init__(self) -> None:
        self.tallies: dict[str, GapTally] = {}
        self.unclear_ms: Counter[str] = Counter()
        self.ended_ms: Counter[str] = Counter()
        self._last_ms: dict[tuple[LeaseKey, str], int] = {}

    def heard(self, key: LeaseKey, server_id: str, clock_ms: int, at_ms: int, hearing: Hearing | None) -> None:
        """A broker was heard.

        Args:
            key: The broker process.
            server_id: By whom.
            clock_ms: Observed time of that server.
            at_ms: LogAppendTime, epoch milliseconds.
            hearing: What is known of the time before; None for the first time.
        """
        place, cluster = (key, server_id), key.live_key.cluster
        last_ms = self._last_ms.get(place)
        self._last_ms[place] = clock_ms
        if hearing is None:
            return
        if hearing.verdict is Verdict.UNCLEAR:
            longest = self.ended_ms if hearing.is_over else self.unclear_ms
            longest[cluster] = max(longest[cluster], hearing.silent_ms)
        elif hearing.verdict is Verdict.ALIVE and last_ms is not None:
            tally = self.tallies.setdefault(cluster, GapTally())
            tally.add(Gap(clock_ms - last_ms, at_ms, key, server_id))
