"""What the report could not know, so that nobody takes silence of the tables for health of the brokers."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from namesrv_stream.history.extent import Extent
from namesrv_stream.history.report.missed import MINUTE_MS, Heard
from namesrv_stream.history.sessions import Session
from namesrv_stream.history.window import Window
from namesrv_stream.route.changes import Cause

#: In whole minutes. A shorter time without anybody heard is not worth a line.
_LEAST_BLIND_MS: Final = 3 * MINUTE_MS


@dataclass(frozen=True, slots=True)
class Unknown:
    """One thing that is not known.

    Attributes:
        what: In one or two words.
        begin_ms: From when, epoch milliseconds; None where it is of no certain time.
        end_ms: To when.
        meaning: What it does to the figures.
    """

    what: str
    begin_ms: int | None
    end_ms: int | None
    meaning: str

    @property
    def length_ms(self) -> int | None:
        return None if self.begin_ms is None or self.end_ms is None else self.end_ms - self.begin_ms


def unknowns(
    extent: Extent,
    sessions: Sequence[Session],
    heard: Heard | None,
    default_timeout_ms: int,
    gone_before: int,
    asked: Window,
    since_ms: int,
) -> list[Unknown]:
    """All of it.

    Args:
        extent: Of the history.
        sessions: All that overlap the time, and each process's first and last before.
        heard: The heartbeats; None where there is no table of them.
        default_timeout_ms: Of brokers that ask for none.
        gone_before: How many brokers had gone before the time and did not come back.
        asked: The time as asked, which may begin before the history and end behind what is known.
        since_ms: When the time begins that the figures are about, epoch milliseconds.
    """
    until_ms = asked.until_ms
    return [
        *_of_extent(extent, asked.since_ms, until_ms),
        *_rebuilt(sessions, since_ms),
        *(_of_heartbeats(heard, sessions, since_ms, min(until_ms, extent.reaches_ms)) if heard else [_NO_HEARTBEATS]),
        *(_blind(heard, sessions, default_timeout_ms) if heard else ()),
        *([Unknown("gone before", None, since_ms, _gone_text(gone_before))] if gone_before else ()),
    ]


def blind_spans(heard: Heard, sessions: Sequence[Session], default_timeout_ms: int) -> list[tuple[int, int]]:
    """Times in which nobody was heard though brokers stayed up for longer than their timeouts: nobody listened.

    Args:
        heard: The heartbeats.
        sessions: All that overlap their time.
        default_timeout_ms: Of brokers that ask for none.
    """
    usual_ms = min((of.usual_ms for of in heard.of if of.usual_ms), default=0)
    least_ms = max(_LEAST_BLIND_MS, 3 * usual_ms)
    ends = [heard.begin_ms, *(at_ms + MINUTE_MS for at_ms in heard.minutes)]
    begins = [*heard.minutes, heard.end_ms // MINUTE_MS * MINUTE_MS]
    holes = [(begin, end) for begin, end in zip(ends, begins, strict=True) if end - begin >= least_ms]
    return [hole for hole in holes if any(_outlasts(s, hole, default_timeout_ms) for s in sessions)]


def _outlasts(session: Session, span: tuple[int, int], default_timeout_ms: int) -> bool:
    """Whether it lasted for all of a time that is longer than its timeout."""
    begin_ms, end_ms = span
    is_long = end_ms - begin_ms > (session.timeout_ms or default_timeout_ms)
    return is_long and session.up_ms <= begin_ms and (session.down_ms is None or session.down_ms >= end_ms)


_NO_HEARTBEATS: Final = Unknown(
    "heartbeats", None, None, "there is no table heartbeat_minutes: missed heartbeats and blind times are not known"
)


def _of_extent(extent: Extent, since_ms: int, until_ms: int) -> Iterator[Unknown]:
    if extent.begin_ms is not None and since_ms < extent.begin_ms:
        text = "the history begins later than was asked: this time is in no figure"
        yield Unknown("before the history", since_ms, extent.begin_ms, text)
    if extent.lost_until_ms is not None:
        text = "changes were removed before the history had them: who went and came back in between is not known"
        yield Unknown("lost changes", extent.stored_to_ms, extent.lost_until_ms, text)
    if extent.lags(until_ms):
        text = "the tables do not reach so far: this time is in no figure"
        yield Unknown("after the tables", extent.reaches_ms, until_ms, text)


def _rebuilt(sessions: Iterable[Session], since_ms: int) -> Iterator[Unknown]:
    """Where the history had to go on from what the state said."""
    rebuilt = Cause.STATE_REBUILT
    at = [s.up_ms for s in sessions if s.up_cause == rebuilt and s.up_ms > since_ms]
    at += [s.down_ms for s in sessions if s.down_cause == rebuilt and s.down_ms is not None and s.down_ms > since_ms]
    for at_ms, of_instant in itertools.groupby(sorted(at)):
        count = len(list(of_instant))
        begin = "1 session begins or ends" if count == 1 else f"{count} sessions begin or end"
        text = f"{begin} here by what was found, not by what happened, which is not known"
        yield Unknown("state rebuilt", at_ms, at_ms, text)


def _of_heartbeats(heard: Heard, sessions: Sequence[Session], since_ms: int, until_ms: int) -> Iterator[Unknown]:
    text = "heartbeats of this time are not in the tables: no figure counts them, nor those that were missed"
    if not heard.has_figures:
        yield Unknown("heartbeats", since_ms, until_ms, text)
        return
    # Before the first broker came there was nothing to hear; the minute in which it came is known as a whole.
    first_ms = min((s.up_ms for s in sessions if s.down_ms is None or s.down_ms > since_ms), default=until_ms)
    begin_ms = max(since_ms, first_ms)
    if heard.begin_ms - begin_ms >= MINUTE_MS:
        yield Unknown("heartbeats", begin_ms, heard.begin_ms, text)
    if until_ms > heard.end_ms:
        yield Unknown("heartbeats", heard.end_ms, until_ms, text)


def _blind(heard: Heard, sessions: Sequence[Session], default_timeout_ms: int) -> Iterator[Unknown]:
    text = "nobody was heard, and nobody aged: name servers, Kafka or the job stood still; brokers count as up"
    for begin_ms, end_ms in blind_spans(heard, sessions, default_timeout_ms):
        yield Unknown("blind", begin_ms, end_ms, text)


def _gone_text(count: int) -> str:
    who, they = ("1 broker", "it is") if count == 1 else (f"{count} brokers", "they are")
    return f"{who} had gone before and did not come back: {they} in no figure"
