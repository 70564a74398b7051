"""The time line: a lane for each broker that came or went, and all events below each other."""

import heapq
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from namesrv_stream.clock import Clock
from namesrv_stream.instants import duration
from namesrv_stream.plurals import times
from namesrv_stream.route.changes import Cause, ChangeKind, lease_key
from namesrv_stream.route.lease import LeaseKey
from namesrv_stream.server.http.console.question import WINDOWS, Question
from namesrv_stream.server.http.console.words import Event, clock_time, cut, event, iso
from namesrv_stream.server.steps import Steps
from namesrv_stream.server.story import Happening, Story

_MOST_LANES: Final = 20
_MOST_EVENTS: Final = 100
#: A bar is as wide as this at least, percent: an absence of a moment is still seen.
_THINNEST: Final = 0.4
#: Causes that have a colour of their own, as in the history's pictures.
_COLOURED: Final = (Cause.EXPIRED, Cause.DISCONNECTED, Cause.UNREGISTERED, Cause.SERVER_LOST, Cause.SERVER_SILENT)


class Bar(NamedTuple):
    """A stretch of a lane in percent; ``cause`` is "up", or why the broker was gone."""

    x: float
    width: float
    cause: str
    title: str


class Lane(NamedTuple):
    """One broker process; ``summary`` tells the same in words."""

    name: str
    addr: str
    bars: Sequence[Bar]
    summary: str


async def timeline(story: Story, question: Question, clock: Clock, steps: Steps) -> dict[str, Any]:
    """What the template ``timeline`` shows."""
    until_ms = clock.now_ms()
    since_ms = until_ms - WINDOWS[question.window]
    newest_first = [
        happening
        for happening in story.happenings(since_ms)
        if not question.cluster or happening.change.cluster in (None, question.cluster)
    ]
    turns: dict[LeaseKey, list[Happening]] = defaultdict(list)
    lives = (h for h in reversed(newest_first) if h.change.kind == ChangeKind.BROKER_LIVE)
    async for some in steps.lists((lease_key(live.change), live) for live in lives):
        for key, live in some:
            turns[key].append(live)
    by_count: list[tuple[int, LeaseKey]] = []
    async for counted in steps.lists((-len(of_one), key) for key, of_one in turns.items()):
        by_count = heapq.nsmallest(_MOST_LANES, [*by_count, *counted])
    lanes: list[Lane] = []
    async for made in steps.lists(_lane(key, turns[key], since_ms, until_ms) for _, key in by_count):
        lanes += made
    causes = {bar.cause for lane in lanes for bar in lane.bars}
    events: list[Event] = []
    async for told in steps.lists(map(event, newest_first[:_MOST_EVENTS])):
        events += told
    return {
        "lanes": lanes,
        "more_lanes": len(turns) - len(lanes),
        "causes": [cause for cause in ("up", *_COLOURED, "other") if cause in causes],
        "labels": [(100 * n / 4, clock_time(since_ms + (until_ms - since_ms) * n // 4)[11:16]) for n in range(5)],
        "events": [(one, clock_time(one.at_ms), iso(one.at_ms)) for one in events],
        "more_events": len(newest_first) - len(events),
        "windows": list(WINDOWS),
        "failure": story.failure,
    }


def _lane(key: LeaseKey, turns: Sequence[Happening], since_ms: int, until_ms: int) -> Lane:
    bars: list[Bar] = []
    # What it was before its first turn is the opposite of that; before a broker first came there was nothing.
    first = turns[0].change
    cause, begin_ms = ("up" if first.gone else None), since_ms
    if first.cause == Cause.RETURNED:
        cause = "other"
    for change in (turn.change for turn in turns):
        if cause is not None:
            bars.append(_bar(cause, begin_ms, change.at_ms, since_ms, until_ms))
        cause, begin_ms = (_cause(change.cause) if change.gone else "up"), change.at_ms
    if cause is not None:
        bars.append(_bar(cause, begin_ms, until_ms, since_ms, until_ms))
    downs = sum(turn.change.gone for turn in turns)
    summary = f"{key.broker_name}: went {times(downs)}, is {'up' if cause == 'up' else 'gone'} now"
    return Lane(cut(key.broker_name), cut(key.live_key.broker_addr), bars, cut(summary))


def _cause(cause: str) -> str:
    return cause if cause in _COLOURED else "other"


def _bar(cause: str, begin_ms: int, end_ms: int, since_ms: int, until_ms: int) -> Bar:
    whole = until_ms - since_ms
    x = 100 * (begin_ms - since_ms) / whole
    width = max(_THINNEST, 100 * (end_ms - begin_ms) / whole)
    what = "up" if cause == "up" else f"gone ({cause.replace('_', ' ')})"
    title = f"{what} for {duration(max(0, end_ms - begin_ms))}, from {clock_time(begin_ms)[11:19]}"
    return Bar(max(0.0, min(x, 100 - _THINNEST)), width, cause, title)
