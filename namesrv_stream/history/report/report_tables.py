"""The tables of the report, for the page, JSON and the terminal.

One table lists what the report cannot know, so that missing data is not mistaken for healthy brokers.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from namesrv_stream.history.answer import Answer, Column, Section, number_column
from namesrv_stream.history.answer_tables import columns, outages_section
from namesrv_stream.history.database import Row
from namesrv_stream.history.report.figures import Figures
from namesrv_stream.text_table import counted, plural

_RECEIVED: Final = number_column("heartbeats", "received")
_MISSED: Final = number_column("missed", "missed")
_OF_TIME: Final = "availability budget_left down_ms interruptions? failures? mttr_ms? mtbf_ms? (met)"
#: Columns of several brokers together.
_TOGETHER: Final = f"brokers up {_OF_TIME} (known_ms) (budget_left_ms)"
_SUMMARY: Final = columns(
    f"objective {_TOGETHER} (sessions_ended) flapped? heartbeats missed (heartbeats_from_ms) (heartbeats_to_ms)"
    " (behind_ms) behind_share?",
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
    *(_RECEIVED, _MISSED),
)
_SERVERS: Final = columns("server_id brokers heartbeats missed missed_share missing_brokers", _RECEIVED, _MISSED)
_DELAYS: Final = columns(
    "(delay) what count p50_ms p95_ms p99_ms max_ms mean_ms",
    *(Column("what", "delay"), number_column("count", "measured")),
)
_SEGMENTS: Final = columns(
    "begin_ms (end_ms) availability down_ms (down_by_cause_ms) ended ended_by_cause (heartbeats) missed (clusters)"
)
_UNOBSERVED: Final = columns("what begin_ms end_ms duration_ms? meaning")


def answer_of(figures: Figures, notes: Sequence[str] = ()) -> Answer:
    """Return all tables with all rows.

    Args:
        notes: Further notes for people.
    """
    rows, unit = figures.rows, figures.unit
    worst = sorted(rows["clusters"], key=lambda row: 1.0 if row["availability"] is None else row["availability"])
    flapped = [row for row in rows["flaps"] if row["has_flapped"]]
    sections = (
        Section("summary", "all brokers", _SUMMARY, [summary(figures)], _misses_objective),
        Section("clusters", "clusters", _CLUSTERS, worst, _misses_objective),
        Section("brokers", "brokers by how long they were down", _BROKERS, rows["brokers"], _misses_objective),
        Section("endings", "why brokers went down", _SESSION_ENDS, rows["session_ends"]),
        outages_section(rows["outages"]),
        Section("flaps", "brokers by how much they flapped", _FLAPS, flapped, lambda row: bool(row["flapping"])),
        Section("missed", "missed heartbeats", _MISSED_HEARTBEATS, rows["missed"]),
        Section("servers", "missed heartbeats by name server", _SERVERS, rows["name_servers"]),
        Section("delays", "propagation delay", _DELAYS, rows["delays"]),
        Section("pieces", f"{unit} by {unit}", _SEGMENTS, rows["segments"]),
        Section("unknown", "unknown data", _UNOBSERVED, unobserved(figures)),
    )
    window, heartbeat_window = figures.known.window, figures.known.heartbeat_window
    counted_to_ms = heartbeat_window.until_ms if heartbeat_window else None
    return Answer(window.since_ms, window.until_ms, sections, figures.known.extent, notes, counted_to_ms)


def summary(figures: Figures) -> Row:
    """Return one row with the figures of all brokers together."""
    heartbeat_window, servers = figures.known.heartbeat_window, figures.rows["name_servers"]
    (behind,) = figures.rows["routes_behind"]
    return figures.total | {
        "objective": figures.request.objective,
        "sessions_ended": sum(row["count"] for row in figures.rows["session_ends"]),
        "flapped": sum(row["has_flapped"] for row in figures.rows["flaps"]),
        "heartbeats": sum(row["heartbeats"] for row in servers) if heartbeat_window else None,
        "missed": sum(row["missed"] for row in servers) if heartbeat_window else None,
        "heartbeats_from_ms": heartbeat_window.since_ms if heartbeat_window else None,
        "heartbeats_to_ms": heartbeat_window.until_ms if heartbeat_window else None,
        **behind,
    }


def _misses_objective(row: Mapping[str, Any]) -> bool:
    return not row["met"]


_NOT_COUNTED = "heartbeats of this time are not in the tables: no figure counts them, nor those that were missed"
_NO_TABLE = "there is no table heartbeat_minutes: missed heartbeats and blind times are not known"
_BLIND = (
    "no heartbeat was received and no broker aged: name servers, Kafka or the job were stopped; brokers count as up"
)


def unobserved(figures: Figures) -> list[Row]:
    """Return one row for each gap in the data.

    Returns:
        Rows with ``what``, ``begin_ms``, ``end_ms``, ``duration_ms`` (null if the time is not known) and ``meaning``,
        the effect on the figures.
    """
    return [
        {"what": what, "begin_ms": begin, "end_ms": end, "meaning": meaning}
        | {"duration_ms": None if begin is None or end is None else end - begin}
        for what, begin, end, meaning in _unobserved(figures)
    ]


def _unobserved(figures: Figures) -> Iterator[tuple[str, int | None, int | None, str]]:
    requested, known, extent = figures.request.window, figures.known, figures.known.extent
    if extent.begin_ms is not None and requested.since_ms < extent.begin_ms:
        text = "the history begins later than requested: no figure includes this time"
        yield "before the history", requested.since_ms, extent.begin_ms, text
    if extent.lost_until_ms is not None:
        text = "changes were removed before the history read them: brokers that were down only then are not listed"
        yield "lost changes", extent.stored_to_ms, extent.lost_until_ms, text
    if extent.lags(requested.until_ms):
        text = "the tables do not reach this far: no figure includes this time"
        yield "after the tables", extent.reaches_ms, requested.until_ms, text
    for row in figures.rows["unobserved"]:
        yield row["what"], row["begin_ms"], row["end_ms"], _meaning(row)
    if not known.has_heartbeats:
        yield "heartbeats", None, None, _NO_TABLE
    elif known.heartbeat_window is None:
        yield "heartbeats", known.window.since_ms, known.window.until_ms, _NOT_COUNTED
    if gone := figures.rows["gone_before"][0]["brokers"]:
        text = f"{counted(gone, 'broker')} went down before and did not come back"
        yield "gone before", None, known.window.since_ms, f"{text}: no figure includes {plural(gone, 'it', 'them')}"


def _meaning(row: Row) -> str:
    if row["what"] == "state rebuilt":
        count = row["sessions"]
        begin = f"{counted(count, 'session')} {plural(count, 'begins or ends', 'begin or end')}"
        return f"{begin} here because of the state that was found; what really happened is not known"
    return _BLIND if row["what"] == "blind" else _NOT_COUNTED
