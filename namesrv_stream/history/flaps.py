"""How often brokers went and came back: counts, and a score that fades, by which the worst is first."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from namesrv_stream.history.replicas import Replica, replicas, times_away
from namesrv_stream.history.sessions import Session
from namesrv_stream.route.lease import LeaseKey

#: In which a score fades to its half. A single restart is forgotten by the evening, a crash loop is not.
HALF_LIFE_MS: Final = 3_600_000
#: The third time down within half an hour reaches it, and so does a loop of one each 44 minutes: 1 / (1 - 2^(-44/60)).
#: A restart that goes wrong once does not.
FLAPPING_SCORE: Final = 2.5


@dataclass(frozen=True, slots=True)
class Flapping:
    """One broker, through all its processes, over some time: a crash loop of pods is one, whatever their addresses.

    Attributes:
        key: Its newest process.
        earlier_keys: Others that it had in that time, as they came.
        downs: How often a process of it went, though another may have been up already.
        returns: How often one was back, or up already.
        causes: Why it went, and how often.
        median_down_ms: How long it was away, usually; None where it never came back.
        peak_score: The highest score of that time. Going down counts 1, and fades by half each hour.
        score: The score at its end.
        is_up: Whether it was up at its end.
    """

    key: LeaseKey
    earlier_keys: Sequence[LeaseKey]
    downs: int
    returns: int
    causes: Mapping[str, int]
    median_down_ms: float | None
    peak_score: float
    score: float
    is_up: bool

    @property
    def is_flapping(self) -> bool:
        """Whether it goes and comes more than brokers do that are restarted."""
        return self.score >= FLAPPING_SCORE

    @property
    def has_flapped(self) -> bool:
        """Whether it did so at any time."""
        return self.peak_score >= FLAPPING_SCORE


def flappings(sessions: Iterable[Session], since_ms: int, until_ms: int) -> list[Flapping]:
    """Every broker, the worst first; those that never went are last.

    Args:
        sessions: All that overlap the time, and each process's first and last before.
        since_ms: Its begin, epoch milliseconds.
        until_ms: Its end.
    """
    found = [_flapping(replica, since_ms, until_ms) for replica in replicas(sessions) if replica.within(since_ms)]
    return sorted(found, key=lambda f: (-f.peak_score, -f.downs, f.key))


def _flapping(replica: Replica, since_ms: int, until_ms: int) -> Flapping:
    away = {a.begin_ms: a.end_ms for a in times_away(replica.sessions)}
    ended = [(s.down_ms, s.down_cause or "") for s in replica.within(since_ms) if s.down_ms is not None]
    downs = sorted((at_ms, cause) for at_ms, cause in ended if at_ms <= until_ms)
    # Where another process was up already, it was back at once.
    lengths = [end_ms - at_ms for at_ms, _ in downs for end_ms in (away.get(at_ms, at_ms),) if end_ms is not None]
    score = peak = 0.0
    last_ms = since_ms
    for at_ms, _ in downs:
        score = _faded(score, at_ms - last_ms) + 1
        peak, last_ms = max(peak, score), at_ms
    return Flapping(
        key=replica.key,
        earlier_keys=replica.earlier_keys(since_ms),
        downs=len(downs),
        returns=len(lengths),
        causes=Counter(cause for _, cause in downs),
        median_down_ms=median(lengths) if lengths else None,
        peak_score=peak,
        score=_faded(score, until_ms - last_ms),
        is_up=any(s.down_ms is None for s in replica.sessions),
    )


def _faded(score: float, after_ms: int) -> float:
    return score * math.pow(0.5, after_ms / HALF_LIFE_MS)
