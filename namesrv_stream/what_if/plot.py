"""The silences of live brokers against the timeouts, as a picture."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from namesrv_stream.errors import ConfigError
from namesrv_stream.what_if.gaps import STEP_MS
from namesrv_stream.what_if.report import ClusterReport

_WIDTH_IN, _HEIGHT_IN = 11.0, 3.2  # of one cluster
_BINS = 60


def plot(reports: Sequence[ClusterReport], path: Path) -> None:
    """Write a PNG with a panel for each cluster: how many silences were how long, and where the timeouts stand.

    Raises:
        ConfigError: The file cannot be written.
    """
    # Not pyplot's: no display, no global state.
    figure = Figure(figsize=(_WIDTH_IN, _HEIGHT_IN * max(1, len(reports))), layout="constrained")
    for number, report in enumerate(reports, 1):
        axes = figure.add_subplot(len(reports), 1, number)
        seconds = [steps * STEP_MS / 1000 for steps in report.gaps.counts]
        axes.hist(seconds or [0], bins=_BINS, weights=list(report.gaps.counts.values()) or [0], color="tab:blue")
        axes.set_yscale("symlog", linthresh=1)  # which has a place for none
        for run in report.runs:
            if run.timeout_ms is not None:
                label = f"{run.timeout_ms / 1000:g} s: {run.false} false, {run.unclear} unclear, {run.real} real"
                axes.axvline(run.timeout_ms / 1000, color=f"C{report.runs.index(run)}", label=label)
        if report.suggestion.timeout_ms is not None:
            value_s = report.suggestion.timeout_ms / 1000
            axes.axvline(value_s, color="black", linestyle="--", label=f"{value_s:g} s suggested")
        axes.set_title(f"cluster {report.cluster}: {report.brokers} brokers", parse_math=False)
        axes.set_xlabel("silence of a live broker, seconds of observed time")
        axes.set_ylabel("silences")
        axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.01, 1.0))
    try:
        figure.savefig(path, format="png")
    except OSError as error:
        raise ConfigError("command line", "--plot", f"{path} cannot be written: {error.strerror}") from None
