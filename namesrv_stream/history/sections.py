"""What was found as tables of an answer: for each kind of it the columns and the rows.

The keys of columns are names in JSON and CSV, which scripts go by: docs/history.md lists them, and a test holds it to
that.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from namesrv_stream.history.answer import Column, Section, at_column, duration_column, number_column
from namesrv_stream.history.availability import Availability, has_left
from namesrv_stream.history.broker_changes import BrokerChange
from namesrv_stream.history.flaps import Flapping
from namesrv_stream.history.outages import Outage
from namesrv_stream.history.sessions import Session
from namesrv_stream.history.topic_changes import TopicStory, describe
from namesrv_stream.history.window import Window
from namesrv_stream.route.lease import LeaseKey


def counts_text(counts: Mapping[str, int]) -> str:
    """How often what, the most frequent first."""
    return ", ".join(f"{count} {cause}" for cause, count in sorted(counts.items(), key=lambda item: -item[1]))


def percent(share: float) -> str:
    """Enough digits to tell three nines from five; never rounded up to what was missed."""
    thousandths = math.floor(round(share * 100_000, 6))  # 0.29 is 28,999.999… hundred-thousandths
    return "100%" if share == 1 else f"{thousandths / 1000:.3f}%"


def key_values(key: LeaseKey) -> dict[str, Any]:
    """A broker process, as rows name it."""
    return {
        "cluster": key.live_key.cluster,
        "broker_name": key.broker_name,
        "broker_addr": key.live_key.broker_addr,
    }


def broker_values(of: Availability | Flapping) -> dict[str, Any]:
    """A broker, as rows name it: by its newest process."""
    return {**key_values(of.key), "earlier_addrs": [key.live_key.broker_addr for key in of.earlier_keys] or None}


def optional(column: Column) -> Column:
    """The column as one that is left out where the terminal is narrow."""
    return replace(column, is_optional=True)


def short_detail(detail: str) -> str:
    """The reason of an end in a few words: ``silent 27.3 s > 9 s, held``; others as they are."""
    return _SILENT.sub(lambda m: f"silent {_seconds(m[1])} > {_seconds(m[2])}", detail).replace(_HELD, ", held")


def _seconds(ms: str) -> str:
    return f"{round(int(ms) / 1000, 1):g} s"


def _yes(is_so: bool) -> str:
    return "yes" if is_so else ""


def _addrs_text(addrs: Sequence[str]) -> str:
    shown = ", ".join(addrs[-_MOST_ADDRS:])
    return shown if len(addrs) <= _MOST_ADDRS else f"{shown} and {len(addrs) - _MOST_ADDRS:,} more"


def _decimal_column(key: str, title: str) -> Column:
    return number_column(key, title, "{:.2f}".format)


_CLUSTER: Final = Column("cluster", "cluster", is_optional=True)
_NAME: Final = Column("broker_name", "broker")
_ADDR: Final = Column("broker_addr", "address")
_MOST_ADDRS: Final = 3
_SILENT: Final = re.compile(r"not heard for (\d+) ms of observed time(?: at \S+)?, timeout (\d+) ms")
_HELD: Final = "; the guard held it until now"
#: Of a broker whose address changed: those it had before.
EARLIER_ADDRS: Final = Column("earlier_addrs", "before at", _addrs_text, is_text=True, is_optional=True)
#: Of a broker that was unregistered and did not come back: it counts as available up to then.
FOR_GOOD: Final = Column("for_good", "for good", _yes)
_BROKER_ID: Final = Column("broker_id", "id", justify="right", is_optional=True)
_STATE: Final = Column("state", "now")
_CHANGE: Final = Column("change", "change", is_text=True)
_CAUSE: Final = Column("cause", "cause")
_DETAIL: Final = Column("detail", "detail", is_text=True, is_optional=True, show_short=short_detail)
_PARTITION: Final = Column("partition", "part", justify="right", is_optional=True)
_OFFSET: Final = Column("offset", "offset", justify="right", is_optional=True)

_SESSION_COLUMNS: Final = (
    _CLUSTER,
    replace(_NAME, is_for_scripts=True),
    _ADDR,
    _BROKER_ID,
    at_column("up_ms", "up"),
    optional(Column("up_cause", "by")),
    at_column("down_ms", "down"),
    optional(Column("cause", "by")),
    duration_column("duration_ms", "for"),
    number_column("heartbeats", "heartbeats"),
    optional(duration_column("longest_gap_ms", "longest gap")),
    optional(duration_column("timeout_ms", "timeout")),
    at_column("last_heard_ms", "last heard", is_for_scripts=True),
    _DETAIL,
    replace(_PARTITION, is_for_scripts=True),
    replace(_OFFSET, is_for_scripts=True),
)
_BROKER_CHANGE_COLUMNS: Final = (at_column("at_ms", "at"), _CHANGE, _CAUSE, _DETAIL, _PARTITION, _OFFSET)
_TOPIC_CHANGE_COLUMNS: Final = (
    at_column("at_ms", "at"),
    _CHANGE,
    _CAUSE,
    _DETAIL,
    number_column("brokers", "brokers"),
    optional(number_column("write_queues", "write queues")),
    optional(number_column("read_queues", "read queues")),
    _PARTITION,
    _OFFSET,
)
_BROKER_COLUMNS: Final = (
    _CLUSTER,
    _NAME,
    _ADDR,
    _BROKER_ID,
    _STATE,
    number_column("availability", "available", percent),
    FOR_GOOD,
    number_column("downs", "downs"),
    optional(duration_column("mttr_ms", "back after (mean)")),
    optional(number_column("heartbeats", "heartbeats")),
    optional(duration_column("longest_gap_ms", "longest gap")),
    optional(Column("down_cause", "went last by")),
    EARLIER_ADDRS,
)
_FLAP_COLUMNS: Final = (
    _CLUSTER,
    _NAME,
    _ADDR,
    _STATE,
    number_column("downs", "downs"),
    optional(number_column("returns", "returns")),
    optional(duration_column("median_down_ms", "back after (median)")),
    optional(_decimal_column("peak_score", "peak score")),
    optional(_decimal_column("score", "score")),
    Column("flapping", "flapping", _yes),
    optional(Column("has_flapped", "has flapped", _yes)),
    Column("causes", "causes", counts_text, is_text=True, is_optional=True),
    EARLIER_ADDRS,
)
_OUTAGE_COLUMNS: Final = (
    Column("scope", "what", lambda scope: str(scope).replace("_", " ")),
    _CLUSTER,
    Column("name", "name"),
    optional(_ADDR),
    at_column("begin_ms", "from"),
    optional(at_column("end_ms", "to")),
    duration_column("duration_ms", "for"),
    optional(number_column("brokers", "brokers")),
    _CAUSE,
    optional(Column("for_good", "for good", _yes)),
    optional(Column("replaced_by", "replaced by")),
    _DETAIL,
)


def sessions_section(sessions: Iterable[Session], window: Window) -> Section:
    """A row a session."""
    rows = [
        {
            **key_values(s.key),
            "broker_id": s.broker_id,
            "up_ms": s.up_ms,
            "down_ms": s.down_ms,
            "duration_ms": s.length_ms(window.until_ms),
            "up_cause": s.up_cause,
            "cause": s.down_cause,
            "detail": s.down_detail,
            "heartbeats": s.heartbeats,
            "longest_gap_ms": s.longest_gap_ms,
            "timeout_ms": s.timeout_ms,
            "last_heard_ms": s.last_heard_ms,
            "partition": s.partition,
            "offset": s.offset,
        }
        for s in sessions
    ]
    return Section(
        "sessions",
        "sessions",
        _SESSION_COLUMNS,
        rows,
        lambda row: row["down_ms"] is not None and not has_left(row["cause"]),
    )


def broker_changes_section(changes: Sequence[BrokerChange]) -> Section:
    """A row a record that changed something."""
    rows = [
        {
            "at_ms": c.reason.at_ms,
            "change": ", ".join(c.what),
            "cause": c.reason.cause,
            "detail": c.reason.detail,
            "partition": c.reason.partition,
            "offset": c.reason.offset,
        }
        for c in changes
    ]
    return Section("changes", "changes", _BROKER_CHANGE_COLUMNS, rows)


def topic_changes_section(story: TopicStory) -> Section:
    """A row a moment at which the route changed."""
    rows = [
        {
            "at_ms": change.at_ms,
            "change": ", ".join(describe(offer) for offer in change.offers),
            "cause": " ".join(dict.fromkeys(offer.reason.cause for offer in change.offers)),
            "detail": "; ".join(dict.fromkeys(o.reason.detail for o in change.offers if o.reason.detail)) or None,
            "brokers": change.totals.brokers,
            "write_queues": change.totals.write_queues,
            "read_queues": change.totals.read_queues,
            "partition": change.offers[0].reason.partition,
            "offset": change.offers[0].reason.offset,
        }
        for change in story.changes
    ]
    title = f"changes of the route of {story.topic}"
    return Section("changes", title, _TOPIC_CHANGE_COLUMNS, rows, lambda row: not row["brokers"])


def brokers_section(availabilities: Iterable[Availability]) -> Section:
    """A row a broker."""
    rows = [
        {
            **broker_values(a),
            "broker_id": a.broker_id,
            "availability": a.share,
            "for_good": a.has_left,
            "downs": a.downs,
            "mttr_ms": a.mttr_ms,
            "heartbeats": a.heartbeats,
            "longest_gap_ms": a.longest_gap_ms,
            "state": _state(is_up=a.is_up),
            "down_cause": a.down_cause,
        }
        for a in availabilities
    ]
    return Section("brokers", "brokers", _BROKER_COLUMNS, rows, _is_missed)


def flaps_section(flappings: Iterable[Flapping]) -> Section:
    """A row a broker."""
    rows = [
        {
            **broker_values(f),
            "downs": f.downs,
            "returns": f.returns,
            "causes": dict(f.causes),
            "median_down_ms": f.median_down_ms,
            "peak_score": round(f.peak_score, 3),
            "score": round(f.score, 3),
            "flapping": f.is_flapping,
            "has_flapped": f.has_flapped,
            "state": _state(is_up=f.is_up),
        }
        for f in flappings
    ]
    title = "brokers by how much they flapped"
    return Section("flaps", title, _FLAP_COLUMNS, rows, lambda row: bool(row["has_flapped"]))


def outages_section(outages: Iterable[Outage], window: Window) -> Section:
    """A row an outage."""
    rows = [
        {
            "scope": outage.scope.value,
            "cluster": outage.cluster,
            "name": outage.name,
            "broker_addr": outage.broker_addr,
            "begin_ms": outage.begin_ms,
            "end_ms": outage.end_ms,
            "duration_ms": outage.length_ms(window.until_ms),
            "brokers": outage.brokers or None,
            "cause": outage.cause,
            "for_good": outage.is_for_good,
            "replaced_by": outage.replaced_by,
            "detail": outage.detail,
        }
        for outage in outages
    ]
    return Section(
        "outages", "outages", _OUTAGE_COLUMNS, rows, lambda row: row["end_ms"] is None and not row["for_good"]
    )


def _state(*, is_up: bool) -> str:
    return "up" if is_up else "down"


def _is_missed(row: Mapping[str, Any]) -> bool:
    return row["state"] == "down" and not has_left(row["down_cause"])
