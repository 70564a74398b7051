"""Tables of the report on availability: of all brokers, by cluster, by broker, by cause."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from namesrv_stream.history.answer import Column, Section, at_column, duration_column, number_column
from namesrv_stream.history.report.clusters import ClusterFigures
from namesrv_stream.history.report.delays import spread
from namesrv_stream.history.report.figures import Figures
from namesrv_stream.history.report.missed import HeardOf
from namesrv_stream.history.report.objective import Objective
from namesrv_stream.history.sections import EARLIER_ADDRS, FOR_GOOD, broker_values, optional, percent
from namesrv_stream.instants import duration
from namesrv_stream.route.lease import LeaseKey

_CLUSTER: Final = Column("cluster", "cluster")
_DOWN: Final = duration_column("down_ms", "down")
_MET: Final = Column("met", "met", is_for_scripts=True)
_OF_TIME: Final = (
    number_column("availability", "available", percent),
    number_column("budget_left", "budget left", lambda share: f"{share * 100:,.0f}%"),
    _DOWN,
    optional(number_column("interruptions", "interruptions")),
    optional(number_column("failures", "unannounced")),
    optional(duration_column("mttr_ms", "MTTR")),
    optional(duration_column("mtbf_ms", "MTBF")),
)
#: Of several brokers together.
_TOGETHER: Final = (
    number_column("brokers", "brokers"),
    number_column("up", "up now"),
    *_OF_TIME,
    _MET,
    Column("known_ms", "", is_for_scripts=True),
    Column("budget_left_ms", "", is_for_scripts=True),
)


def summary_section(figures: Figures) -> Section:
    """One row of all brokers."""
    heard = figures.known_heartbeats
    row = {
        "objective": figures.asked.objective.share,
        **_together(figures.total, figures.asked.objective),
        "sessions_ended": sum(e.count for e in figures.endings),
        "flapped": sum(f.has_flapped for f in figures.flapping.values()),
        "heartbeats": sum(h.heartbeats for h in heard.of) if heard else None,
        "missed": sum(h.missed for h in heard.of) if heard else None,
        "heartbeats_from_ms": heard.begin_ms if heard else None,
        "heartbeats_to_ms": heard.end_ms if heard else None,
    }
    columns = (
        *(number_column("objective", "objective", percent), *_TOGETHER),
        *(Column("sessions_ended", "", is_for_scripts=True), optional(number_column("flapped", "flapped"))),
        *(number_column("heartbeats", "heartbeats"), number_column("missed", "missed")),
        *(at_column("heartbeats_from_ms", "heartbeats from", is_for_scripts=True),),
        *(at_column("heartbeats_to_ms", "heartbeats to", is_for_scripts=True),),
    )
    return Section("summary", "all brokers", columns, [row], lambda row: not row["met"])


def clusters_section(figures: Figures) -> Section:
    """A row a cluster, that with the least availability first."""
    rows = [
        {"cluster": c.cluster, **_together(c, figures.asked.objective), "dark_ms": c.dark_ms} for c in figures.clusters
    ]
    columns = (_CLUSTER, *_TOGETHER, number_column("dark_ms", "no broker up", lambda ms: duration(ms) if ms else "0"))
    rows.sort(key=lambda row: 1.0 if row["availability"] is None else row["availability"])
    return Section("clusters", "clusters", columns, rows, lambda row: not row["met"])


def brokers_section(figures: Figures) -> Section:
    """A row a broker, that which was down longest first."""
    objective = figures.asked.objective
    missed = _missed_of(figures.heard.of if figures.heard else ())
    rows = [
        {
            **broker_values(a),
            "broker_id": a.broker_id,
            "state": "up" if a.is_up else "down",
            "for_good": a.has_left,
            "availability": a.share,
            "budget_left": objective.left_share(a.known_ms, a.up_ms),
            "met": objective.is_met(a.known_ms, a.up_ms),
            "down_ms": a.known_ms - a.up_ms,
            "interruptions": a.interruptions,
            "failures": a.failures,
            "mttr_ms": a.mttr_ms,
            "mtbf_ms": a.mtbf_ms,
            "missed": sum(missed.get(key, 0) for key in (a.key, *a.earlier_keys)) if figures.known_heartbeats else None,
            "down_cause": a.down_cause,
        }
        for a in figures.brokers
    ]
    columns = (
        *(optional(_CLUSTER), Column("broker_name", "broker"), Column("broker_addr", "address")),
        *(optional(Column("broker_id", "id", justify="right")), Column("state", "now"), FOR_GOOD, *_OF_TIME, _MET),
        *(optional(number_column("missed", "missed heartbeats")), optional(Column("down_cause", "went last by"))),
        EARLIER_ADDRS,
    )
    return Section("brokers", "brokers by how long they were down", columns, rows, lambda row: not row["met"])


def endings_section(figures: Figures) -> Section:
    """A row a cause."""
    all_ms = sum(e.down_ms for e in figures.endings)
    rows = []
    for one in figures.endings:
        returns, silences = spread(one.returns_ms), spread(one.silences_ms)
        rows.append(
            {
                "cause": one.cause,
                "count": one.count,
                "brokers": one.brokers,
                "down_ms": one.down_ms,
                "down_share": one.down_ms / all_ms if all_ms else None,
                "returns": returns.count,
                "return_mean_ms": returns.mean_ms,
                "return_p95_ms": returns.p95_ms,
                "silence_p50_ms": silences.p50_ms,
                "silence_max_ms": silences.max_ms,
            }
        )
    columns = (
        *(Column("cause", "cause"), number_column("count", "sessions ended"), number_column("brokers", "brokers")),
        *(_DOWN, number_column("down_share", "of all down time", lambda share: f"{share * 100:.1f}%")),
        *(number_column("returns", "came back"), optional(duration_column("return_mean_ms", "after (mean)"))),
        optional(duration_column("return_p95_ms", "after (p95)")),
        optional(duration_column("silence_p50_ms", "silent before (median)")),
        optional(duration_column("silence_max_ms", "silent before (longest)")),
    )
    return Section("endings", "why brokers went", columns, rows)


def _together(figures: ClusterFigures, objective: Objective) -> dict[str, Any]:
    return {
        "brokers": figures.brokers,
        "up": figures.up,
        "availability": figures.share,
        "budget_left": objective.left_share(figures.known_ms, figures.up_ms),
        "budget_left_ms": objective.left_ms(figures.known_ms, figures.up_ms),
        "met": objective.is_met(figures.known_ms, figures.up_ms),
        "known_ms": figures.known_ms,
        "down_ms": figures.known_ms - figures.up_ms,
        "interruptions": figures.interruptions,
        "failures": figures.failures,
        "mttr_ms": figures.mttr_ms,
        "mtbf_ms": figures.mtbf_ms,
    }


def _missed_of(heard: Iterable[HeardOf]) -> Mapping[LeaseKey, int]:
    found: dict[LeaseKey, int] = {}
    for one in heard:
        found[one.key] = found.get(one.key, 0) + one.missed
    return found
