"""The timeline: a lane for every broker that came up or went down, and a list of all events."""

import heapq
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from namesrv_stream.clock import Clock
from namesrv_stream.instants import duration, instant
from namesrv_stream.route.changes import Cause, ChangeKind, RouteChange, lease_key
from namesrv_stream.route.model import LeaseKey
from namesrv_stream.server.http.console.query import WHY_ENDED, WINDOWS, Question, Tone, plain, role
from namesrv_stream.server.steps import Steps
from namesrv_stream.server.view.recent_events import RecentEvents, TimelineEvent
from namesrv_stream.text_table import times

_MOST_LANES: Final = 20
_MOST_EVENTS: Final = 100
#: Minimum width of a bar, percent, so that even a very short outage is visible.
_THINNEST: Final = 0.4
#: Causes with their own colour, as in the history's plots.
_COLOURED: Final = (Cause.EXPIRED, Cause.DISCONNECTED, Cause.UNREGISTERED, Cause.SERVER_LOST, Cause.SERVER_SILENT)


_SERVER: Final[Mapping[str, tuple[str, Tone]]] = {
    Cause.SERVER_STARTED: ("started", "calm"),
    Cause.SERVER_RESUMED: ("reaches Kafka again", "warn"),
    Cause.SERVER_STOPPED: ("stopped", "calm"),
    Cause.SERVER_SILENT: ("stopped writing to Kafka: it cannot vouch for brokers", "warn"),
    Cause.SERVER_LOST: ("is lost: brokers known only to it are down", "bad"),
    Cause.SERVER_HEARD: ("writes to Kafka again", "good"),
    Cause.SERVER_LISTED: ("is on the list of name servers for clients", "good"),
    Cause.SERVER_UNLISTED: ("left the list of name servers for clients", "calm"),
}


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
    events = await steps.all((_event(event), event.change) for event in newest_first[:_MOST_EVENTS])
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
    """Return a broker process's lane: bars (periods in percent, "up" or the cause of the outage), and a summary."""
    bars = []
    # Before its first change, a broker was in the opposite state. Before its first registration, it has no bar.
    cause, begin_ms = ("up" if changes[0].gone else None), since_ms
    if changes[0].cause == Cause.RETURNED:
        cause = "other"
    for change in changes:
        if cause is not None:
            bars.append(_bar(cause, begin_ms, change.at_ms, since_ms, until_ms))
        down = change.cause if change.cause in _COLOURED else "other"
        cause, begin_ms = (down if change.gone else "up"), change.at_ms
    assert cause is not None
    bars.append(_bar(cause, begin_ms, until_ms, since_ms, until_ms))
    downs = sum(change.gone for change in changes)
    summary = f"{key.broker_name}: went down {times(downs)}, is {'up' if cause == 'up' else 'down'} now"
    return {"name": key.broker_name, "addr": key.live_key.broker_addr, "bars": bars, "summary": summary}


def _bar(cause: str, begin_ms: int, end_ms: int, since_ms: int, until_ms: int) -> dict[str, Any]:
    whole = until_ms - since_ms
    what = "up" if cause == "up" else f"down ({plain(cause)})"
    return {
        "cause": cause,
        "x": max(0.0, min(100 * (begin_ms - since_ms) / whole, 100 - _THINNEST)),
        "width": max(_THINNEST, 100 * (end_ms - begin_ms) / whole),
        "title": f"{what} for {duration(max(0, end_ms - begin_ms))}, from {instant(begin_ms)[11:19]}",
    }


class Event(NamedTuple):
    """One event as text: a short label, the broker, topic, server or setting concerned, and the rest of a sentence."""

    tone: Tone
    label: str
    subject: str
    text: str


def _event(event: TimelineEvent) -> Event:
    change = event.change
    if change.kind == ChangeKind.QUEUE_DATA:
        return _topics(change, event.rows - 1)
    if describe := _EVENTS.get(change.kind):
        return describe(change)
    return Event("calm", change.kind, _name(change), plain(change.cause))


def _broker(change: RouteChange) -> Event:
    where = f"at {change.broker_addr} in {change.cluster}"
    if not change.gone and change.cause == Cause.RETURNED:
        return Event("good", "back", _name(change), f"{where} came back")
    if not change.gone:
        return Event("good", "up", _name(change), f"{where} came up")
    why = WHY_ENDED.get(change.cause, change.cause)
    if change.cause == Cause.UNREGISTERED:
        return Event("calm", "left", _name(change), f"{where} {why}")
    return Event("bad", "down", _name(change), f"{where}: {why}")


def _guard(change: RouteChange) -> Event:
    where = f"at {change.broker_addr} in {change.cluster}"
    if not change.gone:
        return Event("warn", "held", _name(change), f"{where} is protected: too many brokers seemed to fail at once")
    return Event("calm", "released", _name(change), f"{where} was released by the guard: {plain(change.cause)}")


def _topics(change: RouteChange, more: int) -> Event:
    subject = f"{change.topic}" + (f" and {more:,} more topics" if more else "")
    if change.cause == Cause.WRITE_PERM_WIPED:
        return Event("warn", "perm", subject, f"at {change.broker_name}: writing is switched off")
    if change.cause == Cause.WRITE_PERM_ADDED:
        return Event("calm", "perm", subject, f"at {change.broker_name}: reading and writing are switched on")
    no_longer = "no longer " if change.gone else ""
    return Event("calm", "topic", subject, f"{no_longer}at {change.broker_name}: {plain(change.cause)}")


def _setting(change: RouteChange) -> Event:
    text = "was removed" if change.gone else f"was set to {change.value}"
    return Event("calm", "setting", change.key or "", text)


def _server(change: RouteChange) -> Event:
    text, tone = _SERVER.get(change.cause, (plain(change.cause), "calm"))
    return Event(tone, "server", f"name server {change.server_id}", text)


def _kv(change: RouteChange) -> Event:
    name = f"{change.namespace} / {change.key}" if change.key is not None else f"{change.namespace}"
    return Event("calm", "kv", name, "was deleted" if change.gone else "was set")


_EVENTS: Final[Mapping[str, Callable[[RouteChange], Event]]] = {
    ChangeKind.BROKER_LIVE: _broker,
    ChangeKind.GUARD: _guard,
    ChangeKind.SETTING: _setting,
    ChangeKind.SERVER: _server,
    ChangeKind.KV: _kv,
}


def _name(change: RouteChange) -> str:
    if change.broker_id is None:
        return change.broker_name or ""
    return f"{change.broker_name} {role(change.broker_id)}"
