"""The page's charts over time: down time, endings, missed heartbeats, and how the error budget went."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from namesrv_stream.history.cause_colours import colour_of
from namesrv_stream.history.report.buckets import Buckets
from namesrv_stream.history.report.by_piece import Piece
from namesrv_stream.history.report.figures import Figures
from namesrv_stream.history.report.shapes import (
    TEXT_COLOUR,
    Bar,
    Chart,
    Label,
    Line,
    in_order,
    piece_name,
    place_of,
    time_labels,
    x_of,
)
from namesrv_stream.instants import duration

_MOST_LINES: Final = 5
#: A budget that was used many times over would flatten all that happened before.
_LOWEST_BUDGET: Final = -3.0
_MISSED_COLOUR: Final = "#8c6d4f"
_DAY_MS: Final = 86_400_000
_UNITS: Final = ((_DAY_MS, "d"), (3_600_000, "h"), (60_000, "min"))
#: Round, and so are their halves.
_DURATIONS_MS: Final = (
    *(2_000, 10_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_200_000, 1_800_000, 3_600_000, 7_200_000),
    *(h * 3_600_000 for h in (4, 6, 8, 12, 16)),
    *(n * step * _DAY_MS for n in (1, 10, 100, 1_000) for step in (1, 2, 3, 4, 6, 8)),
)
#: Labels of an axis that are nearer to each other, in per cent, would cover each other.
_LEAST_BETWEEN: Final = 9
_LINE_COLOURS: Final = ("#c0392b", "#4a79b8", "#e67e22", "#8e44ad")


@dataclass(frozen=True, slots=True)
class Show:
    """How values of a chart are told, and in which steps they are counted."""

    is_duration: bool = False

    def text(self, value: float) -> str:
        return duration(value) if self.is_duration else f"{value:,.0f}"

    def axis_text(self, value: float) -> str:
        """The same for an axis, where there is little room; of round values."""
        if not self.is_duration:
            return f"{value:,.0f}"
        unit_ms, unit = next((u for u in _UNITS if value >= u[0]), (1_000, "s"))
        return f"{value / unit_ms:,.3g} {unit}"


def stacked(
    title: str,
    pieces: Sequence[Piece],
    buckets: Buckets,
    values: Sequence[Mapping[str, float]],
    show: Show,
    limit: tuple[str, Sequence[float]] | None = None,
) -> Chart:
    """Bars by cause, one upon the other.

    Args:
        title: Of the chart.
        pieces: By time.
        buckets: The same.
        values: Of each piece, cause → value.
        show: A value, for people.
        limit: Name and values of a line that the bars are held against.
    """
    totals = [sum(of.values()) for of in values]
    top = _top(max([*totals, *(limit[1] if limit else ())], default=0), show)
    causes = in_order({cause for of in values for cause, value in of.items() if value})
    bars = []
    for number, of in enumerate(values):
        x, width = place_of(buckets, number)
        upper = 100.0
        for cause in causes:
            if value := of.get(cause, 0):
                height = value / top * 100
                upper -= height
                text = f"{piece_name(buckets, number)}: {show.text(value)} {cause}"
                bars.append(Bar(x, upper, width, height, _colour(cause), text))
    lines = []
    legend = [(cause, _colour(cause)) for cause in causes if cause]
    if limit:
        lines = [Line([(at, 100 - value / top * 100) for at, value in _steps(buckets, limit[1])], TEXT_COLOUR, True)]
        legend.append((limit[0], TEXT_COLOUR))
    most = max(range(len(totals)), key=totals.__getitem__)
    summary = f"{title}: most, {show.text(totals[most])}, at {piece_name(buckets, most)}" if any(totals) else "none"
    return Chart(title, summary, bars, lines, time_labels(buckets), _value_labels(top, show), legend)


def budget_chart(figures: Figures, pieces: Sequence[Piece]) -> Chart:
    """How the error budget of the whole time went: of all brokers, and of the clusters with the least left."""
    objective = figures.asked.objective
    worst = sorted(figures.clusters, key=lambda c: objective.left_share(c.known_ms, c.up_ms) or 0)[: _MOST_LINES - 1]
    named = {c.cluster or "": c.known_ms for c in worst} if len(figures.clusters) > 1 else {}
    curves = {"all brokers": _left(pieces, [sum(p.down_ms.values()) for p in pieces], figures.total.known_ms, figures)}
    down = _down_of_clusters(figures)
    for name, known_ms in named.items():
        curves[name] = _left(pieces, down[name], known_ms, figures)
    lowest = min(0.0, *(value for curve in curves.values() for value in curve))
    low = max(lowest, _LOWEST_BUDGET)
    lines = [Line([(0, _height(0, low)), (100, _height(0, low))], TEXT_COLOUR, True)]
    legend: list[tuple[str, str]] = []
    colours = [TEXT_COLOUR, *_LINE_COLOURS]
    for (name, curve), colour in reversed(list(zip(curves.items(), colours, strict=False))):
        ends = [x_of(figures.pieces, at_ms) for at_ms in figures.pieces.bounds_ms]
        lines.append(Line([(x, _height(max(value, low), low)) for x, value in zip(ends, curve, strict=True)], colour))
        legend.insert(0, (name, colour))
    labels = [Label(_height(0, low), "0%")]
    for tick in {1.0, low} - {0.0}:
        if abs(_height(tick, low) - labels[0].at) >= _LEAST_BETWEEN:
            below = "≤ " if tick == low != lowest else ""
            labels.append(Label(_height(tick, low), f"{below}{tick * 100:,.0f}%"))
    left = curves["all brokers"][-1]
    summary = f"error budget of all brokers: {left * 100:,.0f}% left at the end"
    return Chart("error budget left", summary, [], lines, time_labels(figures.pieces), labels, legend)


def _colour(cause: str) -> str:
    return colour_of(cause) if cause else _MISSED_COLOUR


def _left(pieces: Sequence[Piece], down_ms: Sequence[float], known_ms: int, figures: Figures) -> list[float]:
    budget_ms = figures.asked.objective.budget_ms(known_ms) or 1
    curve, taken = [1.0], 0.0
    for ms in down_ms:
        taken += ms
        curve.append(1 - taken / budget_ms)
    return curve


def _down_of_clusters(figures: Figures) -> Mapping[str, Sequence[float]]:
    down: dict[str, list[float]] = {c.cluster or "": [0.0] * len(figures.pieces) for c in figures.clusters}
    for absence in figures.absences:
        for number, ms in figures.pieces.parts(absence.begin_ms, absence.end_ms):
            down[absence.cluster][number] += ms
    return down


def _height(share: float, low: float) -> float:
    return (1 - share) / (1 - low) * 100


def _steps(buckets: Buckets, values: Sequence[float]) -> Iterable[tuple[float, float]]:
    for number, value in enumerate(values):
        yield x_of(buckets, buckets.bounds_ms[number]), value
        yield x_of(buckets, buckets.bounds_ms[number + 1]), value


def _top(value: float, show: Show) -> float:
    """A round number at or above the highest value, and round when halved."""
    steps = _DURATIONS_MS if show.is_duration else (2 * 10.0**n * step for n in range(12) for step in (1, 2, 3, 5))
    return next((float(step) for step in sorted(steps) if step >= value), value)


def _value_labels(top: float, show: Show) -> list[Label]:
    return [Label(0, show.axis_text(top)), Label(50, show.axis_text(top / 2)), Label(100, "0")]
