"""The picture of a topic: which broker was in its route when and with which permissions, and the queues there were."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from matplotlib.ticker import MaxNLocator

from namesrv_stream.history.cause_colours import colour_of
from namesrv_stream.history.outages import Outage, Scope, topic_outages
from namesrv_stream.history.picture import (
    MOST_LANES,
    Bar,
    Lane,
    absence_patches,
    days,
    draw_lanes,
    heading,
    lanes_and_chart_figure,
    legend,
    patches,
    plain,
    save,
    time_axis,
)
from namesrv_stream.history.topic_changes import Offer, TopicStory, queues_text, totals_of
from namesrv_stream.route.changes import Cause
from namesrv_stream.route.model import PERM_READ, PERM_WRITE

_QUEUES_IN: Final = 2.3

_COLOUR_OF_PERM: Final = {
    PERM_READ | PERM_WRITE: ("read and write", "#4c9f70"),
    PERM_READ: ("read only", "#d4a72c"),
    PERM_WRITE: ("write only", "#5ba3a7"),
    0: ("neither", "#7f8c8d"),
}
_ARRIVALS: Final = (Cause.REGISTERED, Cause.RETURNED)


def plot_topic(story: TopicStory, path: Path) -> None:
    """Write it.

    Raises:
        ConfigError: The file cannot be written.
    """
    absences = [outage for outage in topic_outages(story) if outage.scope is Scope.BROKER_NAME]
    every = _lanes(story, absences)
    most_moved = sorted(every, key=lambda lane: -len(lane.bars))[:MOST_LANES]
    lanes = [lane for lane in every if lane in most_moved]
    figure, upper, lower = lanes_and_chart_figure(max(1, len(lanes)), _QUEUES_IN)
    draw_lanes(upper, lanes, story.since_ms, story.until_ms)
    time_axis(upper, story.since_ms, story.until_ms, is_labelled=False)
    some = "" if len(lanes) == len(every) else f"; {len(lanes)} of {len(every)} brokers"
    heading(upper, f"route of {plain(story.topic)}: {len(story.changes)} changes{some}")
    drawn = {bar.colour for lane in lanes for bar in lane.bars}
    perms = patches(entry for entry in _COLOUR_OF_PERM.values() if entry[1] in drawn)
    legend(upper, [*perms, *absence_patches(outage.cause for outage in absences)])
    _draw_queues(lower, story)
    save(figure, path)


def _lanes(story: TopicStory, absences: Sequence[Outage]) -> list[Lane]:
    begun = {name: (story.since_ms, offer) for name, offer in story.first.items() if offer.serves}
    bars: dict[str, list[Bar]] = {name: [] for name in begun}
    for change in story.changes:
        for part in change.offers:
            own = bars.setdefault(part.broker_name, [])
            before = begun.pop(part.broker_name, None)
            is_in = part.after is not None and part.after.serves
            if before is not None and is_in and part.after is not None and _looks_like(before[1], part.after):
                begun[part.broker_name] = before
                continue
            if before is not None:
                own.append(_bar(*before, change.at_ms))
            if is_in and part.after is not None:
                begun[part.broker_name] = (change.at_ms, part.after)
    for name, (begin_ms, offer) in begun.items():
        bars[name].append(_bar(begin_ms, offer, story.until_ms))
    for outage in absences:
        end_ms = story.until_ms if outage.end_ms is None else outage.end_ms
        bars[outage.name].append(Bar(outage.begin_ms, end_ms, colour_of(outage.cause), is_pale=outage.is_for_good))
    return [Lane(plain(name), bars[name]) for name in sorted(bars)]


def _looks_like(before: Offer, after: Offer) -> bool:
    """Whether a bar of the one may go on as one of the other: addresses are not in the picture."""
    return before.queues == after.queues


def _bar(begin_ms: int, offer: Offer, end_ms: int) -> Bar:
    perm = offer.queues.perm if offer.queues is not None else 0
    _, colour = _COLOUR_OF_PERM[perm & (PERM_READ | PERM_WRITE)]
    return Bar(begin_ms, end_ms, colour, queues_text(offer.queues))


def _draw_queues(axes: Any, story: TopicStory) -> None:
    """Queues over time, and a tick at the top for each change, in the colour of its cause."""
    totals = [totals_of(story.first.values()), *(change.totals for change in story.changes)]
    at = [days(at_ms) for at_ms in (story.since_ms, *(change.at_ms for change in story.changes), story.until_ms)]
    handles = []
    for label, counts, colour, width in (
        # The wider one is seen beside the other where they are equal.
        ("read queues", [total.read_queues for total in totals], "#d4a72c66", 4.0),
        ("write queues", [total.write_queues for total in totals], "#2d6b4a", 1.3),
    ):
        handles += axes.step(at, [*counts, counts[-1]], where="post", color=colour, linewidth=width, label=label)
    times_of: dict[str, list[float]] = {}
    for change in story.changes:
        times_of.setdefault(change.offers[0].reason.cause, []).append(days(change.at_ms))
    top = axes.get_xaxis_transform()
    for cause, times in sorted(times_of.items()):
        colour = _colour_of_change(cause)
        handles.append(axes.vlines(times, 0.93, 1.0, transform=top, colors=colour, linewidth=1.2, label=cause))
    time_axis(axes, story.since_ms, story.until_ms)
    heading(axes, "queues; changes at the top")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    most = max(max(total.read_queues, total.write_queues) for total in totals)
    axes.set_ylim(0, max(1, most) * 1.15)
    axes.grid(axis="y", color="#e4e4e0", linewidth=0.6)
    legend(axes, handles)


def _colour_of_change(cause: str) -> str:
    """Causes for which brokers go are as in the swim lanes."""
    return colour_of(None if cause in _ARRIVALS else cause)
