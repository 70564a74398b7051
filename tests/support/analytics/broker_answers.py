"""The expected answers in docs/analytics.md about brokers, their sessions and heartbeats."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from statistics import mean
from typing import Any, Final

from namesrv_stream.route.changes import ChangeKind
from tests.support.analytics.expected_history import (
    SINCE_MS,
    UNTIL_MS,
    ExpectedHistory,
    Row,
    broker,
    in_period,
    ms,
    overlaps_period,
)
from tests.support.analytics.route_answers import ExpectedAnswer
from tests.support.history_oracle import instant

_DEFAULT_TIMEOUT_MS: Final = 120_000
_MINUTE_MS: Final = 60_000


def _up(history: ExpectedHistory) -> list[Row]:
    columns = ("cluster", "broker_name", "broker_id", "broker_addr", "up_at", "up_cause")
    return [tuple(s[name] for name in columns) for s in history.up_at("03:12:00")]


def _without_master(history: ExpectedHistory) -> list[Row]:
    ids: dict[tuple[str, str], list[int]] = defaultdict(list)
    for s in history.up_at("04:30:11"):
        ids[s["cluster"], s["broker_name"]].append(s["broker_id"])
    return [(*name, len(own)) for name, own in sorted(ids.items()) if 0 not in own]


def _overlapping(history: ExpectedHistory) -> list[Row]:
    columns = ("broker_name", "up_at", "down_at", "up_cause", "down_cause", "heartbeats", "longest_gap_ms")
    return [
        tuple(s[name] for name in columns)
        for s in history.sessions
        if s["cluster"] == "logs" and overlaps_period(ms(s["up_at"]), s["down_at"] and ms(s["down_at"]))
    ]


def _availability(history: ExpectedHistory) -> list[Row]:
    up_ms: Counter[tuple[str, str, str]] = Counter()
    for s in history.sessions:
        end_ms = ms(s["down_at"]) if s["down_at"] else UNTIL_MS
        up_ms[broker(s)] += max(0, min(end_ms, UNTIL_MS) - max(ms(s["up_at"]), SINCE_MS))
    rows = [(*key, round(100 * up / (UNTIL_MS - SINCE_MS), 3)) for key, up in up_ms.items() if up]
    return sorted(rows, key=lambda r: (r[3], r[1], r[2]))


def _outages(history: ExpectedHistory) -> list[Row]:
    ends = [s for s in history.sessions if s["down_at"]]
    rows = []
    for s in sorted(ends, key=lambda s: (s["down_at"], s["broker_name"], s["broker_addr"])):
        back = history.next_up(s)
        if overlaps_period(ms(s["down_at"]), ms(back) if back else None):
            seconds = (back - s["down_at"]).total_seconds() if back else None
            rows.append((s["broker_name"], s["broker_addr"], s["down_at"], back, s["down_cause"], seconds))
    return rows


def _means(history: ExpectedHistory) -> list[Row]:
    rows = []
    for key, own in _grouped(history.ended_sessions(), broker):
        backs = [(back - s["down_at"]).total_seconds() for s in own if (back := history.next_up(s))]
        ups = [(s["down_at"] - s["up_at"]).total_seconds() / 60 for s in own]
        rows.append((*key, len(own), round(mean(backs), 1) if backs else None, round(mean(ups), 1)))
    return sorted(rows, key=lambda r: (-r[3], r[1], r[2]))


def _causes(history: ExpectedHistory) -> list[Row]:
    found = _grouped(history.ended_sessions(), lambda s: (s["cluster"], s["down_cause"]))
    rows = [(*key, len(own), len({s["broker_addr"] for s in own})) for key, own in found]
    return sorted(rows, key=lambda r: (r[0], -r[2], r[1]))


def _expiries(history: ExpectedHistory) -> list[Row]:
    columns = ("down_at", "broker_name", "broker_addr", "last_heard_at", "down_detail")
    return [tuple(s[name] for name in columns) for s in history.ended_sessions() if s["down_cause"] == "expired"]


def _flapping(history: ExpectedHistory) -> list[Row]:
    rows = []
    for _, own in _grouped((s for s in history.sessions if s["down_at"]), broker):
        for first, third in zip(own, own[2:], strict=False):
            minutes = (third["down_at"] - first["down_at"]).total_seconds() / 60
            if minutes <= 60 and in_period(ms(third["down_at"])):
                rows.append((*broker(third), third["down_at"], third["down_cause"], minutes))
    return sorted(rows, key=lambda r: (r[3], r[1]))


def _mass(history: ExpectedHistory) -> list[Row]:
    counts = Counter((ms(s["down_at"]) // _MINUTE_MS, s["cluster"], s["down_cause"]) for s in history.ended_sessions())
    return [(instant(m * _MINUTE_MS), cluster, cause, n) for (m, cluster, cause), n in sorted(counts.items()) if n >= 3]


def _counts(history: ExpectedHistory, cluster: str) -> list[Row]:
    own = [s for s in history.sessions if s["cluster"] == cluster]
    instants = sorted({s["up_at"] for s in own} | {s["down_at"] for s in own if s["down_at"]})
    return [(at, sum(s["up_at"] <= at and (s["down_at"] is None or at < s["down_at"]) for s in own)) for at in instants]


def _brokers_over_time(history: ExpectedHistory) -> list[Row]:
    return _counts(history, "shop")


def _cluster_outages(history: ExpectedHistory) -> list[Row]:
    rows = []
    for cluster in ("logs", "shop"):
        counts = _counts(history, cluster)
        ends = [at for at, _ in counts[1:]]
        rows += [(cluster, at, end) for (at, n), end in zip(counts, [*ends, None], strict=True) if n == 0]
    return sorted(rows, key=lambda r: r[1])


def _guard(history: ExpectedHistory) -> list[Row]:
    changes = list(history.of_kind(ChangeKind.GUARD))
    ends = {c.broker_name: c for c in changes if c.gone}
    return [
        (c.broker_name, instant(c.at_ms), instant(end.at_ms), end.cause, c.detail)
        for c in changes
        for end in [ends[c.broker_name]]
        if not c.gone
    ]


def _minutes(history: ExpectedHistory) -> Iterator[tuple[dict[str, Any], int]]:
    """Return the minutes of the period that lie in a session, with the timeout of the broker."""
    for m in history.minutes:
        for s in history.sessions:
            within = s["up_at"] < m["minute"] and (s["down_at"] is None or m["minute"] < s["down_at"])
            if broker(s) == broker(m) and within and in_period(ms(m["minute"])):
                yield m, s["timeout_ms"] or _DEFAULT_TIMEOUT_MS


def _at_server(minute: tuple[dict[str, Any], int]) -> tuple[str, str, str]:
    m = minute[0]
    return m["broker_name"], m["broker_addr"], m["server_id"]


def _longest_gaps(history: ExpectedHistory) -> list[Row]:
    rows = []
    for key, own in _grouped(_minutes(history), _at_server):
        gap_ms, timeout_ms = max(max(m["gaps"]) for m, _ in own), max(timeout for _, timeout in own)
        rows.append((*key, gap_ms, timeout_ms, round(100 * gap_ms / timeout_ms, 1)))
    return sorted(rows, key=lambda r: (-r[5], *r[:3]))


def _late(history: ExpectedHistory) -> list[Row]:
    rows = [(m["minute"], m["broker_name"], m["server_id"], max(m["gaps"])) for m, _ in _minutes(history)]
    return sorted(row for row in rows if row[3] > 60_000)


def _servers(history: ExpectedHistory) -> list[Row]:
    rows = []
    for server_id, own in _grouped(_minutes(history), lambda pair: pair[0]["server_id"]):
        longest = [max(m["gaps"]) for m, _ in own]
        late = sum(gap > 60_000 for gap in longest)
        heartbeats = sum(m["heartbeats"] for m, _ in own)
        # A minute has so few gaps that the 99th percentile is the longest one.
        rows.append((server_id, len({m["broker_addr"] for m, _ in own}), heartbeats, max(longest), max(longest), late))
    return sorted(rows, key=lambda r: (-r[5], r[0]))


def _elsewhere(history: ExpectedHistory) -> list[Row]:
    minutes = [m for m in history.minutes if in_period(ms(m["minute"])) and m["gaps"]]
    rows = [
        (a["minute"], a["broker_name"], max(a["gaps"]), max(b["gaps"]), b["server_id"])
        for a in minutes
        for b in minutes
        if a["server_id"] == "ns2" != b["server_id"] and (broker(a), a["minute"]) == (broker(b), b["minute"])
    ]
    return sorted(row for row in rows if row[2] > 2 * row[3])


def _one_server(history: ExpectedHistory) -> list[Row]:
    servers: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for m in history.minutes:
        if in_period(ms(m["minute"])):
            servers[broker(m)].add(m["server_id"])
    return [(*key, *own) for key, own in sorted(servers.items()) if len(own) == 1]


def _sufficient(history: ExpectedHistory) -> list[Row]:
    expired = [s for s in history.ended_sessions() if s["down_cause"] == "expired"]
    return [
        (
            *(s["broker_name"], s["broker_addr"], s["down_at"]),
            (back - s["last_heard_at"]).total_seconds() if (back := history.next_up(s)) else None,
        )
        for s in expired
    ]


def _shorter(history: ExpectedHistory) -> list[Row]:
    rows = []
    for key, own in _grouped(_minutes(history), _at_server):
        longest = [max(m["gaps"]) for m, _ in own]
        if max(longest) > 35_000:
            rows.append((*key, *(sum(gap > limit_ms for gap in longest) for limit_ms in (35_000, 60_000, 90_000))))
    return sorted(rows, key=lambda r: (-r[5], -r[4], r[0], r[2]))


def _grouped(items: Iterable[Any], key: Any) -> list[tuple[Any, list[Any]]]:
    return [(k, list(own)) for k, own in groupby(sorted(items, key=key), key)]


BROKER_ANSWERS: Mapping[str, ExpectedAnswer] = {
    "Who was up at 03:12?": _up,
    "Which broker names were without a master?": _without_master,
    "Sessions that overlap a period": _overlapping,
    "Availability": _availability,
    "Every outage": _outages,
    "Mean time to repair, and between failures": _means,
    "Why do brokers go down?": _causes,
    "Expiries, with the figures behind them": _expiries,
    "Flapping": _flapping,
    "Mass events": _mass,
    "Brokers that are up, over time": _brokers_over_time,
    "When was a cluster without any broker?": _cluster_outages,
    "What the mass-expiry guard kept": _guard,
    "The longest gap against the timeout": _longest_gaps,
    "When were heartbeats late?": _late,
    "Which name server hears brokers late?": _servers,
    "The same broker at two name servers": _elsewhere,
    "Who is heard by one name server only?": _one_server,
    "Which timeout would have sufficed?": _sufficient,
    "What would shorter timeouts have cost?": _shorter,
}
