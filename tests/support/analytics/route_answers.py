"""The expected answers in docs/analytics.md about routes."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from namesrv_stream.route.changes import ChangeKind, RouteChange
from tests.support.analytics.expected_history import (
    UNTIL_MS,
    ExpectedHistory,
    Interval,
    Row,
    at_or_none,
    in_period,
    overlaps_period,
)
from tests.support.history_oracle import instant

ExpectedAnswer = Callable[[ExpectedHistory], list[Row]]


def _offered(history: ExpectedHistory, topic: str, clock: str) -> list[RouteChange]:
    return [c for c in history.topics_at(clock) if c.topic == topic and not c.gone]


def _route(history: ExpectedHistory) -> list[Row]:
    return [
        (c.broker_name, c.read_queue_nums, c.write_queue_nums, c.perm)
        for c in _offered(history, "TopicTest", "03:12:00")
    ]


def _route_with_addresses(history: ExpectedHistory) -> list[Row]:
    return [
        (c.broker_name, s["broker_id"], s["broker_addr"], c.write_queue_nums, c.perm)
        for c in _offered(history, "TopicTest", "03:12:00")
        for s in history.up_at("03:12:00")
        if s["broker_name"] == c.broker_name
    ]


def _why_not(history: ExpectedHistory) -> list[Row]:
    rows = [c for c in history.topics_at("03:12:00") if c.topic == "TopicTest"]
    return [(c.broker_name, c.gone, instant(c.at_ms), c.cause, c.detail) for c in rows]


def _difference(history: ExpectedHistory) -> list[Row]:
    old, new = (
        {c.broker_name: (c.write_queue_nums, c.perm) for c in _offered(history, "Orders", clock)}
        for clock in ("02:30:00", "03:12:00")
    )
    none = (None, None)
    return [
        (name, old.get(name, none)[0], new.get(name, none)[0], old.get(name, none)[1], new.get(name, none)[1])
        for name in sorted({str(name) for name in old.keys() | new.keys()})
        if old.get(name) != new.get(name)
    ]


def _spread(history: ExpectedHistory) -> list[Row]:
    queues: dict[tuple[str, str], list[int]] = defaultdict(list)
    for c in history.topics_at("03:12:00"):
        if not c.gone:
            queues[c.cluster or "", c.broker_name or ""].append(c.write_queue_nums or 0)
    rows = [(cluster, name, len(own), sum(own)) for (cluster, name), own in queues.items()]
    return sorted(rows, key=lambda r: (-r[3], r[1]))


def _then(history: ExpectedHistory) -> list[Interval]:
    return [i for i in history.topics if in_period(i.begin_ms)]


def _changes(history: ExpectedHistory) -> list[Row]:
    return [
        (
            instant(i.begin_ms),
            i.change.broker_name,
            i.change.gone,
            i.change.write_queue_nums,
            i.change.perm,
            i.change.cause,
        )
        for i in _then(history)
        if i.change.topic == "Orders"
    ]


def _most_changed(history: ExpectedHistory) -> list[Row]:
    of_topic: dict[str, list[RouteChange]] = defaultdict(list)
    for i in _then(history):
        of_topic[i.change.topic or ""].append(i.change)
    rows = [(t, len(own), len({c.broker_name for c in own}), sum(c.gone for c in own)) for t, own in of_topic.items()]
    return sorted(rows, key=lambda r: (-r[1], r[0]))


def _causes_by_hour(history: ExpectedHistory) -> list[Row]:
    counts = Counter((i.begin_ms // 3_600_000 * 3_600_000, i.change.cause) for i in _then(history))
    rows = sorted(((hour, cause, n) for (hour, cause), n in counts.items()), key=lambda r: (r[0], -r[2], r[1]))
    return [(instant(hour), cause, n) for hour, cause, n in rows]


def _topic_outages(history: ExpectedHistory) -> list[Row]:
    return [
        (
            *(i.change.broker_name, instant(i.begin_ms), at_or_none(i.end_ms), i.change.cause),
            None if i.end_ms is None else (i.end_ms - i.begin_ms) / 1000,
        )
        for i in history.topics
        if i.change.topic == "TopicTest" and i.change.gone and overlaps_period(i.begin_ms, i.end_ms)
    ]


def _new_topics(history: ExpectedHistory) -> list[Row]:
    first: dict[str, int] = {}
    for c in history.of_kind(ChangeKind.QUEUE_DATA):
        if not c.gone:
            first[c.topic or ""] = min(c.at_ms, first.get(c.topic or "", c.at_ms))
    rows = sorted((at_ms, topic) for topic, at_ms in first.items() if in_period(at_ms))
    return [(topic, instant(at_ms)) for at_ms, topic in rows]


def _lost_topics(history: ExpectedHistory) -> list[Row]:
    at_end = history.topics_at("23:59:59")
    offered = {c.topic for c in at_end if not c.gone}
    gone: dict[str, int] = {}
    for c in at_end:
        if c.topic not in offered:
            gone[c.topic or ""] = max(c.at_ms, gone.get(c.topic or "", 0))
    return [(topic, instant(at_ms)) for topic, at_ms in sorted(gone.items())]


def _queues_over_time(history: ExpectedHistory) -> list[Row]:
    rows: list[Row] = []
    queues: dict[str, int] = {}
    changes = sorted(history.of_kind(ChangeKind.QUEUE_DATA), key=lambda c: c.at_ms)
    for number, c in enumerate(changes):
        if c.topic == "TopicTest":
            queues[c.broker_name or ""] = c.write_queue_nums or 0
        is_last = number + 1 == len(changes) or changes[number + 1].at_ms > c.at_ms
        if is_last and sum(queues.values()) != (rows[-1][1] if rows else 0):
            rows.append((instant(c.at_ms), sum(queues.values())))
    return rows


def _by_key(history: ExpectedHistory) -> Iterator[list[Interval]]:
    of_key: dict[Any, list[Interval]] = defaultdict(list)
    for i in history.topics:
        of_key[i.change.topic, i.change.broker_name].append(i)
    yield from of_key.values()


def _changed_queues(history: ExpectedHistory) -> list[Row]:
    return [
        (instant(now.begin_ms), c.topic, c.broker_name, was.change.write_queue_nums, c.write_queue_nums, c.cause)
        for own in _by_key(history)
        for was, now in pairwise(own)
        for c in [now.change]
        if not was.change.gone and not c.gone and was.change.write_queue_nums != c.write_queue_nums
        if in_period(now.begin_ms)
    ]


def _unwritable(history: ExpectedHistory) -> list[Row]:
    return [
        (
            *(c.topic, c.broker_name, instant(i.begin_ms), at_or_none(i.end_ms), c.cause),
            ((i.end_ms or UNTIL_MS) - i.begin_ms) / 60_000,
        )
        for i in history.topics
        for c in [i.change]
        if not c.gone and (c.perm or 0) & 2 == 0 and overlaps_period(i.begin_ms, i.end_ms)
    ]


ROUTE_ANSWERS: Mapping[str, ExpectedAnswer] = {
    "The route of a topic at 03:12": _route,
    "The same, with addresses": _route_with_addresses,
    "Why was a broker not in the route?": _why_not,
    "What differed between two instants?": _difference,
    "How were topics and queues spread over the brokers?": _spread,
    "Every change of a topic's route": _changes,
    "Which topics changed most?": _most_changed,
    "Why routes changed, by hour": _causes_by_hour,
    "Outages of a topic, by broker": _topic_outages,
    "New topics": _new_topics,
    "Topics that no broker offers any more": _lost_topics,
    "Queues of a topic over time": _queues_over_time,
    "Topics whose queues were changed": _changed_queues,
    "Where could nothing be written, and for how long?": _unwritable,
}
