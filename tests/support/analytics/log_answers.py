"""The expected answers in docs/analytics.md about settings, KV entries and the log itself."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime

from namesrv_stream.route.changes import ChangeKind
from tests.support.analytics.example_log import instant_ms
from tests.support.analytics.expected_history import ExpectedHistory, Row, at_or_none, in_period, ms
from tests.support.analytics.route_answers import ExpectedAnswer
from tests.support.history_oracle import instant

_FOR_ALL_PARTITIONS = ("topic_deleted", "settings_changed", "guard_released")
_BY_HAND = (*_FOR_ALL_PARTITIONS, "topic_registered", "write_perm_changed", "kv_put", "kv_deleted")


def _settings(history: ExpectedHistory) -> list[Row]:
    changes = history.of_kind(ChangeKind.SETTING)
    return sorted({(instant(c.at_ms), c.key, c.value, c.detail) for c in changes if c.namespace == "effective"})


def _settings_then(history: ExpectedHistory) -> list[Row]:
    newest: dict[str, Row] = {}
    for c in history.of_kind(ChangeKind.SETTING):
        if c.namespace == "effective" and c.at_ms <= instant_ms("04:00:00"):
            newest[c.key or ""] = (c.key, c.value, instant(c.at_ms))
    return [row for _, row in sorted(newest.items())]


def _kv(history: ExpectedHistory) -> list[Row]:
    return [
        (instant(i.begin_ms), at_or_none(i.end_ms), c.namespace, c.key, c.gone, c.value, c.cause)
        for i in history.intervals
        for c in [i.change]
        if c.kind == ChangeKind.KV and c.key is not None
    ]


def _by_hand(history: ExpectedHistory) -> list[Row]:
    wanted = [
        e
        for e in history.events
        if e.kind in _BY_HAND and (e.partition == 0 or e.kind not in _FOR_ALL_PARTITIONS) and in_period(ms(e.at))
    ]
    ordered = sorted(wanted, key=lambda e: (e.at, e.partition, e.offset))
    return [(e.at, e.kind, e.fields["server_id"], e.value) for e in ordered]


def _who(history: ExpectedHistory) -> list[Row]:
    wanted = [e for e in history.events if e.kind == "settings_changed" and e.partition == 0]
    return [(e.at, e.fields["source"]) for e in wanted]


def _servers(history: ExpectedHistory) -> list[Row]:
    return sorted({(instant(c.at_ms), c.server_id, c.value, c.cause) for c in history.of_kind(ChangeKind.SERVER)})


def _around(history: ExpectedHistory) -> list[Row]:
    begin_ms, end_ms = instant_ms("03:05:00"), instant_ms("03:15:00")
    changes = [c for c in history.changes if begin_ms <= c.at_ms < end_ms and c.kind not in ("registration", "ignored")]
    return [(instant(c.at_ms), c.kind, c.broker_name, c.topic, c.gone, c.cause, c.partition, c.offset) for c in changes]


def _events_of_broker(history: ExpectedHistory) -> list[Row]:
    return [
        (
            e.at,
            e.kind,
            e.fields["server_id"],
            len(e.fields["items"]) if "items" in e.fields else None,
            e.partition,
            e.offset,
        )
        for e in history.events
        if "broker-b" in (e.fields.get("broker_name"), *(item["broker_name"] for item in e.fields.get("items", ())))
        and instant_ms("03:07:00") <= ms(e.at) < instant_ms("03:21:00")
    ]


def _records_of_rows(history: ExpectedHistory) -> list[Row]:
    events = {(e.partition, e.offset): e for e in history.events}
    changes = [c for c in history.of_kind(ChangeKind.QUEUE_DATA) if c.topic == "Orders" and c.cause == "topic_deleted"]
    return [
        (c.broker_name, c.topic, c.cause, e.at, e.kind, e.value)
        for c in changes
        for e in [events[c.partition, c.offset]]
    ]


def _newest_changes(history: ExpectedHistory) -> list[Row]:
    kinds = (ChangeKind.BROKER_LIVE, ChangeKind.QUEUE_DATA)
    changes = [c for c in history.changes if c.kind in kinds and c.broker_name == "broker-c"]
    return [(c.at_ms, c.kind, c.broker_name, c.topic, c.gone, c.cause) for c in changes]


def _reach(history: ExpectedHistory) -> list[Row]:
    newest: dict[str, datetime] = {
        "broker_events": max(e.at for e in history.events),
        "heartbeat_minutes": max(m["last_at"] for m in history.minutes),
        "route_archive": max(instant(i.begin_ms) for i in history.intervals),
    }
    return sorted(newest.items())


def _records(history: ExpectedHistory) -> list[Row]:
    offsets: dict[int, list[int]] = defaultdict(list)
    for e in history.events:
        offsets[e.partition].append(e.offset)
    return [(p, min(own), max(own), len(own), 0, 0) for p, own in sorted(offsets.items())]


def _unreadable(history: ExpectedHistory) -> list[Row]:
    return [(e.at, e.partition, e.offset, e.value) for e in history.events if not e.fields]


def _nothing(_: ExpectedHistory) -> list[Row]:
    return []


LOG_ANSWERS: Mapping[str, ExpectedAnswer] = {
    "Settings, and who changed them": _settings,
    "The settings in force at an instant": _settings_then,
    "KV entries over time": _kv,
    "All changes by operators": _by_hand,
    "A field of a record's JSON": _who,
    "Name servers: started, silent, stopped": _servers,
    "All changes around an instant": _around,
    "Events of a broker around an outage": _events_of_broker,
    "From a row to its record": _records_of_rows,
    "What the last minutes were, before the history has them": _newest_changes,
    "How far each table reaches": _reach,
    "Records: missing or twice": _records,
    "Records that no one could read": _unreadable,
    "Intervals that overlap, or leave a gap": _nothing,
    "Sessions that overlap": _nothing,
    "Ends on which two views disagree": _nothing,
    "What is not from the log": _nothing,
}
