"""The page's lanes: clusters by whether they met the objective, brokers by when they were up."""

from collections.abc import Sequence
from typing import Final

from namesrv_stream.history.cause_colours import UP, colour_of
from namesrv_stream.history.report.by_piece import Piece
from namesrv_stream.history.report.figures import Figures
from namesrv_stream.history.report.shapes import Bar, Lane, in_order, piece_name, place_of
from namesrv_stream.history.sections import percent
from namesrv_stream.instants import duration, instant
from namesrv_stream.route.lease import LeaseKey

#: Per cent of the width: what is shorter could not be seen.
_LEAST_WIDTH: Final = 0.15
_MISSED: Final = "#e67e22"
_MISSED_BY_FAR: Final = "#c0392b"


def cluster_lanes(figures: Figures, pieces: Sequence[Piece], most: int) -> list[Lane]:
    """Each cluster, piece by piece: whether it met the objective."""
    objective = figures.asked.objective.share
    lanes = []
    worst = sorted(figures.clusters, key=lambda c: 1.0 if c.share is None else c.share)
    for cluster in worst[:most]:
        name = cluster.cluster or ""
        bars = []
        for number, piece in enumerate(pieces):
            share = piece.shares[name]
            if share is not None:
                x, width = place_of(figures.pieces, number)
                text = f"{piece_name(figures.pieces, number)}: {percent(share)}"
                bars.append(Bar(x, 0, width, 100, _heat(share, objective), text))
        missed = sum(1 for p in pieces if (s := p.shares[name]) is not None and s < objective)
        summary = f"{missed} of {len(pieces)} below the objective"
        note = "" if cluster.share is None else percent(cluster.share)
        lanes.append(Lane(name, note, f"{name}: {summary}", bars))
    return lanes


def broker_lanes(figures: Figures, most: int) -> list[Lane]:
    """The brokers that were down longest: when they were up, and why not."""
    shown = [a for a in figures.brokers if a.known_ms > a.up_ms][:most]
    since_ms, span_ms = figures.asked.since_ms, figures.until_ms - figures.asked.since_ms
    gone: dict[LeaseKey, list[Bar]] = {}
    for absence in figures.absences:
        x = (absence.begin_ms - since_ms) / span_ms * 100
        width = max(absence.length_ms / span_ms * 100, _LEAST_WIDTH)
        text = f"{instant(absence.begin_ms)}: {absence.cause}, {duration(absence.length_ms)}"
        bar = Bar(min(x, 100 - width), 0, width, 100, colour_of(absence.cause), text)
        gone.setdefault(absence.broker, []).append(bar)
    lanes = []
    for one in shown:
        names = (one.key.live_key.cluster, one.key.broker_name, one.key.live_key.broker_addr)
        begin = (one.begin_ms - since_ms) / span_ms * 100
        known = Bar(begin, 0, one.known_ms / span_ms * 100, 100, UP)
        down = duration(one.known_ms - one.up_ms)
        summary = f"{names[1]} {names[2]}: down {down} in {one.interruptions} interruptions"
        label = " ".join(names[1:] if len(figures.clusters) == 1 else names)
        lanes.append(Lane(label, percent(one.share or 0), summary, [known, *gone.get(one.key, ())]))
    return lanes


def lane_legend(figures: Figures) -> list[tuple[str, str]]:
    """Of the brokers' lanes."""
    causes = in_order({a.cause for a in figures.absences})
    return [("up", UP), *((f"down: {cause}", colour_of(cause)) for cause in causes)]


def heat_legend(objective: str) -> list[tuple[str, str]]:
    """Of the clusters' lanes."""
    return [
        (f"met {objective}", UP),
        ("missed it", _MISSED),
        ("took ten times its budget", _MISSED_BY_FAR),
    ]


def _heat(share: float, objective: float) -> str:
    if share >= objective:
        return UP
    return _MISSED_BY_FAR if 1 - share > 10 * (1 - objective) else _MISSED
