"""The tables of ``history``, for the rows that the questions give."""

from collections.abc import Sequence
from typing import Final

from namesrv_stream.history.answer import Section, at_column
from namesrv_stream.history.columns import columns
from namesrv_stream.history.database import Row
from namesrv_stream.history.topic_changes import TopicHistory, describe
from namesrv_stream.route.changes import Cause

_SESSIONS: Final = columns(
    "cluster? (broker_name) broker_addr broker_id? up_ms up_cause? down_ms cause? duration_ms heartbeats"
    " longest_gap_ms? timeout_ms? (last_heard_ms) detail? (partition) (offset)",
    at_column("down_ms", "down"),
)
_BROKER_CHANGES: Final = columns("at_ms change cause detail? partition? offset?")
_TOPIC_CHANGES: Final = columns("at_ms change cause detail? brokers write_queues? read_queues? partition? offset?")
_BROKERS: Final = columns(
    "cluster? broker_name broker_addr broker_id? state availability for_good downs mttr_ms? heartbeats?"
    " longest_gap_ms? down_cause? earlier_addrs?"
)
_FLAPS: Final = columns(
    "cluster? broker_name broker_addr state downs returns? median_down_ms? peak_score? score? flapping has_flapped?"
    " causes? earlier_addrs?"
)
_OUTAGES: Final = columns(
    "scope cluster? name broker_addr? begin_ms end_ms? duration_ms brokers? cause for_good? replaced_by? detail?"
)


def sessions_section(rows: Sequence[Row]) -> Section:
    """Of ``period_sessions.sql``."""
    return Section("sessions", "sessions", _SESSIONS, rows, lambda row: _is_failure(row["cause"]))


def broker_changes_section(rows: Sequence[Row]) -> Section:
    """One row for each record that changed something."""
    return Section("changes", "changes", _BROKER_CHANGES, rows)


def topic_changes_section(history: TopicHistory) -> Section:
    """One row for each moment at which the route changed."""
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
        for change in history.changes
    ]
    title = f"changes of the route of {history.topic}"
    return Section("changes", title, _TOPIC_CHANGES, rows, lambda row: not row["brokers"])


def brokers_section(rows: Sequence[Row]) -> Section:
    """Of ``brokers.sql``."""
    return Section(
        "brokers", "brokers", _BROKERS, rows, lambda row: not row["is_up"] and _is_failure(row["down_cause"])
    )


def flaps_section(rows: Sequence[Row]) -> Section:
    """Of ``flaps.sql``."""
    return Section("flaps", "brokers by how much they flapped", _FLAPS, rows, lambda row: bool(row["has_flapped"]))


def outages_section(rows: Sequence[Row]) -> Section:
    """Of ``outages.sql``."""
    return Section("outages", "outages", _OUTAGES, rows, lambda row: row["end_ms"] is None and not row["for_good"])


def _is_failure(cause: str | None) -> bool:
    """Whether this is why a broker went down, other than an unregistration."""
    return cause is not None and cause != Cause.UNREGISTERED
