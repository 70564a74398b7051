"""The picture of a topic: which broker was in its route when and with which permissions, and the queues there were."""

from pathlib import Path
from typing import Any, Final

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from namesrv_stream.history.picture import (
    LANE_IN,
    MOST_LANES,
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
from namesrv_stream.history.topic_changes import Offer, TopicStory, queues_text, totals_of
from namesrv_stream.route.model import PERM_READ, PERM_WRITE

_QUEUES_IN: Final = 2.3
_FRAME_IN: Final = 1.1

_COLOUR_OF_PERM: Final = {
    PERM_READ | PERM_WRITE: ("read and write", "#4c9f70"),
    PERM_READ: ("read only", "#d4a72c"),
    PERM_WRITE: ("write only", "#4a79b8"),
    0: ("neither", "#7f8c8d"),
}


def plot_topic(story: TopicStory, path: Path) -> None:
    """Write it.

    Raises:
        ConfigError: The file cannot be written.
    """
    every = _lanes(story)
    kept = {lane.label for lane in sorted(every, key=lambda lane: -len(lane.bars))[:MOST_LANES]}
    lanes = [lane for lane in every if lane.label in kept]
    lanes_in = LANE_IN * max(1, len(lanes)) + _FRAME_IN
    figure = Figure(figsize=(WIDTH_IN, lanes_in + _QUEUES_IN), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[lanes_in, _QUEUES_IN])
    draw_lanes(upper, lanes, story.since_ms, story.until_ms)
    time_axis(upper, story.since_ms, story.until_ms, is_labelled=False)
    some = "" if len(lanes) == len(every) else f"; {len(lanes)} of {len(every)} brokers"
    heading(upper, f"route of {story.topic}: {len(story.changes)} changes{some}")
    drawn = {bar.colour for lane in lanes for bar in lane.bars}
    legend(upper, patches(entry for entry in _COLOUR_OF_PERM.values() if entry[1] in drawn))
    _draw_queues(lower, story)
    save(figure, path)


def _lanes(story: TopicStory) -> list[Lane]:
    begun = {name: (story.since_ms, offer) for name, offer in story.first.items() if offer.serves}
    bars: dict[str, list[Bar]] = {name: [] for name in begun}
    for change in story.changes:
        for part in change.offers:
            own = bars.setdefault(part.broker_name, [])
            if part.broker_name in begun:
                own.append(_bar(*begun.pop(part.broker_name), change.at_ms))
            if part.after is not None and part.after.serves:
                begun[part.broker_name] = (change.at_ms, part.after)
    for name, (begin_ms, offer) in begun.items():
        bars[name].append(_bar(begin_ms, offer, story.until_ms))
    return [Lane(name, bars[name]) for name in sorted(bars)]


def _bar(begin_ms: int, offer: Offer, end_ms: int) -> Bar:
    perm = offer.queues.perm if offer.queues is not None else 0
    _, colour = _COLOUR_OF_PERM[perm & (PERM_READ | PERM_WRITE)]
    return Bar(begin_ms, end_ms, colour, queues_text(offer.queues))


def _draw_queues(axes: Any, story: TopicStory) -> None:
    begin = totals_of(story.first.values())
    times, written, read = [story.since_ms], [begin.write_queues], [begin.read_queues]
    for change in story.changes:
        times.append(change.at_ms)
        written.append(change.totals.write_queues)
        read.append(change.totals.read_queues)
    times.append(story.until_ms)
    at = [days(t) for t in times]
    # The wider one is seen beside the other where they are equal.
    handles = axes.step(
        at, [*read, read[-1]], where="post", color="#d4a72c", linewidth=3, alpha=0.6, label="read queues"
    )
    handles += axes.step(
        at, [*written, written[-1]], where="post", color="#3d8b60", linewidth=1.3, label="write queues"
    )
    causes: dict[str, Any] = {}
    for change in story.changes:
        cause = change.offers[0].reason.cause
        line = axes.axvline(days(change.at_ms), color=_cause_colour(cause), linewidth=1.0, alpha=0.7, zorder=0)
        causes.setdefault(cause, line).set_label(cause)
    time_axis(axes, story.since_ms, story.until_ms)
    heading(axes, "queues")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color="#e4e4e0", linewidth=0.6)
    legend(axes, [*handles, *causes.values()])


def _cause_colour(cause: str) -> str:
    """Causes for which brokers go are as in the swim lanes."""
    return "#4c9f70" if cause in ("registered", "returned") else colour_of(cause)
