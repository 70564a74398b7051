"""The columns of all tables that ``history`` and ``report`` print, and the tables of ``history``.

Each column is defined once. The keys of columns are the names in JSON and CSV, on which scripts depend.
docs/history.md and docs/report.md list them, and tests compare these lists with the output.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from namesrv_stream.history.answer import Column, Section, at_column, duration_column, number_column
from namesrv_stream.history.database import Row
from namesrv_stream.history.past_route import describe
from namesrv_stream.instants import duration
from namesrv_stream.route.changes import Cause

_MAX_ADDRS: Final = 3
_SILENT: Final = re.compile(r"not heard for (\d+) ms of observed time(?: at \S+)?, timeout (\d+) ms")
_HELD: Final = "; the guard held it until now"


def columns(keys: str, *own: Column) -> tuple[Column, ...]:
    """Return the columns of a table.

    Args:
        keys: Keys of the columns, in order. A key that ends in ``?`` is left out on a narrow terminal. A key in
            parentheses is for scripts only.
        own: Columns that replace the common columns with the same keys in this table.
    """
    known = _COLUMNS | {column.key: column for column in own}
    found = []
    for text in keys.split():
        key = text.strip("()?")
        column = known.get(key) or Column(key, "")
        found.append(replace(column, is_optional=text.endswith("?"), is_for_scripts=text.startswith("(")))
    return tuple(found)


def counts_text(counts: Mapping[str, int]) -> str:
    """Return cause → count as text, the highest count first."""
    return ", ".join(f"{count} {cause}" for cause, count in sorted(counts.items(), key=lambda item: -item[1]))


def percent(share: float) -> str:
    """Return a share in percent, with enough digits to distinguish 99.9% from 99.999%. It is never rounded up."""
    thousandths = math.floor(round(share * 100_000, 6))  # 0.29 * 100,000 is 28,999.999…
    return "100%" if share == 1 else f"{thousandths / 1000:.3f}%"


def short_detail(detail: str) -> str:
    """Return a shorter form of the detail of an expiry: ``silent 27.3 s > 9 s, held``; others are unchanged."""
    return _SILENT.sub(lambda m: f"silent {_seconds(m[1])} > {_seconds(m[2])}", detail).replace(_HELD, ", held")


def _seconds(ms: str) -> str:
    return f"{round(int(ms) / 1000, 1):g} s"


def _yes(is_so: bool) -> str:
    return "yes" if is_so else ""


def _addrs_text(addrs: Sequence[str]) -> str:
    shown = ", ".join(addrs[-_MAX_ADDRS:])
    return shown if len(addrs) <= _MAX_ADDRS else f"{shown} and {len(addrs) - _MAX_ADDRS:,} more"


_COLUMNS: Final = {
    column.key: column
    for column in (
        # The subject of a row.
        Column("cluster", "cluster"),
        Column("broker_name", "broker"),
        Column("broker_addr", "address"),
        Column("broker_id", "id", justify="right"),
        # Earlier addresses of a broker whose address changed.
        Column("earlier_addrs", "previous addresses", _addrs_text, is_text=True),
        Column("server_id", "name server"),
        Column("scope", "what", lambda scope: str(scope).replace("_", " ")),
        Column("name", "name"),
        Column("what", "what"),
        at_column("at_ms", "at"),
        at_column("begin_ms", "from"),
        at_column("end_ms", "to"),
        duration_column("duration_ms", "for"),
        # State and cause.
        Column("state", "now"),
        Column("change", "change", is_text=True),
        Column("cause", "cause"),
        Column("down_cause", "last cause"),
        Column("detail", "detail", is_text=True, show_short=short_detail),
        Column("replaced_by", "replaced by"),
        # A broker that was unregistered and did not come back counts as available up to then.
        Column("for_good", "for good", _yes),
        Column("partition", "part", justify="right"),
        Column("offset", "offset", justify="right"),
        Column("meaning", "meaning", is_text=True),
        # Sessions.
        at_column("up_ms", "up"),
        Column("up_cause", "by"),
        at_column("last_heard_ms", "last heard"),
        duration_column("timeout_ms", "timeout"),
        number_column("heartbeats", "heartbeats"),
        duration_column("longest_gap_ms", "longest gap"),
        # Availability.
        number_column("objective", "objective", percent),
        number_column("brokers", "brokers"),
        number_column("up", "up now"),
        number_column("availability", "available", percent),
        number_column("budget_left", "budget left", lambda share: f"{share * 100:,.0f}%"),
        duration_column("down_ms", "down"),
        number_column("downs", "downs"),
        number_column("interruptions", "interruptions"),
        number_column("failures", "unannounced"),
        duration_column("mttr_ms", "MTTR"),
        duration_column("mtbf_ms", "MTBF"),
        number_column("dark_ms", "no broker up", lambda ms: duration(ms) if ms else "0"),
        # Session ends and flapping.
        number_column("count", "sessions ended"),
        number_column("down_share", "of all down time", lambda share: f"{share * 100:.1f}%"),
        number_column("returns", "returns"),
        duration_column("return_mean_ms", "after (mean)"),
        duration_column("return_p95_ms", "after (p95)"),
        duration_column("silence_p50_ms", "silent before (median)"),
        duration_column("silence_max_ms", "silent before (longest)"),
        duration_column("median_down_ms", "back after (median)"),
        number_column("peak_score", "peak score", "{:.2f}".format),
        number_column("score", "score", "{:.2f}".format),
        Column("flapping", "flapping", _yes),
        Column("has_flapped", "has flapped", _yes),
        number_column("flapped", "flapped"),
        Column("causes", "causes", counts_text, is_text=True),
        number_column("ended", "sessions ended"),
        Column("ended_by_cause", "by cause", counts_text, is_text=True),
        # Heartbeats and delays.
        at_column("heartbeats_from_ms", "heartbeats from"),
        at_column("heartbeats_to_ms", "heartbeats to"),
        number_column("missed", "missed heartbeats"),
        number_column("missed_share", "of all", lambda share: f"{share * 100:.3f}%"),
        number_column("missing_brokers", "brokers that missed any"),
        number_column("silences", "silences"),
        duration_column("longest_ms", "longest"),
        duration_column("usual_ms", "usual gap"),
        duration_column("p50_ms", "median"),
        duration_column("p95_ms", "p95"),
        duration_column("p99_ms", "p99"),
        duration_column("max_ms", "longest"),
        duration_column("mean_ms", "mean"),
        # Routes.
        duration_column("behind_ms", "routes behind"),
        number_column("behind_share", "routes behind", lambda share: f"{share * 100:.3f}%"),
        number_column("write_queues", "write queues"),
        number_column("read_queues", "read queues"),
    )
}


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
    """Return rows of ``period_sessions.sql`` as a table."""
    return Section("sessions", "sessions", _SESSIONS, rows, lambda row: _is_failure(row["cause"]))


def broker_changes_section(rows: Sequence[Row]) -> Section:
    """Return a table with one row for each record that changed something."""
    return Section("changes", "changes", _BROKER_CHANGES, rows)


def topic_changes_section(topic: str, changes: Sequence[Row]) -> Section:
    """Return ``changes`` as a table: rows of ``topic_changes.sql`` except that of the start of the period."""
    rows = []
    for change in changes:
        reasons = [offer["reason"] for offer in change["offers"]]
        more = {
            "change": ", ".join(map(describe, change["offers"])),
            "cause": " ".join(dict.fromkeys(reason["cause"] for reason in reasons)),
            "detail": "; ".join(dict.fromkeys(reason["detail"] for reason in reasons if reason["detail"])) or None,
        }
        rows.append({**change["reason"], **change, **more})
    title = f"changes of the route of {topic}"
    return Section("changes", title, _TOPIC_CHANGES, rows, lambda row: not row["brokers"])


def brokers_section(rows: Sequence[Row]) -> Section:
    """Return rows of ``brokers.sql`` as a table."""
    return Section(
        "brokers", "brokers", _BROKERS, rows, lambda row: not row["is_up"] and _is_failure(row["down_cause"])
    )


def flaps_section(rows: Sequence[Row]) -> Section:
    """Return rows of ``flaps.sql`` as a table."""
    return Section("flaps", "brokers by how much they flapped", _FLAPS, rows, lambda row: bool(row["has_flapped"]))


def outages_section(rows: Sequence[Row]) -> Section:
    """Return rows of ``outages.sql`` as a table."""
    return Section("outages", "outages", _OUTAGES, rows, lambda row: row["end_ms"] is None and not row["for_good"])


def _is_failure(cause: str | None) -> bool:
    """Whether a broker went down by a cause other than an unregistration."""
    return cause is not None and cause != Cause.UNREGISTERED
