"""The columns of all tables that ``history`` and ``report`` print: one definition for each figure.

Their keys are the names in JSON and CSV, on which scripts depend: docs/history.md and docs/report.md list them, and
tests compare the lists with what is printed.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from namesrv_stream.history.answer import Column, at_column, duration_column, number_column
from namesrv_stream.instants import duration

_MOST_ADDRS: Final = 3
_SILENT: Final = re.compile(r"not heard for (\d+) ms of observed time(?: at \S+)?, timeout (\d+) ms")
_HELD: Final = "; the guard held it until now"


def columns(keys: str, *own: Column) -> tuple[Column, ...]:
    """The columns of a table.

    Args:
        keys: Theirs, in order. One that ends in ``?`` is left out where the terminal is narrow; one in parentheses is
            for scripts only.
        own: Definitions that this table has instead of the common ones, by their keys.
    """
    known = _COLUMNS | {column.key: column for column in own}
    found = []
    for text in keys.split():
        key = text.strip("()?")
        column = known.get(key) or Column(key, "")
        found.append(replace(column, is_optional=text.endswith("?"), is_for_scripts=text.startswith("(")))
    return tuple(found)


def counts_text(counts: Mapping[str, int]) -> str:
    """How often what, the most frequent first."""
    return ", ".join(f"{count} {cause}" for cause, count in sorted(counts.items(), key=lambda item: -item[1]))


def percent(share: float) -> str:
    """Enough digits to tell three nines from five; never rounded up to what was missed."""
    thousandths = math.floor(round(share * 100_000, 6))  # 0.29 is 28,999.999… hundred-thousandths
    return "100%" if share == 1 else f"{thousandths / 1000:.3f}%"


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


_COLUMNS: Final = {
    column.key: column
    for column in (
        # What a row is of.
        Column("cluster", "cluster"),
        Column("broker_name", "broker"),
        Column("broker_addr", "address"),
        Column("broker_id", "id", justify="right"),
        # Of a broker whose address changed: those it had before.
        Column("earlier_addrs", "previous addresses", _addrs_text, is_text=True),
        Column("server_id", "name server"),
        Column("scope", "what", lambda scope: str(scope).replace("_", " ")),
        Column("name", "name"),
        Column("what", "what"),
        at_column("at_ms", "at"),
        at_column("begin_ms", "from"),
        at_column("end_ms", "to"),
        duration_column("duration_ms", "for"),
        # How it was, and why.
        Column("state", "now"),
        Column("change", "change", is_text=True),
        Column("cause", "cause"),
        Column("down_cause", "last cause"),
        Column("detail", "detail", is_text=True, show_short=short_detail),
        Column("replaced_by", "replaced by"),
        # Of a broker that was unregistered and did not come back: it counts as available up to then.
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
        number_column("write_queues", "write queues"),
        number_column("read_queues", "read queues"),
    )
}
