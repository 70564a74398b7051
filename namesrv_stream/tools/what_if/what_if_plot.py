"""The silences of live brokers and the timeouts, as a plot."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from namesrv_stream.history import drawing
from namesrv_stream.history.drawing import Bar, Chart, Label, Line, cut, write_plot
from namesrv_stream.text_table import counted
from namesrv_stream.tools.what_if.gaps import STEP_MS
from namesrv_stream.tools.what_if.what_if_report import ClusterReport

_BINS: Final = 80
_BAR_COLOUR: Final = "#4a79b8"
_SECONDS: Final = [step * 10**power for power in range(-1, 6) for step in (1, 2, 5)]
_COUNTS: Final = [10**power for power in range(13)]


def write_timeout_plot(reports: Sequence[ClusterReport], path: Path) -> None:
    """Write a page with a chart for each cluster: a histogram of silences, and the timeouts.

    Raises:
        ConfigError: The file cannot be written.
    """
    write_plot(path, "silences of live brokers, seconds of observed time", [_chart(report) for report in reports])


def _chart(report: ClusterReport) -> Chart:
    # Logarithmic axes show both the many heartbeats and a single silence of an hour.
    seconds = {max(steps, 1) * STEP_MS / 1000: count for steps, count in report.gaps.counts.items()}
    runs = [(run, run.timeout_ms / 1000) for run in report.runs if run.timeout_ms is not None]
    suggested_s = None if report.suggestion.timeout_ms is None else report.suggestion.timeout_ms / 1000
    marks = [*(value_s for _, value_s in runs), *([suggested_s] if suggested_s else [])]
    first, last = min([1.0, *seconds]) / 1.5, max([10.0, *seconds, *marks]) * 1.5
    counts: Counter[int] = Counter()
    for value_s, count in seconds.items():
        counts[math.floor(_share(value_s, first, last) * _BINS)] += count
    top = 2 * max(counts.values(), default=1)
    bars = [_bar(number, count, first, last, top) for number, count in sorted(counts.items())]
    lines, legend = [], []
    for number, (run, value_s) in enumerate(runs):
        colour = drawing.LINES[number % len(drawing.LINES)]
        lines.append(_upright(_share(value_s, first, last) * 100, colour))
        legend.append((f"{value_s:g} s: {run.false} false, {run.unclear} unclear, {run.real} real", colour))
    if suggested_s:
        lines.append(_upright(_share(suggested_s, first, last) * 100, drawing.TEXT, is_dashed=True))
        legend.append((f"{suggested_s:g} s suggested", drawing.TEXT))
    title = cut(f"cluster {report.cluster}: {counted(report.brokers, 'broker')}")
    x_labels = _labels([s for s in _SECONDS if first <= s <= last], lambda s: _share(s, first, last) * 100)
    y_labels = _labels([0, *(n for n in _COUNTS if n <= top)], lambda n: 100 - _height(n, top))
    return Chart(title, title, bars, lines, x_labels, y_labels, legend)


def _bar(number: int, count: int, first: float, last: float, top: int) -> Bar:
    """Return the bar of one bin of the axis, which reaches from ``first`` to ``last``, in seconds."""
    begin_s, end_s = (first * (last / first) ** (n / _BINS) for n in (number, number + 1))
    height = _height(count, top)
    text = f"{begin_s:.3g} to {end_s:.3g} s: {count:,}"
    return Bar(number * 100 / _BINS, 100 - height, 100 / _BINS, height, _BAR_COLOUR, text)


def _upright(x: float, colour: str, *, is_dashed: bool = False) -> Line:
    return Line([(x, 0), (x, 100)], colour, is_dashed)


def _share(value_s: float, first: float, last: float) -> float:
    """Return the position of a duration on the logarithmic axis from ``first`` to ``last``, from 0 to 1."""
    return math.log(value_s / first) / math.log(last / first)


def _height(count: float, top: float) -> float:
    """Return the height of a bar in percent, on a logarithmic scale that is defined for zero."""
    return math.log1p(count) / math.log1p(top) * 100


def _labels(values: Sequence[float], place: Callable[[float], float]) -> list[Label]:
    return [Label(place(value), f"{value:,g}", is_minor=number % 3 != 0) for number, value in enumerate(values)]
