"""The plots of ``history --plot``: when brokers were up, how long they were not heard, how a topic's route changed."""

from collections.abc import Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Final

from namesrv_stream.errors import NotInHistory
from namesrv_stream.history.broker_tracks import broker_tracks, titled_span
from namesrv_stream.history.database import Row
from namesrv_stream.history.drawing import colours
from namesrv_stream.history.drawing.axes import scale, time_labels
from namesrv_stream.history.drawing.pages import cut, write_plot
from namesrv_stream.history.drawing.shapes import Bar, Chart, Line, Track, Tracks, span, x_of
from namesrv_stream.history.extent import Window
from namesrv_stream.history.first_figures import no_figures_text
from namesrv_stream.history.past import Past
from namesrv_stream.history.topic_changes import TopicHistory, queues_text, totals_of
from namesrv_stream.history.topic_outages import OfferInterval, offer_intervals
from namesrv_stream.instants import duration, instant
from namesrv_stream.route.changes import Cause
from namesrv_stream.route.model import PERM_READ, PERM_WRITE
from namesrv_stream.settings import Settings
from namesrv_stream.text_table import counted

#: A plot with more tracks could not be read.
_MOST_TRACKS: Final = 60
_MOST_CURVES_NAMED: Final = 8
#: A curve with more points would not show more.
_MOST_POINTS: Final = 1_500
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
    """Write the tracks of all brokers, or of a cluster's; the period is set.

    Raises:
        NotInHistory: There was none.
        ConfigError: The file cannot be written.
    """
    tracks, count = _tracks(past, window)
    of = "" if len(tracks.tracks) == count else f"{len(tracks.tracks)} of "
    where = "" if cluster is None else f" of {cluster}"
    write_plot(path, f"{of}{counted(count, 'broker')}{where}", [tracks])


def plot_broker(past: Past, settings: Settings, broker_name: str, window: Window, path: Path) -> None:
    """Write the tracks of a broker name's replicas, and below them their heartbeat gaps; the period is set.

    Raises:
        NotInHistory: There was no such broker.
        ConfigError: The file cannot be written.
    """
    tracks, _ = _tracks(past, window)
    default_ms = past.default_timeouts(settings, window)["timeout_ms"][-1].as_py()
    sessions = past.rows("period_sessions")
    timeouts = sorted({row["timeout_ms"] or default_ms for row in sessions})
    step_ms = _MINUTE_MS * max(1, (window.until_ms - window.since_ms) // _MINUTE_MS // _MOST_POINTS)
    span_ms = {"since_ms": window.since_ms, "until_ms": window.until_ms}
    gaps = past.rows("gaps", broker_name=broker_name, step_ms=step_ms, **span_ms)
    if gaps:
        counted_ms = min(window.until_ms, max(row["at_ms"] for row in gaps) + step_ms)
        title = f"longest gap between heartbeats, counted to {instant(counted_ms)}"
    else:
        first_ms = max(window.since_ms, min(row["up_ms"] for row in sessions))
        title = no_figures_text(settings, first_ms, window.until_ms)
    absences = [bar for track in tracks.tracks for bar in track.bars if bar.colour != colours.UP]
    shades = [Bar(bar.x, 0, bar.width, 100, bar.colour, is_pale=True) for bar in absences]
    write_plot(path, f"broker {broker_name}", [tracks, _gap_chart(title, gaps, shades, timeouts, window, step_ms)])


def plot_topic(history: TopicHistory, path: Path) -> None:
    """Write which broker name was in the route of a topic when, and how many queues there were.

    Raises:
        ConfigError: The file cannot be written.
    """
    window = history.window
    intervals = offer_intervals(history)
    by_name = groupby(intervals, key=lambda interval: interval.broker_name)
    every = [_offer_track(name, list(of), window) for name, of in by_name]
    most_moved = sorted(every, key=lambda track: -len(track.bars))[:_MOST_TRACKS]
    tracks = [track for track in every if track in most_moved]
    some = "" if len(tracks) == len(every) else f"; {len(tracks)} of {len(every)} brokers"
    drawn = {bar.colour for track in tracks for bar in track.bars}
    causes = colours.in_order(i.reason.cause for i in intervals if i.offer is None and i.reason is not None)
    legend = [entry for entry in _COLOUR_OF_PERM.values() if entry[1] in drawn]
    legend += [(f"gone: {cause}", colours.colour_of(cause)) for cause in causes]
    title = f"route of {history.topic}: {len(history.changes)} changes{some}"
    upper = Tracks("brokers in the route", tracks, time_labels(window), legend)
    write_plot(path, title, [upper, _queue_chart(history)])


def _tracks(past: Past, window: Window) -> tuple[Tracks, int]:
    """Of the brokers, where there are too many of those that went down most often; and how many there are.

    Raises:
        NotInHistory: There was none.
    """
    brokers = past.rows("brokers", objective=None)
    if not brokers:
        raise NotInHistory("no broker was up in that time: there is nothing to draw")
    most_moved = sorted(brokers, key=lambda row: -row["downs"])[:_MOST_TRACKS]
    shown = sorted(most_moved, key=lambda row: row["replica"])
    return broker_tracks(shown, past.rows("outages"), window), len(brokers)


def _gap_chart(
    title: str, gaps: Sequence[Row], shades: Sequence[Bar], timeouts: Sequence[int], window: Window, step_ms: int
) -> Chart:
    """Gaps minute by minute, the timeouts as lines, and a shade where a broker was down."""
    # An outage may be thousands of timeouts long: such a gap is a mark at the top, with its length.
    highest_ms = timeouts[-1] * _TIMEOUTS_SHOWN
    within = [row["longest_ms"] for row in gaps if row["longest_ms"] <= highest_ms]
    axis = scale(max([*timeouts, *within]), is_duration=True)
    has_servers = len({row["server_id"] for row in gaps}) > 1
    names = list(dict.fromkeys((row["broker_addr"], row["server_id"]) for row in gaps))
    colour_of = {name: colours.LINES[1 + n % (len(colours.LINES) - 1)] for n, name in enumerate(names)}
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
        for (addr, server_id), colour in list(colour_of.items())[:_MOST_CURVES_NAMED]
    ]
    for timeout_ms in timeouts:
        height = 100 - axis.height(timeout_ms)
        lines.append(Line([(0, height), (100, height)], _TIMEOUT, is_dashed=True))
        legend.append((f"timeout {timeout_ms / 1000:g} s", _TIMEOUT))
    return Chart(title, title, bars, lines, time_labels(window), axis.labels(), legend)


def _offer_track(name: str, intervals: Sequence[OfferInterval], window: Window) -> Track:
    """The queues of a broker name in the route, and when it was out of the route."""
    bars = []
    for i in intervals:
        if i.offer is not None and i.offer.queues is not None:
            queues = i.offer.queues
            _, colour = _COLOUR_OF_PERM[queues.perm & (PERM_READ | PERM_WRITE)]
            bars.append(titled_span(window, i.begin_ms, i.end_ms, colour, queues_text(queues)))
        elif i.reason is not None:
            cause = i.reason.cause
            is_pale = i.end_ms is None and cause == Cause.UNREGISTERED
            bars.append(titled_span(window, i.begin_ms, i.end_ms, colours.colour_of(cause), cause, is_pale=is_pale))
    last = intervals[-1].offer
    return Track(cut(name), "" if last is None else queues_text(last.queues), cut(name), bars)


def _queue_chart(history: TopicHistory) -> Chart:
    """Queues over time, and a mark at the top for each change, in the colour of its cause."""
    window = history.window
    totals = [totals_of(history.first.values()), *(change.totals for change in history.changes)]
    times = [window.since_ms, *(change.at_ms for change in history.changes), window.until_ms]
    axis = scale(max(max(total.read_queues, total.write_queues) for total in totals) or 1)
    lines = []
    for counts, colour in (
        ([total.read_queues for total in totals], _READ_QUEUES),
        ([total.write_queues for total in totals], colours.UP),
    ):
        steps = zip(counts, pairwise(times), strict=True)
        lines.append(Line([(x_of(window, at), 100 - axis.height(n)) for n, ends in steps for at in ends], colour))
    causes = [change.offers[0].reason.cause for change in history.changes]
    marks = [
        span(
            window,
            change.at_ms,
            change.at_ms,
            _colour_of_change(cause),
            f"{instant(change.at_ms)}: {cause}",
            height=_MARK_HEIGHT,
        )
        for change, cause in zip(history.changes, causes, strict=True)
    ]
    legend = [("read queues", _READ_QUEUES), ("write queues", colours.UP)]
    legend += [(cause, _colour_of_change(cause)) for cause in sorted(set(causes))]
    title = "queues; changes at the top"
    return Chart(title, title, marks, lines, time_labels(window), axis.labels(), legend)


def _colour_of_change(cause: str) -> str:
    """Causes for which brokers go down are as in the tracks."""
    return colours.colour_of(None if cause in _ARRIVALS else cause)
