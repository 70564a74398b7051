"""A timeout for a cluster, from how long its live brokers were silent."""

from dataclasses import dataclass
from typing import Final

from namesrv_stream.plurals import counted, plural
from namesrv_stream.route.liveness_settings import FoldSettings
from namesrv_stream.what_if.gaps import GapTally

#: Two heartbeats in a row may be lost, and the third be late.
_HEARTBEATS: Final = 3
#: What was longest so far will be surpassed: half as much again.
_MARGIN: Final = 1.5
_ROUND_MS: Final = 5_000
#: To which the usual heartbeat is rounded: one is always some milliseconds late.
_BEAT_MS: Final = 500
#: Fewer gaps tell nothing.
_ENOUGH_GAPS: Final = 100


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A value and why.

    Attributes:
        timeout_ms: None where the log tells too little.
        reason: For people.
    """

    timeout_ms: int | None
    reason: str


def suggest(gaps: GapTally, unclear_ms: int, ended_ms: int, limits: FoldSettings) -> Suggestion:
    """The shortest timeout that leaves every silence of a live broker seen so far a margin.

    A silence of which nobody knows whether the broker was alive counts where the log as it was lived through it. Where
    it did not, a value is not raised for it, for a machine that was off for an hour looks the same; it is named.

    Args:
        gaps: Of brokers that were alive.
        unclear_ms: The longest silence of a broker that may have been alive, and that the log as it was did not end.
        ended_ms: The longest of those that it did end.
        limits: Floor and ceiling of timeouts.
    """
    if gaps.total < _ENOUGH_GAPS:
        found = f"{plural(gaps.total, 'is', 'are')} only {counted(gaps.total, 'heartbeat')}"
        return Suggestion(None, f"there {found}, and it needs {_ENOUGH_GAPS}")
    usual_ms = max(1, round(gaps.quantile_ms(0.5) / _BEAT_MS)) * _BEAT_MS
    longest_ms = max(gaps.longest_ms, unclear_ms)
    by_silence, by_beat = round(longest_ms * _MARGIN), usual_ms * _HEARTBEATS
    if by_silence > by_beat:
        what = "a broker that may have been alive" if unclear_ms > gaps.longest_ms else "a live broker"
        reason = f"the longest silence of {what}, {_seconds(longest_ms)}, and half as much again"
    else:
        reason = f"{_HEARTBEATS} heartbeats of {_seconds(usual_ms)}; no live broker was silent for longer than "
        reason += _seconds(longest_ms)
    wanted_ms = -(-max(by_silence, by_beat) // _ROUND_MS) * _ROUND_MS
    timeout_ms = max(limits.min_timeout_ms, min(wanted_ms, limits.max_timeout_ms))
    if timeout_ms != wanted_ms:
        reason += f"; {_seconds(wanted_ms)} is beyond the limits of timeouts"
    if ended_ms > timeout_ms:
        reason += f"; a broker that may have been alive was silent for {_seconds(ended_ms)}, and taken out then too"
    return Suggestion(timeout_ms, reason)


def _seconds(ms: int) -> str:
    return f"{ms / 1000:g} s"
