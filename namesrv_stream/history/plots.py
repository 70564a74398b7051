"""The plots of ``history --plot``: availability of brokers, gaps between heartbeats, changes of a topic's route.

A track is one horizontal line of a plot, for example of a broker. The report shows the same tracks of brokers.
"""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby, pairwise
from pathlib import Path
from typing import Final

from namesrv_stream.history import drawing
from namesrv_stream.history.answer import Window, no_figures_text
from namesrv_stream.history.answer_tables import percent
from namesrv_stream.history.database import Past, Row
from namesrv_stream.history.drawing import (
    Bar,
    Chart,
    Line,
    Track,
    Tracks,
    cut,
    scale,
    span,
    time_labels,
    write_plot,
    x_of,
)
from namesrv_stream.history.past_route import queues_text
from namesrv_stream.instants import duration, instant
from namesrv_stream.route.changes import Cause
from namesrv_stream.route.model import PERM_READ, PERM_WRITE
from namesrv_stream.settings import Settings
from namesrv_stream.table_errors import NotInHistory
from namesrv_stream.text_table import counted

#: A plot with more tracks would be unreadable.
_MAX_TRACKS: Final = 60
_MAX_CURVES_NAMED: Final = 8
#: More points of a curve would not be visible.
_MAX_POINTS: Final = 1_500
_TIMEOUTS_SHOWN: Final = 2
_MINUTE_MS: Final = 60_000
_MARK_HEIGHT: Final = 7.0
_TIMEOUT: Final = "#c0392b"
_READ_QUEUES: Final = "#d4a72c"
_COLOUR_OF_PERM: Final = {
    PERM_READ | PERM_WRITE: ("read and write", "#4c9f70"),
    PERM_READ: ("read only", "#d4a72c"),
    PERM_WRITE: ("write only", "#5ba3a7"),
    0: ("neither", "#7f8c8d"),
}
_ARRIVALS: Final = (Cause.REGISTERED, Cause.RETURNED)


def plot_brokers(past: Past, cluster: str | None, window: Window, path: Path) -> None:
    """Write the tracks of all brokers, or of a cluster's brokers.

    ``set_period`` must have been called.

    Raises:
        NotInHistory: There was no broker.
        ConfigError: The file cannot be written.
    """
    tracks, count = _tracks(past, window)
    of = "" if len(tracks.tracks) == count else f"{len(tracks.tracks)} of "
    where = "" if cluster is None else f" of {cluster}"
    write_plot(path, f"{of}{counted(count, 'broker')}{where}", [tracks])


def plot_broker(past: Past, settings: Settings, broker_name: str, window: Window, path: Path) -> None:
    """Write the tracks of a broker name's replicas, and a chart of their heartbeat gaps.

    ``set_period`` must have been called.

    Raises:
        NotInHistory: There was no such broker.
        ConfigError: The file cannot be written.
    """
    tracks, _ = _tracks(past, window)
    default_ms = past.default_timeouts(settings, window)["timeout_ms"][-1].as_py()
    sessions = past.rows("period_sessions")
    timeouts = sorted({row["timeout_ms"] or default_ms for row in sessions})
    step_ms = _MINUTE_MS * max(1, (window.until_ms - window.since_ms) // _MINUTE_MS // _MAX_POINTS)
    gaps = past.rows("gaps", broker_name=broker_name, step_ms=step_ms, **asdict(window))
    if gaps:
        counted_ms = min(window.until_ms, max(row["at_ms"] for row in gaps) + step_ms)
        title = f"longest gap between heartbeats, counted to {instant(counted_ms)}"
    else:
        first_ms = max(window.since_ms, min(row["up_ms"] for row in sessions))
        title = no_figures_text(settings, first_ms, window.until_ms)
    absences = [bar for track in tracks.tracks for bar in track.bars if bar.colour != drawing.UP]
    shades = [Bar(bar.x, 0, bar.width, 100, bar.colour, is_pale=True) for bar in absences]
    write_plot(path, f"broker {broker_name}", [tracks, _gap_chart(title, gaps, shades, timeouts, window, step_ms)])


def plot_topic(past: Past, topic: str, window: Window, path: Path) -> None:
    """Write when each broker name was in the route of a topic, and the number of queues over time.

    ``set_topic`` must have been called.

    Raises:
        ConfigError: The file cannot be written.
    """
    intervals = past.rows("topic_intervals")
    changes = past.rows("topic_changes", since_ms=window.since_ms)
    by_name = groupby(intervals, key=lambda interval: interval["broker_name"])
    every = [_offer_track(name, list(of), window) for name, of in by_name]
    most_moved = sorted(every, key=lambda track: -len(track.bars))[:_MAX_TRACKS]
    tracks = [track for track in every if track in most_moved]
    some = "" if len(tracks) == len(every) else f"; {len(tracks)} of {len(every)} brokers"
    drawn = {bar.colour for track in tracks for bar in track.bars}
    causes = drawing.in_order(i["cause"] for i in intervals if i["queues"] is None)
    legend = [entry for entry in _COLOUR_OF_PERM.values() if entry[1] in drawn]
    legend += [(f"down: {cause}", drawing.colour_of(cause)) for cause in causes]
    title = f"route of {topic}: {len(changes) - 1} changes{some}"
    upper = Tracks("brokers in the route", tracks, time_labels(window), legend)
    write_plot(path, title, [upper, _queue_chart(changes, window)])


def _tracks(past: Past, window: Window) -> tuple[Tracks, int]:
    """Return tracks, and the number of all brokers. If there are many, only those with most interruptions are drawn.

    Raises:
        NotInHistory: There was no broker.
    """
    brokers = past.rows("brokers", objective=None)
    if not brokers:
        raise NotInHistory("no broker was up in that time: there is nothing to draw")
    most_moved = sorted(brokers, key=lambda row: -row["downs"])[:_MAX_TRACKS]
    shown = sorted(most_moved, key=lambda row: row["replica"])
    return broker_tracks(shown, past.rows("outages"), window), len(brokers)


def _gap_chart(
    title: str, gaps: Sequence[Row], shades: Sequence[Bar], timeouts: Sequence[int], window: Window, step_ms: int
) -> Chart:
    """Return a chart of heartbeat gaps, with lines for timeouts and shades for times when a broker was down."""
    # An outage may last thousands of timeouts. Such a gap becomes a mark at the top, with its length.
    highest_ms = timeouts[-1] * _TIMEOUTS_SHOWN
    within = [row["longest_ms"] for row in gaps if row["longest_ms"] <= highest_ms]
    axis = scale(max([*timeouts, *within]), is_duration=True)
    has_servers = len({row["server_id"] for row in gaps}) > 1
    names = list(dict.fromkeys((row["broker_addr"], row["server_id"]) for row in gaps))
    colour_of = {name: drawing.LINES[1 + n % (len(drawing.LINES) - 1)] for n, name in enumerate(names)}
    bars, lines = [*shades], []
    for row in gaps:
        colour = colour_of[row["broker_addr"], row["server_id"]]
        text = f"{instant(row['at_ms'])}: {duration(row['longest_ms'])}"
        mark = span(window, row["at_ms"], row["at_ms"] + step_ms, colour, text, height=_MARK_HEIGHT)
        if row["longest_ms"] > highest_ms:
            bars.append(mark)
        else:
            y = 100 - axis.height(row["longest_ms"])
            lines.append(Line([(mark.x, y), (mark.x + mark.width, y)], colour))
    legend = [
        (cut(f"gaps of {addr}" + (f" at {server_id}" if has_servers else "")), colour)
        for (addr, server_id), colour in list(colour_of.items())[:_MAX_CURVES_NAMED]
    ]
    for timeout_ms in timeouts:
        height = 100 - axis.height(timeout_ms)
        lines.append(Line([(0, height), (100, height)], _TIMEOUT, is_dashed=True))
        legend.append((f"timeout {timeout_ms / 1000:g} s", _TIMEOUT))
    return Chart(title, title, bars, lines, time_labels(window), axis.labels(), legend)


def _offer_track(name: str, intervals: Sequence[Row], window: Window) -> Track:
    """Return the track of a broker name: its queues, and when it was not in the route."""
    bars = []
    for i in intervals:
        queues, cause = i["queues"], i["cause"]
        if queues is not None:
            _, colour = _COLOUR_OF_PERM[queues["perm"] & (PERM_READ | PERM_WRITE)]
            bars.append(titled_span(window, i["begin_ms"], i["end_ms"], colour, queues_text(queues)))
        else:
            is_pale = i["end_ms"] is None and cause == Cause.UNREGISTERED
            colour = drawing.colour_of(cause)
            bars.append(titled_span(window, i["begin_ms"], i["end_ms"], colour, cause, is_pale=is_pale))
    last = intervals[-1]["queues"]
    return Track(cut(name), "" if last is None else queues_text(last), cut(name), bars)


def _queue_chart(moments: Sequence[Row], window: Window) -> Chart:
    """Return a chart of queues over time, with a mark at the top for each change, in the colour of its cause.

    Args:
        moments: Rows of ``topic_changes.sql``.
    """
    times = [*(row["at_ms"] for row in moments), window.until_ms]
    axis = scale(max(max(row["read_queues"], row["write_queues"]) for row in moments) or 1)
    lines = []
    for key, colour in (("read_queues", _READ_QUEUES), ("write_queues", drawing.UP)):
        steps = zip([row[key] for row in moments], pairwise(times), strict=True)
        lines.append(Line([(x_of(window, at), 100 - axis.height(n)) for n, ends in steps for at in ends], colour))
    changes = [(row["at_ms"], row["reason"]["cause"]) for row in moments[1:]]
    marks = [
        span(window, at_ms, at_ms, _colour_of_change(cause), f"{instant(at_ms)}: {cause}", height=_MARK_HEIGHT)
        for at_ms, cause in changes
    ]
    legend = [("read queues", _READ_QUEUES), ("write queues", drawing.UP)]
    legend += [(cause, _colour_of_change(cause)) for cause in sorted({cause for _, cause in changes})]
    title = "queues (marks at the top: changes of the route)"
    return Chart(title, title, marks, lines, time_labels(window), axis.labels(), legend)


def _colour_of_change(cause: str) -> str:
    """Return the colour of a change. Causes by which brokers go down have the same colour as in the tracks."""
    return drawing.colour_of(None if cause in _ARRIVALS else cause)


def broker_tracks(brokers: Sequence[Row], outages: Sequence[Row], window: Window) -> Tracks:
    """Return a track for each broker.

    Args:
        brokers: Rows of ``brokers.sql``, in the order of the tracks.
        outages: Rows of ``outages.sql``; those of other brokers are ignored.
    """
    bars = {row["replica"]: [span(window, row["begin_ms"], row["end_ms"], drawing.UP)] for row in brokers}
    shown = [row for row in outages if row["scope"] == "broker" and row["replica"] in bars]
    for row in sorted(shown, key=lambda row: row["begin_ms"]):
        colour = drawing.colour_of(row["cause"])
        bar = titled_span(window, row["begin_ms"], row["end_ms"], colour, row["cause"], is_pale=row["for_good"])
        bars[row["replica"]].append(bar)
    has_clusters = len({row["cluster"] for row in brokers}) > 1
    tracks = [_track(row, bars[row["replica"]], with_cluster=has_clusters) for row in brokers]
    return Tracks("up and down", tracks, time_labels(window), drawing.down_legend(row["cause"] for row in shown))


def titled_span(
    window: Window, begin_ms: int, end_ms: int | None, colour: str, text: str, *, is_pale: bool = False
) -> Bar:
    """Return a bar whose tooltip has its start, ``text`` and its duration.

    Args:
        end_ms: End, epoch milliseconds; None for the end of the period.
        is_pale: Whether the absence was intended: the broker unregistered and did not come back.
    """
    until_ms = window.until_ms if end_ms is None else end_ms
    title = f"{instant(begin_ms)}: {text}, {duration(until_ms - begin_ms)}"
    return span(window, begin_ms, until_ms, colour, title, is_pale=is_pale)


def _track(row: Row, bars: Sequence[Bar], *, with_cluster: bool) -> Track:
    names = [row["cluster"]] * with_cluster + [row["broker_name"], row["broker_addr"]]
    broker_id = [] if row["broker_id"] is None else [f"[{row['broker_id']}]"]
    earlier = [f"(+{len(row['earlier_addrs'])} before)"] if row["earlier_addrs"] else []
    label = cut(" ".join([*names, *broker_id, *earlier]))
    note = "" if row["availability"] is None else percent(row["availability"])
    down = f"down {duration(row['down_ms'])} in {row['interruptions']} interruptions"
    return Track(label, note, f"{label}: {down}", bars)
