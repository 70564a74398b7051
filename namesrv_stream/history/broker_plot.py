"""Pictures of brokers: when each was up and why it went, and how long it was not heard, against its timeout."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from namesrv_stream.errors import NotInHistory
from namesrv_stream.history.cause_colours import UP, colour_of
from namesrv_stream.history.first_figures import no_figures_text
from namesrv_stream.history.gap_series import GapSeries, gap_series
from namesrv_stream.history.outages import Outage, Scope, broker_outages
from namesrv_stream.history.past import Past
from namesrv_stream.history.picture import (
    MOST_LANES,
    Bar,
    Lane,
    absence_patches,
    days,
    draw_lanes,
    heading,
    lanes_and_chart_figure,
    lanes_figure,
    legend,
    plain,
    save,
    shown_span,
    time_axis,
    up_patches,
)
from namesrv_stream.history.replicas import Replica, replicas
from namesrv_stream.history.sessions import Session, sessions_between
from namesrv_stream.history.window import Window
from namesrv_stream.instants import duration, instant
from namesrv_stream.plurals import counted
from namesrv_stream.settings import Settings

_GAPS_IN: Final = 2.9
_TIMEOUTS_SHOWN: Final = 2
_MOST_SERIES_NAMED: Final = 8


def plot_brokers(past: Past, cluster: str | None, window: Window, path: Path) -> None:
    """Write swim lanes of all brokers, or of a cluster's.

    Raises:
        NotInHistory: There was none.
        ConfigError: The file cannot be written.
    """
    found = _present(sessions_between(past, window.since_ms, window.until_ms, cluster=cluster), window)
    if not found:
        raise NotInHistory("no broker was up in that time: there is nothing to draw")
    shown = _most_moved(found, window)
    figure, axes = lanes_figure(len(shown))
    _draw(axes, shown, window)
    where = "" if cluster is None else f" of {plain(cluster)}"
    of = "" if len(shown) == len(found) else f"{len(shown)} of "
    heading(axes, f"{of}{counted(len(found), 'broker')}{where}")
    save(figure, path)


def plot_broker(
    past: Past, settings: Settings, broker_name: str, default_timeout_ms: int, window: Window, path: Path
) -> None:
    """Write the swim lanes of a broker name's replicas, and below them their heartbeat gaps.

    Args:
        past: Opened.
        settings: Ours.
        broker_name: Whose.
        default_timeout_ms: Of brokers that ask for none.
        window: The time.
        path: The file.

    Raises:
        NotInHistory: There was no such broker.
        ConfigError: The file cannot be written.
    """
    every = sessions_between(past, window.since_ms, window.until_ms, broker_name=broker_name)
    found = _present(every, window)
    if not found:
        raise NotInHistory(f"broker {broker_name} was not up in that time: there is nothing to draw")
    shown = _most_moved(found, window)
    figure, upper, lower = lanes_and_chart_figure(len(shown), _GAPS_IN)
    absences = _draw(upper, shown, window, is_labelled=False)
    heading(upper, f"broker {plain(broker_name)}")
    within = [session for replica in shown for session in replica.within(window.since_ms)]
    timeouts = sorted({s.timeout_ms or default_timeout_ms for s in within})
    series = gap_series(past, broker_name, window.since_ms, window.until_ms)
    _draw_gaps(lower, series, absences, timeouts, window)
    if series:
        counted_ms = min(window.until_ms, max(one.at_ms[-1] + one.step_ms for one in series))
        heading(lower, f"longest gap between heartbeats, counted to {instant(counted_ms)}")
    else:
        first_ms = max(window.since_ms, min(session.up_ms for session in within))
        heading(lower, no_figures_text(settings, first_ms, window.until_ms))
    save(figure, path)


def _present(sessions: Sequence[Session], window: Window) -> list[Replica]:
    """Those brokers that were up in the time."""
    return [replica for replica in replicas(sessions) if replica.within(window.since_ms)]


def _most_moved(found: Sequence[Replica], window: Window) -> list[Replica]:
    """All where they have room, else those with the most sessions; by cluster, name and address."""
    by_moves = sorted(found, key=lambda replica: (-len(replica.within(window.since_ms)), replica.key))
    kept = {replica.key for replica in by_moves[:MOST_LANES]}
    return [replica for replica in found if replica.key in kept]


def _draw(axes: Any, shown: Sequence[Replica], window: Window, *, is_labelled: bool = True) -> list[Outage]:
    """The lanes; returns the absences in them."""
    has_clusters = len({replica.key.live_key.cluster for replica in shown}) > 1
    lanes, absences = [], []
    for replica in shown:
        found = broker_outages(replica.sessions, window.since_ms, window.until_ms)
        of_broker = [outage for outage in found if outage.scope is Scope.BROKER]
        bars = [_bar_of_session(s, window) for s in replica.within(window.since_ms)]
        bars += [_bar_of_absence(outage, window) for outage in of_broker]
        lanes.append(Lane(_label(replica, window, with_cluster=has_clusters), bars))
        absences += of_broker
    draw_lanes(axes, lanes, window.since_ms, window.until_ms)
    time_axis(axes, window.since_ms, window.until_ms, is_labelled=is_labelled)
    legend(axes, [*up_patches(), *absence_patches(outage.cause for outage in absences)])
    return absences


def _bar_of_session(session: Session, window: Window) -> Bar:
    return Bar(session.up_ms, window.until_ms if session.down_ms is None else session.down_ms, UP)


def _bar_of_absence(outage: Outage, window: Window) -> Bar:
    end_ms = window.until_ms if outage.end_ms is None else outage.end_ms
    return Bar(outage.begin_ms, end_ms, colour_of(outage.cause), is_pale=outage.is_for_good)


def _label(replica: Replica, window: Window, *, with_cluster: bool) -> str:
    newest, earlier = replica.newest, len(replica.earlier_keys(window.since_ms))
    cluster = f"{plain(newest.cluster)}  " if with_cluster else ""
    broker_id = "" if newest.broker_id is None else f"  [{newest.broker_id}]"
    before = f"  (+{earlier} before)" if earlier else ""
    return f"{cluster}{plain(newest.broker_name)}  {plain(newest.broker_addr)}{broker_id}{before}"


def _draw_gaps(
    axes: Any, series: Sequence[GapSeries], absences: Sequence[Outage], timeouts: Sequence[int], window: Window
) -> None:
    """Gaps minute by minute, the timeouts as lines, and a shade where a process was away."""
    # An absence may be thousands of timeouts long: such a gap is a mark at the top, with its length.
    top_ms = timeouts[-1] * _TIMEOUTS_SHOWN
    has_servers = len({one.server_id for one in series}) > 1
    handles = []
    for number, one in enumerate(series):
        times, seconds = _plateaus(one, top_ms)
        label = f"gaps of {plain(one.broker_addr)}" + (f" at {plain(one.server_id)}" if has_servers else "")
        handles += axes.plot(times, seconds, color=f"C{number}", linewidth=1.4, label=label)
        _mark_long_gaps(axes, one, top_ms, f"C{number}")
    del handles[_MOST_SERIES_NAMED:]
    for timeout_ms in timeouts:
        label = f"timeout {timeout_ms / 1000:g} s"
        handles.append(axes.axhline(timeout_ms / 1000, color="#c0392b", linestyle="--", linewidth=1.2, label=label))
    for outage in absences:
        bar = _bar_of_absence(outage, window)
        begin_ms, length_ms = shown_span(bar.begin_ms, bar.end_ms, window.since_ms, window.until_ms)
        axes.axvspan(days(begin_ms), days(begin_ms + length_ms), color=bar.colour, alpha=0.25, linewidth=0, zorder=0)
    time_axis(axes, window.since_ms, window.until_ms)
    axes.set_ylabel("seconds", fontsize=8)
    longest_ms = max((ms for one in series for ms in one.longest_ms), default=0)
    axes.set_ylim(0, min(top_ms, max(timeouts[-1], longest_ms) * 1.15) / 1000)
    axes.grid(axis="y", color="#e4e4e0", linewidth=0.6)
    legend(axes, handles)


def _plateaus(series: GapSeries, top_ms: int) -> tuple[list[float], list[float]]:
    """A line that is level for each minute; with a hole where nothing was heard, and in place of too long gaps."""
    times: list[float] = []
    seconds: list[float] = []
    for at_ms, ms in zip(series.at_ms, series.longest_ms, strict=True):
        if times and times[-1] < days(at_ms):
            times.append(days(at_ms))
            seconds.append(math.nan)
        times += [days(at_ms), days(at_ms + series.step_ms)]
        seconds += [ms / 1000 if ms <= top_ms else math.nan] * 2
    return times, seconds


def _mark_long_gaps(axes: Any, series: GapSeries, top_ms: int, colour: str) -> None:
    place = {"ha": "center", "va": "top", "xytext": (0, -6), "textcoords": "offset points"}
    for at_ms, ms in zip(series.at_ms, series.longest_ms, strict=True):
        if ms > top_ms:
            middle = days(at_ms + series.step_ms / 2)
            axes.plot([middle], [top_ms / 1000], color=colour, marker="^", markersize=6, clip_on=False)
            axes.annotate(duration(ms), (middle, top_ms / 1000), fontsize=7, **place)
