"""Tables of the report on heartbeats and delays."""

from typing import Any

from namesrv_stream.history.answer import Column, Section, duration_column, number_column
from namesrv_stream.history.report.delays import Spread, spread
from namesrv_stream.history.report.figures import Figures
from namesrv_stream.history.report.missed import HeardOf
from namesrv_stream.history.sections import key_values, optional


def missed_section(figures: Figures) -> Section:
    """A row a broker at a server that missed any, the worst first."""
    of = [h for h in figures.heard.of if h.missed] if figures.heard else []
    rows = [
        {
            **key_values(h.key),
            "server_id": h.server_id,
            "missed": h.missed,
            "missed_share": h.missed / (h.missed + h.heartbeats),
            "silences": h.silences,
            "longest_ms": h.longest_ms,
            "usual_ms": h.usual_ms,
            "heartbeats": h.heartbeats,
        }
        for h in sorted(of, key=lambda h: (-h.missed, h.key, h.server_id))
    ]
    columns = (
        *(optional(Column("cluster", "cluster")), Column("broker_name", "broker"), Column("broker_addr", "address")),
        *(Column("server_id", "name server"), number_column("missed", "missed")),
        *(number_column("missed_share", "of all", _small_share), number_column("silences", "silences")),
        *(optional(duration_column("longest_ms", "longest")), optional(duration_column("usual_ms", "usual gap"))),
        optional(number_column("heartbeats", "heard")),
    )
    return Section("missed", "missed heartbeats", columns, rows)


def servers_section(figures: Figures) -> Section:
    """A row a name server: where all brokers miss at one, it is that one."""
    newest = {key: a.key for a in figures.brokers for key in (a.key, *a.earlier_keys)}
    by_server: dict[str, list[HeardOf]] = {}
    for one in figures.heard.of if figures.heard else ():
        by_server.setdefault(one.server_id, []).append(one)
    rows = [
        {
            "server_id": server_id,
            "brokers": len({newest.get(h.key, h.key) for h in of}),
            "heartbeats": sum(h.heartbeats for h in of),
            "missed": (missed := sum(h.missed for h in of)),
            "missed_share": missed / (missed + sum(h.heartbeats for h in of)),
            "missing_brokers": len({newest.get(h.key, h.key) for h in of if h.missed}),
        }
        for server_id, of in sorted(by_server.items())
    ]
    columns = (
        *(
            Column("server_id", "name server"),
            number_column("brokers", "brokers"),
            number_column("heartbeats", "heard"),
        ),
        *(number_column("missed", "missed"), number_column("missed_share", "of all", _small_share)),
        number_column("missing_brokers", "brokers that missed any"),
    )
    return Section("servers", "missed heartbeats by name server", columns, rows)


def delays_section(figures: Figures) -> Section:
    """A row a kind of delay."""
    silences = [ms for e in figures.endings for ms in e.silences_ms]
    rows = [
        _delay("expiry", "from due to expired", spread(figures.expiry_delays_ms)),
        _delay("silence", "from last heard to gone", spread(silences)),
        _delay("commit", "from record to table", spread(figures.commit_delays_ms)),
    ]
    columns = (
        *(Column("delay", "delay", is_for_scripts=True), Column("what", "delay"), number_column("count", "measured")),
        *(duration_column("p50_ms", "median"), duration_column("p95_ms", "p95"), duration_column("p99_ms", "p99")),
        *(duration_column("max_ms", "longest"), duration_column("mean_ms", "mean")),
    )
    return Section("delays", "propagation delay", columns, rows)


def _delay(name: str, what: str, of: Spread) -> dict[str, Any]:
    return {
        "delay": name,
        "what": what,
        "count": of.count,
        "mean_ms": of.mean_ms,
        "p50_ms": of.p50_ms,
        "p95_ms": of.p95_ms,
        "p99_ms": of.p99_ms,
        "max_ms": of.max_ms,
    }


def _small_share(share: float) -> str:
    return f"{share * 100:.3f}%"
