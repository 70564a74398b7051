"""The silences of live brokers against the timeouts, as a picture."""

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from namesrv_stream.errors import ConfigError
from namesrv_stream.plurals import counted
from namesrv_stream.what_if.gaps import STEP_MS
from namesrv_stream.what_if.report import ClusterReport

_WIDTH_IN, _HEIGHT_IN = 11.0, 3.2  # of one cluster
_BINS = 80


def plot(reports: Sequence[ClusterReport], path: Path) -> None:
    """Write a PNG with a panel for each cluster: how many silences were how long, and where the timeouts stand.

    Raises:
        ConfigError: The file cannot be written.
    """
    # Not pyplot's: no display, no global state.
    figure = Figure(figsize=(_WIDTH_IN, _HEIGHT_IN * max(1, len(reports))), layout="constrained")
    for number, report in enumerate(reports, 1):
        _draw(figure.add_subplot(len(reports), 1, number), report)
    try:
        figure.savefig(path, format="png")
    except OSError as error:
        raise ConfigError("command line", "--plot", f"{path} cannot be written: {error.strerror}") from None


def _draw(axes: Axes, report: ClusterReport) -> None:
    # Both axes logarithmic: one silence of an hour must not squeeze the heartbeats into one bar, nor they hide it.
    seconds = [max(steps, 1) * STEP_MS / 1000 for steps in report.gaps.counts]
    marks = [ms / 1000 for ms in (r.timeout_ms for r in report.runs) if ms is not None]
    first, last = min([1.0, *seconds]) / 1.5, max([10.0, *seconds, *marks]) * 1.5
    step = math.log(last / first) / _BINS
    bins = [first * math.exp(step * number) for number in range(_BINS + 1)]
    axes.hist(seconds or [0], bins=bins, weights=list(report.gaps.counts.values()) or [0], color="C0")
    axes.set_xscale("log")
    axes.set_xlim(first, last)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_yscale("symlog", linthresh=1)  # which has a place for none
    axes.set_ylim(0, 2 * max(axes.get_ylim()[1], 1))
    for number, run in enumerate(report.runs):
        if run.timeout_ms is not None:
            label = f"{run.timeout_ms / 1000:g} s: {run.false} false, {run.unclear} unclear, {run.real} real"
            axes.axvline(run.timeout_ms / 1000, color=f"C{number}", label=label)
    if report.suggestion.timeout_ms is not None:
        value_s = report.suggestion.timeout_ms / 1000
        axes.axvline(value_s, color="black", linestyle="--", label=f"{value_s:g} s suggested")
    axes.set_title(f"cluster {report.cluster}: {counted(report.brokers, 'broker')}", parse_math=False)
    axes.set_xlabel("silence of a live broker, seconds of observed time")
    axes.set_ylabel("silences")
    axes.legend(title="timeout: expiries", fontsize="small", loc="upper left", bbox_to_anchor=(1.01, 1.0))
