"""The timeline: a lane for every broker that came up or went down, and a list of all events."""

import heapq
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from namesrv_stream.clock import Clock
from namesrv_stream.instants import duration, instant
from namesrv_stream.route.changes import Cause, ChangeKind, RouteChange, lease_key
from namesrv_stream.route.model import LeaseKey
from namesrv_stream.server.http.console.formatting import in_words, plain
from namesrv_stream.server.http.console.question import WINDOWS, Question
from namesrv_stream.server.steps import Steps
from namesrv_stream.server.view.recent_events import RecentEvents
from namesrv_stream.text_table import times

_MOST_LANES: Final = 20
_MOST_EVENTS: Final = 100
#: Minimum width of a bar, percent, so that even a very short outage is visible.
_THINNEST: Final = 0.4
#: Causes with their own colour, as in the history's plots.
_COLOURED: Final = (Cause.EXPIRED, Cause.DISCONNECTED, Cause.UNREGISTERED, Cause.SERVER_LOST, Cause.SERVER_SILENT)


async def timeline(recent_events: RecentEvents, question: Question, clock: Clock, steps: Steps) -> dict[str, Any]:
    """Return the variables of the template ``timeline``."""
    until_ms = clock.now_ms()
    since_ms = until_ms - WINDOWS[question.window]
    newest_first = [
        event
        for event in recent_events.newest_first(since_ms)
        if not question.cluster or event.change.cluster in (None, question.cluster)
    ]
    changes: dict[LeaseKey, list[RouteChange]] = defaultdict(list)
    lives = (h.change for h in reversed(newest_first) if h.change.kind == ChangeKind.BROKER_LIVE)
    async for some in steps.lists((lease_key(change), change) for change in lives):
        for key, change in some:
            changes[key].append(change)
    by_count = heapq.nsmallest(_MOST_LANES, changes, key=lambda key: (-len(changes[key]), key))
    lanes = await steps.all(_lane(key, changes[key], since_ms, until_ms) for key in by_count)
    causes = {bar["cause"] for lane in lanes for bar in lane["bars"]}
    events = await steps.all((in_words(event), event.change) for event in newest_first[:_MOST_EVENTS])
    return {
        "lanes": lanes,
        "more_lanes": len(changes) - len(lanes),
        "causes": [cause for cause in ("up", *_COLOURED, "other") if cause in causes],
        "labels": [(100 * n / 4, instant(since_ms + (until_ms - since_ms) * n // 4)[11:16]) for n in range(5)],
        "events": events,
        "more_events": len(newest_first) - len(events),
        "windows": list(WINDOWS),
        "failure": recent_events.failure,
    }


def _lane(key: LeaseKey, changes: Sequence[RouteChange], since_ms: int, until_ms: int) -> dict[str, Any]:
    """Return one broker process: its bars (periods in percent, "up" or the cause of the outage), and a sentence."""
    bars = []
    # Before its first change, a broker was in the opposite state. Before its first registration, it has no bar.
    cause, begin_ms = ("up" if changes[0].gone else None), since_ms
    if changes[0].cause == Cause.RETURNED:
        cause = "other"
    for change in changes:
        if cause is not None:
            bars.append(_bar(cause, begin_ms, change.at_ms, since_ms, until_ms))
        cause, begin_ms = (_cause(change.cause) if change.gone else "up"), change.at_ms
    assert cause is not None
    bars.append(_bar(cause, begin_ms, until_ms, since_ms, until_ms))
    downs = sum(change.gone for change in changes)
    summary = f"{key.broker_name}: went down {times(downs)}, is {'up' if cause == 'up' else 'down'} now"
    return {"name": key.broker_name, "addr": key.live_key.broker_addr, "bars": bars, "summary": summary}


def _cause(cause: str) -> str:
    return cause if cause in _COLOURED else "other"


def _bar(cause: str, begin_ms: int, end_ms: int, since_ms: int, until_ms: int) -> dict[str, Any]:
    whole = until_ms - since_ms
    what = "up" if cause == "up" else f"down ({plain(cause)})"
    return {
        "cause": cause,
        "x": max(0.0, min(100 * (begin_ms - since_ms) / whole, 100 - _THINNEST)),
        "width": max(_THINNEST, 100 * (end_ms - begin_ms) / whole),
        "title": f"{what} for {duration(max(0, end_ms - begin_ms))}, from {instant(begin_ms)[11:19]}",
    }
