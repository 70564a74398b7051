"""The tables of the report: the same for the page, for JSON and for the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from namesrv_stream.history.answer import Answer, Column, Section, number_column
from namesrv_stream.history.columns import columns
from namesrv_stream.history.database import Row
from namesrv_stream.history.report.figures import Figures
from namesrv_stream.history.report.unobserved import unobserved
from namesrv_stream.history.sections import outages_section

_HEARD: Final = number_column("heartbeats", "heard")
_MISSED: Final = number_column("missed", "missed")
_OF_TIME: Final = "availability budget_left down_ms interruptions? failures? mttr_ms? mtbf_ms? (met)"
#: Of several brokers together.
_TOGETHER: Final = f"brokers up {_OF_TIME} (known_ms) (budget_left_ms)"
_SUMMARY: Final = columns(
    f"objective {_TOGETHER} (sessions_ended) flapped? heartbeats missed (heartbeats_from_ms) (heartbeats_to_ms)",
    _MISSED,
)
_CLUSTERS: Final = columns(f"cluster {_TOGETHER} dark_ms")
_BROKERS: Final = columns(
    f"cluster? broker_name broker_addr broker_id? state for_good {_OF_TIME} missed? down_cause? earlier_addrs?"
)
_SESSION_ENDS: Final = columns(
    "cause count brokers down_ms down_share returns return_mean_ms? return_p95_ms? silence_p50_ms? silence_max_ms?",
    number_column("returns", "came back"),
)
_FLAPS: Final = columns(
    "cluster? broker_name broker_addr state downs returns? median_down_ms? peak_score? score? flapping (has_flapped)"
    " causes? earlier_addrs?"
)
_MISSED_HEARTBEATS: Final = columns(
    "cluster? broker_name broker_addr server_id missed missed_share silences longest_ms? usual_ms? heartbeats?",
    *(_HEARD, _MISSED),
)
_SERVERS: Final = columns("server_id brokers heartbeats missed missed_share missing_brokers", _HEARD, _MISSED)
_DELAYS: Final = columns(
    "(delay) what count p50_ms p95_ms p99_ms max_ms mean_ms",
    *(Column("what", "delay"), number_column("count", "measured")),
)
_SEGMENTS: Final = columns(
    "begin_ms (end_ms) availability down_ms (down_by_cause_ms) ended ended_by_cause (heartbeats) missed (clusters)"
)
_UNOBSERVED: Final = columns("what begin_ms end_ms duration_ms? meaning")


def answer_of(figures: Figures, notes: Sequence[str] = ()) -> Answer:
    """All tables, with all rows.

    Args:
        figures: What they say.
        notes: What else people should know.
    """
    rows, unit = figures.rows, figures.unit
    worst = sorted(rows["clusters"], key=lambda row: 1.0 if row["availability"] is None else row["availability"])
    flapped = [row for row in rows["flaps"] if row["has_flapped"]]
    sections = (
        Section("summary", "all brokers", _SUMMARY, [summary(figures)], _misses_objective),
        Section("clusters", "clusters", _CLUSTERS, worst, _misses_objective),
        Section("brokers", "brokers by how long they were down", _BROKERS, rows["brokers"], _misses_objective),
        Section("endings", "why brokers went", _SESSION_ENDS, rows["session_ends"]),
        outages_section(rows["outages"]),
        Section("flaps", "brokers by how much they flapped", _FLAPS, flapped, lambda row: bool(row["flapping"])),
        Section("missed", "missed heartbeats", _MISSED_HEARTBEATS, rows["missed"]),
        Section("servers", "missed heartbeats by name server", _SERVERS, rows["name_servers"]),
        Section("delays", "propagation delay", _DELAYS, rows["delays"]),
        Section("pieces", f"{unit} by {unit}", _SEGMENTS, rows["segments"]),
        Section("unknown", "what is not known", _UNOBSERVED, unobserved(figures)),
    )
    window, heard = figures.known.window, figures.known.heard
    counted_to_ms = heard.until_ms if heard else None
    return Answer(window.since_ms, window.until_ms, sections, figures.known.extent, notes, counted_to_ms)


def summary(figures: Figures) -> Row:
    """One row of all brokers."""
    heard, servers = figures.known.heard, figures.rows["name_servers"]
    return figures.total | {
        "objective": figures.asked.objective,
        "sessions_ended": sum(row["count"] for row in figures.rows["session_ends"]),
        "flapped": sum(row["has_flapped"] for row in figures.rows["flaps"]),
        "heartbeats": sum(row["heartbeats"] for row in servers) if heard else None,
        "missed": sum(row["missed"] for row in servers) if heard else None,
        "heartbeats_from_ms": heard.since_ms if heard else None,
        "heartbeats_to_ms": heard.until_ms if heard else None,
    }


def _misses_objective(row: Mapping[str, Any]) -> bool:
    return not row["met"]
