"""What docs/analytics.md must answer about brokers, their sessions and heartbeats: question → rows, in plain Python."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from statistics import mean
from typing import Any, Final

from namesrv_stream.route.changes import ChangeKind
from tests.support.analytics.expected_history import (
    SINCE_MS,
    UNTIL_MS,
    Facts,
    Row,
    broker,
    in_period,
    ms,
    overlaps_period,
)
from tests.support.analytics.route_answers import Answer
from tests.support.history_oracle import instant

_DEFAULT_TIMEOUT_MS: Final = 120_000
_MINUTE_MS: Final = 60_000


def _up(facts: Facts) -> list[Row]:
    columns = ("cluster", "broker_name", "broker_id", "broker_addr", "up_at", "up_cause")
    return [tuple(s[name] for name in columns) for s in facts.up_at("03:12:00")]


def _without_master(facts: Facts) -> list[Row]:
    ids: dict[tuple[str, str], list[int]] = defaultdict(list)
    for s in facts.up_at("04:30:11"):
        ids[s["cluster"], s["broker_name"]].append(s["broker_id"])
    return [(*name, len(own)) for name, own in sorted(ids.items()) if 0 not in own]


def _overlapping(facts: Facts) -> list[Row]:
    columns = ("broker_name", "up_at", "down_at", "up_cause", "down_cause", "heartbeats", "longest_gap_ms")
    return [
        tuple(s[name] for name in columns)
        for s in facts.sessions
        if s["cluster"] == "logs" and overlaps_period(ms(s["up_at"]), s["down_at"] and ms(s["down_at"]))
    ]


def _availability(facts: Facts) -> list[Row]:
    up_ms: Counter[tuple[str, str, str]] = Counter()
    for s in facts.sessions:
        end_ms = ms(s["down_at"]) if s["down_at"] else UNTIL_MS
        up_ms[broker(s)] += max(0, min(end_ms, UNTIL_MS) - max(ms(s["up_at"]), SINCE_MS))
    rows = [(*key, round(100 * up / (UNTIL_MS - SINCE_MS), 3)) for key, up in up_ms.items() if up]
    return sorted(rows, key=lambda r: (r[3], r[1], r[2]))


def _outages(facts: Facts) -> list[Row]:
    ends = [s for s in facts.sessions if s["down_at"]]
    rows = []
    for s in sorted(ends, key=lambda s: (s["down_at"], s["broker_name"], s["broker_addr"])):
        back = facts.next_up(s)
        if overlaps_period(ms(s["down_at"]), ms(back) if back else None):
            seconds = (back - s["down_at"]).total_seconds() if back else None
            rows.append((s["broker_name"], s["broker_addr"], s["down_at"], back, s["down_cause"], seconds))
    return rows


def _means(facts: Facts) -> list[Row]:
    rows = []
    for key, own in _grouped(facts.downs(), broker):
        backs = [(back - s["down_at"]).total_seconds() for s in own if (back := facts.next_up(s))]
        ups = [(s["down_at"] - s["up_at"]).total_seconds() / 60 for s in own]
        rows.append((*key, len(own), round(mean(backs), 1) if backs else None, round(mean(ups), 1)))
    return sorted(rows, key=lambda r: (-r[3], r[1], r[2]))


def _causes(facts: Facts) -> list[Row]:
    found = _grouped(facts.downs(), lambda s: (s["cluster"], s["down_cause"]))
    rows = [(*key, len(own), len({s["broker_addr"] for s in own})) for key, own in found]
    return sorted(rows, key=lambda r: (r[0], -r[2], r[1]))


def _expiries(facts: Facts) -> list[Row]:
    columns = ("down_at", "broker_name", "broker_addr", "last_heard_at", "down_detail")
    return [tuple(s[name] for name in columns) for s in facts.downs() if s["down_cause"] == "expired"]


def _flapping(facts: Facts) -> list[Row]:
    rows = []
    for _, own in _grouped((s for s in facts.sessions if s["down_at"]), broker):
        for first, third in zip(own, own[2:], strict=False):
            minutes = (third["down_at"] - first["down_at"]).total_seconds() / 60
            if minutes <= 60 and in_period(ms(third["down_at"])):
                rows.append((*broker(third), third["down_at"], third["down_cause"], minutes))
    return sorted(rows, key=lambda r: (r[3], r[1]))


def _mass(facts: Facts) -> list[Row]:
    counts = Counter((ms(s["down_at"]) // _MINUTE_MS, s["cluster"], s["down_cause"]) for s in facts.downs())
    return [(instant(m * _MINUTE_MS), cluster, cause, n) for (m, cluster, cause), n in sorted(counts.items()) if n >= 3]


def _counts(facts: Facts, cluster: str) -> list[Row]:
    own = [s for s in facts.sessions if s["cluster"] == cluster]
    instants = sorted({s["up_at"] for s in own} | {s["down_at"] for s in own if s["down_at"]})
    return [(at, sum(s["up_at"] <= at and (s["down_at"] is None or at < s["down_at"]) for s in own)) for at in instants]


def _brokers_over_time(facts: Facts) -> list[Row]:
    return _counts(facts, "shop")


def _cluster_outages(facts: Facts) -> list[Row]:
    rows = []
    for cluster in ("logs", "shop"):
        counts = _counts(facts, cluster)
        ends = [at for at, _ in counts[1:]]
        rows += [(cluster, at, end) for (at, n), end in zip(counts, [*ends, None], strict=True) if n == 0]
    return sorted(rows, key=lambda r: r[1])


def _guard(facts: Facts) -> list[Row]:
    changes = list(facts.of_kind(ChangeKind.GUARD))
    ends = {c.broker_name: c for c in changes if c.gone}
    return [
        (c.broker_name, instant(c.at_ms), instant(end.at_ms), end.cause, c.detail)
        for c in changes
        for end in [ends[c.broker_name]]
        if not c.gone
    ]


def _minutes(facts: Facts) -> Iterator[tuple[dict[str, Any], int]]:
    """Minutes of the period that lie in a session, with the timeout that the broker had asked for."""
    for m in facts.minutes:
        for s in facts.sessions:
            within = s["up_at"] < m["minute"] and (s["down_at"] is None or m["minute"] < s["down_at"])
            if broker(s) == broker(m) and within and in_period(ms(m["minute"])):
                yield m, s["timeout_ms"] or _DEFAULT_TIMEOUT_MS


def _at_server(minute: tuple[dict[str, Any], int]) -> tuple[str, str, str]:
    m = minute[0]
    return m["broker_name"], m["broker_addr"], m["server_id"]


def _longest_gaps(facts: Facts) -> list[Row]:
    rows = []
    for key, own in _grouped(_minutes(facts), _at_server):
        gap_ms, timeout_ms = max(max(m["gaps"]) for m, _ in own), max(timeout for _, timeout in own)
        rows.append((*key, gap_ms, timeout_ms, round(100 * gap_ms / timeout_ms, 1)))
    return sorted(rows, key=lambda r: (-r[5], *r[:3]))


def _late(facts: Facts) -> list[Row]:
    rows = [(m["minute"], m["broker_name"], m["server_id"], max(m["gaps"])) for m, _ in _minutes(facts)]
    return sorted(row for row in rows if row[3] > 60_000)


def _servers(facts: Facts) -> list[Row]:
    rows = []
    for server_id, own in _grouped(_minutes(facts), lambda pair: pair[0]["server_id"]):
        longest = [max(m["gaps"]) for m, _ in own]
        late = sum(gap > 60_000 for gap in longest)
        heartbeats = sum(m["heartbeats"] for m, _ in own)
        # Of so few gaps a minute the 99th percentile is the longest.
        rows.append((server_id, len({m["broker_addr"] for m, _ in own}), heartbeats, max(longest), max(longest), late))
    return sorted(rows, key=lambda r: (-r[5], r[0]))


def _elsewhere(facts: Facts) -> list[Row]:
    minutes = [m for m in facts.minutes if in_period(ms(m["minute"])) and m["gaps"]]
    rows = [
        (a["minute"], a["broker_name"], max(a["gaps"]), max(b["gaps"]), b["server_id"])
        for a in minutes
        for b in minutes
        if a["server_id"] == "ns2" != b["server_id"] and (broker(a), a["minute"]) == (broker(b), b["minute"])
    ]
    return sorted(row for row in rows if row[2] > 2 * row[3])


def _one_server(facts: Facts) -> list[Row]:
    servers: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for m in facts.minutes:
        if in_period(ms(m["minute"])):
            servers[broker(m)].add(m["server_id"])
    return [(*key, *own) for key, own in sorted(servers.items()) if len(own) == 1]


def _sufficient(facts: Facts) -> list[Row]:
    expired = [s for s in facts.downs() if s["down_cause"] == "expired"]
    return [
        (
            *(s["broker_name"], s["broker_addr"], s["down_at"]),
            (back - s["last_heard_at"]).total_seconds() if (back := facts.next_up(s)) else None,
        )
        for s in expired
    ]


def _shorter(facts: Facts) -> list[Row]:
    rows = []
    for key, own in _grouped(_minutes(facts), _at_server):
        longest = [max(m["gaps"]) for m, _ in own]
        if max(longest) > 35_000:
            rows.append((*key, *(sum(gap > limit_ms for gap in longest) for limit_ms in (35_000, 60_000, 90_000))))
    return sorted(rows, key=lambda r: (-r[5], -r[4], r[0], r[2]))


def _grouped(items: Iterable[Any], key: Any) -> list[tuple[Any, list[Any]]]:
    return [(k, list(own)) for k, own in groupby(sorted(items, key=key), key)]


BROKER_ANSWERS: Mapping[str, Answer] = {
    "Who was up at 03:12?": _up,
    "Which broker names were without a master?": _without_master,
    "Sessions that overlap a period": _overlapping,
    "Availability": _availability,
    "Every outage": _outages,
    "Mean time to repair, and between failures": _means,
    "Why do brokers go?": _causes,
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
