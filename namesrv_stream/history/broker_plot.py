"""Pictures of brokers: when each was up and why it went, and how long it was not heard, against its timeout."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from matplotlib.figure import Figure

from namesrv_stream.errors import NotInHistory
from namesrv_stream.history.gap_series import GapSeries, gap_series
from namesrv_stream.history.instants import duration
from namesrv_stream.history.picture import (
    COLOUR_OF_CAUSE,
    LANE_IN,
    MOST_LANES,
    UP,
    WIDTH_IN,
    Bar,
    Lane,
    colour_of,
    days,
    draw_lanes,
    heading,
    legend,
    patches,
    save,
    time_axis,
)
from namesrv_stream.history.questions import Window
from namesrv_stream.history.sessions import Session, Sessions, by_broker
from namesrv_stream.route.lease import LeaseKey
from namesrv_stream.settings import Settings

_GAPS_IN: Final = 2.9
_FRAME_IN: Final = 1.1
_TIMEOUTS_SHOWN: Final = 2


def plot_brokers(sessions: Sessions, cluster: str | None, window: Window, path: Path) -> None:
    """Write swim lanes of all brokers, or of a cluster's.

    Raises:
        NotInHistory: There was none.
        ConfigError: The file cannot be written.
    """
    found = by_broker(sessions.between(window.since_ms, window.until_ms, cluster=cluster))
    if not found:
        raise NotInHistory("no broker was up in that time: there is nothing to draw")
    shown = _most_moved(found)
    figure = Figure(figsize=(WIDTH_IN, LANE_IN * len(shown) + _FRAME_IN), layout="constrained")
    axes = figure.add_subplot()
    _draw(axes, [s for key in shown for s in found[key]], window)
    what = "brokers" if cluster is None else f"brokers of {cluster}"
    heading(axes, f"{len(found)} {what}" if len(shown) == len(found) else f"{len(shown)} of {len(found)} {what}")
    save(figure, path)


def plot_broker(
    settings: Settings, sessions: Sessions, broker_name: str, default_timeout_ms: int, window: Window, path: Path
) -> None:
    """Write the swim lanes of a broker name's processes, and below them their heartbeat gaps.

    Args:
        settings: Ours.
        sessions: Opened.
        broker_name: Whose.
        default_timeout_ms: Of brokers that ask for none.
        window: The time.
        path: The file.

    Raises:
        NotInHistory: There was no such broker.
        ConfigError: The file cannot be written.
    """
    found = sessions.between(window.since_ms, window.until_ms, broker_name=broker_name)
    if not found:
        raise NotInHistory(f"broker {broker_name} was not up in that time: there is nothing to draw")
    series = gap_series(settings, broker_name, window.since_ms, window.until_ms)
    lanes_in = LANE_IN * len(by_broker(found)) + _FRAME_IN
    figure = Figure(figsize=(WIDTH_IN, lanes_in + _GAPS_IN), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[lanes_in, _GAPS_IN])
    _draw(upper, found, window, is_labelled=False)
    heading(upper, f"broker {broker_name}")
    _draw_gaps(lower, series, found, default_timeout_ms, window)
    save(figure, path)


def _draw(axes: Any, sessions: Sequence[Session], window: Window, *, is_labelled: bool = True) -> None:
    found = by_broker(sessions)
    is_one_cluster = len({key.live_key.cluster for key in found}) == 1
    lanes = [
        Lane(_label(key, own, with_cluster=not is_one_cluster), [_bar(s, window) for s in own])
        for key, own in found.items()
    ]
    draw_lanes(axes, lanes, window.since_ms, window.until_ms)
    time_axis(axes, window.since_ms, window.until_ms, is_labelled=is_labelled)
    causes = {s.down_cause for s in sessions if s.down_cause is not None}
    known = [str(cause) for cause in COLOUR_OF_CAUSE if cause in causes]
    entries = [*known, *sorted(causes - set(known))]
    legend(axes, patches([("still up", UP), *((f"ended: {cause}", colour_of(cause)) for cause in entries)]))


def _draw_gaps(
    axes: Any, series: Sequence[GapSeries], sessions: Sequence[Session], default_timeout_ms: int, window: Window
) -> None:
    handles = []
    timeouts = sorted({s.timeout_ms or default_timeout_ms for s in sessions})
    # An absence may be thousands of timeouts long: such a gap is a mark at the top, with its length.
    top_ms = timeouts[-1] * _TIMEOUTS_SHOWN
    for number, one in enumerate(series):
        times, seconds = _unjoined(one, top_ms)
        label = f"{one.broker_addr} at {one.server_id}"
        handles += axes.plot(times, seconds, color=f"C{number}", linewidth=1.0, marker=".", markersize=3, label=label)
        for at_ms, ms in zip(one.at_ms, one.longest_ms, strict=True):
            if ms > top_ms:
                axes.plot([days(at_ms)], [top_ms / 1000], color=f"C{number}", marker="^", markersize=6, clip_on=False)
                place = {"ha": "center", "va": "top", "xytext": (0, -6), "textcoords": "offset points"}
                axes.annotate(duration(ms), (days(at_ms), top_ms / 1000), fontsize=7, **place)
    for timeout_ms in timeouts:
        label = f"timeout {timeout_ms / 1000:g} s"
        handles.append(axes.axhline(timeout_ms / 1000, color="#c0392b", linestyle="--", linewidth=1.2, label=label))
    for session in sessions:
        if session.down_ms is not None:
            colour = colour_of(session.down_cause)
            axes.axvline(days(session.down_ms), color=colour, linewidth=1.0, alpha=0.7, zorder=0)
    time_axis(axes, window.since_ms, window.until_ms)
    heading(axes, "longest gap between heartbeats" if series else "no heartbeats are known of that time")
    axes.set_ylabel("seconds", fontsize=8)
    longest_ms = max((ms for one in series for ms in one.longest_ms), default=0)
    axes.set_ylim(0, min(top_ms, max(timeouts[-1], longest_ms) * 1.15) / 1000)
    axes.grid(axis="y", color="#e4e4e0", linewidth=0.6)
    legend(axes, handles)


def _unjoined(series: GapSeries, top_ms: int) -> tuple[list[float], list[float]]:
    """Points with a hole wherever the broker was not heard for more than a point: no line leads over it."""
    times: list[float] = []
    seconds: list[float] = []
    for before_ms, at_ms, ms in zip([None, *series.at_ms], series.at_ms, series.longest_ms, strict=False):
        if ms > top_ms or (before_ms is not None and at_ms - before_ms > series.step_ms * 1.5):
            times.append(days(at_ms))
            seconds.append(math.nan)
        if ms <= top_ms:
            times.append(days(at_ms))
            seconds.append(ms / 1000)
    return times, seconds


def _bar(session: Session, window: Window) -> Bar:
    end_ms = window.until_ms if session.down_ms is None else session.down_ms
    return Bar(session.up_ms, end_ms, colour_of(session.down_cause), has_end=session.down_ms is not None)


def _label(key: LeaseKey, sessions: Sequence[Session], *, with_cluster: bool) -> str:
    broker_id = sessions[-1].broker_id
    cluster = f"{key.live_key.cluster}  " if with_cluster else ""
    return f"{cluster}{key.broker_name}  {key.live_key.broker_addr}" + ("" if broker_id is None else f"  [{broker_id}]")


def _most_moved(found: Any) -> list[LeaseKey]:
    """All where they have room, else those with the most sessions; by cluster, name and address."""
    kept = sorted(found, key=lambda key: (-len(found[key]), key))[:MOST_LANES]
    return sorted(kept, key=lambda key: (key.live_key.cluster, key.broker_name, key.live_key.broker_addr))
