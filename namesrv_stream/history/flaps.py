"""How often brokers went and came back: counts, and a score that fades, by which the worst is first."""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from namesrv_stream.history.sessions import Session, by_broker
from namesrv_stream.route.lease import LeaseKey

#: In which a score fades to its half. A single restart is forgotten by the evening, a crash loop is not.
HALF_LIFE_MS: Final = 3_600_000
#: Three times down within an hour is more than a restart that went wrong once.
FLAPPING_SCORE: Final = 2.5


@dataclass(frozen=True, slots=True)
class Flapping:
    """One broker process over some time.

    Attributes:
        downs: How often it went.
        returns: How often it came back.
        causes: Why it went, and how often.
        median_down_ms: How long it was away, usually; None where it never came back.
        peak_score: The highest score of that time. Going down counts 1, and fades by half each hour.
        score: The score at its end.
        is_up: Whether it was up at its end.
    """

    key: LeaseKey
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


def flappings(sessions: Iterable[Session], since_ms: int, until_ms: int) -> list[Flapping]:
    """Every broker, the worst first; those that never went are last.

    Args:
        sessions: All that overlap the time.
        since_ms: Its begin, epoch milliseconds.
        until_ms: Its end.
    """
    found = [_flapping(key, own, since_ms, until_ms) for key, own in by_broker(sessions).items()]
    return sorted(found, key=lambda f: (-f.peak_score, -f.downs, f.key))


def _flapping(key: LeaseKey, sessions: Sequence[Session], since_ms: int, until_ms: int) -> Flapping:
    downs = [s for s in sessions if s.down_ms is not None and since_ms < s.down_ms <= until_ms]
    times = [s.down_ms for s in downs if s.down_ms is not None]
    away = [
        later.up_ms - before.down_ms
        for before, later in itertools.pairwise(sessions)
        if before.down_ms is not None and since_ms < later.up_ms
    ]
    score = peak = 0.0
    at_ms = since_ms
    for down_ms in times:
        score = _faded(score, down_ms - at_ms) + 1
        peak, at_ms = max(peak, score), down_ms
    return Flapping(
        key=key,
        downs=len(downs),
        returns=len(away),
        causes=Counter(s.down_cause or "" for s in downs),
        median_down_ms=median(away) if away else None,
        peak_score=peak,
        score=_faded(score, until_ms - at_ms),
        is_up=sessions[-1].down_ms is None,
    )


def _faded(score: float, after_ms: int) -> float:
    return score * math.pow(0.5, after_ms / HALF_LIFE_MS)
