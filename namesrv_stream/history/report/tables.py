"""The figures as rows and columns: the same for the page, for JSON and for the terminal."""

from collections.abc import Sequence
from dataclasses import replace

from namesrv_stream.history.answer import Answer, Column, Section, at_column, duration_column, number_column
from namesrv_stream.history.report.availability_tables import (
    brokers_section,
    clusters_section,
    endings_section,
    summary_section,
)
from namesrv_stream.history.report.by_piece import Piece
from namesrv_stream.history.report.figures import Figures
from namesrv_stream.history.report.heartbeat_tables import delays_section, missed_section, servers_section
from namesrv_stream.history.sections import counts_text, flaps_section, optional, outages_section, percent
from namesrv_stream.history.window import Window


def answer_of(figures: Figures, pieces: Sequence[Piece], notes: Sequence[str] = ()) -> Answer:
    """All tables, with all rows.

    Args:
        figures: What they say.
        pieces: The same, piece by piece.
        notes: What else people should know.
    """
    sections = (
        summary_section(figures),
        clusters_section(figures),
        brokers_section(figures),
        endings_section(figures),
        outages_section(figures.outages, Window(figures.asked.since_ms, figures.until_ms)),
        _flaps_section(figures),
        missed_section(figures),
        servers_section(figures),
        delays_section(figures),
        pieces_section(figures, pieces),
        unknown_section(figures),
    )
    heard = figures.known_heartbeats
    return Answer(
        figures.asked.since_ms,
        figures.until_ms,
        sections,
        figures.extent,
        notes=notes,
        counted_to_ms=heard.end_ms if heard else None,
    )


def pieces_section(figures: Figures, pieces: Sequence[Piece]) -> Section:
    """A row an hour, day or week."""
    rows = [
        {
            "begin_ms": p.begin_ms,
            "end_ms": p.end_ms,
            "availability": p.share,
            "down_ms": sum(p.down_ms.values()),
            "down_by_cause_ms": dict(p.down_ms),
            "ended": sum(p.ended.values()),
            "ended_by_cause": dict(p.ended),
            "heartbeats": p.heartbeats if _is_heard(figures, p) else None,
            "missed": p.missed if _is_heard(figures, p) else None,
            "clusters": dict(p.shares),
        }
        for p in pieces
    ]
    columns = (
        *(at_column("begin_ms", "from"), at_column("end_ms", "to", is_for_scripts=True)),
        *(number_column("availability", "available", percent), duration_column("down_ms", "down")),
        *(Column("down_by_cause_ms", "", is_for_scripts=True), number_column("ended", "sessions ended")),
        *(
            Column("ended_by_cause", "by cause", counts_text, is_text=True),
            Column("heartbeats", "", is_for_scripts=True),
            number_column("missed", "missed heartbeats"),
            Column("clusters", "", is_for_scripts=True),
        ),
    )
    return Section("pieces", f"{figures.pieces.unit} by {figures.pieces.unit}", columns, rows)


def _is_heard(figures: Figures, piece: Piece) -> bool:
    """Whether heartbeats of any part of it are known; of a part that is not, the last table says so."""
    heard = figures.known_heartbeats
    return heard is not None and piece.begin_ms < heard.end_ms and piece.end_ms > heard.begin_ms


def unknown_section(figures: Figures) -> Section:
    """A row a thing that is not known."""
    rows = [
        {
            "what": u.what,
            "begin_ms": u.begin_ms,
            "end_ms": u.end_ms,
            "duration_ms": u.length_ms,
            "meaning": u.meaning,
        }
        for u in figures.unknown
    ]
    columns = (
        *(Column("what", "what"), at_column("begin_ms", "from"), at_column("end_ms", "to")),
        *(optional(duration_column("duration_ms", "for")), Column("meaning", "meaning", is_text=True)),
    )
    return Section("unknown", "what is not known", columns, rows)


def _flaps_section(figures: Figures) -> Section:
    """Of the brokers that flapped at any time; those that do so now stand out."""
    section = flaps_section(f for f in figures.flapping.values() if f.has_flapped)
    columns = [column for column in section.columns if column.key != "has_flapped"]
    return replace(section, columns=columns, emphasis=lambda row: bool(row["flapping"]))
