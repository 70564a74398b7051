"""The report's charts: downtime, session ends, missed heartbeats, error budget, and tracks of clusters and brokers."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from namesrv_stream.history import drawing
from namesrv_stream.history.answer_tables import percent
from namesrv_stream.history.database import Row
from namesrv_stream.history.drawing import (
    Bar,
    Chart,
    Label,
    Line,
    Scale,
    Track,
    Tracks,
    cut,
    scale,
    time_labels,
    x_of,
)
from namesrv_stream.history.plots import broker_tracks
from namesrv_stream.history.report.figures import Figures

_MAX_TRACKS: Final = 25
_MAX_CURVES: Final = 5
#: The lowest shown budget. A budget that was exceeded many times would flatten the rest of the curve.
_LOWEST_BUDGET: Final = -3.0
_MISSED_COLOUR: Final = "#8c6d4f"
_MISSED_OBJECTIVE: Final = "#e67e22"
_MISSED_BY_FAR: Final = "#c0392b"
#: The smallest distance of two labels of an axis, percent.
_MIN_DISTANCE: Final = 9
#: Share of a segment's width, so that there is a gap between bars.
_BAR_WIDTH: Final = 0.86
_BUDGET_NAMES: Final = {"hour": "hourly budget", "day": "daily budget", "week": "weekly budget"}


def charts(figures: Figures) -> Mapping[str, Chart | Tracks]:
    """Return all charts of the page, by name."""
    segments, unit, window = figures.rows["segments"], figures.unit, figures.known.window
    down = [row for row in figures.rows["brokers"] if row["down_ms"]]
    return {
        "budget": _budget(figures),
        "down": _stacked(
            figures, f"down time per {unit}", [row["down_by_cause_ms"] for row in segments], is_duration=True
        ),
        "ended": _stacked(figures, f"sessions that ended per {unit}", [row["ended_by_cause"] for row in segments]),
        "missed": _stacked(figures, f"missed heartbeats per {unit}", [{"": row["missed"] or 0} for row in segments]),
        "clusters": _cluster_tracks(figures),
        "brokers": broker_tracks(down[:_MAX_TRACKS], figures.rows["outages"], window),
    }


def _stacked(
    figures: Figures, title: str, values: Sequence[Mapping[str, float]], *, is_duration: bool = False
) -> Chart:
    """Return a chart of stacked bars by cause.

    Args:
        figures: The figures with their segments.
        title: Title of the chart.
        values: For each segment, cause → value.
        is_duration: Whether values are milliseconds of downtime, for which the chart also shows the error budget;
            otherwise counts.
    """
    window, segments = figures.known.window, figures.rows["segments"]
    totals = [sum(of.values()) for of in values]
    budgets = [row["budget_ms"] for row in segments] if is_duration else []
    axis = scale(max([*totals, *budgets]), is_duration=is_duration)
    causes = drawing.in_order(cause for of in values for cause, value in of.items() if value)
    bars = [bar for row, of in zip(segments, values, strict=True) for bar in _pile(figures, row, causes, of, axis)]
    legend = [(cause, _colour(cause)) for cause in causes if cause]
    lines = []
    if is_duration:
        steps = [(x, row["budget_ms"]) for row in segments for x in _ends(figures, row)]
        lines = [Line([(x, 100 - axis.height(value)) for x, value in steps], drawing.TEXT, True)]
        legend.append((_BUDGET_NAMES[figures.unit], drawing.TEXT))
    peak = max(range(len(totals)), key=totals.__getitem__)
    summary = (
        f"{title}: most, {axis.text(totals[peak])}, at {_name(figures, segments[peak])}" if any(totals) else "none"
    )
    return Chart(title, summary, bars, lines, time_labels(window), axis.labels(), legend)


def _pile(figures: Figures, row: Row, causes: Iterable[str], of: Mapping[str, float], axis: Scale) -> Iterable[Bar]:
    """Yield one bar per cause in ``of`` (cause → value), stacked at the segment of ``row``."""
    x, end = _ends(figures, row)
    upper = 100.0
    for cause in causes:
        if value := of.get(cause, 0):
            upper -= axis.height(value)
            text = f"{_name(figures, row)}: {axis.text(value)} {cause}"
            yield Bar(x, upper, (end - x) * _BAR_WIDTH, axis.height(value), _colour(cause), text)


def _budget(figures: Figures) -> Chart:
    """Return the chart of the remaining error budget: of all brokers, and of the clusters with the least left."""
    window, segments, clusters = figures.known.window, figures.rows["segments"], figures.rows["clusters"]
    curves = {"all brokers": _left([row["down_ms"] for row in segments], figures.total)}
    if len(clusters) > 1:
        for row in sorted(clusters, key=lambda row: row["budget_left"] or 0)[: _MAX_CURVES - 1]:
            curves[row["cluster"]] = _left([of["down_by_cluster_ms"][row["cluster"]] for of in segments], row)
    lowest = min(0.0, *(value for curve in curves.values() for value in curve))
    low = max(lowest, _LOWEST_BUDGET)
    lines = [Line([(0, _height(0, low)), (100, _height(0, low))], drawing.TEXT, True)]
    ends = [0.0, *(x_of(window, row["end_ms"]) for row in segments)]
    legend = list(zip(map(cut, curves), (drawing.TEXT, *drawing.LINES), strict=False))
    for curve, (_, colour) in reversed(list(zip(curves.values(), legend, strict=True))):
        lines.append(Line([(x, _height(max(value, low), low)) for x, value in zip(ends, curve, strict=True)], colour))
    labels = [Label(_height(0, low), "0%")]
    for tick in {1.0, low} - {0.0}:
        if abs(_height(tick, low) - labels[0].at) >= _MIN_DISTANCE:
            below = "≤ " if tick == low != lowest else ""
            labels.append(Label(_height(tick, low), f"{below}{tick * 100:,.0f}%"))
    summary = f"error budget of all brokers: {curves['all brokers'][-1] * 100:,.0f}% left at the end"
    return Chart("error budget left", summary, [], lines, time_labels(window), labels, legend)


def _left(down_ms: Iterable[float], of: Row) -> list[float]:
    """Return the share of the error budget that is left at the start and after each segment; negative if overspent."""
    curve = [1.0]
    for ms in down_ms:
        curve.append(curve[-1] - ms / (of["budget_ms"] or 1))
    return curve


def _height(share: float, low: float) -> float:
    return (1 - share) / (1 - low) * 100


def _cluster_tracks(figures: Figures) -> Tracks:
    """Return a track for each cluster, with a bar per segment that shows whether it met the objective."""
    objective, segments = figures.request.objective, figures.rows["segments"]
    worst = sorted(figures.rows["clusters"], key=lambda row: 1 if row["availability"] is None else row["availability"])
    tracks = []
    for row in worst[:_MAX_TRACKS]:
        name = row["cluster"]
        shares = [of["clusters"][name] for of in segments]
        bars = [_heat(figures, of, share) for of, share in zip(segments, shares, strict=True) if share is not None]
        missed = sum(share is not None and share < objective for share in shares)
        note = "" if row["availability"] is None else percent(row["availability"])
        tracks.append(Track(cut(name), note, cut(f"{name}: {missed} of {len(segments)} below the objective"), bars))
    legend = [
        (f"met {figures.request.objective_text}", drawing.UP),
        ("missed it", _MISSED_OBJECTIVE),
        ("used more than ten times its budget", _MISSED_BY_FAR),
    ]
    title = f"clusters, {figures.unit} by {figures.unit}"
    return Tracks(title, tracks, time_labels(figures.known.window), legend)


def _heat(figures: Figures, row: Row, share: float) -> Bar:
    """Return the bar of a segment, in a colour that shows its availability."""
    x, end = _ends(figures, row)
    objective = figures.request.objective
    is_far = 1 - share > 10 * (1 - objective)
    colour = drawing.UP if share >= objective else _MISSED_BY_FAR if is_far else _MISSED_OBJECTIVE
    return Bar(x, 0, (end - x) * _BAR_WIDTH, 100, colour, f"{_name(figures, row)}: {percent(share)}")


def _colour(cause: str) -> str:
    return drawing.colour_of(cause) if cause else _MISSED_COLOUR


def _ends(figures: Figures, row: Row) -> tuple[float, float]:
    """Return the x coordinates of start and end of a segment."""
    return x_of(figures.known.window, row["begin_ms"]), x_of(figures.known.window, row["end_ms"])


def _name(figures: Figures, row: Row) -> str:
    """Return the name of a segment (an hour, day or week), for people."""
    at = datetime.fromtimestamp(row["begin_ms"] / 1000, UTC)
    return at.strftime("%Y-%m-%d %H:%M" if figures.unit == "hour" else "%Y-%m-%d")
